"""The arithmetic family, checked by a reader of its English that knows nothing of how it is made."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from fractions import Fraction

import pytest

from critic_prm.data.trajectory import Trajectory
from critic_prm.generate.families.arithmetic import KINDS
from critic_prm.generate.family import generate_family
from tests.families import trajectories_of, unnumbered

VISIBLE = ("slip", "dropped-term")
"""Error kinds that show as a false equation."""
NUMBER = r"(\d+(?:\.\d+)?)"
Read = Callable[[Fraction, list[Fraction]], list[Fraction]]

# what a sentence about a stock does to it: the results of its calculations, the last one being the new stock
STOCK: dict[str, Read] = {
    rf"{NUMBER} more .*(from a friend|arrive|are bought)|(buys|wins|brings) {NUMBER} more": lambda v, n: [v + n[0]],
    rf"(loses|sells|gives) {NUMBER} (?!.*each of)(?!.*%)|{NUMBER} .*(taken away|are sold|damaged)": lambda v, n: [v - n[0]],
    rf"{NUMBER} (packs|bags|loads|suppliers)\b.*each": lambda v, n: [n[0] * n[1], v + n[0] * n[1]],
    rf"{NUMBER} (customers|vans)\b.*each": lambda v, n: [n[0] * n[1], v - n[0] * n[1]],
    rf"each of {NUMBER} (friends|boxes)": lambda v, n: [n[0] * n[1], v - n[0] * n[1]],
    rf"equally among {NUMBER}": lambda v, n: [v / n[0]],
    rf"{NUMBER} times": lambda v, n: [v * n[0]],
    rf"{NUMBER}% of the": lambda v, n: [v * n[0] / 100, v - v * n[0] / 100],
    rf"(by {NUMBER}%|{NUMBER}% higher)": lambda v, n: [v * n[0] / 100, v + v * n[0] / 100],
    r"[Hh]alf of": lambda v, n: [v / 2],
}  # fmt: skip
ORDER = (4, 7, 8, 6, 5, 2, 3, 9, 0, 1)  # the more telling words first


def numbers(text: str) -> list[Fraction]:
    return [Fraction(found) for found in re.findall(r"\d+(?:\.\d+)?", text.replace(",", ""))]


def read_stock(first: str, *events: str) -> list[Fraction]:
    """The results along the way, the start in front."""
    found = numbers(first)[:1]
    table = list(STOCK.items())
    for event in events:
        read = next(table[i][1] for i in ORDER if re.search(table[i][0], event))
        found += read(found[-1], numbers(event))
    return found


def read_shop(first: str, *rest: str) -> list[Fraction]:
    goods = [Fraction(n) * Fraction(p) for n, p in re.findall(r"(\d+) [a-z ]+ at \$([\d.]*\d)", first)]
    found = [*goods, sum(goods, Fraction(0))]
    for line in rest:
        (amount,) = numbers(line)
        if "%" in line:
            found += [found[-1] * amount / 100, found[-1] - found[-1] * amount / 100]
        elif "elivery" in line:
            found.append(found[-1] + amount)
        else:
            found.append(amount - found[-1])
    return found


def read_compare(question: str, first: str, *rest: str) -> list[Fraction]:
    held = {first.split()[0]: numbers(first)[0]}
    for line in rest:
        who, other, amount = line.split()[0], line.split()[-1].rstrip("."), (numbers(line) or [Fraction(0)])[0]
        base = held[other]
        held[who] = (
            base + amount
            if "more" in line
            else base - amount
            if "fewer" in line
            else base / 2
            if "half" in line
            else base * amount
        )
    results = list(held.values())
    if "altogether" in question:
        return [*results[1:], sum(results, Fraction(0))]
    more, less = re.findall(r"does (\w+) have than (\w+)", question)[0]
    return [*results[1:], held[more] - held[less]]


def read_machine(*lines: str) -> list[Fraction]:
    rate, hours, share, *rest = numbers(" ".join(lines))
    made = rate * hours
    found = [made, made * share / 100, made - made * share / 100]
    if rest:
        found.append(found[-1] / rest[0])
    if rest[1:]:
        found.append(found[-1] * rest[1])
    if rest[2:]:
        found += [hours * rest[2], found[-1] - hours * rest[2]]
    return found


def read_trip(first: str, *rest: str) -> list[Fraction]:
    legs = [Fraction(h) * Fraction(v) for h, v in re.findall(r"(\d+) hours at (\d+) km/h", first)]
    found = [*legs, sum(legs, Fraction(0))]
    for line in rest:
        (amount,) = numbers(line)
        found.append(amount - found[-1] if "long" in line else found[-1] / amount)
    return found


def read_savings(*lines: str) -> list[Fraction]:
    own, weekly, weeks, *rest = numbers(" ".join(lines))
    found = [weekly * weeks, own + weekly * weeks]
    if rest:
        found.append(found[-1] - rest[0])
    if rest[1:]:
        cost = rest[1] * rest[2]
        found += [cost, abs(found[-1] - cost)]
    return found


def read(problem: str) -> tuple[Fraction | None, list[Fraction]]:
    """What a solution states on the way, in order, and the number at the start where there is one."""
    *lines, question = re.split(r"(?<=[.?]) (?=[A-Z0-9H])", problem)
    assert question.endswith("?")
    if " saves $" in lines[0]:
        return None, read_savings(*lines)
    if " at $" in lines[0]:
        return None, read_shop(*lines)
    if "km/h" in lines[0]:
        return None, read_trip(*lines)
    if " an hour and runs" in lines[0]:
        return None, read_machine(*lines)
    if re.search(r"( than|as many as) [A-Z]\w+\.", lines[1] if len(lines) > 1 else ""):
        return numbers(lines[0])[0], read_compare(question, *lines)
    start, *results = read_stock(*lines)
    return start, results


def plain(text: str) -> str:
    """Without numbering, LaTeX, dollar signs and thousands separators."""
    text = unnumbered(text)
    text = text.replace("\\text{ of }", " of ").replace("\\times", "*").replace("\\", "").replace("$", "")
    return re.sub(r"(?<=[\d)]) x (?=[\d(])", " * ", text.replace("×", "*").replace("÷", "/").replace(",", ""))


EQUATION = re.compile(r"(\d[\d.]*%?\s+(?:of|[-+*/])\s+[\d. +*/-]*?\d)\s=\s(\d+(?:\.\d+)?)")


def value(expression: str) -> Fraction:
    """By Python's own reading of the expression."""
    text = re.sub(r"(\d[\d.]*)%\s+of", r"\1 / 100 *", expression)
    return Fraction(eval(re.sub(r"\d+(?:\.\d+)?", lambda m: f"Fraction('{m.group()}')", text), {"Fraction": Fraction}))


