"""Training sets: what is kept and dropped adds up, problems stay together, the same input gives the same bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from critic_prm.data.hashing import problem_key
from critic_prm.data.judgement import Judgement, Verdict, combine
from critic_prm.data.label_rows import label_row
from critic_prm.data.records.reading import read_records, write_records
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.datasets.balance import Thinning, acceptance_weights, effective_rows
from critic_prm.datasets.build import DatasetOptions, build_dataset
from critic_prm.datasets.decontaminate import DecontaminateOptions, decontaminate
from critic_prm.errors import InputError, UsageError
from distill.data import read_training_set

CARD = {"model": "m"}
THIRDS = (0.6, 0.2, 0.2)


def judged(trajectory: Trajectory, *firsts: int | None) -> dict[str, Any]:
    """A label-file row whose judgements name these first errors; None is a reply that could not be read."""
    judgements = []
    for sample, first in enumerate(firsts):
        end = len(trajectory.steps) if first in (None, -1) else first + 1
        verdicts = tuple(Verdict(i, "incorrect" if i == first else "correct", f"critique {i}") for i in range(end))
        read = first is not None
        judgements.append(Judgement("ok" if read else "unparseable", verdicts if read else (), first, sample))
    return label_row(trajectory, combine(judgements, len(trajectory.steps)), CARD)


def solution(problem: int, variant: int = 0, steps: int = 4, **fields: Any) -> Trajectory:
    texts = tuple(Step(f"p{problem} v{variant} step {i}") for i in range(steps))
    return Trajectory(f"{problem}-{variant}", f"problem number {problem}?", texts, **fields)


def rows(problems: int = 60) -> Iterator[dict[str, Any]]:
    for p in range(problems):
        yield judged(solution(p, 0, gold_answer="secret", meta={"label": "secret"}), -1, -1)
        yield judged(solution(p, 1), p % 4, p % 4)
        yield judged(solution(p, 2), p % 4)


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    path = tmp_path / "labels.jsonl"
    write_records(path, rows())
    return path


def read(folder: Path, split: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{split}.jsonl").read_text().splitlines()]


def everything(folder: Path) -> list[dict[str, Any]]:
    return [row for split in ("train", "dev", "test") for row in read(folder, split)]


def test_rows_are_those_of_the_contract(labels: Path, tmp_path: Path) -> None:
    summary = build_dataset([labels], tmp_path / "set", DatasetOptions(split=THIRDS))
    assert summary["kept"] == summary["rows"] == 180
    row = next(row for row in everything(tmp_path / "set") if row["id"] == "6-1")
    assert row == {
        "prompt": "problem number 6?",
        "completions": [f"p6 v1 step {i}" for i in range(4)],
        "labels": [1.0, 1.0, 0.0, None],
        "votes": [[2, 2], [2, 2], [0, 2], [0, 0]],
        "weight": 1.0,
        "id": "6-1",
        "source": "labels",
    }
    assert not any("secret" in json.dumps(row) for row in everything(tmp_path / "set"))


def test_distill_reads_it(labels: Path, tmp_path: Path) -> None:
    summary = build_dataset([labels], tmp_path / "set", DatasetOptions(split=THIRDS))
    got = read_training_set(tmp_path / "set")
    assert [len(got.train), len(got.dev), len(got.test)] == [summary["splits"][s]["rows"] for s in ("train", "dev", "test")]


def test_problems_are_never_on_two_sides_and_never_move(labels: Path, tmp_path: Path) -> None:
    build_dataset([labels], tmp_path / "small", DatasetOptions(split=THIRDS, seed=3))
    more = tmp_path / "more.jsonl"
    write_records(more, rows(300))
    build_dataset([more], tmp_path / "large", DatasetOptions(split=THIRDS, seed=3))
    side: dict[str, str] = {}
    for split in ("train", "dev", "test"):
        for row in read(tmp_path / "large", split):
            assert side.setdefault(problem_key(row["prompt"]), split) == split
    for split in ("train", "dev", "test"):
        assert {side[problem_key(row["prompt"])] for row in read(tmp_path / "small", split)} == {split}


def test_the_same_input_gives_the_same_bytes(labels: Path, tmp_path: Path) -> None:
    options = DatasetOptions(split=THIRDS, seed=5, balance="step", reweight=True)
    for name in ("a", "b"):
        build_dataset([labels], tmp_path / name, options)
    files = sorted(p.name for p in (tmp_path / "a").iterdir())
    assert files == ["dataset.json", "dev.jsonl", "test.jsonl", "train.jsonl"]
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_everything_is_accounted_for(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    extra = [
        judged(solution(900), None, None),
        judged(solution(901), 0, 1),
        judged(solution(902), 0, 0, 1, 2, -1),
        judged(solution(903, steps=9), -1),
        judged(solution(0), -1),
    ]
    write_records(path, [*rows(), *extra])
    told: list[str] = []
    summary = build_dataset([path], tmp_path / "set", DatasetOptions(split=THIRDS, max_steps=8), say=told.append)
    assert summary["rows"] == 185
    assert summary["dropped"] == {
        "duplicate": {"correct": 1},
        "low agreement": {"erroneous": 1},
        "tie": {"unknown": 1},
        "too many steps": {"correct": 1},
        "unparseable": {"unknown": 1},
    }
    assert summary["kept"] + sum(sum(kinds.values()) for kinds in summary["dropped"].values()) == summary["rows"]
    assert summary["acceptance"]["erroneous"] == {"offered": 121, "accepted": 120, "rate": 120 / 121}
    splits = summary["splits"].values()
    assert sum(s["erroneous"] for s in splits) == 120
    assert sum(s["steps"]["bad"] for s in splits) == 120
    assert sum(s["problems"] for s in splits) == 60
    assert any("repeat a trajectory" in line for line in told)
    assert json.loads((tmp_path / "set" / "dataset.json").read_text()) == summary


def test_first_error_balance_thins_train_alone(labels: Path, tmp_path: Path) -> None:
    plain = build_dataset([labels], tmp_path / "plain", DatasetOptions(split=THIRDS))
    even = build_dataset([labels], tmp_path / "even", DatasetOptions(split=THIRDS, balance="first-error"))
    assert plain["splits"]["train"]["erroneous"] == 2 * plain["splits"]["train"]["correct"]
    assert even["splits"]["train"]["erroneous"] == even["splits"]["train"]["correct"] == plain["splits"]["train"]["correct"]
    assert even["dropped"]["balance"]["erroneous"] == plain["splits"]["train"]["correct"]
    assert even["splits"]["dev"] == plain["splits"]["dev"]
    assert {r["id"] for r in read(tmp_path / "even", "train")} < {r["id"] for r in read(tmp_path / "plain", "train")}


def test_step_balance_evens_out_step_labels(labels: Path, tmp_path: Path) -> None:
    summary = build_dataset([labels], tmp_path / "set", DatasetOptions(split=THIRDS, balance="step"))
    train = summary["splits"]["train"]
    assert train["steps"]["good"] == train["steps"]["bad"] > 30
    assert train["steps"]["thinned"] > 0
    assert all(any(label is not None for label in row["labels"]) for row in read(tmp_path / "set", "train"))
    assert summary["splits"]["test"]["steps"]["good"] > summary["splits"]["test"]["steps"]["bad"]


def test_thinning_an_absent_class_keeps_nothing_of_the_other() -> None:
    thinning = Thinning("step", 0)
    thinning.note("correct", [1.0, 1.0], "00")
    thinning.decide()
    assert thinning.thin("correct", [1.0, None, 1.0], "00") == [None, None, None]


def test_weights_of_the_published_example() -> None:
    offered, accepted = {"correct": 13808, "erroneous": 5645}, {"correct": 12571, "erroneous": 3555}
    weights = acceptance_weights(offered, accepted)
    assert weights == pytest.approx({"correct": 0.910544, "erroneous": 1.316329}, abs=1e-6)
    mass = {kind: weights[kind] * accepted[kind] for kind in weights}
    assert mass["erroneous"] / sum(mass.values()) == pytest.approx(5645 / (13808 + 5645), abs=1e-9)
    assert sum(mass.values()) == pytest.approx(16126)
    assert effective_rows(weights, accepted, accepted) == pytest.approx(15682.2, abs=0.05)
    assert acceptance_weights({"a": 1000, "b": 1000}, {"a": 1, "b": 1000})["a"] == 5.0
    assert acceptance_weights({"a": 3}, {"a": 0}) == {}


def test_reweighting_reaches_the_rows(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    write_records(path, [*rows(), *(judged(solution(1000 + i), 0, 0, 1, 2, -1) for i in range(60))])
    told: list[str] = []
    build_dataset([path], tmp_path / "plain", DatasetOptions(split=THIRDS), say=told.append)
    assert any("--reweight" in line for line in told)
    summary = build_dataset([path], tmp_path / "set", DatasetOptions(split=THIRDS, reweight=True))
    weights = {row["labels"].count(0.0): row["weight"] for row in everything(tmp_path / "set")}
    assert weights == {0: summary["weights"]["correct"], 1: summary["weights"]["erroneous"]}
    assert weights[1] > 1 > weights[0]


def test_soft_and_hard_labels(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    write_records(path, [judged(solution(p, v), 1, 1, -1) if v else judged(solution(p), -1) for p in range(9) for v in (0, 1)])
    everyone = (1.0, 0.0, 0.0)
    build_dataset([path], tmp_path / "soft", DatasetOptions(split=everyone))
    build_dataset([path], tmp_path / "hard", DatasetOptions(split=everyone, soft=False))
    assert read(tmp_path / "soft", "train")[1]["labels"] == [1.0, pytest.approx(1 / 3), None, None]
    assert read(tmp_path / "hard", "train")[1]["labels"] == [1.0, 0.0, None, None]


def test_observations_stand_beside_the_completions(tmp_path: Path) -> None:
    seen = Trajectory("a", "p", (Step("call", "tool says 7"), Step("so 7")))
    path = tmp_path / "l.jsonl"
    write_records(path, [judged(seen, 1), judged(solution(1), -1)])
    build_dataset([path], tmp_path / "set", DatasetOptions(split=(1.0, 0.0, 0.0)))
    first, second = read(tmp_path / "set", "train")
    assert first["completions"] == ["call", "so 7"]
    assert first["observations"] == ["tool says 7", None]
    assert "observations" not in second


def test_gold_labels_make_a_set_too(tmp_path: Path) -> None:
    path = tmp_path / "gold.jsonl"
    native = [
        {"id": str(p), "problem": f"problem {p}", "steps": ["a", f"b{p}"], "label": p % 3 - 1, "source": "s"} for p in range(60)
    ]
    write_records(path, [*native, {"id": "none", "problem": "?", "steps": ["a"]}])
    summary = build_dataset([path], tmp_path / "set", DatasetOptions(gold=True, split=THIRDS))
    assert summary["dropped"] == {"no gold label": {"unknown": 1}}
    assert summary["kept"] == 60
    row = next(row for row in everything(tmp_path / "set") if row["id"] == "1")
    assert (row["labels"], row["votes"], row["source"]) == ([0.0, None], [[0, 0], [0, 0]], "s")


def test_problems_of_a_benchmark_are_left_out(labels: Path, tmp_path: Path) -> None:
    bench = tmp_path / "bench.jsonl"
    write_records(bench, [{"id": "x", "problem": "Problem number  6 ?", "steps": ["s"], "label": 0}])
    literal = DecontaminateOptions(literal=True)
    summary = build_dataset([labels], tmp_path / "set", DatasetOptions(split=THIRDS), exclude=[bench], same=literal)
    assert summary["dropped"]["excluded problem"] == {"correct": 1, "erroneous": 2}
    assert not any(row["prompt"] == "problem number 6?" for row in everything(tmp_path / "set"))
    listed = [record.data for record in read_records(tmp_path / "set" / "excluded.jsonl")]
    assert [(one["sign"], one["match_id"]) for one in listed] == [("same text", "x")] * 3


def test_excluding_leaves_out_the_rows_that_decontaminating_leaves_out(tmp_path: Path) -> None:
    """One rule, one default: what `dataset build --exclude` keeps is what `dataset decontaminate` keeps."""
    stories = ("Ann buys {} pears and eats {}. How many are left for tomorrow?", "A train runs {} km in {} hours on a hill.")
    rows = [
        {"id": f"{n}", "problem": stories[n % 2].format(n + 7, n), "steps": ["s", f"t {n}"], "label": -1 if n % 3 else 1}
        for n in range(40)
    ]
    write_records(tmp_path / "in.jsonl", rows)
    write_records(tmp_path / "bench.jsonl", [{"problem": "Bob buys 700 pears and eats 90. How many are left for tomorrow?"}])
    bench = [tmp_path / "bench.jsonl"]
    for same in (DecontaminateOptions(), DecontaminateOptions(literal=True)):
        report = decontaminate(tmp_path / "in.jsonl", bench, tmp_path / "clean.jsonl", same)
        options = DatasetOptions(gold=True, split=THIRDS)
        summary = build_dataset([tmp_path / "in.jsonl"], tmp_path / "set", options, exclude=bench, same=same)
        kept = {record.data["id"] for record in read_records(tmp_path / "clean.jsonl")}
        assert {row["id"] for row in everything(tmp_path / "set")} == kept
        assert summary["excluded"]["problems"] == report["problems"] == {"distinct": 40, "removed": 0 if same.literal else 20}
    with pytest.raises(UsageError, match="--literal has no effect without --exclude"):
        build_dataset([tmp_path / "in.jsonl"], tmp_path / "other", options, same=same)


def test_what_cannot_be_trained_on_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    write_records(path, [*(judged(solution(p), -1) for p in range(20)), judged(solution(99), None)])
    with pytest.raises(InputError, match=r"0 bad steps \(left out: 1 unparseable\)"):
        build_dataset([path], tmp_path / "set")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["l.jsonl"]


def test_an_earlier_set_is_replaced_whole_and_nothing_else_is(labels: Path, tmp_path: Path) -> None:
    build_dataset([labels], tmp_path / "set", DatasetOptions(split=THIRDS))
    (tmp_path / "set" / "stale.txt").write_text("old")
    build_dataset([labels], tmp_path / "set", DatasetOptions(split=THIRDS, seed=1))
    assert not (tmp_path / "set" / "stale.txt").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years")
    with pytest.raises(UsageError, match="is not a training set"):
        build_dataset([labels], tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "years"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["labels.jsonl", "mine", "set"]


def test_a_failed_build_keeps_the_earlier_set(labels: Path, tmp_path: Path) -> None:
    build_dataset([labels], tmp_path / "set", DatasetOptions(split=THIRDS))
    before = (tmp_path / "set" / "train.jsonl").read_bytes()
    broken = tmp_path / "broken.jsonl"
    broken.write_bytes(labels.read_bytes() + b'{"id": "x", "problem": 3}\n')
    with pytest.raises(InputError, match=r"broken\.jsonl:181"):
        build_dataset([broken], tmp_path / "set", DatasetOptions(split=THIRDS))
    assert (tmp_path / "set" / "train.jsonl").read_bytes() == before


def test_unlabelled_input_is_named_with_its_mend(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write_records(path, [{"id": "a", "problem": "p", "steps": ["s"], "label": 0}])
    with pytest.raises(InputError, match=r"t\.jsonl:1: this is not a row of a label file.*--gold"):
        build_dataset([path], tmp_path / "set")


def test_one_class_splits_are_told(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    write_records(path, [judged(solution(0), -1), judged(solution(1), 0)])
    told: list[str] = []
    seeds = (DatasetOptions(split=(0.9, 0.05, 0.05), seed=seed) for seed in range(99))
    options = next(o for o in seeds if _all_in_train(path, tmp_path / "try", o))
    build_dataset([path], tmp_path / "set", options, say=told.append)
    assert [line.split()[0] for line in told] == ["dev", "test"]


def _all_in_train(path: Path, out: Path, options: DatasetOptions) -> bool:
    try:
        return bool(build_dataset([path], out, options)["splits"]["train"]["rows"] == 2)
    except InputError:
        return False


@pytest.mark.parametrize("options", [{"min_agreement": 2}, {"balance": "stepwise"}, {"neutral": "maybe"}, {"max_steps": 0}])
def test_options_that_do_not_exist(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        DatasetOptions(**options)
