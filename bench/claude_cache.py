"""Measure what Claude's prompt cache saves, with a loopback server that follows its documentation, with and without markers.

The rule: an entry is written at each marker (`cache_control`, at most 4) whose prefix has the model's minimum of tokens. It can
be read once that request's answer has begun, for 5 minutes from its last use. From each marker the server looks back over 20
blocks for the longest prefix that was written before. Tokens are counted as characters / 3.5.

    python bench/claude_cache.py

prints a table: input tokens read from the cache, written to it, and the cost of the input, for each model and kind of run.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import orjson
from aiohttp import web

from critic_prm.critics.llm import with_provider
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.engine.options import JudgeOptions
from critic_prm.label.run import label
from critic_prm.providers.anthropic import AnthropicProvider
from critic_prm.providers.models import abilities
from critic_prm.providers.provider import Provider, Usage

MARKERS = 4
LOOKBACK = 20
KEPT = 300.0
CHARACTERS_PER_TOKEN = 3.5
PICTURE = 1500
"""Tokens of an image."""

REPLIES = {
    "agent": "It does what the task needs.\nVerdict: correct",
    "yes-no": "It holds.\nIs the step correct? Yes",
    "stepwise": "Step 1: It does not hold.\nThe step is \\boxed{incorrect}",
}


class Refused(Exception):
    """A body that the API answers with 400."""


@dataclass
class PromptCache:
    """The entries of one model's cache. `clock` gives seconds."""

    minimum: int
    clock: Callable[[], float] = time.monotonic
    entries: dict[str, float] = field(default_factory=dict)

    def use(self, body: Mapping[str, Any]) -> tuple[dict[str, int], list[str]]:
        """(usage, the entries that exist once the answer has begun). Raises Refused."""
        blocks = blocks_of(body)
        markers = [place for place, (*_, marked) in enumerate(blocks) if marked]
        if len(markers) > MARKERS:
            raise Refused(f"A maximum of {MARKERS} blocks with cache_control may be provided. Found {len(markers)}.")
        digest, tokens = sha256(), 0.0
        prefixes, lengths = [], []
        for role, text, _ in blocks:
            digest.update(f"{role}\0{text}\0".encode())
            tokens += PICTURE if text.startswith("image:") else len(text) / CHARACTERS_PER_TOKEN
            prefixes.append(digest.copy().hexdigest())
            lengths.append(int(tokens))
        found = max((place for marker in markers for place in self._readable(prefixes, marker)), default=-1)
        kept = [place for place in markers if lengths[place] >= self.minimum]
        read = lengths[found] if found >= 0 else 0
        written = max(lengths[kept[-1]] - read, 0) if kept else 0
        if found >= 0:
            self.entries[prefixes[found]] = self.clock() + KEPT
        usage = {
            "input_tokens": lengths[-1] - read - written,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": written,
        }
        return usage, [prefixes[place] for place in kept]

    def begin(self, entries: Sequence[str]) -> None:
        """An answer begins: what its request wrote can be read from now on."""
        self.entries.update(dict.fromkeys(entries, self.clock() + KEPT))

    def _readable(self, prefixes: Sequence[str], marker: int) -> list[int]:
        near = range(max(marker - LOOKBACK + 1, 0), marker + 1)
        return [place for place in near if self.entries.get(prefixes[place], 0.0) > self.clock()]


def blocks_of(body: Mapping[str, Any]) -> list[tuple[str, str, bool]]:
    """(role, text, whether it is marked) of each block of a prompt, in the order of the cache: system, then messages."""
    system = body.get("system") or []
    parts = [("system", [{"type": "text", "text": system}] if isinstance(system, str) else system)]
    for message in body["messages"]:
        content = message["content"]
        parts.append((message["role"], [{"type": "text", "text": content}] if isinstance(content, str) else content))
    blocks = []
    for role, content in parts:
        for block in content:
            if block["type"] == "text" and not block["text"].strip():
                raise Refused("text content blocks must contain non-whitespace text")
            text = block["text"] if block["type"] == "text" else f"image:{orjson.dumps(block['source']).decode()}"
            blocks.append((role, text, "cache_control" in block))
    return blocks


@dataclass
class Seen:
    """What the server has counted, and the bodies that it was sent."""

    usage: Usage = Usage()
    bodies: list[Any] = field(default_factory=list)


