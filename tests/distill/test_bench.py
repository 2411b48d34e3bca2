"""The benches of verifiers keep the problems of train, dev and test sources apart, measure by the library, and run."""

from __future__ import annotations

import importlib
import json
import random
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import bench.sources
from bench.cascade import LEFT_OUT, SHARES
from bench.sources import decontaminated, figures, first_error, matching, of_source, read, split, write, write_training_set
from critic_prm import registry
from critic_prm.arithmetic.claims import judge_one
from critic_prm.data.formats.convert import read_trajectories
from critic_prm.data.hashing import problem_key
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.generate.family import generate_family
from critic_prm.metrics.scores import first_error_f1
from distill.calibration import Calibration, Floats
from distill.data import TrainingSet, read_training_set
from distill.decision import Decision
from distill.types import Item, Scorer, Student
from distill.verifier import Verifier

FOLDER = Path(bench.sources.__file__).parent
BENCHES = sorted(path.stem for path in FOLDER.glob("*.py") if "argparse" in path.read_text("utf-8"))
DUCKS = "Janet's ducks lay 16 eggs per day. She eats three for breakfast every morning. How many are left?"


SOURCES = {
    "mr_gsm8k_subset": "arithmetic",
    "eic_gsm8k": "sorting",
    "parc_math": "tracking",
    "agentprocessbench_hotpotqa": "graphs",
}
TESTED, UNLABELLED = 70, 30


def solution(problem: str, label: int = -1, name: str = "") -> Trajectory:
    return Trajectory(name or problem[:9], problem, (Step("a"), Step("b"), Step("c")), label=label)


def test_problems_of_the_test_set_leave_the_training_set() -> None:
    rows = [
        solution(DUCKS, name="0"),
        solution(
            "JANET'S DUCKS lay $16$ eggs per day!! She eats three for breakfast, every morning. How many are left", 0, "1"
        ),
        solution(DUCKS + " Explain your answer step by step.", name="2"),
        solution("A robe takes 2 bolts of blue fiber and half that much white fiber. How many bolts does it take?", name="3"),
        solution("What is 2 + 3?", name="4"),
    ]
    tests = {"test": [solution(DUCKS), solution("What is the capital of Peru?")]}
    kept = decontaminated([of_source(t, "s") for t in rows], tests)
    assert [t.id for t in kept] == ["s/3", "s/4"]
    assert kept[0] == of_source(rows[3], "s")


def test_the_training_set_is_in_the_contract_and_split_by_problem(tmp_path: Path) -> None:
    rows = [of_source(solution(f"Problem number {n // 2}?", n % 4 - 1, str(n)), "s") for n in range(200)]
    rows = [Trajectory(t.id, t.problem, (*t.steps, Step(t.id)), label=t.label, extra=t.extra) for t in rows]
    data = read_training_set(write_training_set(rows, tmp_path / "set", 0))
    assert len(data.train) + len(data.dev) == 200
    assert not {r.problem for r in data.train} & {r.problem for r in data.dev}
    assert 15 < len(data.dev) < 45
    parts = split(rows, 0)
    assert [r.id for r in data.train] == [t.id for t in parts["train"]]
    assert [r.id for r in data.dev] == [t.id for t in parts["dev"]]
    assert not parts["test"]
    labels = {row.id: row.labels for row in data.train + data.dev}
    assert labels["s/0"] == (1.0, 1.0, 1.0, 1.0)
    assert labels["s/1"] == (0.0, None, None, None)
    assert {row.source for row in data.train} == {"s"}


