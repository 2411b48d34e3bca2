"""Contract of every family: distinct problems, requested shares, balanced first errors, reproducible output, bounded cost."""

from __future__ import annotations

import json
from collections import Counter, deque
from itertools import islice
from math import sqrt
from pathlib import Path
from statistics import fmean, pvariance

import pytest

from critic_prm.data.trajectory import Trajectory, trajectory_from_json, trajectory_to_json
from critic_prm.errors import CriticPrmError, UsageError
from critic_prm.generate.family import family_names, generate_family, open_family, parse_kinds, parse_levels
from tests.command import invoke
from tests.effort import calls
from tests.families import COUNT, trajectories_of

FAMILIES = family_names()


@pytest.fixture(params=FAMILIES, scope="module")  # one family after the other: each is made once, by one worker
def many(request: pytest.FixtureRequest) -> tuple[str, list[Trajectory]]:
    """The name of a family and its trajectories."""
    return request.param, trajectories_of(request.param)


def test_the_requested_number_is_made(many: tuple[str, list[Trajectory]]) -> None:
    _, trajectories = many
    assert len(trajectories) == COUNT


@pytest.mark.parametrize("name", FAMILIES)
def test_a_trajectory_costs_some_thousand_calls(name: str) -> None:
    """5,500 at most when this was written; bench/families.py measures the time."""
    assert calls(lambda: deque(generate_family(name, 20, seed=1), maxlen=0)) < 20 * 25_000


def test_no_problem_and_no_id_occurs_twice(many: tuple[str, list[Trajectory]]) -> None:
    _, trajectories = many
    assert len({t.problem for t in trajectories}) == len({t.id for t in trajectories}) == len(trajectories)


def test_rows_are_native_and_their_parts_agree(many: tuple[str, list[Trajectory]]) -> None:
    name, trajectories = many
    for number, t in enumerate(trajectories):
        assert trajectory_from_json(json.loads(json.dumps(trajectory_to_json(t))), "row") == t
        assert t.meta["family"] == name
        assert 1 <= t.meta["difficulty"] <= 5
        assert all(text and text == text.strip() and "@" not in text and "  " not in text for text in t.texts), t.texts
        assert t.id == f"{name}-1-{number:06d}"
        if t.label == -1:
            assert t.final_answer == t.gold_answer
            assert "error" not in t.meta
        else:
            assert t.meta["error"] in open_family(name).KINDS


def test_half_of_the_solutions_are_correct(many: tuple[str, list[Trajectory]]) -> None:
    _, trajectories = many
    assert sum(t.label != -1 for t in trajectories) / len(trajectories) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_step_is_equally_often_the_first_error(name: str) -> None:
    by_length: dict[int, Counter[int]] = {}
    for t in generate_family(name, COUNT // 2, seed=2, wrong=1, difficulty=(2, 2)):
        assert t.label is not None
        by_length.setdefault(len(t.steps), Counter())[t.label] += 1
    frequent = {length: counts for length, counts in by_length.items() if counts.total() >= 20 * length}
    assert sum(counts.total() for counts in frequent.values()) > 0.6 * (COUNT // 2)
    for length, counts in frequent.items():
        mean = counts.total() / length
        most = min(0.5 * mean, 4 * sqrt(mean * (1 - 1 / length)))  # four standard errors of a count
        assert all(abs(counts[at] - mean) <= most for at in range(length)), (length, counts)


def test_right_and_wrong_are_of_one_kind(many: tuple[str, list[Trajectory]]) -> None:
    """Neither the level nor the length of the problem tells what the label is: the means differ by chance alone."""
    _, trajectories = many
    for measure in (lambda t: t.meta["difficulty"], lambda t: len(t.problem)):
        sides = [[measure(t) for t in trajectories if (t.label == -1) is side] for side in (True, False)]
        standard_error = sqrt(sum(pvariance(side) / len(side) for side in sides))
        assert fmean(sides[0]) == pytest.approx(fmean(sides[1]), abs=4 * standard_error)


def test_every_kind_of_error_and_every_level_occurs(many: tuple[str, list[Trajectory]]) -> None:
    name, trajectories = many
    assert {t.meta["error"] for t in trajectories if t.label != -1} == set(open_family(name).KINDS)
    assert Counter(t.meta["difficulty"] for t in trajectories).keys() == {1, 2, 3, 4, 5}
    by_level = [[t for t in trajectories if t.meta["difficulty"] == level] for level in (1, 5)]
    easy, hard = (sum(len("".join(t.texts)) for t in some) / len(some) for some in by_level)
    assert hard > 1.2 * easy


@pytest.mark.parametrize("name", FAMILIES)
def test_the_same_seed_gives_the_same_and_fewer_give_the_beginning(name: str) -> None:
    first = list(generate_family(name, 30, seed=3))
    assert first == list(generate_family(name, 30, seed=3))
    assert first[:10] == list(generate_family(name, 10, seed=3))
    assert not {t.problem for t in first} & {t.problem for t in generate_family(name, 30, seed=4)}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_level_and_a_share_can_be_asked_for(name: str) -> None:
    assert {t.meta["difficulty"] for t in generate_family(name, 30, difficulty=(2, 3))} == {2, 3}
    assert all(t.label == -1 for t in generate_family(name, 30, wrong=0))
    assert all(t.label != -1 for t in generate_family(name, 30, wrong=1))


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("kind_at", range(2))
def test_one_kind_alone_can_be_asked_for(name: str, kind_at: int) -> None:
    kind = list(open_family(name).KINDS)[kind_at]
    assert {t.meta["error"] for t in generate_family(name, 15, wrong=1, kinds={kind: 1})} == {kind}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"name": "arithmetics"}, "there is no family 'arithmetics'; available: .*arithmetic"),
        ({"difficulty": (0, 3)}, "difficulty is 0-3; it is a level from 1 to 5"),
        ({"difficulty": (4, 2)}, "difficulty is 4-2"),
        ({"difficulty": (9, 9)}, "difficulty is 9; it is"),
        ({"wrong": 1.5}, "share of wrong solutions is 1.5; it goes from 0 to 1"),
        ({"n": -1}, "number of trajectories is -1"),
        ({"kinds": {"slap": 1}}, "no kind of error called 'slap'; available: slip, "),
        ({"kinds": {"slip": -1}}, "weight of slip is -1"),
        ({"kinds": {"slip": float("inf")}}, "weight of slip is inf"),
        ({"kinds": {"slip": 0}}, "all kinds of error have the weight 0"),
    ],
)
def test_what_does_not_fit_is_told_at_once(arguments: dict[str, object], told: str) -> None:
    call: dict[str, object] = {"name": "arithmetic", "n": 1, **arguments}
    with pytest.raises(UsageError, match=told):
        generate_family(**call)  # type: ignore[arg-type]