@asynccontextmanager
async def serving(cache: PromptCache, reply: str, latency: float = 0.01) -> AsyncIterator[tuple[str, Seen]]:
    """A server of Anthropic's Messages with such a cache, which always answers `reply`: its address, and what it has seen."""
    seen = Seen()

    async def answer(request: web.Request) -> web.Response:
        body = orjson.loads(await request.read())
        seen.bodies.append(body)
        try:
            used, entries = cache.use(body)
        except Refused as error:
            said = {"type": "error", "error": {"type": "invalid_request_error", "message": str(error)}}
            return web.json_response(said, status=400)
        await asyncio.sleep(latency)
        cache.begin(entries)
        read, written = used["cache_read_input_tokens"], used["cache_creation_input_tokens"]
        output = len(reply) // 4
        seen.usage += Usage(input=sum(used.values()), output=output, cached=read, written=written)
        message = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": [{"type": "text", "text": reply}],
            "stop_reason": "end_turn",
            "usage": {**used, "output_tokens": output},
        }
        return web.json_response(message)

    app = web.Application(client_max_size=1 << 28)
    app.router.add_post("/v1/messages", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    host, port = site._server.sockets[0].getsockname()[:2]  # type: ignore[attr-defined]
    try:
        yield f"http://{host}:{port}", seen
    finally:
        await runner.cleanup()


class Unmarked(AnthropicProvider):
    """The provider as it was: the system text is marked and nothing else."""

    capabilities: ClassVar = frozenset()
    marked = Provider.marked


def agent_run(steps: int = 20, seed: int = 0) -> Trajectory:
    """A run with `steps` actions and results of a few hundred words."""
    acts = [
        Step(
            f'search(query="clause {seed} {n}: delivery dates, penalties and the order of precedence of the annexes")',
            " ".join(f"Paragraph {n}.{k}: the supplier delivers item {seed + n * k} within {k + 2} days." for k in range(30)),
        )
        for n in range(steps)
    ]
    task = "Find out which clause of the contract decides the date of delivery, and cite it. " * 4
    return Trajectory(f"run-{seed}", task, tuple(acts))


def solution(seed: int, steps: int = 8) -> Trajectory:
    """A solution of a word problem, with steps of a few lines."""
    words = "Multiply the number of boxes by the price of a box, add what is left over, and write the sum down with its unit. "
    texts = tuple(Step(f"Step {n} of {seed}: {words * 2}So the value is {seed * 7 + n * 13}.") for n in range(steps))
    return Trajectory(f"solution-{seed}", f"Shop {seed} sells boxes of fruit. {words * 3}What does it take in?", texts)


@dataclass(frozen=True)
class Case:
    """A kind of run."""

    name: str
    style: str
    trajectories: tuple[Trajectory, ...]
    samples: int = 1


CASES = (
    Case("agent, one run of 20 steps", "agent", (agent_run(),)),
    Case("yes-no, 30 solutions of 8 steps", "yes-no", tuple(map(solution, range(30)))),
    Case("stepwise, 30 solutions, 8 samples", "stepwise", tuple(solution(seed, 24) for seed in range(30)), 8),
    Case("stepwise, 30 solutions, 1 sample", "stepwise", tuple(map(solution, range(30)))),
)
MODELS = ("claude-haiku-5-5", "claude-sonnet-5", "claude-haiku-4-5")


async def measure(model: str, case: Case, provider: type[AnthropicProvider] = AnthropicProvider) -> tuple[Usage, list[Any]]:
    """What a server that follows the rule counts for one run, and the bodies it was sent."""
    able = abilities("anthropic", model)
    cache = PromptCache(able.cached_from or 4096)
    with TemporaryDirectory() as folder:
        async with serving(cache, REPLIES[case.style]) as (url, seen):
            judging = JudgeOptions(style=case.style, db=Path(folder) / "cache.db", base_url=url, max_connections=16)
            critic = with_provider(provider(model, url, "key"), judging)
            async for _ in label(case.trajectories, critic, samples=case.samples, workers=16):
                pass
            counted = critic.client.money.usage
            await critic.close()
    assert counted == seen.usage, "the client counts what the server counts"
    return seen.usage, seen.bodies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=MODELS, help="Claude models of the table in models.toml.")
    print("| model | run | input tokens | read before | read now | written now | input cost before | now | saved |")
    print("|---|---|---|---|---|---|---|---|---|")
    for model in parser.parse_args().models:
        prices = abilities("anthropic", model).prices
        assert prices is not None
        for case in CASES:
            (before, _), (after, _) = (asyncio.run(measure(model, case, kind)) for kind in (Unmarked, AnthropicProvider))
            costs = [prices.cost(replace(used, output=0)) or 0.0 for used in (before, after)]
            shares = " | ".join(f"{part / after.input:.0%}" for part in (before.cached, after.cached, after.written))
            saved = 1 - costs[1] / costs[0]
            print(f"| {model} | {case.name} | {after.input:,} | {shares} | ${costs[0]:.4f} | ${costs[1]:.4f} | {saved:.0%} |")


if __name__ == "__main__":
    main()
