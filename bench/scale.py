"""Compute the tables of docs/scale.md from measured figures and published prices: python bench/scale.py [cache | paper]

cache   store replies in a cache: rows per second and bytes per row as it grows (writes a file of some GB, then removes it)
paper   cost and duration of a job with each backend, of labels and of a student, as in the tables of docs/scale.md
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
from critic_prm.label.estimate import BYTES_PER_TOKEN
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

PROMPT_BYTES, REPLY_BYTES = 2460, 708
"""Mean size of a `stepwise` prompt about a solution of 6 steps, and of the reply of a strong judge without its thinking: 48
recorded ones."""

SOLUTION_BYTES, LABELLED_BYTES = 1248, 873
"""Mean size of problem and steps over 6,181 solutions of 25 sources: all steps, which are scored, and those up to the first
error, which are trained on."""

GPU_FLOPS = 989e12
"""bf16 operations per second of one H100 SXM without sparsity (published)."""
UTILISATION = (0.2, 0.4)
"""Share of GPU_FLOPS that is used, an assumption: networks of this size have not been trained here."""
EPOCHS = 3
"""The default of `distill`."""

DAY, HOUR = 86_400, 3600


@dataclass(frozen=True)
class Job:
    steps: int

    @property
    def labels(self) -> float:
        return self.steps / STEPS


def usd(provider: str, model: str, *, batch: bool = False, usage: Usage = LABEL) -> float | None:
    """Of 1,000 labels, None where the table has no price."""
    prices = abilities(provider, model).prices
    cost = None if prices is None else prices.cost(usage, batch=batch)
    return None if cost is None else 1000 * cost


def tokens(size: float) -> float:
    """Tokens of a text of `size` bytes, at the middle of the range that --dry-run assumes."""
    return size / (sum(BYTES_PER_TOKEN) / 2)


def judged() -> Usage:
    """Tokens of one recorded judgement."""
    return Usage(input=round(tokens(PROMPT_BYTES)), output=round(tokens(REPLY_BYTES)))


@dataclass(frozen=True)
class Network:
    """A transformer of the Qwen2.5 kind, by its published dimensions."""

    name: str
    layers: int
    width: int
    keys: int
    """Width of the keys, and of the values: fewer heads than queries."""
    inner: int
    """Width inside the MLP."""

    @property
    def weights(self) -> int:
        """Weights that a token is multiplied with: attention and MLP, no embeddings; a verifier has no language-model head."""
        return self.layers * (2 * self.width**2 + 2 * self.width * self.keys + 3 * self.width * self.inner)


NETWORKS = (Network("Qwen2.5-1.5B", 28, 1536, 256, 8960), Network("Qwen2.5-7B", 28, 3584, 512, 18944))


def training_flops(weights: int, solutions: float) -> float:
    """6ND: forward 2, backward 4 per weight and token. Attention to earlier tokens, 1 to 2% for so short texts, is left out."""
    return 6 * weights * solutions * tokens(LABELLED_BYTES) * EPOCHS


def scoring_flops(weights: int, solutions: float) -> float:
    """2ND: one forward pass scores all steps of a solution."""
    return 2 * weights * solutions * tokens(SOLUTION_BYTES)


def gpu_hours(flops: float, utilisation: float) -> float:
    return flops / (GPU_FLOPS * utilisation) / HOUR


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


def labels() -> Iterator[str]:
    usage = judged()
    yield "| judge | one judge, USD per 1,000 solutions | batch | two judges | batch |"
    yield "|---|---|---|---|---|"
    for provider, model in MODELS:
        online, batch = usd(provider, model, usage=usage), usd(provider, model, batch=True, usage=usage)
        if online is not None and batch is not None:
            yield f"| {provider}/{model} | {online:.2f} | {batch:.2f} | {2 * online:.2f} | {2 * batch:.2f} |"


def students() -> Iterator[str]:
    low, high = UTILISATION
    yield f"| student | job | FLOPs | tokens/s | hours on one H100 | USD, at {GPU_USD:.0f} an hour |"
    yield "|---|---|---|---|---|---|"
    jobs = [(f"train on {n:,} solutions, {EPOCHS} epochs", n, training_flops, 6) for n in (6_181, 100_000)]
    jobs += [("score 1,000,000 solutions", 1_000_000, scoring_flops, 2)]
    for network in NETWORKS:
        for job, solutions, flops_of, each in jobs:
            flops = flops_of(network.weights, solutions)
            hours = [gpu_hours(flops, share) for share in (high, low)]
            speed = [GPU_FLOPS * share / (each * network.weights) for share in (low, high)]
            yield (
                f"| {network.name} | {job} | {flops:.1e} | {speed[0]:,.0f} to {speed[1]:,.0f}"
                f" | {hours[0]:.2g} to {hours[1]:.2g} | {GPU_USD * hours[0]:.2f} to {GPU_USD * hours[1]:.2f} |"
            )


def paper() -> Iterator[str]:
    for part in (money, times, sizes, labels, students):
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
