"""Splits go by the problem alone: the same problem, however spelled, is on one side, and nothing moves when rows are added."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from critic_prm.data.hashing import check_shares, problem_key, split_of, unit
from critic_prm.errors import UsageError


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("What is  3+5?", "what is 3+5 ?"),
        ("Eraser cost $1.24.", "Eraser cost $\\$1.24$."),
        ("Janet’s ducks", "Janet's ducks"),
        ("\\[ x^2 \\]", "$x^2$"),
        ("\\left( a \\right)", "(a)"),
        ("ﬁve", "five"),
    ],
)
def test_spellings_of_one_problem_share_a_key(one: str, other: str) -> None:
    assert problem_key(one) == problem_key(other)


@pytest.mark.parametrize(("one", "other"), [("Close: ( ( ) <", "Close: ( < [ )"), ("3+5", "3+6"), ("+", "-")])
def test_different_problems_have_different_keys(one: str, other: str) -> None:
    assert problem_key(one) != problem_key(other)


def test_shares_are_met_and_nothing_depends_on_what_else_there_is() -> None:
    keys = [problem_key(f"problem {i}") for i in range(4000)]
    counts = Counter(split_of(key, (0.8, 0.1, 0.1), 7) for key in keys)
    assert counts["train"] == pytest.approx(3200, abs=80)
    assert counts["dev"] == pytest.approx(400, abs=60)
    assert [split_of(key, (0.8, 0.1, 0.1), 7) for key in reversed(keys)] == [split_of(k, (0.8, 0.1, 0.1), 7) for k in keys][
        ::-1
    ]
    assert any(split_of(key, (0.8, 0.1, 0.1), 8) != split_of(key, (0.8, 0.1, 0.1), 7) for key in keys)


def test_a_larger_train_share_only_takes_from_the_others() -> None:
    keys = [problem_key(f"problem {i}") for i in range(500)]
    small = {key for key in keys if split_of(key, (0.8, 0.1, 0.1), 0) == "train"}
    assert small < {key for key in keys if split_of(key, (0.9, 0.05, 0.05), 0) == "train"}


def test_chance_is_the_same_on_every_machine() -> None:
    assert unit("split", 0, "x") == pytest.approx(0.18685719292836112, abs=1e-12)


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.9, 0.2, 0.1), (0.0, 0.5, 0.5), (1.2, -0.1, -0.1)])
def test_impossible_shares_are_refused(shares: tuple[float, ...]) -> None:
    with pytest.raises(UsageError, match="sum to 1"):
        check_shares(shares)
    check_shares((1.0, 0.0, 0.0))


def test_real_sources_share_problems_that_plain_text_misses(shared_data: Path) -> None:
    def problems(name: str) -> set[str]:
        with (shared_data / "open" / f"{name}.jsonl").open() as rows:
            return {json.loads(row)["problem"] for row in rows}

    benchmark = problems("processbench_math") | problems("processbench_gsm8k")
    keys = {problem_key(p) for p in benchmark}
    shared = {p for p in problems("prmbench_p1") if problem_key(p) in keys}
    assert len(shared) > 1.5 * len(problems("prmbench_p1") & benchmark)
    dyck = problems("bbm_dyck_languages")
    assert len({problem_key(p) for p in dyck}) > 0.85 * len(dyck)
    groups = defaultdict(set)
    for p in benchmark:
        groups[problem_key(p)].add(p)
    assert max(map(len, groups.values())) <= 3
