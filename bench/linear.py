"""Train the linear student on step-labelled records and measure it on others, with separate problems.

    python bench/linear.py --train ../shared/data/open --test ../shared/data/open --test-sources 'processbench_*'

Both folders hold `<source>.jsonl` files of records with `id`, `source`, `problem`, `steps` and `label` (the first wrong step,
-1 when all are right, null when unknown). Training drops every test source and every problem that occurs in a test source,
equal after normalisation or sharing half of its shingles. Dev is split off by problem; calibration and threshold come from it.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import random
import re
import resource
import sys
import tempfile
import time
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

SHINGLE = 5
NEAR = 0.5
DEV_SHARE = 0.15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, required=True, help="folder of <source>.jsonl to train on")
    parser.add_argument("--test", type=Path, required=True, help="folder of <source>.jsonl to measure on")
    parser.add_argument("--test-sources", default="processbench_*", help="which sources of --test (a shell pattern)")
    parser.add_argument("--out", type=Path, help="keep the verifier in this folder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bootstrap", type=int, default=1000)
    args = parser.parse_args()
    kept, tests = load(args.train, args.test, args.test_sources)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "training-set"
        write_training_set(kept, folder, args.seed)
        measure(folder, args.out or Path(scratch) / "verifier", tests, args.seed, args.bootstrap)


def load(train: Path, test: Path, test_sources: str) -> tuple[list[dict[str, Any]], dict[str, list[dict[str, Any]]]]:
    """The records to train on, without the problems of the test sources, and the test sources by name."""
    tests = {path.stem: read(path) for path in sorted(test.glob("*.jsonl")) if fnmatch.fnmatch(path.stem, test_sources)}
    if not tests:
        sys.exit(f"{test}: no source matches {test_sources!r}")
    rows = [row for path in sorted(train.glob("*.jsonl")) if path.stem not in tests for row in read(path)]
    kept = without_problems_of(rows, [row["problem"] for rows in tests.values() for row in rows])
    print(f"train: {len(rows)} labelled solutions, {len(rows) - len(kept)} dropped because their problem is in a test source")
    return kept, tests


def read(path: Path) -> list[dict[str, Any]]:
    """The records of one source that say where the first error is."""
    with path.open(encoding="utf-8") as lines:
        return [row for row in map(json.loads, lines) if row["label"] is not None]


def normal(problem: str) -> str:
    """A problem's text without what copying changes: case, spaces, punctuation, LaTeX dressing."""
    return " ".join(re.findall(r"[a-z]+|\d+", problem.lower()))


def shingles(problem: str) -> set[int]:
    """Hashes of all runs of SHINGLE words; a problem shorter than that is one shingle."""
    found = normal(problem).split()
    return {zlib.crc32(" ".join(found[i : i + SHINGLE]).encode()) for i in range(max(1, len(found) - SHINGLE + 1))}


def without_problems_of(rows: Sequence[dict[str, Any]], problems: Iterable[str]) -> list[dict[str, Any]]:
    """The rows whose problem shares less than NEAR of its shingles (of the smaller of the two sets) with every problem."""
    index: dict[int, list[int]] = defaultdict(list)
    sizes: list[int] = []
    for number, problem in enumerate(sorted(set(problems))):
        found = shingles(problem)
        sizes.append(len(found))
        for shingle in found:
            index[shingle].append(number)
    verdict: dict[str, bool] = {}
    for row in rows:
        problem = row["problem"]
        if problem not in verdict:
            found = shingles(problem)
            shared: dict[int, int] = defaultdict(int)
            for shingle in found:
                for number in index.get(shingle, ()):
                    shared[number] += 1
            verdict[problem] = all(count < NEAR * min(len(found), sizes[number]) for number, count in shared.items())
    return [row for row in rows if verdict[row["problem"]]]


def write_training_set(rows: Sequence[dict[str, Any]], folder: Path, seed: int) -> None:
    """Rows in the training-row contract, split by problem."""
    problems = sorted({normal(row["problem"]) for row in rows})
    random.Random(seed).shuffle(problems)
    dev = set(problems[: int(DEV_SHARE * len(problems))])
    folder.mkdir()
    with (folder / "train.jsonl").open("w") as train_file, (folder / "dev.jsonl").open("w") as dev_file:
        for row in rows:
            label, steps = row["label"], row["steps"]
            labels = [1.0] * len(steps) if label < 0 else [1.0] * label + [0.0] + [None] * (len(steps) - label - 1)
            line = {"prompt": row["problem"], "completions": steps, "labels": labels, "weight": 1.0, "source": row["source"]}
            out = dev_file if normal(row["problem"]) in dev else train_file
            out.write(json.dumps({"id": f"{row['source']}/{row['id']}", **line}) + "\n")


