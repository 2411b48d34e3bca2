"""vLLM's roads on one model: its own offline `LLM.chat`, the engine inside this process, its server; requests/s and tokens/s.

    .venv-vllm/bin/python bench/vllm_roads.py [--model FOLDER] [--requests 512] [--roads offline inside server]

Without --model, a tiny one with random weights is made: what is measured then is what the roads cost beside the model. Every
road gets the same prompts of the style `yes-no`, answers of 32 tokens, and an engine of its own, started and ended here.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from critic_prm.critics.llm import LLMCritic, connect
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.engine.options import JudgeOptions
from critic_prm.label.run import label
from critic_prm.providers import vllm_in_process as inside
from critic_prm.providers.provider import Sampling
from tests.vllm.conftest import ENGINE, QUIET, serving
from tests.vllm.tiny_model import make_judge

SAMPLING = Sampling(max_tokens=32, temperature=0.0, logprobs=5, extra_body={"ignore_eos": True})


def rows(count: int) -> list[Trajectory]:
    return [Trajectory(f"t{i}", f"What is {i} + {i}?", (Step(f"{i} + {i} = {2 * i}."),)) for i in range(count)]


def critic_for(model: Path, address: str | None, folder: Path) -> LLMCritic:
    judging = JudgeOptions(
        style="yes-no", sampling=SAMPLING, db=folder / "x.db", base_url=address, follow_ups=0, force=False, regenerate=0
    )
    return connect(f"vllm/{model}", judging)


async def judged(model: Path, address: str | None, count: int) -> tuple[float, float]:
    """Seconds until the first answer (a model in this process is loaded by then), and of labelling."""
    with tempfile.TemporaryDirectory() as folder:
        critic = critic_for(model, address, Path(folder))
        try:
            started = time.monotonic()
            await critic.judge(rows(count + 1)[count:])
            first = time.monotonic() - started
            started = time.monotonic()
            async for _ in label(rows(count), critic, workers=64):
                pass
            return first, time.monotonic() - started
        finally:
            await critic.close()


def offline(model: Path, count: int) -> tuple[float, float]:
    """vLLM's own way: everything at once, in one call."""
    import vllm

    with tempfile.TemporaryDirectory() as folder:
        critic = critic_for(model, "http://localhost/v1", Path(folder))
        asked = [critic.client.provider.wire(critic.requests(row)[0])["messages"] for row in rows(count + 1)]
        asyncio.run(critic.close())
    started = time.monotonic()
    llm: Any = vllm.LLM(str(model), **ENGINE)
    sampling = vllm.SamplingParams(max_tokens=32, temperature=0.0, logprobs=5, ignore_eos=True)
    llm.chat(asked[count:], sampling, use_tqdm=False)
    first = time.monotonic() - started
    started = time.monotonic()
    llm.chat(asked[:count], sampling, use_tqdm=False)
    took = time.monotonic() - started
    inside._shut(llm)
    return first, took


def served(model: Path, count: int) -> tuple[float, float]:
    started = time.monotonic()
    with serving(model, "--dtype", "float32", "--max-model-len", "8192") as address:
        ready = time.monotonic() - started
        first, took = asyncio.run(judged(model, address, count))
        return ready + first, took


ROADS: dict[str, Callable[[Path, int], tuple[float, float]]] = {
    "offline": offline,
    "inside": lambda model, count: asyncio.run(judged(model, None, count)),
    "server": served,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path)
    parser.add_argument("--requests", type=int, default=512)
    parser.add_argument("--roads", nargs="*", choices=ROADS, default=list(ROADS))
    given = parser.parse_args()
    os.environ.update(QUIET)
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    os.environ[inside.ENGINE] = orjson.dumps(ENGINE).decode()
    os.environ.pop("VLLM_BASE_URL", None)
    with tempfile.TemporaryDirectory() as folder:
        model = given.model or make_judge(Path(folder) / "judge")
        bare = None
        for road in given.roads:
            first, took = ROADS[road](model, given.requests)
            rate = given.requests / took
            bare = rate if road == "offline" else bare
            share = f", {rate / bare:.2f} of offline" if bare and road != "offline" else ""
            print(
                f"{road:8} first answer after {first:5.1f} s, then {rate:6.1f} requests/s, {32 * rate:7.0f} tokens/s out{share}"
            )


if __name__ == "__main__":
    main()