def test_the_figures_are_the_official_ones_and_two_verifiers_share_the_resamples() -> None:
    generator = np.random.default_rng(0)
    rows = [solution(f"Problem {n // 2}", int(generator.integers(-1, 3))) for n in range(60)]
    scores = [(generator.integers(0, 9, 3) / 9).tolist() for _ in rows]
    row = figures(rows, scores, Decision(0.3), 50)
    steps = [(label, p) for t, each in zip(rows, scores, strict=True) for label, p in zip(t.gold(), each, strict=True)]
    seen = [(label, p) for label, p in steps if label is not None]
    assert row[0] == pytest.approx(roc_auc_score(*zip(*seen, strict=True)))
    official = first_error_f1([t.label or 0 for t in rows], [Decision(0.3).first_error(each) for each in scores])
    assert row[1:4].tolist() == [official.f1, official.erroneous, official.correct]
    assert row.shape == (4 + 2 * 50,)
    moved = figures(rows, [[p / 2 for p in each] for each in scores], Decision(0.15), 50)
    np.testing.assert_allclose(moved, row, atol=1e-12)
    assert np.ptp(row[4:54]) > 0.01
    assert np.ptp(row[54:]) > 0.01


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of sources with the names that the benches ask for: problems of one family are the test's, those of others are
    trained on, and each of these sources holds some of the test's problems, too."""
    folder = tmp_path_factory.mktemp("data") / "open"
    folder.mkdir()
    tests = list(generate_family("algebra", TESTED, seed=1))
    write(tests, folder / "processbench_gsm8k.jsonl")
    for place, (source, family) in enumerate(SOURCES.items()):
        planted = [replace(t, id=f"planted-{t.id}", problem=t.problem.upper() + " EXPLAIN IT.") for t in tests[:10]]
        write([*generate_family(family, 60, seed=10 + place), *planted], folder / f"{source}.jsonl")
    outcomes = [
        Trajectory(t.id, t.problem, t.steps, extra={"final_answer_correct": t.label == -1})
        for t in [*generate_family("sorting", 40, seed=7), *tests[:10]]
    ]
    write(outcomes, folder / "outcome_gsm8k_openai.jsonl")
    replies = folder.with_name("judge_outputs")
    replies.mkdir()
    eic = [t for t in read_trajectories(folder / "eic_gsm8k.jsonl") if not t.id.startswith("planted")]
    generator = random.Random(0)
    with (replies / "eic_step_judges.jsonl").open("w") as out:
        for t in [t for t in eic for _ in range(3)]:
            first = first_error(t) if generator.random() < 0.8 else generator.randrange(len(t.steps))
            reply = {"pred_wrong_step": "none" if first < 0 else str(first + 1)}
            row = {"problem_ref": t.id, "prompt_style": "eic_step_simple_json", "response_text": json.dumps(reply)}
            out.write(json.dumps(row) + "\n")
    (replies / "agentprocessbench_hotpotqa_judges.jsonl").write_text("")
    return folder


@dataclass(frozen=True, slots=True)
class Hashed(Scorer):
    """Scores that depend on the text of a step alone; counts the solutions."""

    scored: list[int]
    batch: int = 64
    causal: bool = True

    def score(self, items: Sequence[Item]) -> list[Floats]:
        self.scored[0] += len(items)
        return [np.array([zlib.crc32(step.encode()) / 2**32 for step in steps]) for _, steps in items]

    def save(self, folder: Path) -> None: ...


@dataclass(frozen=True, slots=True)
class Work:
    """What a bench did: the training sets that it distilled with their students, and the number of solutions it scored."""

    sets: list[TrainingSet]
    students: list[str | Student]
    scored: list[int]


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    """Students are not trained; what they would be trained on is noted."""
    done = Work([], [], [0])

    def distill(data: Path | TrainingSet, out: Path, *, student: str | Student, **options: Any) -> None:
        done.sets.append(data if isinstance(data, TrainingSet) else read_training_set(data))
        done.students.append(student)

    def load_verifier(folder: Path) -> Verifier:
        info = {"decision": {"data": "dev", "f1": 0.5}}
        return Verifier("hashed", Hashed(done.scored), Calibration("identity"), Decision(0.3), info)

    monkeypatch.setattr(bench.sources, "distill", distill)
    monkeypatch.setattr(bench.sources, "load_verifier", load_verifier)
    return done


