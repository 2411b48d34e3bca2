"""Train the implicit student on outcomes only, and report step AUROC and first-error F1.

    python bench/smollm2.py smollm2
    python -m bench.implicit --data ../shared/data/open --base smollm2

It learns from the records of `--outcomes` of the folder --data, which contain whether the final answer is right, but no step
labels. Calibration and threshold come from a dev split of `--labelled` step-labelled records of grade-school problems, the only
step labels that are used, and never for training. Problems of the test sources leave both first. `--limit` takes that many
records, drawn by seed, of each test source: scoring runs two models, policy and reference.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from pathlib import Path
from typing import Any

from bench.sources import decontaminated, matching, measure, read, read_all, source_of, split
from critic_prm.data.hashing import problem_key
from critic_prm.data.trajectory import Trajectory
from critic_prm.datasets.build import from_gold, training_row
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
    # The problems of all solutions of the test sources leave the training set, not only of those that are drawn from them.
    whole = {path.stem: read(path) for path in matching(args.data, [args.test_sources])}
    tests = {source: pick.sample(rows, min(args.limit, len(rows))) for source, rows in whole.items()}
    outcomes = decontaminated(read_all(args.data / f"{args.outcomes}.jsonl"), whole)
    labelled = decontaminated([t for path in matching(args.data, DEV_SOURCES) for t in read(path)], whole)
    labelled = pick.sample(labelled, min(args.labelled, len(labelled)))
    known = {problem_key(t.problem) for t in labelled}
    parts = split([t for t in outcomes if problem_key(t.problem) not in known], args.seed)
    right = sum(is_right(t) for t in outcomes)
    print(
        f"{len(outcomes)} solutions with outcomes, {right} right; {len(labelled)} solutions with step labels for the threshold"
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "training-set"
        folder.mkdir()
        own = parts["train"]
        pick.shuffle(own)
        for name, rows in (("train", own[: args.rows]), ("dev", [*parts["dev"], *labelled])):
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(row_of(t)) + "\n" for t in rows), "utf-8")
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


def is_right(t: Trajectory) -> bool:
    """Whether the final answer is right."""
    return bool(t.extra["final_answer_correct"])


def row_of(t: Trajectory) -> dict[str, Any]:
    """A training row: with the labels of a solution that has step labels, with the outcome of one that has none."""
    targets = from_gold(t)
    if not isinstance(targets, str):
        return training_row(t, targets, source_of(t))
    labels = [None] * len(t.steps)
    return {
        "id": t.id,
        "prompt": t.problem,
        "completions": t.texts,
        "labels": labels,
        "outcome": float(is_right(t)),
        "source": source_of(t),
    }


if __name__ == "__main__":
    main()
