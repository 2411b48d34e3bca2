"""What is written as arithmetic is found and evaluated; what is not is left alone; nothing hostile costs time."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from critic_prm.arithmetic import Claim, Notes, check
from critic_prm.arithmetic.claims import MAX_TEXT
from tests.effort import calls, times_as_long


def findings(text: str, problem: str = "") -> list[str]:
    return [claim.finding for claim in check(text, problem) if claim.finding != "unread"]


TRUE = [
    "7 - 7 * 4 = -21",
    "So 7 - -7 * 4 = 35.",
    "1/2 + 1/3 = 5/6",
    "She pays 3 * $4.50 = $13.50 in total.",
    "That makes 1,200 + 34,000 = 35,200 people.",
    r"$\frac{1}{2} + \dfrac{1}{4} = \frac34$",
    r"\[ 3 \times 4 \cdot 5 \div 2 = 30 \]",
    r"$\left(3 + 4\right)^2 = \boxed{49}$",
    r"$\sqrt{16} + \sqrt[3]{27} = 7$",
    r"$\sqrt{12} = 2\sqrt{3}$",
    r"$2^{10} = 1024$ and $2^{-2} = \frac{1}{4}$",
    r"$\binom{5}{2} = 10$ and $5! = 120$",
    "3 × 4 ÷ 2 − 1 = 5",
    "3² + ½ = 9.5",
    "He has <<3*4=12>>12 apples.",
    "2 + 3 = 5 = 10 / 2",
    "3 < 5 and 7 >= 7 and 2 != 3",
    r"3 \le 4 < 5 \neq 6",
    "22/7 ≈ 3.14 and 10/3 ≈ 3.33",
    "10 / 3 = 3.33",
    "10 / 3 = 3.34",
    "2 / 3 = 0.66",
    "100 / 3 = 33",
    "1/3 = 33%",
    "20% of 50 = 10",
    "25/100 * 100 = 25%",
    "5 kg + 3 kg = 8 kg",
    "5 hours * $3/hour = $15",
    "12 apples per box * 3 boxes = 36 apples",
    "220 (used at work) + 23 (remaining) - 80 (initial) = 163",
    "3 x 4 = 12",
    "The distance closes at 60 + 90 = 150 km/h.",
    "The distance is 20 * 5 = 100 m, and 3 m/s * 4 s = 12 m.",
    "Put in C = 15: 9/5 * 15 + 32 = 27 + 32 = 59",
    "1 1/2 + 2 1/2 = 4",
    r"$1\frac{1}{2} = \frac{3}{2}$ and $2\frac{1}{2} = 1$",
    "2(3+4) = 14",
    "6 times 7 equals 42",
    "3 plus 4 is equal to 7",
    "* 5 + 8 = 13",
    "- 5 + 8 = 13",
    "(1) 91 - 36 = 55 and so on",
    "it is -5 + 8 = 3",
    "-3^2 = 9 and -3^2 = -9",
    "25 / 1/3 = 75",
    "6 / 2(3) = 1 and 6 / 2(3) = 9",
    "2x + 3x = 5x",
    "$(x+2)(x+3) = x^2 + 5x + 6$",
    "4 + 4\n= 8\n= 2^3",
    r"\begin{align*} 4 + 4 &= 8 \\ &= 2 \cdot 4 \end{align*}",
    "3 * 10^8 / 1.5 x 10^3 = 2 x 10^5",
    "1e3 = 1000",
    r"2.0 ms \* 1.25 = 2.5 ms and 31 / 3 = 10.33... and sqrt(16) + 8C2 = 32",
    "8! / [(8-2)!2!] = 28",
    "3.14 * 5^2 = 78.54",
    "2π * 3 = 18.85",
]


@pytest.mark.parametrize("text", TRUE)
def test_true_claims_hold(text: str) -> None:
    found = findings(text)
    assert found
    assert set(found) == {"true"}


FALSE = [
    ("So 7 - -7 * 4 = -21.", "7 - -7 * 4 is 35, the step says -21"),
    ("1/2 + 1/3 = 2/5", "1/2 + 1/3 is 5/6 (about 0.833333), the step says 2/5, which is 0.4"),
    ("She pays 3 * $4.50 = $14.50 in total.", "3 * $4.50 is 13.5, the step says 14.50"),
    (r"$\frac{1}{2} + \frac{1}{4} = \frac{2}{6}$", r"\frac{1}{2} + \frac{1}{4} is 0.75, the step says \frac{2}{6}"),
    ("There are 3 boxes * 5 apples = 16 apples.", "3 boxes * 5 is 15, the step says 16"),
    ("He has <<3*4=13>>13 apples.", "3*4 is 12, the step says 13"),
    ("2 + 3 = 5 = 5 * 2 = 10", "5 is 5, the step says 5 * 2, which is 10"),
    ("Clearly 3 * 5 < 14.", "3 * 5 < 14 does not hold: the left side is 15, the right side 14"),
    ("20% of 50 = 11", "20% of 50 is 10, the step says 11"),
    ("10 / 3 = 3.35", "10 / 3 is 10/3 (about 3.33333), the step says 3.35"),
    ("100 / 8 = 14", "100 / 8 is 12.5, the step says 14"),
    ("1 hour and 5 apples; 12 - 4 - 3 - 2 = 1 slice left", "12 - 4 - 3 - 2 is 3, the step says 1"),
    ("f(x) = 2(x + 3) = 2x + 5", "2(x + 3) = 2x + 5 holds for no value"),
    ("y = (x + 3)^2 = x^2 + 9", "(x + 3)^2 is not the same as x^2 + 9"),
    (r"$\sqrt{12} = 3\sqrt{2}$", r"\sqrt{12} is about 3.4641, the step says 3\sqrt{2}, which is about 4.24264"),
    ("6 times 7 equals 43", "6 times 7 is 42, the step says 43"),
]


@pytest.mark.parametrize(("text", "critique"), FALSE)
def test_false_claims_say_what_was_computed(text: str, critique: str) -> None:
    false = [claim for claim in check(text) if claim.finding == "false"]
    assert len(false) == 1
    assert false[0].critique.startswith(critique)


LEFT_ALONE = [
    "",
    "There is nothing to add here.",
    "On 3/4/2020 at 10:30 we met; the score was 3:4 = 6:9 or so.",
    "Cost of 5 apples = 5 * 2 = 10",
    "Day 3 = 5 + 2",
    "2 hours = 120 minutes",
    "1/2 hour = 30 minutes",
    "4 quarters = 1 dollar",
    "so 3/4 = 15 apples, and 3/4 is equal to 15 apples",
    "f(5) is greater than or equal to 4, and 3 * 5 is greater than or equal to 4",
    "25 * 4 cents = $1",
    "x = 5 and y = 7",
    "x + 3 = 8",
    "a_1 = 3, a_{12} = 4, x2 = 5",
    "f(3) = 7, P(A) = 0.5, C(5, 2) = 10",
    r"$17 \equiv 5 \pmod{12}$ and 7 + 8 = 3 mod 12",
    r"$101_2 = 5$",
    r"1 + 2 + \cdots + 100 = 5050 and 1 + 3 + ... + 99 = 2500",
    "total_cost = price * 3 = 12",
    "if i == 3: x += 4",
    "revenue - 5 = 10",
    "Step 1: 3. Next = 4",
    "sin 4π = 0, log 100 = 2",
    "gcd(12, 18) = 6",
    "The interval (3, 4) = open",
    "x = 3 ± 2 = 5",
    "5!=6",
    "60 people - 10% = 54 people",
    "4/9ab = 7",
    "<b>3</b> href=5",
    "0 = 5 is a contradiction, so there is no solution.",
    "Suppose that 2 + 2 = 5.",
]


@pytest.mark.parametrize("text", LEFT_ALONE)
def test_what_is_no_false_arithmetic_is_left_alone(text: str) -> None:
    assert [claim for claim in check(text) if claim.finding == "false"] == []


def test_a_problem_in_another_base_takes_the_usual_meaning_away() -> None:
    assert findings("5 + 4 = 12", "Add 5 and 4 in base 7.") == ["unclear"]
    assert findings("5 + 4 = 12", "Add 5 and 4.") == ["false"]


def test_a_slip_that_the_same_chain_repairs_is_unclear() -> None:
    assert findings("-81 + 1 = (-80) + 1 = -80") == ["unclear", "unclear"]


def test_a_sign_that_may_be_the_mark_of_a_list_is_read_both_ways() -> None:
    assert findings("- 5 + 8 = 3") == ["unclear"]
    assert findings("- 5 + 8 = 14") == ["false"]


def test_spans_quote_the_claim() -> None:
    text = "First, nothing. Then 3 apples + 4 = 8 apples, and so on: 2 * 3 = 6."
    assert [text[slice(*claim.span)] for claim in check(text)] == ["3 apples + 4 = 8", "2 * 3 = 6"]


def test_values_are_exact() -> None:
    (claim,) = check("0.1 + 0.2 = 0.3")
    assert claim == Claim("true", "=", (0, 15), Fraction(3, 10), Fraction(3, 10))


def test_linear_equations_are_compared_from_step_to_step() -> None:
    notes = Notes()
    assert check("2x + 8 = 22", notes=notes)[0].finding == "unread"
    notes.step = 1
    assert check("so 2x = 14", notes=notes)[0].finding == "true"
    notes.step = 2
    (claim,) = check("so x = 8", notes=notes)
    assert claim.finding == "false"
    assert claim.critique == "2x = 14 gives x = 7, the step says x = 8"


def test_a_name_is_compared_with_what_it_was_a_line_before() -> None:
    assert findings("Total points = 22 + 19 + 43\nTotal points = 84") == ["true"]
    (claim,) = (c for c in check("Total points = 22 + 19 + 43\nTotal points = 94") if c.finding == "false")
    assert claim.critique == "Total points was 84, the step now says 94"
    assert findings("Total points = 22 + 19 + 43\nTotal assists = 94") == []


def test_equations_of_different_cases_are_not_compared() -> None:
    notes = Notes()
    check("x - 3 = 0", notes=notes)
    assert check("or x + 3 = 0", notes=notes)[0].finding == "unread"


def test_variables_keep_their_values_where_the_notes_say_so() -> None:
    notes = Notes(values={})
    check("A = (2 + 3) and B = (4 * 5)", notes=notes)
    (first, second) = check("the final equation is A - B = 5 - 20 = -15", notes=notes)
    assert (first.finding, second.finding) == ("true", "true")
    assert [c.finding for c in check("A + B = 26", notes=notes)] == ["false"]


def test_a_long_step_is_read_up_to_the_last_whole_sentence() -> None:
    filler = "Nothing is said here. " * 400
    assert findings("3 * 4 = 13. " + filler) == ["false"]
    assert findings(filler[:5985] + "3 * 4 = 12345 is said here") == []


MEGABYTE = 1_000_000
HOSTILE = {
    "power tower": "9**9**9 = 3",
    "caret tower": "9^9^9 = 3",
    "power in brackets": "2^(9^9) = 3",
    "factorials": "9!!!!!! = 3",
    "huge exponent": "1e9999999999 = 1",
    "nested brackets": "(" * 10_000 + "1" + ")" * 10_000 + " = 1",
    "nested within reach": "(" * 2_000 + "1" + ")" * 2_000 + " = 1",
    "nested roots": r"\sqrt{" * 900 + "1" + "}" * 900 + " = 1",
    "digits": "1" * MEGABYTE + " = 1",
    "open brackets": "(" * MEGABYTE + "= 1",
    "equals": "=" * MEGABYTE + "1",
    "chain": "1=" * MEGABYTE,
    "sum": "1+" * MEGABYTE + "1 = 3",
    "products": "9" * 50 + ("*" + "9" * 50) * 10_000 + " = 1",
    "fractions": r"\frac{" * MEGABYTE + "1 = 2",
    "sum of fractions": "1/3+" * MEGABYTE + "1 = 1",
    "signs": "-" * MEGABYTE + "1 = 1",
    "text commands": r"\text{" * 200_000 + "1 = 1",
    "words": "a b " * 250_000 + "1 = 1",
    "words and numbers": "5 apples and " * 100_000 + "1 = 1",
    "calculator marks": "<<1=1>>" * 200_000,
    "open marks": "<<" * MEGABYTE + "1 = 1",
    "lines": "1\n=1" * 300_000,
    "dollars": "$" * MEGABYTE + "1 = 1",
    "variables": "x = 2x\n" * 100_000,
    "products of variables": "(x+1)" * 100_000 + " = (x+1)",
    "powers of variables": "x^99^9 = " * 10_000 + "1",
    "hyphens": "a-" * MEGABYTE + "1 = 1",
    "backslashes": "\\" * MEGABYTE + "1 = 1",
    "thousands": "1,000" + ",000" * MEGABYTE + " = 1",
    "commas": "1, " * MEGABYTE + "1 = 1",
    "second readings": "1%^2(1/2) = 3\n" * 10_000,
    "no relation": "equal 1 " * 200_000,
}


USUAL = ("She has 12 apples and buys 3 * 4 = 12 more. Then 12 + 12 = 24 and 24 / 2 = 12. " * 80)[:MAX_TEXT]


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_costs_little_more_than_the_longest_step_of_sums(text: str) -> None:
    """About 50,000 calls for `USUAL`; five times that, and four times as long, is the most that any hostile text takes."""

    def reading(text: str) -> Callable[[], object]:
        return lambda: check(text, notes=Notes(values={}))

    for size in (len(text), MAX_TEXT):  # beyond the limit, and all that is within it
        assert calls(reading(text[:size])) < 1_000_000
        assert times_as_long(reading(text[:size]), reading(USUAL), enough=20) <= 20
