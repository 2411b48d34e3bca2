"""Choosing a band: worked numbers, what must hold for every band, a simulated judge, and the command."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import mean, stdev

import pytest

from bench.cascade import GROUPS, SHARES, first_of, measure
from bench.sources import matching, read, split, train, write_training_set
from critic_prm.cli import main
from critic_prm.cli.cascade import band
from critic_prm.errors import CriticPrmError, InputError
from critic_prm.evaluate.cascade_tuning import BandResult, CascadeCase, CaseArrays, choose, front, halves, try_bands, tune

CUT = 0.5


def heard(rng: Random, problem: int, *, by_step: bool, sense: float = 1.0, spare: float = 1.0) -> CascadeCase:
    """A solution of five steps: P(error) of the wrong one from a distribution above that of right ones; a judge that finds an
    error with `sense` and leaves a right step alone with `spare`."""
    gold = rng.choice([-1, -1, 0, 1, 2, 3, 4])
    error = [min(max(rng.gauss(0.65 if i == gold else 0.25, 0.2), 0.0), 1.0) for i in range(5)]
    right = [rng.random() < spare if i != gold else rng.random() >= sense for i in range(5)]
    first = next((i for i, p in enumerate(error) if p > CUT), -1)
    stop = next((i for i, ok in enumerate(right) if not ok), -1)
    p_correct = tuple(1 - p for p in error)
    if by_step:
        return CascadeCase(f"p{problem}", gold, p_correct, first, judged=tuple(right), calls=5 if stop < 0 else stop + 1)
    return CascadeCase(f"p{problem}", gold, p_correct, first, verdict=stop)


def many(n: int, *, by_step: bool, sense: float = 1.0, spare: float = 1.0, seed: int = 0) -> list[CascadeCase]:
    rng = Random(seed)
    return [heard(rng, i, by_step=by_step, sense=sense, spare=spare) for i in range(n)]


def by_hand(row: CascadeCase, low: float, high: float) -> tuple[int, int]:
    """(first error, calls), written down as the rule says it."""
    calls = 0
    if not row.judged:
        steps = row.p_correct if row.first < 0 else row.p_correct[: row.first + 1]
        if any(p is None or low <= 1 - p <= high for p in steps):
            return (row.first if row.verdict is None else row.verdict), 1
        return row.first, 0
    for step, p in enumerate(row.p_correct):
        if p is not None and 1 - p < low:
            continue
        if p is not None and 1 - p > high:
            return step, calls
        calls += 1
        if row.judged[step] is False or (row.judged[step] is None and step == row.first):
            return step, calls
    return -1, calls


@pytest.mark.parametrize("by_step", [True, False])
def test_bands_are_run_as_the_rule_says(by_step: bool) -> None:
    rows = many(300, by_step=by_step, sense=0.8, spare=0.9)
    rows[::7] = [replace(row, judged=(None,) * 5) if by_step else replace(row, verdict=None) for row in rows[::7]]
    rows[3::11] = [replace(row, p_correct=(None, *row.p_correct[1:])) for row in rows[3::11]]
    flat = CaseArrays(rows)
    for low, high in ((0.0, 1.0), (0.2, 0.6), (0.4, 0.4), (0.9, 1.0)):
        predicted, calls = flat.run(low, high)
        assert list(zip(predicted.tolist(), calls.tolist(), strict=True)) == [by_hand(row, low, high) for row in rows]


@pytest.mark.parametrize("by_step", [True, False])
def test_the_ends_are_the_student_and_the_judge(by_step: bool) -> None:
    rows = many(300, by_step=by_step, sense=0.8, spare=0.95)
    flat = CaseArrays(rows)
    everything, calls = flat.run(0.0, 1.0)
    assert everything.tolist() == [row.alone for row in rows]
    assert calls.sum() == sum(row.calls for row in rows)
    nothing, free = flat.run(CUT, CUT)
    assert nothing.tolist() == [row.first for row in rows]
    assert free.sum() == 0


@pytest.mark.parametrize("by_step", [True, False])
def test_with_a_perfect_judge_a_wider_band_is_never_worse_nor_cheaper(by_step: bool) -> None:
    rows = many(400, by_step=by_step)
    flat = CaseArrays(rows)
    bands = [(CUT - w, CUT + w) for w in (0.0, 0.05, 0.1, 0.2, 0.3, 0.5)]
    f1 = [flat.f1(flat.run(*band)[0]) for band in bands]
    assert f1 == sorted(f1)
    assert f1[-1] == 1.0
    calls = [flat.run(*band)[1].sum() for band in bands]
    assert calls == sorted(calls) or by_step  # by step, an error that is found spares the steps after it


def test_choices() -> None:
    tried = [BandResult(0.1, 0.9, 0.80, 4.0, 0.8), BandResult(0.2, 0.8, 0.80, 3.0, 0.6), BandResult(0.3, 0.7, 0.75, 1.0, 0.2)]
    assert choose(tried, target=0.78) is tried[1]
    assert choose(tried, target=0.7) is tried[2]
    assert choose(tried, budget=2.0) is tried[2]
    assert choose(tried, budget=9.0) is tried[1]
    narrower = BandResult(0.3, 0.6, 0.80, 3.0, 0.6)
    assert choose([*tried, narrower], target=0.78) is narrower
    assert front([*tried, BandResult(0, 1, 0.7, 2.0, 0.4)]) == (tried[2], tried[1])
    with pytest.raises(CriticPrmError, match=r"no band reaches F1 0\.9000; the best is 0\.8000"):
        choose(tried, target=0.9)


@pytest.mark.parametrize("by_step", [True, False])
def test_a_good_student_halves_the_bill(by_step: bool) -> None:
    tuned = tune(many(3000, by_step=by_step, sense=0.75, spare=0.93), replicates=200)
    assert tuned.target is not None
    assert tuned.cascade.f1 is not None
    assert tuned.judge.f1 is not None
    assert tuned.student.f1 is not None
    assert tuned.cascade.f1 > tuned.judge.f1 - 0.02
    assert tuned.cascade.f1 > tuned.student.f1
    assert tuned.share < 0.75
    assert tuned.difference[0] == pytest.approx(tuned.cascade.f1 - tuned.judge.f1)
    assert tuned.curve[0].calls == 0
    cheap = tune(many(3000, by_step=by_step, sense=0.75, spare=0.93), budget=0.3, replicates=200)
    assert cheap.chosen.calls <= 0.3
    assert cheap.cascade.calls < 0.4


def test_halves_keep_a_problem_together_and_change_with_the_seed() -> None:
    rows = [replace(row, problem=f"p{i // 2}") for i, row in enumerate(many(100, by_step=False))]
    one, other = halves(rows)
    assert {row.problem for row in one}.isdisjoint(row.problem for row in other)
    assert len(one) + len(other) == 100
    assert halves(rows, 1) != (one, other)
    assert max(one.share for one in try_bands(one)) == 1.0


def test_too_little_to_choose_by_is_said() -> None:
    with pytest.raises(InputError, match="too few"):
        tune(many(1, by_step=True))
    with pytest.raises(InputError, match="one kind is missing"):
        tune([replace(row, gold=-1) for row in many(40, by_step=True)])


def test_the_command_writes_a_cascade_that_can_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rules, which know no probability, first; as judge a label file that is always right."""
    monkeypatch.chdir(tmp_path)
    rows, labels = [], []
    for i in range(60):
        wrong = i % 2
        steps = [
            f"{i} + 2 = {i + 2}",
            f"2 * 3 = {7 if wrong and i % 4 == 1 else 6}",
            "so it is " + ("wrong" if wrong else "right"),
        ]
        gold = (1 if i % 4 == 1 else 2) if wrong else -1
        rows.append({"id": str(i), "problem": f"p{i}", "steps": steps, "label": gold})
        p = [1.0 if gold < 0 or k < gold else 0.0 if k == gold else None for k in range(3)]
        votes = [[0, 0] if x is None else [int(x), 1] for x in p]
        labels.append(rows[-1] | {"p_correct": p, "votes": votes, "first_error": gold, "status": "ok"})
        labels[-1] |= {"critic": {"provider": "scripted", "model": "judge.jsonl", "style": "first-error"}}
    for name, content in (("dev.jsonl", rows), ("judged.jsonl", labels)):
        Path(name).write_text("".join(json.dumps(row) + "\n" for row in content))
    Path("judge.jsonl").write_text(json.dumps({"text": "\\boxed{-1}"}) + "\n")
    options = ["--first", "rules", "--judged", "judged.jsonl", "--escalate", "people.jsonl", "-o", "cascade.toml"]
    main_ends(0, "cascade", "tune", "dev.jsonl", *options, "--json")
    said = json.loads(capsys.readouterr().out)
    assert said["cascade"]["f1"] == said["judge"]["f1"] == 1.0
    assert said["student"]["f1"] < 1.0
    assert said["share_of_calls"] == pytest.approx(0.75, abs=0.1)
    table = tomllib.loads(Path("cascade.toml").read_text())["cascade"]
    assert (table["first"], table["judges"], table["style"]) == ("rules", ["scripted/judge.jsonl"], "first-error")
    assert table["tuned"]["f1"] == 1.0
    main_ends(0, "label", "dev.jsonl", "--judge", "cascade.toml", "-o", "labels.jsonl")
    labels = [json.loads(line) for line in Path("labels.jsonl").read_text().splitlines()]
    assert all(row["first_error"] == (1 if i % 4 == 1 else -1) for i, row in enumerate(labels))
    report = json.loads(Path("labels.jsonl.run.json").read_text())
    assert report["cascade"]["without a judge"] == 15
    capsys.readouterr()
    main_ends(0, "cascade", "tune", "dev.jsonl", "--first", "rules", "--judged", "judged.jsonl", "--budget", "1")
    assert "judge alone" in capsys.readouterr().out
    main_ends(2, "cascade", "tune", "dev.jsonl", "--first", "rules")
    main_ends(2, "cascade", "tune", "dev.jsonl", "--first", "rules", "--judge", "rules", "--by", "word")
    main_ends(2, "cascade", "tune", "dev.jsonl", "--first", "rules", "--judge", "rules", "--budget", "1", "--target-f1", "1")
    main_ends(1, "cascade", "tune", "dev.jsonl", "--first", "rules", "--judge", "rules", "--target-f1", "1")


