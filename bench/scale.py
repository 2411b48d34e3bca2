"""Compute the tables of docs/scale.md from measured figures and published prices: python bench/scale.py [cache | paper]

cache   store replies in a cache: rows per second and bytes per row as it grows (writes a file of some GB, then removes it)
paper   cost and duration of a job with each backend, as in the tables of docs/scale.md
"""

from __future__ import annotations

import argparse
import hashlib
import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from critic_prm.engine.cache import Cache, Entry
from critic_prm.providers.models import abilities
from critic_prm.providers.provider import Usage

LABEL = Usage(input=1000, output=400)
"""Tokens of one label: the stepwise prompt about a solution of eight steps, and a critique of each; measured with text of
English mathematics, 3 kB in and 1.5 kB out."""
STEPS = 8
"""Of a solution, on average over real collections."""

MODELS = (
    ("openai", "gpt-6-luna"),
    ("anthropic", "claude-haiku-5-5"),
    ("openai", "gpt-5.6-luna"),
    ("openai", "gpt-6-sol"),
    ("anthropic", "claude-opus-5-5"),
)

GPU_TOKENS, GPU_USD = 34_470.0, 3.0
"""Published throughput of one H100 with Qwen3.5-9B in vLLM, in tokens per second, prompt and output together (GPUStack's
performance lab, "throughput profile"), and a round price per hour in USD, an assumption."""

DRIVER_CPU, WORKER_BYTES = 0.95e-3, 5_200
"""Driver CPU in seconds and bytes transferred per request through a cluster (bench/ray.py wire)."""

ROW_BYTES, ROWS = 5_700, 4_700
"""Bytes per cache row of such a label, and rows written per second (the part `cache`)."""

TIERS = (("500 requests a minute", 500 / 60), ("10,000 requests a minute", 10_000 / 60), ("30,000 requests a minute", 500.0))

DAY = 86_400


@dataclass(frozen=True)
class Job:
    steps: int

    @property
    def labels(self) -> float:
        return self.steps / STEPS


def usd(provider: str, model: str, *, batch: bool = False) -> float | None:
    """Of 1,000 labels, None where the table has no price."""
    prices = abilities(provider, model).prices
    cost = None if prices is None else prices.cost(LABEL, batch=batch)
    return None if cost is None else 1000 * cost


def gpu_labels() -> float:
    """Labels a second of one GPU."""
    return GPU_TOKENS / (LABEL.input + LABEL.output)


def gpu_usd() -> float:
    """Of 1,000 labels on rented GPUs that are kept busy."""
    return 1000 / gpu_labels() / 3600 * GPU_USD


def money() -> Iterator[str]:
    yield "| judge | online, USD per 1,000 labels | batch | 100 M steps online | 100 M steps by batch |"
    yield "|---|---|---|---|---|"
    thousands = Job(100_000_000).labels / 1000
    for provider, model in MODELS:
        online, batch = usd(provider, model), usd(provider, model, batch=True)
        if online is None or batch is None:
            continue
        yield f"| {provider}/{model} | {online:.2f} | {batch:.2f} | {online * thousands:,.0f} | {batch * thousands:,.0f} |"
    own = gpu_usd()
    yield f"| a 9B model on your own H100s | {own:.3f} | | {own * thousands:,.0f} | |"


def times() -> Iterator[str]:
    labels = Job(100_000_000).labels
    yield "| bottleneck | labels/s | 100 M steps (12.5 M labels) |"
    yield "|---|---|---|"
    rows = [(f"a provider that allows {name}", rate) for name, rate in TIERS]
    rows += [(f"{count} H100 with a 9B model", count * gpu_labels()) for count in (1, 8, 64)]
    rows += [("the driver's core, with a cluster", 1 / DRIVER_CPU), ("the cache's single writer", float(ROWS))]
    for name, rate in rows:
        days = labels / rate / DAY
        yield f"| {name} | {rate:,.0f} | {f'{days:.1f} days' if days >= 1 else f'{24 * days:.1f} hours'} |"


def sizes() -> Iterator[str]:
    yield "| job | labels | cache file | traffic through the driver | GPUs per driver, at 24.6 labels/s per GPU |"
    yield "|---|---|---|---|---|"
    feeds = 1 / DRIVER_CPU / gpu_labels()
    for steps in (100_000, 1_000_000, 10_000_000, 100_000_000):
        labels = Job(steps).labels
        yield (
            f"| {steps:,} steps | {labels:,.0f} | {labels * ROW_BYTES / 1e9:,.1f} GB | {labels * WORKER_BYTES / 1e9:,.1f} GB"
            f" | {feeds:.0f} |"
        )


def paper() -> Iterator[str]:
    for part in (money, times, sizes):
        yield from part()
        yield ""


def entries(start: int, count: int) -> Iterator[Entry]:
    """Rows like those of a real judge: a prompt of 3 kB, a body of 2 kB, keys without order."""
    words = [hashlib.sha256(str(n).encode()).hexdigest()[: n % 9 + 2] for n in range(4000)]
    draw = random.Random(start)
    usage = LABEL
    system = " ".join(words[:400])
    for n in range(start, start + count):
        text = " ".join(draw.choices(words, k=220))
        shown = " ".join(draw.choices(words, k=160))
        wire = {
            "model": "bench",
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": f"{n} {shown}"}],
            "max_tokens": 4096,
        }
        raw = {
            "id": f"chatcmpl-{n}",
            "object": "chat.completion",
            "model": "bench",
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
            "usage": {"prompt_tokens": usage.input, "completion_tokens": usage.output, "total_tokens": 1400},
        }
        key = hashlib.sha256(str(n).encode()).hexdigest()
        yield Entry(key, wire, 0, "", "openai", "bench", "http://localhost/v1", raw, text, "stop", usage, 1.0)


def cache(rows: int, block: int) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.db"
        store = Cache(path)
        for start in range(0, rows, block):
            made = list(entries(start, block))
            began = time.perf_counter()
            for first in range(0, block, 256):
                store.add(made[first : first + 256])
            seconds = time.perf_counter() - began
            size = path.stat().st_size
            looked = [
                hashlib.sha256(str(n).encode()).hexdigest() for n in random.Random(start).sample(range(start + block), 2000)
            ]
            began = time.perf_counter()
            found = store.known(looked)
            asked = 2000 / (time.perf_counter() - began)
            assert len(found) == 2000
            yield (
                f"{start + block:>9,} rows: {block / seconds:8,.0f} rows/s written, {size / (start + block):6,.0f} bytes a row,"
                f" {asked:8,.0f} keys/s looked up, file {size / 1e9:.2f} GB"
            )
        store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("part", nargs="?", default="paper", choices=["paper", "cache"])
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--block", type=int, default=20_000)
    given = parser.parse_args()
    for line in paper() if given.part == "paper" else cache(given.rows, given.block):
        print(line, flush=True)


if __name__ == "__main__":
    main()
