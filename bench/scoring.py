"""Measure scoring with a transformer verifier: all steps in one pass, shared prefixes, appended steps.

    python bench/smollm2.py smollm2
    python -m bench.scoring --data ../shared/data/open --base smollm2

Without --base, a random Qwen2 of 4 layers and 256 dimensions. Everything is measured in one run, in turns, by CPU time of this
process with one thread unless said otherwise, and printed as ratios of medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from distill.layouts import make_encoder
from distill.scoring.model import PrefixCachedRunner
from distill.scoring.scorer import TransformerScorer, scorer_of
from distill.settings import TrainingSettings
from distill.training.network import open_network, open_tokenizer, plain_model
from distill.types import Item


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of <source>.jsonl")
    parser.add_argument("--base", help="a base: a folder or a hub name")
    parser.add_argument("--solutions", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        scorer = open_scorer(args.base or tiny(Path(scratch)))
        rows = eight_steps(args.data, args.solutions)
        print(f"{args.base or 'a random model'}: {sum(p.numel() for p in scorer.machine.model.parameters()):,} weights")  # type: ignore[union-attr]
        items: list[Item] = [(row["problem"], row["steps"]) for row in rows]
        against_a_pass_per_step(scorer, items, args.repeats)
        against_a_bare_forward(scorer, items, args.repeats)
        candidates(scorer, items, args.repeats)
        growing(scorer, items, args.repeats)


def open_scorer(base: str) -> TransformerScorer:
    network = open_network(base, TrainingSettings(dtype="fp32", device="cpu"))
    model, more = plain_model(network)
    encoder = make_encoder(open_tokenizer(base), "default", 2048)
    return scorer_of(model.eval(), more, encoder, {"causal": True, "heads": 1})


def tiny(folder: Path) -> str:
    from tests.distill.tiny import tiny_base

    return str(tiny_base(folder / "base", "qwen2", layers=4, size=256, length=4096))


def eight_steps(folder: Path, count: int) -> list[dict[str, Any]]:
    """Solutions of exactly eight steps, evenly spread over all sources."""
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            found += [row for row in map(json.loads, lines) if len(row["steps"]) == 8]
    return found[:: max(1, len(found) // count)][:count]


def compare(title: str, bar: float, slow: Callable[[], Any], fast: Callable[[], Any], repeats: int) -> None:
    """The median CPU time of `slow` over that of `fast`, measured in turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for work, into in zip((slow, fast), times, strict=True):
            began = time.process_time()
            work()
            into.append(time.process_time() - began)
    a, b = (statistics.median(t) for t in times)
    print(f"{title}: {a / b:.2f} times (bar {bar}); {a:.2f} s and {b:.2f} s", flush=True)


def against_a_pass_per_step(scorer: TransformerScorer, items: Sequence[Item], repeats: int) -> None:
    prefixes = [[(problem, steps[:n]) for n in range(1, len(steps) + 1)] for problem, steps in items]

    def per_step() -> None:
        for group in prefixes:
            for item in group:
                scorer.score([item])

    compare("8 steps in one pass, against a pass per step", 4, per_step, lambda: scorer.score(items), repeats)


def against_a_bare_forward(scorer: TransformerScorer, items: Sequence[Item], repeats: int) -> None:
    """The model alone on each sequence, without padding and without reading a score: what no scorer can beat much."""
    encoded = scorer.encoder.encode_many(items)
    model = scorer.machine.model  # type: ignore[union-attr]
    ids = [torch.from_numpy(e.ids[: e.ends[-1] + 1].astype(np.int64))[None] for e in encoded]

    def bare() -> None:
        with torch.inference_mode():
            for one in ids:
                model.model(input_ids=one, use_cache=False)

    compare("tokens/s of scoring, of a bare forward without padding", 0.85, bare, lambda: scorer.score(items), repeats)


def candidates(scorer: TransformerScorer, items: Sequence[Item], repeats: int) -> None:
    """Sixteen next steps for the same problem and first seven steps."""
    groups = [
        [(problem, [*steps[:7], items[(n + k) % len(items)][1][7]]) for k in range(16)]
        for n, (problem, steps) in enumerate(items[:4])
    ]

    def apart() -> None:
        for group in groups:
            for item in group:
                scorer.score([item])

    def together() -> None:
        for group in groups:
            scorer.score(group)

    compare("16 candidates with one beginning together, against apart", 2, apart, together, repeats)


def growing(scorer: TransformerScorer, items: Sequence[Item], repeats: int) -> None:
    """Score a solution after each of its steps, as in search: with the prefix cache, and from scratch."""
    assert scorer.machine is not None
    machine = scorer.machine

    def grow(one: TransformerScorer) -> None:
        for problem, steps in items[:8]:
            for n in range(1, len(steps) + 1):
                one.score([(problem, steps[:n])])

    compare(
        "a solution scored after each step, with a prefix cache or without", 2, lambda: grow(scorer),
        lambda: grow(replace(scorer, runner=PrefixCachedRunner(machine))), repeats,
    )  # fmt: skip


if __name__ == "__main__":
    main()
