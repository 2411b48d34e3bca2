"""vLLM's two roads, and the engine inside this process with a stand-in for vLLM: what goes in, what comes out, how it ends.

The real one is in tests/vllm.
"""

from __future__ import annotations

import asyncio
import importlib.machinery
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from critic_prm.errors import ConfigError, ProviderError, UsageError
from critic_prm.providers import vllm
from critic_prm.providers import vllm_in_process as inside
from critic_prm.providers.provider import Message, Request, Sampling, open_provider, request_key
from critic_prm.providers.vllm import VLLMProvider
from critic_prm.providers.vllm_in_process import chat_of
from tests.effort import until_async

HELLO = Message("user", "hello")


def connect(address: str | None) -> VLLMProvider:
    """The provider of model m, with its options from the environment."""
    return cast("VLLMProvider", open_provider("vllm/m", address))


class EngineDeadError(Exception):
    pass


@dataclass
class SamplingParams:
    """vLLM's, as far as the stand-in looks at it."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    stop_token_ids: Any = None
    max_tokens: int | None = 16
    logprobs: int | None = None
    logprob_token_ids: Any = None
    seed: int | None = None
    stop: Any = None
    n: int = 1
    structured_outputs: Any = None
    __struct_fields__ = ("temperature", "top_p", "max_tokens", "logprobs", "logprob_token_ids", "seed", "stop", "n",
                         "structured_outputs")  # fmt: skip


@dataclass
class Choice:
    text: str
    index: int = 0
    token_ids: tuple[int, ...] = (5, 6)
    finish_reason: str = "stop"
    stop_reason: Any = None
    logprobs: Any = None


@dataclass
class LLM:
    """Answers every message with itself, one request a step, last in first out. "die" kills it, "slow" never ends."""

    model: str
    max_model_len: int = 100
    fails: str = ""
    made: ClassVar[Any] = None

    def __post_init__(self) -> None:
        if self.fails:
            raise RuntimeError(self.fails)
        LLM.made = self
        self.model_config = SimpleNamespace(max_model_len=self.max_model_len)
        self.waiting: dict[str, tuple[Any, Any]] = {}
        self.aborted: list[str] = []
        self.shut = self.steps = 0
        self.threads: set[str] = set()
        self.llm_engine = SimpleNamespace(
            step=self.step, abort_request=self.abort, engine_core=SimpleNamespace(shutdown=self.shutdown)
        )
        self.count = 0

    def get_default_sampling_params(self) -> SamplingParams:
        return SamplingParams(temperature=0.6, top_k=20)

    def enqueue_chat(self, messages: Any, sampling: Any, use_tqdm: bool, **chat: Any) -> list[str]:
        self.threads.add(threading.current_thread().name)
        if messages[-1]["content"] == "too long":
            raise ValueError("maximum context length is 100 tokens")
        if messages[-1]["content"] == "die":
            raise EngineDeadError("out of memory")
        self.count += 1
        self.waiting[str(self.count)] = (messages, sampling)
        return [f"{self.count}-abcd"]

    def step(self) -> list[Any]:
        self.steps += 1
        done = [name for name, (messages, _) in self.waiting.items() if messages[-1]["content"] != "slow"]
        if not done:
            return []
        messages, sampling = self.waiting.pop(done[-1])
        chances = {i: SimpleNamespace(decoded_token=f"t{i}", logprob=-float(i)) for i in (5, 6, 7)}
        choice = Choice(f"{messages[-1]['content']} at {sampling.temperature}")
        choice.logprobs = None if sampling.logprobs is None and not sampling.logprob_token_ids else [chances, chances]
        return [
            SimpleNamespace(
                request_id=done[-1], finished=True, outputs=[choice], prompt_token_ids=[1, 2, 3], num_cached_tokens=2
            )
        ]

    def abort(self, names: list[str]) -> None:
        self.aborted += names
        for name in names:
            del self.waiting[name]

    def shutdown(self) -> None:
        self.shut += 1


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[LLM]]:
    def module(name: str, **names: Any) -> None:
        made = ModuleType(name)
        made.__spec__ = importlib.machinery.ModuleSpec(name, None)
        vars(made).update(names)
        monkeypatch.setitem(sys.modules, name, made)

    module("vllm", LLM=LLM, SamplingParams=SamplingParams, __version__="0.99")
    module("vllm.sampling_params", StructuredOutputsParams=lambda **said: said)
    module("vllm.v1")
    module("vllm.v1.engine")
    module("vllm.v1.engine.exceptions", EngineDeadError=EngineDeadError)
    for name in ("VLLM_BASE_URL", inside.ENGINE):
        monkeypatch.delenv(name, raising=False)
    yield LLM
    assert not inside._engines


def test_the_road_is_chosen_by_what_is_there(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    here = connect(None)
    assert (here.base_url, here.inside is not None, "in-process" in here.capabilities) == (None, True, True)
    there = connect("http://gpu:8000/v1")
    assert (there.base_url, there.inside, "in-process" in there.capabilities) == ("http://gpu:8000/v1", None, False)
    monkeypatch.setenv("VLLM_BASE_URL", "http://other:8000/v1")
    assert connect(None).base_url == "http://other:8000/v1"
    monkeypatch.delenv("VLLM_BASE_URL")
    monkeypatch.setattr(vllm, "find_spec", lambda name: None)
    assert (connect(None).base_url, connect(None).inside) == (vllm.PRESET.base_url, None)


def test_both_roads_share_their_replies(fake: Any) -> None:
    asked = Request((HELLO, Message("assistant", "It")), Sampling(max_tokens=9, logprobs=5, seed=1), {"type": "object"}, True)
    keys = {request_key(connect(address).wire(asked)) for address in (None, "http://gpu:8000/v1")}
    assert len(keys) == 1


async def ask(provider: vllm.VLLMProvider, text: str, **sampling: Any) -> Any:
    arrival = await provider.complete(provider.wire(Request((Message("user", text),), Sampling(**sampling))))
    return provider.read(arrival.raw)


async def test_answers_come_as_from_the_server(fake: Any) -> None:
    provider = connect(None)
    replies = await asyncio.gather(*(ask(provider, f"q{i}", temperature=0.5 if i else None) for i in range(9)))
    # Where the request says nothing, the model's own generation_config holds, as at the server.
    assert [reply.text for reply in replies] == ["q0 at 0.6", *(f"q{i} at 0.5" for i in range(1, 9))]
    assert (replies[0].usage.input, replies[0].usage.output, replies[0].usage.cached) == (3, 2, 2)
    assert (replies[0].finish, replies[0].model, replies[0].logprobs) == ("stop", "m", ())
    two = await ask(provider, "q", logprobs=2)
    assert [(token.token, token.logprob) for token in two.logprobs] == [("t5", -5.0), ("t6", -6.0)]
    assert [len(token.top) for token in two.logprobs] == [2, 2]
    chosen = await ask(provider, "q", extra_body={"logprob_token_ids": [5, 6, 7]})
    assert [len(token.top) for token in chosen.logprobs] == [3, 3]
    assert threading.current_thread().name not in fake.made.threads
    await provider.close()
    assert fake.made.shut == 1


async def test_only_the_request_at_fault_fails(fake: Any) -> None:
    provider = connect(None)
    outcomes: Any = await asyncio.gather(
        ask(provider, "fine"), ask(provider, "too long"), ask(provider, "x", max_tokens=101), return_exceptions=True
    )
    assert outcomes[0].text == "fine at 0.6"
    assert [(error.failure, error.status) for error in outcomes[1:]] == [("row", 400)] * 2
    wrongs: tuple[dict[str, Any], ...] = ({"guided_json": {}}, {"response_format": {"type": "xml"}})
    for wrong in wrongs:
        with pytest.raises(ProviderError, match="knows no") as unknown:
            await ask(provider, "x", extra_body=wrong)
        assert unknown.value.failure == "run"
    await provider.close()


async def test_who_does_not_wait_any_more_is_not_computed_for(fake: Any) -> None:
    provider = connect(None)
    await ask(provider, "fine")
    asking = asyncio.create_task(ask(provider, "slow"))
    await until_async(lambda: fake.made.waiting)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert (await ask(provider, "fine")).text == "fine at 0.6"
    assert (len(fake.made.aborted), fake.made.waiting) == (1, {})
    await provider.close()


async def test_an_engine_that_dies_stops_the_run(fake: Any) -> None:
    provider = connect(None)
    waiting = asyncio.create_task(ask(provider, "slow"))
    with pytest.raises(ConfigError, match="has ended"):
        await ask(provider, "die")
    with pytest.raises(ConfigError, match="ended: out of memory"):
        await waiting
    with pytest.raises(ConfigError, match="all replies so far are kept"):
        await ask(provider, "fine")
    await provider.close()
    assert fake.made.shut == 1


async def test_an_engine_that_does_not_start_says_why(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(inside.ENGINE, '{"fails": "no such file"}')
    provider = connect(None)
    with pytest.raises(ConfigError, match="did not start: no such file"):
        await ask(provider, "fine")
    await provider.close()
    for wrong in ("[1]", "{"):
        monkeypatch.setenv(inside.ENGINE, wrong)
        with pytest.raises(UsageError, match=r"CRITIC_PRM_VLLM_ENGINE is .*; it must be dict"):
            connect(None)


async def test_a_vllm_that_cannot_be_fed_is_told(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["vllm"], "LLM", object)
    provider = connect(None)
    with pytest.raises(ConfigError, match=r"vLLM 0\.99 has no LLM\.enqueue_chat.*--base-url"):
        await ask(provider, "fine")
    await provider.close()


async def test_one_model_is_loaded_once(fake: Any) -> None:
    one, other = connect(None), connect(None)
    await asyncio.gather(ask(one, "a"), ask(other, "b"))
    first = fake.made
    await one.close()
    assert first.shut == 0
    assert (await ask(other, "c")).text == "c at 0.6"
    assert fake.made is first
    await other.close()
    assert first.shut == 1


def test_effort_is_told_to_the_template_as_the_server_does() -> None:
    told = chat_of({"reasoning_effort": "none", "chat_template_kwargs": {"a": 1}, "continue_final_message": True})
    assert told == {
        "chat_template_kwargs": {"reasoning_effort": "none", "enable_thinking": False, "a": 1},
        "continue_final_message": True,
    }
