"""Train the linear student on generated families only, and measure it on solutions from other sources.

    python -m bench.families --test ../shared/data/open [-n 1500] [--natural ../shared/data/open]

Each family gives `n` trajectories. Labels are the generator's own in the first row, the rule critic's on the same solutions in
the second (a step it calls neutral has none; a solution without anything it could check is left out). No other labels are
used: dev, calibration and threshold come from the generated problems, too. With --natural, three more train on the
step-labelled records of a folder, less the problems that a test source shares: alone, with the families, and with the families
in train but not in dev. --only-natural leaves out the first two.

    python -m bench.families --confirm 10000

runs the tests of the families on 10,000 trajectories of each, instead of 500: an independent checker confirms every label.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.linear import measure, normal, read, without_problems_of, write_training_set
from critic_prm.arithmetic.claims import judge_one
from critic_prm.data.trajectory import Trajectory
from critic_prm.generate.family import family_names, generate_family

TESTS = (
    "processbench_gsm8k",
    "processbench_math",
    "processbench_olympiadbench",
    "processbench_omnimath",
    "bbm_multistep_arithmetic",
)
DEV_SHARE = 0.15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--confirm", type=int, metavar="N", help="only confirm the labels of N trajectories per family")
    parser.add_argument("--test", type=Path, help="folder of <source>.jsonl to measure on")
    parser.add_argument("--natural", type=Path, help="folder of <source>.jsonl to train on as well")
    parser.add_argument("--only-natural", action="store_true", help="leave out what needs no natural records")
    parser.add_argument("-n", type=int, default=1500, help="trajectories per family")
    parser.add_argument("--family", action="append", help="only this family; repeat for several")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bootstrap", type=int, default=1000)
    args = parser.parse_args()
    if args.confirm:
        tested = ["tests/contract/test_families.py", "tests/generate"]
        environment = {**os.environ, "FAMILY_TRAJECTORIES": str(args.confirm)}
        sys.exit(subprocess.run([sys.executable, "-m", "pytest", "-q", *tested], env=environment).returncode)
    if args.test is None:
        parser.error("--test is required")
    tests = {source: read(args.test / f"{source}.jsonl") for source in TESTS}
    made = {name: list(generate_family(name, args.n, seed=args.seed)) for name in args.family or family_names()}
    trajectories = [t for found in made.values() for t in found]
    print(f"{len(trajectories)} trajectories of {', '.join(made)}")
    gold = [record(t, name) for name, found in made.items() for t in found]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)

        def report(title: str, training_set: Path) -> None:
            print(f"\n## {title}", flush=True)
            measure(training_set, folder / f"{training_set.name}-verifier", tests, args.seed, args.bootstrap)

        write_training_set(gold, folder / "own", args.seed)
        if not args.only_natural:
            report("families, own labels", folder / "own")
            count = write_judged(trajectories, folder / "judged", args.seed)
            report(f"families, labels of the rule critic ({count} of them checkable)", folder / "judged")
        if args.natural:
            found = [row for path in sorted(args.natural.glob("*.jsonl")) if path.stem not in tests for row in read(path)]
            natural = without_problems_of(found, [row["problem"] for rows in tests.values() for row in rows])
            write_training_set(natural, folder / "natural", args.seed)
            report(f"natural: {len(natural)} solutions", folder / "natural")
            write_training_set(natural + gold, folder / "both", args.seed)
            report(f"natural and families: {len(natural + gold)} solutions", folder / "both")
            with (folder / "natural" / "train.jsonl").open("a") as train_file:
                for part in ("train", "dev"):
                    train_file.write((folder / "own" / f"{part}.jsonl").read_text())
            report("natural and families, dev natural alone", folder / "natural")


def record(t: Trajectory, family: str) -> dict[str, Any]:
    return {"id": t.id, "source": family, "problem": t.problem, "steps": list(t.texts), "label": t.label}


def write_judged(trajectories: Sequence[Trajectory], folder: Path, seed: int) -> int:
    """A training set with the labels of the rule critic: only steps with an equation that it could evaluate have one."""
    rows = list(judged(trajectories))
    problems = sorted({normal(row["prompt"]) for row in rows})
    random.Random(seed).shuffle(problems)
    dev = set(problems[: int(DEV_SHARE * len(problems))])
    folder.mkdir()
    with (folder / "train.jsonl").open("w") as train_file, (folder / "dev.jsonl").open("w") as dev_file:
        for row in rows:
            (dev_file if normal(row["prompt"]) in dev else train_file).write(json.dumps(row) + "\n")
    return len(rows)


def judged(trajectories: Sequence[Trajectory]) -> Iterator[dict[str, Any]]:
    values = {"correct": 1.0, "incorrect": 0.0, "neutral": None}
    for t in trajectories:
        found = {verdict.step: values[verdict.value] for verdict in judge_one(t).verdicts}
        labels = [found.get(index) for index in range(len(t.steps))]
        if any(label is not None for label in labels):
            yield {"id": t.id, "prompt": t.problem, "completions": list(t.texts), "labels": labels, "weight": 1.0,
                   "source": t.meta["family"]}  # fmt: skip


if __name__ == "__main__":
    main()
