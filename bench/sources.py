"""What the benches of verifiers share: the solutions of a folder, training sets from them, a table of results per test source.

A folder holds `<source>.jsonl` files of trajectories with gold labels. Reading, decontamination, splits and metrics are the
library's, so a bench measures what the commands give; bench/transfer.py runs the commands themselves.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np

from critic_prm.data.formats.convert import read_trajectories, write_trajectories
from critic_prm.data.hashing import SPLITS, problem_key
from critic_prm.data.trajectory import Trajectory
from critic_prm.datasets.build import DatasetOptions, build_dataset
from critic_prm.datasets.decontaminate import decontaminate
from critic_prm.datasets.rows import class_of
from critic_prm.datasets.splits import Splits
from critic_prm.metrics.bootstrap import Clusters, of_auroc, of_sums, replicate
from critic_prm.metrics.scores import auroc, first_error_f1, first_error_rows, official_f1
from distill.data import TrainingSet
from distill.decision import Decision, choose_threshold
from distill.run import distill
from distill.types import Student
from distill.verifier import Verifier, load_verifier

Shares = tuple[float, float, float]
SHARES: Shares = (0.85, 0.15, 0.0)
"""Shares of the problems in train, dev and test of a training set."""


def matching(folder: Path, patterns: Iterable[str] = ("*",), but: Iterable[str] = ()) -> list[Path]:
    """The files of a folder whose source matches one of the shell patterns, and none of those in `but`."""

    def matches(name: str, any_of: Iterable[str]) -> bool:
        return any(fnmatch(name, pattern) for pattern in any_of)

    patterns, but = tuple(patterns), tuple(but)
    return [path for path in sorted(folder.glob("*.jsonl")) if matches(path.stem, patterns) and not matches(path.stem, but)]


def read(path: Path) -> list[Trajectory]:
    """The solutions of one source whose first error is known."""
    return [t for t in read_all(path) if t.first_error() is not None]


def read_all(path: Path) -> list[Trajectory]:
    """All solutions of one source, which they name; their ids are unique over sources."""
    return [of_source(t, path.stem) for t in read_trajectories(path)]


def of_source(t: Trajectory, source: str) -> Trajectory:
    """The solution with its source, which its id begins with."""
    return replace(t, id=f"{source}/{t.id}", extra={**t.extra, "source": source})


def first_error(t: Trajectory) -> int:
    """The first error of a solution that `read` returned."""
    first = t.first_error()
    assert first is not None
    return first


def source_of(t: Trajectory) -> str:
    """The source of a solution that `read` returned."""
    return str(t.extra["source"])


def load(train: Path, test: Path, test_sources: str) -> tuple[list[Trajectory], dict[str, list[Trajectory]]]:
    """The solutions to train on, without the problems of the test sources, and those of the test sources by source."""
    tests = {path.stem: read(path) for path in matching(test, [test_sources])}
    if not tests:
        sys.exit(f"{test}: no source matches {test_sources!r}")
    rows = [t for path in matching(train, but=tests) for t in read(path)]
    kept = decontaminated(rows, tests)
    print(f"train: {len(rows)} labelled solutions, {len(rows) - len(kept)} dropped because their problem is in a test source")
    return kept, tests


def decontaminated(rows: Iterable[Trajectory], tests: Mapping[str, Iterable[Trajectory]]) -> list[Trajectory]:
    """The solutions that `dataset decontaminate` keeps: their problem is in no test source, nor much like one there."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        against = [write(each, folder / f"{source}.jsonl") for source, each in tests.items()]
        decontaminate(write(rows, folder / "rows.jsonl"), against, folder / "kept.jsonl")
        return list(read_trajectories(folder / "kept.jsonl"))


def write(rows: Iterable[Trajectory], path: Path) -> Path:
    """Write solutions with everything that they hold; returns the path."""
    write_trajectories(path, rows)
    return path


def split(rows: Iterable[Trajectory], seed: int, shares: Shares = SHARES) -> dict[str, list[Trajectory]]:
    """The solutions of train, dev and test, as `dataset build` splits them."""
    rows, splits = list(rows), Splits(shares, seed)
    for t in rows:
        splits.note(problem_key(t.problem), class_of(t.first_error()))
    splits.settle()
    parts: dict[str, list[Trajectory]] = {name: [] for name in SPLITS}
    for t in rows:
        parts[splits.of(problem_key(t.problem))].append(t)
    return parts


def write_training_set(rows: Iterable[Trajectory], folder: Path, seed: int, shares: Shares = SHARES) -> Path:
    """The training set that `dataset build --gold` makes of the solutions; returns the folder."""
    with tempfile.TemporaryDirectory() as scratch:
        path = write(rows, Path(scratch) / "rows.jsonl")
        build_dataset([path], folder, DatasetOptions(gold=True, split=shares, seed=seed), say=tell)
    return folder


