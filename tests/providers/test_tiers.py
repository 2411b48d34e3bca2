"""Service tiers and hour-long cache writes: what a reply reports is billed, and an unknown price is never a wrong one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from critic_prm.cli import main
from critic_prm.critics.llm import LLMCritic, with_provider
from critic_prm.data.judgement import Judgement, judgement_from_json, judgement_to_json
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.engine.budget import Budget
from critic_prm.engine.client import Client
from critic_prm.engine.limiter import AdaptiveLimiter
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import BudgetError, UsageError
from critic_prm.evaluate.judges import JudgeCost
from critic_prm.label.estimate import estimate
from critic_prm.label.run import Samples
from critic_prm.providers.anthropic import AnthropicProvider
from critic_prm.providers.models import Prices, abilities, parse_prices
from critic_prm.providers.openai import OpenAIProvider, read_chat
from critic_prm.providers.provider import Message, Request, Sampling, Usage, Wire, parse_extra_body, requested_tier
from critic_prm.providers.scripted import ScriptedProvider

MILLION = 1_000_000


def chat(tier: Any = None, text: str = "fine", tokens: int = MILLION, **usage: Any) -> dict[str, Any]:
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    body = {"choices": [choice], "usage": {"prompt_tokens": tokens, "completion_tokens": tokens, **usage}}
    return body if tier is None else {**body, "service_tier": tier}


def message(**usage: Any) -> dict[str, Any]:
    counts = {"input_tokens": MILLION, "output_tokens": MILLION, **usage}
    return {"content": [{"type": "text", "text": "fine"}], "stop_reason": "end_turn", "usage": counts}


WRITTEN = {"input_tokens": 0, "output_tokens": 0, "cache_creation_input_tokens": MILLION}

BILLED: list[tuple[str, Mapping[str, Any], float | None]] = [
    # gpt-5.4-mini costs $0.75 and $4.50, gpt-5.5 $5 and $30, claude-opus-5 $5 and $25 with $6.25 for cache writes.
    ("openai/gpt-5.4-mini", chat(), 5.25),
    ("openai/gpt-5.4-mini", chat("default"), 5.25),
    ("openai/gpt-5.4-mini", chat("auto"), 5.25),
    ("openai/gpt-5.4-mini", chat("standard"), 5.25),
    ("openai/gpt-5.4-mini", chat("flex"), 2.625),
    ("openai/gpt-5.4-mini", chat("priority"), 10.5),
    ("openai/gpt-5.4-mini", chat("fast"), 10.5),
    ("openai/gpt-5.4-mini-2026-03-17", chat("flex"), 2.625),
    ("openai/gpt-5.4-mini", chat("flex", prompt_tokens_details={"cached_tokens": MILLION}), (0.075 + 4.5) / 2),
    ("openai/gpt-5.5", chat("priority"), 87.5),
    ("openai/gpt-5.6-luna", chat("priority"), 4.4),  # twice $0.40 and $1.80: the prompt is longer than 272,000 tokens
    ("openai/gpt-5.6-luna", chat("flex"), None),
    ("openai/gpt-5.4-nano", chat("priority"), None),
    ("openai/gpt-5.4-mini", chat("scale"), None),
    ("openai/gpt-5.4-mini", chat("a tier of next year"), None),
    ("openai/gpt-5.4-mini", chat(["flex"]), None),
    ("openai/gpt-5.4-mini", chat(7), None),
    ("openai/gpt-5.4-mini", chat("x" * 10_000_000), None),
    ("anthropic/claude-opus-5", message(), 30.0),
    ("anthropic/claude-opus-5", message(service_tier="standard", speed="standard"), 30.0),
    ("anthropic/claude-opus-5", message(service_tier="batch"), 15.0),
    ("anthropic/claude-opus-5", message(service_tier="priority"), None),
    ("anthropic/claude-opus-5", message(service_tier="standard", speed="fast"), None),
    ("anthropic/claude-opus-5", message(**WRITTEN), 6.25),
    ("anthropic/claude-opus-5", message(**WRITTEN, cache_creation={"ephemeral_5m_input_tokens": MILLION}), 6.25),
    ("anthropic/claude-opus-5", message(**WRITTEN, cache_creation={"ephemeral_1h_input_tokens": MILLION}), 10.0),
    ("anthropic/claude-opus-5", message(**WRITTEN, cache_creation={"ephemeral_1h_input_tokens": MILLION // 4}), 7.1875),
    ("anthropic/claude-opus-5", message(**WRITTEN, cache_creation={"ephemeral_1h_input_tokens": 2**60}), 6.25),
    ("anthropic/claude-opus-5", message(**WRITTEN, cache_creation={"ephemeral_1h_input_tokens": 9 * MILLION}), 10.0),
    ("anthropic/claude-opus-5", message(**WRITTEN, cache_creation="all of it"), 6.25),
    (
        "anthropic/claude-opus-5",
        message(**WRITTEN, service_tier="batch", cache_creation={"ephemeral_1h_input_tokens": MILLION}),
        5.0,
    ),
]


@pytest.mark.parametrize(("judge", "body", "usd"), BILLED, ids=range(len(BILLED)))
def test_a_reply_costs_what_its_tier_costs(judge: str, body: Mapping[str, Any], usd: float | None) -> None:
    """All tiers were counted at the standard price, and hour-long cache writes at that of five minutes."""
    provider, _, model = judge.partition("/")
    prices = abilities(provider, model).prices
    assert prices is not None
    reply = AnthropicProvider(model, None, None).read(body) if provider == "anthropic" else read_chat(body)
    assert prices.cost(reply.usage) == (None if usd is None else pytest.approx(usd))
    stored = judgement_from_json(judgement_to_json(Judgement("ok", usage=reply.usage)))
    assert stored.usage == reply.usage
    bill = JudgeCost()
    bill.add({"critic": {"provider": provider, "model": model}, "judgements": [{"usage": usage_json(reply.usage)}] * 2})
    assert bill.usd(None) == (None if usd is None else pytest.approx(2 * usd))


def usage_json(usage: Usage) -> dict[str, Any]:
    row: dict[str, Any] = judgement_to_json(Judgement("ok", usage=usage))["usage"]
    return row


def test_a_batch_has_its_own_price_unless_the_reply_reports_another_tier() -> None:
    prices = Prices(1.0, 0.0, batch=0.4, tiers={"flex": 0.5})
    costs = [prices.cost(Usage(MILLION, tier=tier), batch=True) for tier in ("", "batch", "flex", "priority")]
    assert costs == [0.4, 0.4, 0.5, None]


def test_a_sum_over_several_tiers_has_no_price() -> None:
    flex, plain = Usage(10, 5, tier="flex"), Usage(10, 5)
    assert (flex + flex).tier == (flex + Usage()).tier == (Usage() + flex).tier == "flex"
    assert (flex + plain).tier == "mixed"
    assert Prices(1.0, 1.0, tiers={"flex": 0.5}).cost(flex + plain) is None


def test_prices_that_the_user_names_hold_for_every_tier() -> None:
    prices = parse_prices("1,2")
    assert prices.cost(Usage(MILLION, tier="performance")) == pytest.approx(1.0)


def test_the_option_goes_into_the_body() -> None:
    sampling = Sampling(service_tier="flex", extra_body=parse_extra_body('{"user": "me"}'))
    assert sampling.extra == {"user": "me", "service_tier": "flex"}
    wire = OpenAIProvider("gpt-5.4-mini", None, "k").wire(Request((Message("user", "x"),), sampling))
    assert wire["service_tier"] == "flex"
    assert requested_tier(wire) == "flex"
    assert [requested_tier({"service_tier": name}) for name in ("fast", "auto", "standard_only", None)] == [
        "priority",
        "",
        "",
        "",
    ]


def open_client(db: Path, money: Budget, tier: str | None) -> Client:
    provider = ScriptedProvider(lambda wire: chat(tier, tokens=1000))
    return Client(provider, JudgeOptions(db=db), AdaptiveLimiter(4, start=4), money)


def question(text: str, **extra: Any) -> Request:
    return Request((Message("user", text),), Sampling(max_tokens=1000, extra_body=extra))


TIERED = Prices(input=0.0, output=1000.0, tiers={"flex": 0.5, "priority": 2.0})


async def test_the_run_counts_the_tier_that_was_used_not_the_one_that_was_asked_for(tmp_path: Path) -> None:
    one = open_client(tmp_path / "c.db", Budget(TIERED), "default")
    await one.ask(question("x", service_tier="priority"))
    assert one.money.cost() == pytest.approx(1.0)
    await one.close()


@pytest.mark.parametrize(("tier", "fits"), [("flex", 4), ("default", 2), ("priority", 1)])
async def test_a_budget_sets_the_requested_tier_aside(tmp_path: Path, tier: str, fits: int) -> None:
    """A reply costs $1 at the standard price, and the budget is $2."""
    one = open_client(tmp_path / "c.db", Budget(TIERED, budget_usd=2.0), tier)
    requests = (one.ask(question(str(i), service_tier=tier)) for i in range(8))
    await asyncio.gather(*requests, return_exceptions=True)
    assert one.money.requests == fits
    assert one.money.cost() == pytest.approx(2.0)
    await one.close()


async def test_a_tier_that_the_server_chose_is_set_aside_from_then_on(tmp_path: Path) -> None:
    """A project whose default tier at OpenAI is priority."""
    one = open_client(tmp_path / "c.db", Budget(TIERED, budget_usd=5.0), "priority")
    for text in "ab":
        await one.ask(question(text))
    with pytest.raises(BudgetError, match=r"may cost up to \$2"):
        await one.ask(question("c"))
    await one.close()


async def test_a_tier_of_unknown_price_makes_the_cost_unknown_and_ends_a_run_with_a_budget(tmp_path: Path) -> None:
    one = open_client(tmp_path / "c.db", Budget(TIERED), "scale")
    await one.ask(question("a"))
    await one.ask(question("b"))
    assert one.money.cost() is None
    await one.close()
    two = open_client(tmp_path / "c.db", Budget(TIERED, budget_usd=100.0), "scale")
    await two.ask(question("c"))
    with pytest.raises(BudgetError, match="service tier 'scale', whose price is unknown"):
        await two.ask(question("d"))
    assert two.money.requests == 1
    await two.close()


def test_an_hour_of_caching_that_the_user_asks_for_is_set_aside() -> None:
    money = Budget(Prices(input=1.0, output=0.0, written=1.25))
    hour: Wire = {"system": [{"type": "text", "text": "x" * MILLION, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]}
    plain: Wire = {"system": [{"type": "text", "text": "x" * MILLION, "cache_control": {"type": "ephemeral", "ttl": "5m"}}]}
    assert money.most(hour) == pytest.approx(money.most(plain) * 2.0 / 1.25)


def critic(db: Path, tier: str, budget: float | None = None) -> LLMCritic:
    sampling = Sampling(max_tokens=100, extra_body={"service_tier": tier})
    return with_provider(ScriptedProvider([]), JudgeOptions(db=db, prices=TIERED, sampling=sampling, budget_usd=budget))


def test_the_estimate_is_of_the_tier_that_is_asked_for(tmp_path: Path) -> None:
    rows = [Trajectory("a", "1+1?", (Step("1+1=2"),))]
    found = {tier: estimate(critic(tmp_path / "c.db", tier), rows, Samples(1, 1)) for tier in ("auto", "flex", "fast", "scale")}
    standard, flex, fast = (found[tier].most_usd for tier in ("auto", "flex", "fast"))
    assert standard is not None
    assert standard > 0
    assert [flex, fast] == pytest.approx([standard / 2, standard * 2])
    assert (found["scale"].usd, found["scale"].most_usd) == (None, None)
    assert "price of service tier 'scale' unknown" in found["scale"].lines()[-1]


def test_a_budget_needs_the_price_of_the_tier(tmp_path: Path) -> None:
    critic(tmp_path / "c.db", "flex", budget=1.0)
    with pytest.raises(UsageError, match="in service tier 'scale' is unknown"):
        critic(tmp_path / "c.db", "scale", budget=1.0)


def test_a_dry_run_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    source = tmp_path / "in.jsonl"
    source.write_text('{"id": "a", "problem": "1+1?", "steps": ["1+1=2"]}\n')
    costs = []
    for options in ([], ["--service-tier", "flex"], ["--extra-body", '{"service_tier": "flex"}']):
        command = ["label", str(source), "--judge", "openai/gpt-5.5", "--dry-run", "--db", str(tmp_path / "c.db")]
        with pytest.raises(SystemExit) as done:
            main([*command, "--max-tokens", "1000000", *options])
        assert not done.value.code
        costs.append(float(capsys.readouterr().out.rpartition("at most $")[2].partition(" ")[0]))
    assert costs[1] == costs[2] == pytest.approx(costs[0] / 2, rel=1e-3)
