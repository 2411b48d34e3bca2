"""The examples: every row is read, every gold answer is computed again, every written equation before an error is true."""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
from collections.abc import Callable
from datetime import date
from fractions import Fraction
from itertools import combinations, pairwise, permutations, product
from pathlib import Path

import pytest

from critic_prm.data.trajectory import Trajectory, trajectory_from_json, trajectory_to_json

FILE = Path(__file__).resolve().parents[1] / "examples" / "trajectories.jsonl"
ROWS = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
EXAMPLES = [trajectory_from_json(row, f"{FILE.name}:{number}") for number, row in enumerate(ROWS, 1)]


def test_every_row_is_read_and_written_back_as_it_is() -> None:
    assert [trajectory_to_json(example) for example in EXAMPLES] == ROWS
    assert len({example.id for example in EXAMPLES}) == len(EXAMPLES) >= 48


def test_right_and_wrong_are_balanced_and_varied() -> None:
    wrong = [example for example in EXAMPLES if example.label != -1]
    assert 0.4 < len(wrong) / len(EXAMPLES) < 0.6
    assert {example.label for example in wrong} >= {0, 1, 2, 3, 4}
    assert all(3 <= len(example.steps) <= 9 for example in EXAMPLES)
    assert len({example.meta["topic"] for example in EXAMPLES}) >= 12
    assert sum(bool(example.tools) for example in EXAMPLES) >= 8
    assert sum(example.final_answer == example.gold_answer for example in wrong) >= 4, "right answers by wrong reasoning"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.id)
def test_labels_and_answers_agree(example: Trajectory) -> None:
    assert example.label is not None
    assert example.gold_answer
    if example.label == -1:
        assert example.final_answer == example.gold_answer
        assert "note" not in example.meta
    else:
        assert example.meta["note"]
    for step in example.steps:
        assert step.text == step.text.strip() != ""
        assert step.observation is None or example.tools, "only an agent observes"


def test_solutions_of_one_problem_agree_on_its_answer() -> None:
    answers: dict[str, set[str | None]] = {}
    for example in EXAMPLES:
        if not example.tools:
            answers.setdefault(example.problem, set()).add(example.gold_answer)
    assert all(len(golds) == 1 for golds in answers.values())