def measure(
    folder: Path, out: Path, tests: dict[str, list[dict[str, Any]]], seed: int, replicates: int, student: Any = "linear"
) -> Any:
    """Distill, score the test sources and print; returns `report`'s rows, shape (sources, 4 + 2 replicates)."""
    from distill.run import distill
    from distill.verifier import load_verifier

    started, cpu = time.monotonic(), time.process_time()
    distill(folder, out, student=student, seed=seed, say=lambda line: print(f"  {line}", file=sys.stderr))
    train_s, train_cpu = time.monotonic() - started, time.process_time() - cpu
    verifier = load_verifier(out)
    size = sum(path.stat().st_size for path in out.rglob("*")) / 1e6
    results, steps, cpu = {}, 0, time.process_time()
    for source, rows in tests.items():
        scored = verifier.score_many([(row["problem"], row["steps"]) for row in rows])
        results[source] = [np.array(p, dtype=np.float64).tolist() for p in scored]  # None is nan here
        steps += sum(len(row["steps"]) for row in rows)
    score_cpu = time.process_time() - cpu
    print(f"{'source':28} {'step AUROC':>22} {'first-error F1':>22} {'erroneous':>9} {'correct':>8} {'oracle F1':>9}")
    table = [report(source, rows, results[source], verifier.threshold, seed, replicates) for source, rows in tests.items()]
    mean = np.mean(table, axis=0)
    low, high = np.percentile(mean[4:].reshape(2, -1), [2.5, 97.5], axis=1)
    print(line("mean", mean, low, high))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"threshold {verifier.threshold:.4f} from dev (F1 there {100 * (verifier.info['threshold_from']['f1'] or 0):.1f}), "
          f"calibration {verifier.calibration.method}")  # fmt: skip
    print(f"training {train_s:.0f} s ({train_cpu:.0f} s CPU), peak {peak:.2f} GB; folder {size:.1f} MB; "
          f"scoring {steps / score_cpu:.0f} steps/s of CPU")  # fmt: skip
    return np.array(table)


def report(
    source: str, rows: Sequence[dict[str, Any]], scores: Sequence[Sequence[float]], tau: float, seed: int, replicates: int
) -> Any:
    """Print one source's line; returns (AUROC, F1, erroneous, correct, then the replicates of AUROC and of F1)."""
    from critic_prm.metrics.scores import first_below
    from distill.decision import choose_threshold

    gold = np.array([row["label"] for row in rows])
    hit = np.array([first_below(s, tau) == g for s, g in zip(scores, gold, strict=True)])
    p = np.array([x for s, g in zip(scores, gold, strict=True) for x in s[: g + 1 if g >= 0 else None]])
    y = np.array([i != g for s, g in zip(scores, gold, strict=True) for i in range(len(s[: g + 1 if g >= 0 else None]))])
    count = [len(s[: g + 1 if g >= 0 else None]) for s, g in zip(scores, gold, strict=True)]
    names, problem = np.unique([normal(row["problem"]) for row in rows], return_inverse=True)
    owner = np.repeat(problem, count)
    ones = np.ones(len(names))
    auroc, (f1, bad, good) = weighted_auroc(p, y, ones[owner]), official(gold, hit, ones[problem])
    generator = np.random.default_rng(seed)
    draws = np.array([
        [weighted_auroc(p, y, w[owner]), official(gold, hit, w[problem])[0]]
        for w in (np.bincount(generator.integers(len(names), size=len(names)), minlength=len(names)) for _ in range(replicates))
    ])  # fmt: skip
    low, high = np.percentile(draws, [2.5, 97.5], axis=0)
    row = np.concatenate([[auroc, f1, bad, good], draws.T.ravel()])
    print(line(source, row, low, high), f"{100 * (choose_threshold(scores, gold.tolist()).f1 or 0.0):9.1f}")
    return row


def line(source: str, row: Any, low: Any, high: Any) -> str:
    return (
        f"{source:28} {row[0]:6.3f} [{low[0]:.3f}, {high[0]:.3f}] {100 * row[1]:6.1f} "
        f"[{100 * low[1]:5.1f}, {100 * high[1]:5.1f}] {100 * row[2]:9.1f} {100 * row[3]:8.1f}"
    )


def official(gold: Any, hit: Any, w: Any) -> tuple[float, float, float]:
    """Official first-error F1, accuracy on erroneous, accuracy on correct solutions."""
    bad, good = gold >= 0, gold < 0
    a, c = (hit * w)[bad].sum() / max(w[bad].sum(), 1e-9), (hit * w)[good].sum() / max(w[good].sum(), 1e-9)
    return (2 * a * c / (a + c) if a + c else 0.0), a, c


def weighted_auroc(p: Any, y: Any, w: Any) -> float:
    """P(a right step scores above a wrong one), ties half."""
    order = np.argsort(p, kind="stable")
    p, y, w = p[order], y[order], w[order]
    _, tie = np.unique(p, return_inverse=True)
    wrong, right = np.bincount(tie, w * ~y), np.bincount(tie, w * y)
    below = np.cumsum(wrong) - wrong / 2
    return float((below * right).sum() / (wrong.sum() * right.sum()))


if __name__ == "__main__":
    main()
