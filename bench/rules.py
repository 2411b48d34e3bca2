"""Measure how well and how fast the rule critic finds first errors.

    python -m bench.rules DATA_DIR [SOURCE ...]

DATA_DIR holds SOURCE.jsonl files of trajectories with gold labels. F1 is ProcessBench's: the harmonic mean of the share of
erroneous solutions whose first error is found exactly and the share of right solutions accepted.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from bench.sources import first_error, read
from critic_prm.arithmetic.claims import judge_one
from critic_prm.metrics.scores import first_error_f1

SOURCES = (
    "bbm_multistep_arithmetic",
    "processbench_gsm8k",
    "processbench_math",
    "processbench_olympiadbench",
    "processbench_omnimath",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("sources", nargs="*", default=SOURCES)
    args = parser.parse_args()
    print(f"{'source':28} {'F1':>6} {'found':>7} {'left alone':>11} {'flags right':>12} {'steps/s':>9}")
    for source in args.sources:
        rows = read(args.folder / f"{source}.jsonl")
        start = time.process_time()
        judgements = [judge_one(row) for row in rows]
        seconds = time.process_time() - start
        steps = sum(len(judgement.verdicts) for judgement in judgements)
        gold, found = [first_error(row) for row in rows], [judgement.first_error for judgement in judgements]
        official = first_error_f1(gold, found)
        flags = [a == b for a, b in zip(gold, found, strict=True) if b != -1]
        shares = (official.f1, official.erroneous, official.correct, sum(flags) / len(flags) if flags else None)
        f1, hit, alone, right = (100 * (value or 0.0) for value in shares)
        print(f"{source:28} {f1:6.1f} {hit:6.1f}% {alone:10.1f}% {right:11.1f}% {steps / seconds:9,.0f}")


if __name__ == "__main__":
    main()