SUITS = [card // 13 for card in range(52)]
HANDS = list(combinations(SUITS, 3))
ROADS = {"AB": 4, "AC": 1, "BC": 2, "BD": 5, "CD": 8, "DE": 3}


def road(*towns: str) -> float:
    return sum(ROADS.get("".join(sorted(pair)), math.inf) for pair in pairwise(towns))


GOLD: dict[str, Callable[[], object]] = {
    "bakery-change": lambda: f"${50 - sum(2.40 for n in range(1, 8) if n % 3) - 2 * 4.75:.2f}",
    "library-books": lambda: 1240 - 1240 * 15 // 100 + 86,
    "fence-posts": lambda: f"${14 * len(range(0, 61, 5))}",
    "orchard-difference": lambda: f"{348 - (275 - 30)} kg",
    "ages-lena-tom": lambda: next(t for t in range(100) if 3 * t + 6 == 2 * (t + 6)),
    "price-up-down": lambda: f"${80 * 1.2 * 0.8:.2f}",
    "savings-compound": lambda: f"${2000 * 1.05**3:,.2f}",
    "radical-equation": lambda: f"x = {next(x for x in range(-9, 99) if 2 * x + 3 >= 0 and math.sqrt(2 * x + 3) == x)}",
    "log-equation": lambda: next(x for x in range(3, 99) if math.log2(x) + math.log2(x - 2) == 3),
    "two-numbers": lambda: next(a * (31 - a) for a in range(31) if a - (31 - a) == 7),
    "sequence-index": lambda: list(range(5, 300, 4)).index(201) + 1,
    "vertex-minimum": lambda: min(2 * x * x - 12 * x + 25 for x in range(-50, 50)),
    "three-suits": lambda: Fraction(sum(len(set(hand)) == 3 for hand in HANDS), len(HANDS)),
    "test-positive": lambda: f"{0.95 * 0.02 / (0.95 * 0.02 + 0.10 * 0.98):.3f}",
    "committee-complement": lambda: sum("w" in "".join(c) for c in combinations(["m"] * 5 + ["w"] * 4, 3)),
    "level-anagrams": lambda: len(set(permutations("LEVEL"))),
    "die-game": lambda: f"${sum(f if f % 2 == 0 else -3 for f in range(1, 7)) / 6:.2f}",
    "median-unsorted": lambda: sum(sorted([12, 3, 9, 7, 15, 4])[2:4]) // 2,
    "mean-of-classes": lambda: sum([70] * 20 + [80] * 30) // 50,
    "power-remainder": lambda: 7**100 % 13,
    "divisors-of-360": lambda: sum(360 % d == 0 == d % 6 for d in range(1, 361)),
    "crt-over-100": lambda: next(n for n in range(101, 999) if n % 3 == 2 and n % 5 == 3),
    "gcd-lcm-tiles": lambda: next(n for n in range(1, 999) if n % 12 == 0 == n % 18),
    "incircle-9-12": lambda: 9 * 12 // (9 + 12 + math.isqrt(9**2 + 12**2)),
    "model-park": lambda: 600 * 50**2 // 100**2,
    "clock-angle": lambda: abs(40 * 6 - (3 * 60 + 40) // 2),
    "nonagon-angle": lambda: next(n for n in range(3, 99) if (n - 2) * 180 == 140 * n),
    "derivative-chain": lambda: f"{(math.sin(3e-6) * math.exp(2e-6) + math.sin(3e-6) * math.exp(-2e-6)) / 2e-6:.0f}",
    "pool-filling": lambda: "{} hours {} minutes".format(*divmod(int(3 * 2 * 1.5 * 1000) // 12, 60)),
    "fuel-cost": lambda: f"${7.5 * 4.2 * 1.80:.2f}",
    "fahrenheit-rise": lambda: round((20 + 15) * 9 / 5 - 20 * 9 / 5),
    "train-catch-up": lambda: next(f"{m // 60}:{m % 60}" for m in range(631, 2000) if (m - 540) * 60 == (m - 630) * 90),
    "round-trip-speed": lambda: f"{60 // (30 // 15 + 30 // 30)} km/h",
    "painters": lambda: "{} hours {} minutes".format(*divmod(60 / (Fraction(1, 6) + Fraction(1, 4)), 60)),
    "acid-dilution": lambda: next(w for w in range(99) if Fraction(3, 10 + w) == Fraction(1, 5)),
    "braking-distance": lambda: f"{20 * 20 // (2 * 4)} m",
    "weekday-in-100-days": lambda: date.fromordinal(date(2025, 1, 1).toordinal() + 100).strftime("%A"),
    "binary-45": lambda: f"{45:b}",
    "race-order": lambda: next(
        p[1]
        for p in permutations(["Ana", "Ben", "Cal", "Dee"])
        if p.index("Ana") < p.index("Ben") == p.index("Cal") + 1 and p[3] == "Dee"
    ),
    "three-unknowns": lambda: next(
        v for v in product(range(13), repeat=3) if (sum(v), 2 * v[0] - v[1] + v[2], v[0] + 2 * v[1] - v[2]) == (12, 5, 9)
    ),
    "roads-dijkstra": lambda: f"{min(road('A', *p[:k], 'E') for p in permutations('BCD') for k in range(4))} km",
    "cinema-profit": lambda: f"${90 * 9 + 30 * 9 // 2 - 350}",
    "altitude-13-14-15": lambda: 2 * math.isqrt(21 * 8 * 7 * 6) // 14,
    "agent-sales-total": lambda: f"${18250 + 1694000 / 100 + 20115.5:,.2f}",
    "agent-exchange": lambda: f"{330 / 1.10:.0f} euros",
}


@pytest.mark.parametrize("identity", GOLD)
def test_gold_answers_are_computed_again(identity: str) -> None:
    gold = next(example.gold_answer for example in EXAMPLES if example.id == identity)
    assert str(GOLD[identity]()) == gold


def test_the_inequality_has_the_solution_that_gold_says() -> None:
    for quarter in range(-80, 80):
        x = Fraction(quarter, 4)
        assert (x != -2 and (x - 1) / (x + 2) >= 2) == (-5 <= x < -2)


def test_the_integral_is_what_gold_says() -> None:
    midpoints = [(n + 0.5) / 10_000 for n in range(10_000)]
    assert sum(x * math.exp(-x) for x in midpoints) / 10_000 == pytest.approx(1 - 2 / math.e, abs=1e-8)


def test_a_knave_is_all_that_c_can_be() -> None:
    worlds = [(a, b, c) for a, b, c in product([True, False], repeat=3) if a == (not b) and b == (a == c)]
    assert {c for _, _, c in worlds} == {False}
    assert {a for a, _, _ in worlds} == {True, False}, "so deciding what A is, is not justified"


def test_programs_print_what_gold_says() -> None:
    asked = [example for example in EXAMPLES if example.meta["topic"] == "code" and "print(" in example.problem]
    assert len(asked) >= 6
    for example in asked:
        block = re.search(r"```python\n(.*)\n```", example.problem, re.DOTALL)
        inline = re.search(r"`(print\(.*\))`", example.problem)
        code = block or inline
        assert code is not None
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code.group(1), {})
        assert printed.getvalue().strip() == example.gold_answer


def test_the_lower_bound_of_the_examples_is_mended_by_its_gold_line() -> None:
    def lower_bound(a: list[int], x: int) -> int:
        lo, hi = 0, len(a)
        while lo < hi:
            mid = (lo + hi) // 2
            if a[mid] < x:
                lo = mid + 1
            else:
                hi = mid
        return lo

    for size in range(5):
        a = list(range(0, 2 * size, 2))
        for x in range(-1, 10):
            assert lower_bound(a, x) == next((i for i, v in enumerate(a) if v >= x), len(a))


EQUATION = re.compile(
    r"(?:^|[:,;.] |[$]|[a-z]{2} )(\$?[\d(][\d,. $()/*+^-]*?) ?= ?\$?(-?\d[\d,]*(?:\.\d+)?)(?!\d|\w|,\d|\.\d| ?[-+*/^%] ?[\d(])",
    re.MULTILINE,
)


def equations(text: str) -> list[tuple[str, str]]:
    """The plain equations of a step: numbers and operators, an equals sign, a number."""
    plain = re.sub(r"\\[a-z]+(\{[^{}]*\}|\d+)*", "x", text.replace("\\cdot", "*"))
    return [(left, right) for left, right in EQUATION.findall(plain) if re.search(r"\d\s*[-+*/^]\s*[\d($]", left)]


def test_written_equations_before_the_first_error_are_true() -> None:
    checked = 0
    for example in EXAMPLES:
        assert example.label is not None
        for text in example.texts[: example.label if example.label >= 0 else None]:
            for left, right in equations(text):
                value = eval(re.sub(r"[$,]", "", left).replace("^", "**"))
                assert value == pytest.approx(float(right.replace(",", ""))), (example.id, left, right)
                checked += 1
    assert checked >= 60
