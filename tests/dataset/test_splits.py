"""Splits go by the problem alone: the same problem, however spelled, is on one side, and nothing moves when rows are added."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from critic_prm.data.hashing import check_shares, problem_key, split_of, unit
from critic_prm.datasets.splits import Splits
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


def placed(
    problems: Mapping[str, tuple[str, ...]], shares: tuple[float, float, float], seed: int
) -> tuple[Splits, Counter[Any]]:
    """The splits of problems with solutions of these classes, and how many problems of each class a split holds."""
    splits = Splits(shares, seed)
    for key, kinds in problems.items():
        for kind in kinds:
            splits.note(key, kind)
    splits.settle()
    return splits, Counter((splits.of(key), kind) for key, kinds in problems.items() for kind in set(kinds))


@pytest.mark.parametrize("shares", [(0.9, 0.05, 0.05), (0.6, 0.2, 0.2), (0.8, 0.2, 0.0)])
def test_every_split_of_a_small_set_holds_both_classes(shares: tuple[float, float, float]) -> None:
    for seed in range(30):
        problems: dict[str, tuple[str, ...]] = {
            problem_key(f"problem {n}"): ("erroneous",) if n < 4 else ("correct",) for n in range(25)
        }
        problems[problem_key("both")] = ("correct", "erroneous", "correct")
        splits, counts = placed(problems, shares, seed)
        for split, share in zip(("train", "dev", "test"), shares, strict=True):
            assert bool(counts[split, "erroneous"] and counts[split, "correct"]) == bool(share), (seed, split, counts)
        again, _ = placed(dict(reversed(list(problems.items()))), shares, seed)
        assert again.moved == splits.moved  # the order of the rows changes nothing


def test_what_cannot_be_in_every_split_goes_to_train_first_then_to_dev() -> None:
    for seed in range(30):
        rare = {problem_key(f"rare {n}"): ("erroneous",) for n in range(2)}
        problems = rare | {problem_key(f"problem {n}"): ("correct",) for n in range(20)}
        _, counts = placed(problems, (0.8, 0.1, 0.1), seed)
        assert (counts["train", "erroneous"], counts["dev", "erroneous"], counts["test", "erroneous"]) == (1, 1, 0)
        assert all(counts[split, "correct"] for split in ("train", "dev", "test"))


def test_large_sets_are_split_by_their_hash_alone() -> None:
    for seed in range(5):
        problems = {problem_key(f"problem {n}"): (("erroneous", "correct")[n % 2],) for n in range(600)}
        splits, _ = placed(problems, (0.9, 0.05, 0.05), seed)
        assert not splits.moved
        assert all(splits.of(key) == split_of(key, (0.9, 0.05, 0.05), seed) for key in problems)
    one_class, _ = placed({problem_key(f"problem {n}"): ("correct",) for n in range(30)}, (0.9, 0.05, 0.05), 0)
    assert not one_class.moved
