"""CPU seconds per step of the hybrid student's reading, for choices of its options, on the same solutions.

    OMP_NUM_THREADS=1 python -m bench.hybrid_speed --base FOLDER --data FILE... [-n 24] [--rounds 2]

Every round reads all solutions once with each choice, so that other jobs on the machine disturb all alike; the times are CPU
times, and the ratio is to the first choice. The AUROC of a choice is measured by `bench/transfer.py --option`.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from dataclasses import replace
from pathlib import Path

from distill.settings import TrainingSettings
from distill.students.frozen_lm import FrozenLM
from distill.students.hybrid import VOCABULARY, frequent_tokens, open_reader
from distill.types import Item


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", required=True, help="a causal language model: a hub name or a folder")
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="files of trajectories")
    parser.add_argument("--layers", type=int, nargs="*", default=[18, 14, 10], help="numbers of layers that are read alone")
    parser.add_argument("-n", type=int, default=24, help="solutions per file")
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    items: list[Item] = []
    for path in args.data:
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        items += [(row["problem"], row["steps"]) for row in random.Random(0).sample(rows, min(args.n, len(rows)))]
    steps = sum(len(steps) for _, steps in items)
    readers = choices(args.base, items, args.layers)
    seconds = dict.fromkeys(readers, 0.0)
    for _ in range(args.rounds):
        for name, reader in readers.items():
            started = time.process_time()
            reader.read(items)
            seconds[name] += (time.process_time() - started) / args.rounds
    first = next(iter(seconds.values()))
    print(f"{len(items)} solutions, {steps} steps, {args.rounds} rounds")
    print(f"{'choice':32}{'s of CPU per step':>18}{'steps per s of CPU':>20}{'ratio':>8}")
    for name, each in seconds.items():
        print(f"{name:32}{each / steps:18.3f}{steps / each:20.1f}{first / each:8.2f}")


def choices(base: str, items: list[Item], layers: list[int]) -> dict[str, FrozenLM]:
    """The readers by the name of the choice: all tokens first, then the default, then a part of the layers."""
    settings = TrainingSettings()
    everything = open_reader(base, settings)
    frequent = replace(everything, vocabulary=frequent_tokens(everything, items, VOCABULARY))
    parts = {f"layers={n}, states only": open_reader(base, settings, n) for n in layers}
    return {"all layers, vocabulary=0": everything, f"all layers, vocabulary={VOCABULARY}": frequent, **parts}


if __name__ == "__main__":
    main()
