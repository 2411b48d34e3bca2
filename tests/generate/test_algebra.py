"""The algebra family: a step is right as long as its equation has the root of the problem's, which two evaluations give."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest

from tests.families import trajectories_of, unnumbered

MATH = r"(?:[-\d()+/ ]|\\frac\{[^{}]*\}\{\d+\}|(?<![A-Za-z])[a-z](?![A-Za-z]))+"
EQUATION = re.compile(f"{MATH}={MATH}")


def equation(text: str) -> str:
    """The one equation of a text, as Python writes it."""
    text = unnumbered(text)
    text = text.replace("$", "")
    (found,) = EQUATION.findall(text)
    found = re.sub(r"\\frac\{([^{}]*)\}\{([^{}]*)\}", r"(\1)/(\2)", found)
    return re.sub(r"(?<=[\d)])(?=[a-z(])", "*", found.strip())


def root(text: str) -> float:
    """Of a linear equation: with the imaginary unit for the unknown, each side's value is its constant and its coefficient."""
    left, right = (complex(eval(re.sub(r"\b[a-z]\b", "1j", side))) for side in text.split("="))
    return (right.real - left.real) / (left.imag - right.imag)


def test_every_label_is_confirmed_by_the_roots_of_the_equations() -> None:
    for t in trajectories_of("algebra"):
        gold, *roots = (root(equation(text)) for text in (t.problem, *t.texts))
        assert float(Fraction(t.gold_answer or "")) == pytest.approx(gold)
        wrong = [index for index, found in enumerate(roots) if found != pytest.approx(gold)]
        assert (wrong[0] if wrong else -1) == t.label, (t.problem, t.texts)
        if wrong:
            assert wrong == list(range(wrong[0], len(roots)))
            assert roots[wrong[0] :] == pytest.approx([roots[-1]] * len(wrong)), (
                "after the error each step follows from the last"
            )
        assert float(Fraction(t.final_answer or "")) == pytest.approx(roots[-1])


def test_an_equation_is_read_as_it_is_meant() -> None:
    assert equation("(2) Multiplying out, -3b + 4 = 2(b - 1)/5.") == "-3*b + 4 = 2*(b - 1)/5"
    assert equation("For which $t$ does $\\frac{-4t + 1}{2} = -t$ hold?") == "(-4*t + 1)/(2) = -t"
    assert root("2*(x - 3) = -x/2 + 4") == 4
