"""Train the implicit student on outcomes only, and report step AUROC and first-error F1 as bench/linear.py does.

    python bench/smollm2.py smollm2
    python -m bench.implicit --data ../shared/data/open --base smollm2

It learns from the records of `--outcomes` of the folder --data, which contain whether the final answer is right, but no step
labels. Calibration and threshold come from a dev split of `--labelled` step-labelled records of grade-school problems, the only
step labels that are used, and never for training. Problems of the test sources leave both first. `--limit` takes that many
records, drawn by seed, of each test source: scoring runs two models, policy and reference.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import random
import tempfile
from pathlib import Path
from typing import Any

from bench.linear import DEV_SHARE, measure, normal, read, without_problems_of
from distill.settings import TrainingSettings
from distill.students.implicit import BETA, Implicit

DEV_SOURCES = ("mr_gsm8k_subset", "roscoe_gsm8k", "stepverify_teachers", "parc_gsm8k")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of <source>.jsonl")
    parser.add_argument("--base", required=True, help="a causal language model: a hub name or a folder")
    parser.add_argument("--outcomes", default="outcome_gsm8k_openai")
    parser.add_argument("--test-sources", default="processbench_*")
    parser.add_argument("--labelled", type=int, default=200)
    parser.add_argument("--limit", type=int, default=150)
    parser.add_argument("--rows", type=int, help="learn from that many records only")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--freeze", default="none")
    parser.add_argument("--lr", type=float, default=1e-5)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--beta", type=float, default=BETA)
    parser.add_argument("--out", type=Path, help="keep the verifier in this folder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bootstrap", type=int, default=1000)
    args = parser.parse_args()
    pick = random.Random(args.seed)
    tests = {}
    for path in sorted(args.data.glob("*.jsonl")):
        if fnmatch.fnmatch(path.stem, args.test_sources):
            rows = read(path)
            tests[path.stem] = pick.sample(rows, min(args.limit, len(rows)))
    # All problems of the test sources, not only of the records that are drawn from them.
    problems = [row["problem"] for name in tests for row in read(args.data / f"{name}.jsonl")]
    with (args.data / f"{args.outcomes}.jsonl").open(encoding="utf-8") as lines:
        outcomes = without_problems_of([json.loads(line) for line in lines], problems)
    labelled = [row for name in DEV_SOURCES for row in read(args.data / f"{name}.jsonl")]
    labelled = pick.sample(without_problems_of(labelled, problems), args.labelled)
    names = sorted({normal(row["problem"]) for row in outcomes} - {normal(row["problem"]) for row in labelled})
    pick.shuffle(names)
    dev = set(names[: int(DEV_SHARE * len(names))])
    train = set(names) - dev
    right = sum(row["final_answer_correct"] for row in outcomes)
    print(
        f"{len(outcomes)} solutions with outcomes, {right} right; {len(labelled)} solutions with step labels for the threshold"
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "training-set"
        folder.mkdir()
        own = [row for row in outcomes if normal(row["problem"]) in train]
        pick.shuffle(own)
        own = own[: args.rows]
        with (folder / "train.jsonl").open("w") as out:
            out.writelines(line(row) for row in own)
        with (folder / "dev.jsonl").open("w") as out:
            out.writelines(line(row) for row in outcomes if normal(row["problem"]) in dev)
            out.writelines(line(row) for row in labelled)
        settings = TrainingSettings(
            layers=args.layers,
            freeze=args.freeze,
            lr=args.lr,
            epochs=args.epochs,
            batch_tokens=4096,
            micro_tokens=1024,
            patience=0,
        )
        student = Implicit(args.base, settings, args.beta)
        measure(folder, args.out or Path(scratch) / "verifier", tests, args.seed, args.bootstrap, student)


def line(row: dict[str, Any]) -> str:
    """A record as a training row: the outcome of one without step labels, the labels of one with them."""
    label, steps = row["label"], row["steps"]
    labels: list[float | None] = [None] * len(steps)
    if label is not None:
        labels = [1.0] * len(steps) if label < 0 else [1.0] * label + [0.0] + [None] * (len(steps) - label - 1)
    outcome = row["final_answer_correct"] if label is None else None
    return (
        json.dumps(
            {"prompt": row["problem"], "completions": steps, "labels": labels, "outcome": outcome, "source": row["source"]}
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
