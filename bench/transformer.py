"""The hybrid student over a pretrained base against the linear one: same data and measures, the difference with its interval.

    python bench/smollm2.py smollm2
    python -m bench.transformer --train ../shared/data/open --test ../shared/data/open --base smollm2

Decontamination, dev and measures are those of bench/sources.py. The base reads solutions of mathematics and physics alone, by
the names of their sources (`--sources`): what it makes of agents' logs or of sorted words says little about proofs, and reading
is what takes the time. The linear part, and the linear student beside it, learn from all sources. The hybrid's dev holds the
sources that it reads; the linear student is measured with that dev as well as with its own.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.sources import load, measure, write_training_set
from distill.settings import TrainingSettings
from distill.students.hybrid import Hybrid

SOURCES = ("mr_*", "mrben_math", "mrben_physics", "parc_*", "*prm800k*", "prmbench_*", "stepverify_*", "*_gsm8k")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, required=True, help="folder of <source>.jsonl to train on")
    parser.add_argument("--test", type=Path, required=True, help="folder of <source>.jsonl to measure on")
    parser.add_argument("--test-sources", default="processbench_*", help="which sources of --test (a shell pattern)")
    parser.add_argument("--base", required=True, help="a causal language model: a hub name or a folder")
    parser.add_argument("--sources", nargs="+", default=SOURCES, help="which sources the base reads in training (patterns)")
    parser.add_argument("--out", type=Path, help="keep the hybrid verifier in this folder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bootstrap", type=int, default=1000)
    args = parser.parse_args()
    kept, tests = load(args.train, args.test, args.test_sources)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "training-set"
        write_training_set(kept, folder, args.seed)
        narrow = with_dev_of(folder, Path(scratch) / "narrow", args.sources)
        print("\n## linear", flush=True)
        linear = measure(folder, Path(scratch) / "linear", tests, args.seed, args.bootstrap)
        print("\n## linear, the hybrid's dev", flush=True)
        same_dev = measure(narrow, Path(scratch) / "linear-narrow", tests, args.seed, args.bootstrap)
        print(f"\n## hybrid over {args.base}", flush=True)
        student = Hybrid(args.base, TrainingSettings(), tuple(args.sources))
        hybrid = measure(narrow, args.out or Path(scratch) / "hybrid", tests, args.seed, args.bootstrap, student)
    for title, other in (("linear", linear), ("linear with its dev", same_dev)):
        print(f"\n## hybrid less {title} (the same draws of problems for both)")
        for name, row in zip([*tests, "mean"], [*(hybrid - other), (hybrid - other).mean(axis=0)], strict=True):
            print(difference(name, row))


def with_dev_of(folder: Path, to: Path, sources: Sequence[str]) -> Path:
    """A copy of a training set, of whose dev only the rows of some sources stay."""
    to.mkdir()
    shutil.copyfile(folder / "train.jsonl", to / "train.jsonl")
    with (folder / "dev.jsonl").open() as lines, (to / "dev.jsonl").open("w") as out:
        out.writelines(line for line in lines if any(fnmatch.fnmatch(json.loads(line)["source"], p) for p in sources))
    return to


def difference(name: str, row: Any) -> str:
    """`row` is what `figures` gives, subtracted: AUROC, F1, two accuracies, the replicates of AUROC, those of F1."""
    (low, low_f1), (high, high_f1) = np.percentile(row[4:].reshape(2, -1), [2.5, 97.5], axis=1)
    return (
        f"{name:28} AUROC {row[0]:+.3f} [{low:+.3f}, {high:+.3f}]   F1 {100 * row[1]:+.1f} "
        f"[{100 * low_f1:+.1f}, {100 * high_f1:+.1f}]"
    )


if __name__ == "__main__":
    main()
