"""What every provider keeps to, over the registry; and a provider of another dialect, from labelling to re-reading."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, get_args

import pytest

from critic_prm import registry
from critic_prm.critics.llm import connect, with_provider
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.engine.budget import Budget
from critic_prm.engine.cache import Cache
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import ProviderError, UsageError
from critic_prm.label.estimate import estimate
from critic_prm.label.run import label, parse_samples
from critic_prm.option import Option
from critic_prm.providers.failures import without_echoes
from critic_prm.providers.models import Prices
from critic_prm.providers.provider import (
    Capability,
    Message,
    Provider,
    RawReply,
    Reply,
    Request,
    Sampling,
    Usage,
    Wire,
    open_provider,
    provider_class,
    read_stored,
    reading_answer,
)

ASKED = Request((Message("system", "Judge."), Message("user", "2+2=5?")), Sampling(max_tokens=9))


@pytest.fixture(params=registry.names("provider"))
def provider(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Provider:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "VLLM_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    script = tmp_path / "script.jsonl"
    script.write_text('{"text": "no"}\n')
    return open_provider(f"{request.param}/{script}")


def test_a_provider_is_opened_without_key_or_network(provider: Provider) -> None:
    wire = provider.wire(ASKED)
    assert wire == provider.wire(ASKED)
    assert provider.marked(wire, ASKED).wire is not None
    assert set(provider.capabilities) <= set(get_args(Capability))
    assert isinstance(provider.secrets, tuple)
    assert provider.batch_row("c", wire)["custom_id"] == "c"
    assert wire in provider.batch_row("c", wire).values()
    kind = provider_class(provider.name)
    assert kind is not None
    assert isinstance(provider, kind)


@pytest.mark.parametrize("raw", [{}, {"choices": 1}, {"content": None}, {"error": {"message": "no"}}])
def test_what_is_no_reply_is_a_provider_error(provider: Provider, raw: dict[str, Any]) -> None:
    with pytest.raises(ProviderError), reading_answer():
        provider.read(raw)
    assert read_stored(provider.name, raw) is None


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the toy."""

    verdict: Annotated[str, Option(metavar="WORD")] = "No"
    """What it answers."""


@dataclass
class ToyProvider(Provider):
    """Its dialect is neither OpenAI's nor Anthropic's."""

    model: str
    base_url: str | None = None
    verdict: str = "No"
    name: str = "toy"

    @classmethod
    def connect(cls, model: str, base_url: str | None, options: Options = Options()) -> ToyProvider:
        return cls(model, base_url, options.verdict)

    def wire(self, request: Request) -> Wire:
        return {"engine": self.model, "prompt": [message.content for message in request.messages]}

    async def complete(self, wire: Wire) -> RawReply:
        return RawReply({"output": {"said": f"Is the step correct? {self.verdict}"}})

    @staticmethod
    def read(raw: Mapping[str, Any]) -> Reply:
        return Reply(text=raw["output"]["said"], finish="stop", raw=raw)

    @staticmethod
    def batch_row(custom: str, wire: Wire) -> dict[str, Any]:
        return {"id": custom, "job": wire}


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    module = ModuleType("toy_provider")
    module.__dict__.update(PROVIDER=ToyProvider, Options=Options)
    monkeypatch.setitem(sys.modules, "toy_provider", module)

    class Entry:
        name, group = "toy", "critic_prm.providers"

        def load(self) -> ModuleType:
            return module

    monkeypatch.setattr(registry, "_entry_points", lambda: (Entry(),))
    for cached in (registry.load, registry._installed):
        cached.cache_clear()
    yield
    for cached in (registry.load, registry._installed):
        cached.cache_clear()


@pytest.mark.usefixtures("toy")
async def test_a_third_dialect_is_labelled_and_read_again(tmp_path: Path) -> None:
    options = JudgeOptions(style="yes-no", db=tmp_path / "cache.db")
    trajectory = Trajectory("a", "What is 6 * 7?", (Step("6 * 7 = 41."),))
    for given, first in (((), 0), (("verdict=Yes",), -1)):
        critic = connect("toy/m", JudgeOptions(style="yes-no", db=tmp_path / f"{first}.db", option=given))
        rows = [row async for _, row in label([trajectory], critic)]
        await critic.close()
        assert [row.first_error for row in rows] == [first]
    cache = Cache(tmp_path / "0.db", readonly=True)
    (key,) = rows[0].judgements[0].keys
    reply = cache.reply(key)
    assert reply is not None
    assert reply.text == "Is the step correct? No"
    cache.close()
    assert read_stored("toy", {"output": {"said": "x"}}) == Reply("x", "stop", {"output": {"said": "x"}})
    assert read_stored("toy", {"choices": []}) is None
    with pytest.raises(UsageError, match="provider toy has no option 'word=x'"):
        open_provider("toy/m", None, ["word=x"])
    with pytest.raises(UsageError, match="toy has no batch API"):
        open_provider("toy/m").batches()
    assert options.option == ()


class CuttingProvider(ToyProvider):
    """Its limit of tokens is called `stop_at`; a reply of fewer than 2 tokens is truncated."""

    @property
    def token_limits(self) -> tuple[str, ...]:
        return ("stop_at",)

    def wire(self, request: Request) -> Wire:
        return {"prompt": request.messages[-1].content, "stop_at": request.sampling.max_tokens}

    async def complete(self, wire: Wire) -> RawReply:
        return RawReply({"said": "Is the step correct? No" if wire["stop_at"] > 1 else "Is the"})

    @staticmethod
    def read(raw: Mapping[str, Any]) -> Reply:
        return Reply(raw["said"], "stop" if raw["said"].endswith("No") else "length", raw, Usage(10, 1))


async def test_a_truncated_reply_is_requested_again_with_twice_the_limit_of_the_dialect(tmp_path: Path) -> None:
    options = JudgeOptions(style="yes-no", db=tmp_path / "c.db", sampling=Sampling(max_tokens=1))
    critic = with_provider(CuttingProvider("m"), options)
    trajectory = Trajectory("a", "What is 6 * 7?", (Step("6 * 7 = 41."),))
    rows = [row async for _, row in label([trajectory], critic)]
    guess = estimate(critic, [trajectory, replace(trajectory, problem="What is 7 * 6?")], parse_samples("1"))
    await critic.close()
    assert [row.first_error for row in rows] == [0]
    assert (critic.client.counts["reasked"], critic.client.counts["paid"]) == (1, 1)
    assert guess.input[0] > 100  # the prompt was counted, though it is not in `messages`


def test_a_quoted_prompt_is_removed_in_every_dialect() -> None:
    prompt = "What is the sum of all numbers from 1 to 100?"
    error = ProviderError(f"HTTP 400: cannot parse {prompt}", "row", detail=prompt)
    clean = without_echoes(error, {"prompt": prompt, "stop_at": 9}, ())
    assert "sum of all" not in str(clean) + clean.detail


def test_the_budget_counts_the_prompt_and_the_limit_in_every_dialect() -> None:
    money = Budget(Prices(1.0, 1.0), token_limits=("stop_at",))
    short, long = ({"prompt": "x" * size, "stop_at": limit} for size, limit in ((10, 1), (1000, 100_000)))
    assert money.most(short) < 0.001 < 0.1 < money.most(long)
