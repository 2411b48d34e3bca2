"""Measure how well and how fast the rule critic finds first errors: python bench/rules.py DATA_DIR [SOURCE ...]

DATA_DIR holds SOURCE.jsonl files of trajectories with `label`. F1 is ProcessBench's: the harmonic mean of the share of
erroneous solutions whose first error is found exactly and the share of right solutions accepted.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import orjson

from critic_prm.arithmetic.claims import judge_one
from critic_prm.data.trajectory import trajectory_from_json

SOURCES = (
    "bbm_multistep_arithmetic",
    "processbench_gsm8k",
    "processbench_math",
    "processbench_olympiadbench",
    "processbench_omnimath",
)


def main(folder: Path, sources: tuple[str, ...]) -> None:
    print(f"{'source':28} {'F1':>6} {'found':>7} {'left alone':>11} {'flags right':>12} {'steps/s':>9}")
    for source in sources:
        lines = (folder / f"{source}.jsonl").read_bytes().splitlines()
        rows = [trajectory_from_json(orjson.loads(line), f"{source}:{number}") for number, line in enumerate(lines, 1)]
        rows = [row for row in rows if row.label is not None]
        start = time.process_time()
        judgements = [judge_one(row) for row in rows]
        seconds = time.process_time() - start
        steps = sum(len(judgement.verdicts) for judgement in judgements)
        pairs = [(row.label, judgement.first_error) for row, judgement in zip(rows, judgements, strict=True)]
        wrong = [found == gold for gold, found in pairs if gold != -1]
        right = [found == gold for gold, found in pairs if gold == -1]
        flags = [found == gold for gold, found in pairs if found != -1]
        hit, alone = share(wrong), share(right)
        f1 = 2 * hit * alone / (hit + alone) if hit + alone else 0.0
        print(f"{source:28} {f1:6.1f} {hit:6.1f}% {alone:10.1f}% {share(flags):11.1f}% {steps / seconds:9,.0f}")


def share(values: list[bool]) -> float:
    return 100 * sum(values) / len(values) if values else 0.0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(f"{__doc__}")
    main(Path(sys.argv[1]), tuple(sys.argv[2:]) or SOURCES)