def first_error(trajectory: Trajectory) -> int:
    """The first step that states something other than what the problem's words come to."""
    start, expected = read(trajectory.problem)
    assert trajectory.gold_answer is not None
    assert Fraction(trajectory.gold_answer.lstrip("$")) == expected[-1], trajectory.problem
    due = list(expected)
    for index, step in enumerate(trajectory.steps):
        text = plain(step.text)
        found = EQUATION.findall(text)
        for left, right in found:
            if value(left) != Fraction(right) or Fraction(right) != due.pop(0):
                return index
        stated = numbers(EQUATION.split(text)[-1])
        if not found and len(due) == len(expected):
            if stated != [start]:
                return index
        elif not due and stated and stated[-1] != expected[-1]:
            return index
    assert not due, "a right solution states every result"
    return -1


def first_error_of_expression(trajectory: Trajectory) -> int:
    """The first step whose equation is false, or that leaves an expression of another value."""
    asked = re.search(r"[\d(][\d ()+*/-]*[\d)]", plain(trajectory.problem))
    assert asked is not None
    gold = value(asked.group())
    assert str(gold) == trajectory.gold_answer
    for index, step in enumerate(trajectory.steps):
        text = plain(step.text)
        ((left, right),) = EQUATION.findall(text)
        rest = re.findall(r"(?:^|\s)([\d(][\d ()+*/-]*)", text.split("= ", 1)[1].split(" ", 1)[1])
        if value(left) != Fraction(right) or value(rest[-1]) != gold:
            return index
    return -1


@pytest.fixture(scope="module")
def trajectories() -> list[Trajectory]:
    return trajectories_of("arithmetic")


def test_every_label_is_confirmed_by_a_reader_of_the_words(trajectories: list[Trajectory]) -> None:
    for trajectory in trajectories:
        check = first_error_of_expression if trajectory.meta["form"] == "expression" else first_error
        assert check(trajectory) == trajectory.label, (trajectory.problem, trajectory.texts)


def test_after_an_error_the_steps_go_on_consistently(trajectories: list[Trajectory]) -> None:
    for trajectory in trajectories:
        if trajectory.label == -1:
            continue
        assert trajectory.label is not None
        assert trajectory.final_answer != trajectory.gold_answer
        for text in trajectory.texts[trajectory.label + 1 :]:
            for left, right in EQUATION.findall(plain(text)):
                assert value(left) == Fraction(right), "an error is made once"
        last = numbers(plain(trajectory.texts[-1]))[-1]
        assert str(trajectory.final_answer).lstrip("$") in (str(last), f"{float(last):.2f}")


def test_visible_kinds_are_false_equations_and_the_others_are_not(trajectories: list[Trajectory]) -> None:
    kinds: Counter[str] = Counter()
    for trajectory in trajectories:
        if trajectory.label == -1:
            continue
        assert trajectory.label is not None
        equations = EQUATION.findall(plain(trajectory.texts[trajectory.label]))
        shows = any(value(left) != Fraction(right) for left, right in equations)
        assert shows == (trajectory.meta["error"] in VISIBLE), (trajectory.meta, trajectory.texts[trajectory.label])
        kinds[trajectory.meta["error"]] += 1
    assert set(kinds) == set(KINDS)
    assert 0.7 < sum(kinds[kind] for kind in VISIBLE) / kinds.total() < 0.85


def test_only_the_kinds_asked_for_are_planted() -> None:
    found = {t.meta["error"] for t in generate_family("arithmetic", 60, wrong=1, kinds={"operator": 1, "misread": 2})}
    assert found == {"operator", "misread"}