def test_a_family_that_runs_dry_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    family = open_family("arithmetic")
    only = next(iter(generate_family("arithmetic", 1)))
    draw = family.draw

    def one_problem(rng: object, level: int) -> object:
        from random import Random

        return draw(Random(5), 1)

    monkeypatch.setattr(family, "draw", one_problem)
    monkeypatch.setattr("critic_prm.generate.family.PATIENCE", 20)
    made = generate_family("arithmetic", 2, difficulty=(1, 1))
    assert next(made).problem != only.problem
    with pytest.raises(CriticPrmError, match="arithmetic finds no new problem of difficulty 1 after 1"):
        next(made)


def test_levels_and_kinds_are_read_from_text() -> None:
    assert parse_levels("3") == (3, 3)
    assert parse_levels("2-4") == (2, 4)
    assert parse_kinds([]) is None
    assert parse_kinds(["slip", "order=2.5"]) == {"slip": 1.0, "order": 2.5}
    for bad in ("", "x", "1-", "-2", "1-2-3"):
        with pytest.raises(UsageError, match="write a level from 1 to 5"):
            parse_levels(bad)
    with pytest.raises(UsageError, match="name=weight"):
        parse_kinds(["slip=much"])


def test_the_command_writes_what_the_library_makes(tmp_path: Path) -> None:
    out = tmp_path / "made.jsonl"
    arguments = ["arithmetic", "-n", "40", "-o", str(out), "--seed", "5", "--difficulty", "2-3", "--wrong", "0.3"]
    result = invoke("generate", *arguments, "--kind", "slip=2", "--kind", "operator", catch=True)
    assert result.exit_code == 0, result.output
    made = [trajectory_from_json(json.loads(line), "row") for line in out.read_text().splitlines()]
    kinds = {"slip": 2.0, "operator": 1.0}
    assert made == list(generate_family("arithmetic", 40, seed=5, difficulty=(2, 3), wrong=0.3, kinds=kinds))
    right = sum(t.label == -1 for t in made)
    assert f"40 trajectories to {out}: {right} right, {40 - right} with a planted error" in result.stderr


def test_the_command_writes_to_stdout_and_lists_the_families() -> None:
    result = invoke("generate", "arithmetic", "-n", 2, catch=True)
    assert [json.loads(line)["id"] for line in islice(result.stdout.splitlines(), 2)] == [
        "arithmetic-0-000000",
        "arithmetic-0-000001",
    ]
    listed = invoke("generate", "families", columns=160).stdout
    assert all(name in listed for name in FAMILIES)
    assert "dropped-term (60)" in listed