def main_ends(code: int, *arguments: str) -> None:
    with pytest.raises(SystemExit) as done:
        main(list(arguments))
    assert (done.value.code or 0) == code


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (0.139, 0.4652, "0.139 to 0.465"),
        (0.0, 1.0, "0.000 to 1.000"),
        (0.00012, 0.00031, "0.0001 to 0.0003"),
        (0.2224, 0.22241, "0.22240 to 0.22241"),
        (0.5, 0.99998, "0.50000 to 0.99998"),
        (0.25, 0.25, "0.250 to 0.250"),
    ],
)
def test_the_ends_of_a_small_band_can_be_told_apart(low: float, high: float, shown: str) -> None:
    assert band(low, high) == shown


def test_on_real_solutions_a_third_of_the_calls_is_enough(shared_data: Path, tmp_path: Path) -> None:
    """A verifier distilled here, and simulated judges, on solutions whose errors are formal: equal F1, within half a point and
    two standard errors over the judges, for at most 40% of their calls. Each judge has a band of its own; problems are kept
    apart."""
    rows = [t for path in matching(shared_data / "open", GROUPS["formal"]) for t in read(path)]
    data = write_training_set(rows, tmp_path / "training-set", 0, SHARES)
    first = first_of(train(data, tmp_path / "verifier", 0, leave_out=0))  # no other kind of data follows
    held_out = split(rows, 0, SHARES)["test"]
    found = [measure(held_out, first, 0.7, 0.95, seed) for seed in range(5)]
    gaps = [one.difference[0] for one in found]
    share = sum(one.share for one in found) / len(found)
    assert mean(gaps) > -0.005 - 2 * stdev(gaps) / len(gaps) ** 0.5
    assert share <= 0.4
