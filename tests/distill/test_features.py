"""Features see what they are named for, and nothing that comes later."""

from __future__ import annotations

import numpy as np
import pytest

from distill.features.algebra import relations
from distill.features.steps import NAMES, extract, fingerprint
from distill.students.linear import char_grams, word_grams, words
from tests.effort import calls, times_as_long

PROBLEM = "A shop sells 12 apples for $3. How much do 2 dozen apples and 5 pears at $4 each cost?"
STEPS = [
    "Step 1: 2 dozen apples are 24 apples, which is 24 / 12 = 2 times $3, so $6.",
    "Step 2: The pears cost 5 * 4 = 21 dollars.",
    "However, let $x$ be the total: $x = 6 + 20 = 26$.",
    "The answer is \\boxed{\\frac{52}{2}} = 26, not 7391.",
]


def feature(name: str, problem: str = PROBLEM, steps: list[str] | None = None) -> list[float]:
    values: list[float] = extract(problem, steps or STEPS)[:, NAMES.index(name)].tolist()
    return values


def test_there_is_one_finite_number_per_name() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert extract(PROBLEM, STEPS).shape == (4, len(NAMES))
    strange = [
        "",
        " ",
        "=",
        "==",
        "\\frac{",
        "1/0 = 2",
        "9^9^9^9 = 1",
        "((((" * 300 + "= 1",
        "\ud800",
        "٣ + ٤ = ٧",
        "1e999",
        "=" * 5000,
    ]
    assert np.isfinite(extract("", strange)).all()
    assert extract("p", []).shape == (0, len(NAMES))


def test_a_step_does_not_depend_on_what_follows() -> None:
    whole = extract(PROBLEM, STEPS)
    for length in range(1, len(STEPS)):
        assert (extract(PROBLEM, STEPS[:length]) == whole[:length]).all()


def test_arithmetic_is_checked() -> None:
    assert feature("false") == [0, 1, 0, 0]
    assert feature("refuted") == [0, 1, 0, 0]
    assert feature("refuted_before") == [0, 0, 1, 1]


def test_numbers_know_where_they_come_from() -> None:
    assert feature("nowhere")[3] == 1  # 7391; 52 is 2 * 26
    assert feature("nowhere")[0] == 0
    assert feature("previous_result_used") == [-1, 0, 0, 1]


def test_words_have_kinds_and_copies_are_seen() -> None:
    assert feature("says_doubt") == [0, 0, 1, 0]
    assert feature("doubt_before") == [0, 0, 0, 1]
    assert feature("nearest_earlier", steps=[STEPS[0], STEPS[0]])[1] == 1
    assert feature("new_pair_share", steps=[STEPS[0], STEPS[0]])[1] == 0


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("3 + 4 * 2 = 11", [True]),
        ("3 apples + 4 apples = 8 apples", [False]),
        ("20% of 50 = 10", [True]),
        ("5.625 x 3 = 16.875", [True]),
        ("\\frac{3}{4} = 0.75 = \\frac12", [True, False]),
        ("2(x + 3) = 2x + 6 = 2x + 5", [True, False]),
        ("x^2 - 1 = (x - 1)(x + 1)", [True]),
        ("\\sqrt{16} + 2^{3} = 12", [True]),
        ("a_{12} - a_{12} = 0", [True]),
        ("130,000 - 80,000 = $50,000", [True]),
        ("-3 * -4 = 12", [True]),
    ],
)
def test_relations_are_read(text: str, holds: list[bool]) -> None:
    found, unread = relations(text)
    assert unread == 0
    assert [all(abs(a - b) < 1e-9 for a, b in zip(r.left.values, r.right.values, strict=True)) for r in found] == holds


def test_equations_are_followed_from_step_to_step() -> None:
    steps = ["Let 2x + 3 = 11.", "Then 4x + 6 = 22.", "So 2x + 3 = 12.", "x = 4.", "x = 5."]
    assert feature("follows", steps=steps) == [0, 1, 0, 1, 0]  # x = 4 is the first equation, solved
    assert feature("no_longer_follows", steps=steps)[2] == 1
    assert feature("assigned", steps=steps)[3] == 1
    assert feature("reassigned", steps=steps)[4] == 1


@pytest.mark.parametrize(
    "hostile", ["9**9**9 = 1", "(" * 10_000 + "1" + ")" * 10_000 + " = 2", "7" * 1_000_000, "1 + " * 200_000 + "= 3"]
)
def test_hostile_steps_are_bounded(hostile: str) -> None:
    extract(hostile, ["1 + 1 = 2"])
    assert np.isfinite(extract("p", [hostile])).all()
    assert calls(lambda: extract("p", [hostile])) < 150_000  # 28,000 at most
    usual = "She has 12 apples and buys 3 * 4 = 12 more. Then 12 + 12 = 24. " * 100
    assert times_as_long(lambda: extract("p", [hostile]), lambda: extract("p", [usual]), enough=40) <= 40


def test_the_fingerprint_is_stable_and_tells_readings_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    from distill.features.text import Novelty

    before = fingerprint()
    assert fingerprint() == before
    step = Novelty.step
    monkeypatch.setattr(Novelty, "step", lambda self, read: (1.0 + step(self, read)[0], *step(self, read)[1:]))
    assert fingerprint() != before


def test_grams_are_counted_within_their_text() -> None:
    both = char_grams(["abab", "", "b"], (1, 2), 12, 0)
    assert both.sum(axis=1).ravel().tolist() == [[4 + 3, 0, 1]]
    apart = char_grams(["abab"], (1, 2), 12, 0)
    assert (both[0] != apart[0]).nnz == 0
    assert both[0].max() == 2  # a, b and ab twice, ba once
    assert (char_grams(["ab"], (2,), 12, 0) != char_grams(["ba"], (2,), 12, 0)).nnz == 2


def test_words_hide_which_number_it_is() -> None:
    assert words("We add 12.") == words("we add 57.")
    assert words("add") != words("and")
    assert word_grams([words("a b"), words("b a")], (1, 2), 14, 0).sum() == 6