def run(name: str, arguments: Sequence[object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [f"bench/{name}.py", *map(str, arguments)])
    importlib.import_module(f"bench.{name}").main()


def apart(sets: Sequence[TrainingSet], data: Path) -> None:
    """No problem of a test source is learned from or chosen on, and none is in both train and dev."""
    tested = {problem_key(t.problem) for t in read(data / "processbench_gsm8k.jsonl")}
    for each in sets:
        train, dev = ({problem_key(row.problem) for row in rows} for rows in (each.train, each.dev))
        assert train
        assert dev
        assert not train & dev
        assert not (train | dev) & tested
        assert not any("EXPLAIN IT" in row.problem for row in (*each.train, *each.dev))


@pytest.mark.parametrize("name", BENCHES)
def test_a_bench_says_how_it_is_run(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        run(name, ["--help"], monkeypatch)
    assert not end.value.code
    assert "usage: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "arguments", "trained", "scored"),
    [
        ("families", "--test {data} --natural {data} -n 60 --family arithmetic --bootstrap 20", 5, 5),
        ("transformer", "--train {data} --test {data} --base tiny --sources mr_* eic_* parc_* --bootstrap 20", 3, 3),
        ("implicit", "--data {data} --base tiny --labelled 40 --bootstrap 20", 1, 1),
        ("soft_labels", "--data {data}/.. --seeds 1 --bootstrap 20", 2 * 2, 2 * 2),
    ],
)
def test_a_bench_runs_and_keeps_problems_apart(
    name: str,
    arguments: str,
    trained: int,
    scored: int,
    data: Path,
    work: Work,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(name, arguments.format(data=data).split(), monkeypatch)
    assert len(work.sets) == trained
    assert work.scored == [scored * TESTED]
    apart(work.sets, data)
    assert "nan" not in capsys.readouterr().out


def test_the_cascade_holds_problems_out(
    data: Path, work: Work, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = "--sources * --sensitivity 0.8 --specificity 0.95 --draws 2"
    run("cascade", [data, *options.split()], monkeypatch)
    rows = [t for path in matching(data, but=LEFT_OUT) for t in read(path)]
    held_out = {problem_key(t.problem) for t in split(rows, 0, SHARES)["test"]}
    (only,) = work.sets
    assert held_out
    assert not held_out & {problem_key(row.problem) for row in (*only.train, *only.dev)}
    assert f"{len(split(rows, 0, SHARES)['test']):9,}" in capsys.readouterr().out


def test_the_rules_are_measured(data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run("rules", [data, "processbench_gsm8k"], monkeypatch)
    rows = read(data / "processbench_gsm8k.jsonl")
    official = first_error_f1([first_error(t) for t in rows], [judge_one(t).first_error for t in rows])
    assert capsys.readouterr().out.splitlines()[1].split()[1] == f"{100 * (official.f1 or 0):.1f}"


def test_the_training_bench_cuts_after_the_first_error(data: Path, tmp_path: Path) -> None:
    from bench.training import prepare

    counts = prepare(data, tmp_path, 100)
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert len(counts) == len(rows) == 100
    assert all(all(row["labels"][:-1]) and len(row["labels"]) == len(row["completions"]) for row in rows)
    assert 0 < sum(row["labels"][-1] for row in rows) < 100


def test_transfer_is_measured_by_the_commands(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a student that needs no training, found as an installed package's is."""
    installed = registry._installed
    toys = {"student": {"steady": EntryPoint("steady", "tests.contract.toy.steady", "")}}
    monkeypatch.setattr(registry, "_installed", lambda kind: {**installed(kind), **toys.get(kind, {})})
    monkeypatch.setattr("bench.transfer.UNLABELLED", UNLABELLED)
    run("transfer", ["--data", data, "--student", "steady", "--seeds", 2, "--work", tmp_path], monkeypatch)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    figures = {words[0]: words[1:] for words in lines if words and words[0] in ("0", "1", "mean")}
    assert [figures[name][0] for name in ("0", "1", "mean")] == ["0.500"] * 3
    apart([read_training_set(tmp_path / f"seed-{seed}" / "data") for seed in (0, 1)], data)
    for seed in (0, 1):
        predicted = tmp_path / f"seed-{seed}" / "processbench_gsm8k" / "processbench_gsm8k.jsonl"
        assert len(predicted.read_text().splitlines()) == TESTED - UNLABELLED
