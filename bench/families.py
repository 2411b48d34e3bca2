"""Train the linear student on generated families only, and measure it on solutions from other sources.

    python -m bench.families --test ../shared/data/open [-n 1500] [--natural ../shared/data/open]

Each family gives `n` trajectories. Labels are the generator's own in the first table, the rule critic's on the same solutions
in the second (a step it calls neutral has none; a solution without anything it could check is left out). No other labels are
used: dev, calibration and threshold come from the generated problems, too. With --natural, three more train on the
step-labelled records of a folder, less the problems that a test source shares: alone, with the families, and with the families
in train but not in dev. --only-natural leaves out the first two.

    python -m bench.families --confirm 10000

runs the tests of the families on 10,000 trajectories of each, instead of 500: an independent checker confirms every label.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.sources import SHARES, decontaminated, matching, measure, of_source, read, tell, write_training_set
from critic_prm.arithmetic.claims import judge_one
from critic_prm.critics.rules import RuleCritic
from critic_prm.data.judgement import combine
from critic_prm.data.label_rows import label_row
from critic_prm.data.records.reading import RecordWriter
from critic_prm.data.trajectory import Trajectory
from critic_prm.datasets.build import DatasetOptions, build_dataset
from critic_prm.generate.family import family_names, generate_family

TESTS = (
    "processbench_gsm8k",
    "processbench_math",
    "processbench_olympiadbench",
    "processbench_omnimath",
    "bbm_multistep_arithmetic",
)


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
    tests = {path.stem: read(path) for path in matching(args.test, TESTS)}
    families = args.family or family_names()
    made = [of_source(t, name) for name in families for t in generate_family(name, args.n, seed=args.seed)]
    print(f"{len(made)} trajectories of {', '.join(families)}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)

        def report(title: str, training_set: Path) -> None:
            print(f"\n## {title}", flush=True)
            measure(training_set, folder / f"{training_set.name}-verifier", tests, args.seed, args.bootstrap)

        write_training_set(made, folder / "own", args.seed)
        if not args.only_natural:
            report("families, own labels", folder / "own")
            count = write_judged(made, folder / "judged", args.seed)
            report(f"families, labels of the rule critic ({count} of them checkable)", folder / "judged")
        if args.natural:
            natural = decontaminated([t for path in matching(args.natural, but=TESTS) for t in read(path)], tests)
            write_training_set(natural, folder / "natural", args.seed)
            report(f"natural: {len(natural)} solutions", folder / "natural")
            write_training_set(natural + made, folder / "both", args.seed)
            report(f"natural and families: {len(natural + made)} solutions", folder / "both")
            with (folder / "natural" / "train.jsonl").open("a") as train_file:
                for part in ("train", "dev"):
                    train_file.write((folder / "own" / f"{part}.jsonl").read_text())
            report("natural and families, dev natural alone", folder / "natural")


def write_judged(trajectories: Sequence[Trajectory], folder: Path, seed: int) -> int:
    """A training set with the labels of the rule critic: only steps with an equation that it could evaluate have one."""
    labels = folder.with_suffix(".jsonl")
    with RecordWriter(labels) as writer:
        for t in trajectories:
            writer.write(label_row(t, combine([judge_one(t)], len(t.steps)), RuleCritic().card))
    kept: int = build_dataset([labels], folder, DatasetOptions(split=SHARES, seed=seed), say=tell)["kept"]
    return kept


if __name__ == "__main__":
    main()