def tell(line: str) -> None:
    """Print a line of progress."""
    print(f"  {line}", file=sys.stderr)


def train(
    data: Path | TrainingSet, out: Path, seed: int, student: str | Student = "linear", leave_out: int | None = None
) -> Verifier:
    """Distill into the folder `out`, with the progress on stderr, and open the verifier. With `leave_out=0`, the decision is
    chosen on dev: for solutions of the kinds that it is trained on."""
    distill(data, out, student=student, seed=seed, leave_out=leave_out, say=tell)
    return load_verifier(out)


def score(verifier: Verifier, rows: Sequence[Trajectory]) -> list[list[float | None]]:
    """P(correct) of every step of the solutions."""
    return verifier.score_many([(t.problem, t.texts) for t in rows])


def measure(
    folder: Path,
    out: Path,
    tests: Mapping[str, Sequence[Trajectory]],
    seed: int,
    replicates: int,
    student: str | Student = "linear",
) -> Any:
    """Distill, score the test sources and print; returns the rows of `figures`, shape (sources, 4 + 2 replicates)."""
    started, cpu = time.monotonic(), time.process_time()
    verifier = train(folder, out, seed, student)
    train_s, train_cpu = time.monotonic() - started, time.process_time() - cpu
    size = sum(path.stat().st_size for path in out.rglob("*")) / 1e6
    cpu = time.process_time()
    scores = {source: score(verifier, rows) for source, rows in tests.items()}
    steps_s = sum(len(t.steps) for rows in tests.values() for t in rows) / (time.process_time() - cpu)
    print(f"{'source':28} {'step AUROC':>22} {'first-error F1':>22} {'erroneous':>9} {'correct':>8} {'best F1':>9}")
    table = []
    for source, rows in tests.items():
        table.append(figures(rows, scores[source], verifier.decision, replicates, seed))
        print(line(source, table[-1]), f"{best_f1(rows, scores[source]):9.1f}")
    print(line("mean", np.mean(table, axis=0)))
    decision, peak = verifier.info["decision"], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"decision {verifier.decision.rule} {verifier.threshold:.4f} from {decision['data']} (F1 there "
          f"{100 * (decision['f1'] or 0):.1f}), calibration {verifier.calibration.method}")  # fmt: skip
    print(f"training {train_s:.0f} s ({train_cpu:.0f} s CPU), peak {peak:.2f} GB; folder {size:.1f} MB; "
          f"scoring {steps_s:.0f} steps/s of CPU")  # fmt: skip
    return np.array(table)


def figures(
    rows: Sequence[Trajectory], scores: Sequence[Sequence[float | None]], decision: Decision, replicates: int, seed: int = 0
) -> Any:
    """Step AUROC, F1, accuracy on erroneous and on correct solutions, then the replicates of AUROC and those of F1.

    The resamples of problems depend only on the seed, so the rows of two verifiers on the same solutions can be subtracted.
    """
    keys = [problem_key(t.problem) for t in rows]
    gold, predicted = [first_error(t) for t in rows], [decision.first_error(each) for each in scores]
    official = first_error_f1(gold, predicted)
    hits, problems = first_error_rows(gold, predicted), Clusters(keys)
    steps = [
        (key, label >= 0.5, p)
        for key, t, each in zip(keys, rows, scores, strict=True)
        for label, p in zip(t.gold(), each, strict=True)
        if isinstance(label, float) and p is not None
    ]
    owners, good, p_correct = Clusters([key for key, _, _ in steps]), [y for _, y, _ in steps], [p for _, _, p in steps]
    row = [auroc(good, p_correct), official.f1, official.erroneous, official.correct]
    draws = (
        replicate(of_auroc(owners, good, p_correct), owners.count, replicates, seed)[0],
        replicate(of_sums(problems.sums(hits), official_f1), problems.count, replicates, seed)[0],
    )
    return np.concatenate([np.array(row, dtype=np.float64), *draws])


def best_f1(rows: Sequence[Trajectory], scores: Sequence[Sequence[float | None]]) -> float:
    """F1 at the threshold that is best on these solutions, in percent: an upper bound for thresholds chosen elsewhere."""
    seen = [[p for p in each if p is not None] for each in scores]
    return 100 * (choose_threshold(seen, [first_error(t) for t in rows]).f1 or 0.0)


def line(source: str, row: Any) -> str:
    """One line of the table: AUROC and F1 with their 95% intervals, and the two accuracies."""
    (low, low_f1), (high, high_f1) = np.quantile(row[4:].reshape(2, -1), [0.025, 0.975], axis=1)
    return (
        f"{source:28} {row[0]:6.3f} [{low:.3f}, {high:.3f}] {100 * row[1]:6.1f} "
        f"[{100 * low_f1:5.1f}, {100 * high_f1:5.1f}] {100 * row[2]:9.1f} {100 * row[3]:8.1f}"
    )
