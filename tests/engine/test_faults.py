"""Labelling against a server that fails in every way: each row is right or says what happened to it, and nothing is made up."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.runs import trajectories
from bench.server import BROKEN, Behaviour, Judge, serving
from critic_prm.critics.llm import LLMCritic, with_provider
from critic_prm.data.judgement import Label
from critic_prm.engine import retries
from critic_prm.engine.options import JudgeOptions
from critic_prm.engine.retries import REFUSED
from critic_prm.errors import BudgetError, ConfigError, CriticPrmError
from critic_prm.label.run import label
from critic_prm.providers.anthropic import AnthropicProvider
from critic_prm.providers.openai import OpenAIProvider
from critic_prm.providers.provider import Provider
from tests.effort import PATIENCE, until_async

ROADS = ("direct", "sdk", "anthropic")


@pytest.fixture(scope="module")
def server() -> Iterator[Judge]:
    with serving() as judge:
        yield judge


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "backoff", lambda state: 0.01)


def provider(road: str, judge: Judge, key: str = "sk-the-key-of-this-test") -> Provider:
    if road == "anthropic":
        return AnthropicProvider("claude-test", judge.url.removesuffix("/v1"), key)
    return OpenAIProvider("bench", judge.url, key, direct=road == "direct")


def critic(road: str, judge: Judge, db: Path, **judging: Any) -> LLMCritic:
    given = {"max_connections": 32, "timeout": 20.0, "follow_ups": 0, "force": False, **judging}
    return with_provider(provider(road, judge), JudgeOptions(db=db, **given))


async def drain(rows: AsyncIterator[Any]) -> list[Any]:
    return [row async for row in rows]


async def run(one: LLMCritic, count: int) -> dict[str, Label]:
    try:
        return {row.id: found async for row, found in label(trajectories(count), one, workers=32)}
    finally:
        await one.close()


@pytest.mark.parametrize("road", ROADS)
async def test_a_fifth_of_all_answers_broken(server: Judge, tmp_path: Path, road: str) -> None:
    kinds = ("500", "503", "529", *BROKEN)
    server.behave(Behaviour(latency=0.002))
    right = await run(critic(road, server, tmp_path / "right.db"), 150)
    server.behave(Behaviour(latency=0.002, faults={kind: 0.2 / len(kinds) for kind in kinds}, retry_after="ms", seed=3))
    # What stalls costs its timeout; on a busy machine so may a whole answer, and so there are more repeats than the six usual.
    found = await run(critic(road, server, tmp_path / "cache.db", timeout=1.0, max_retries=20), 150)
    assert len(set(server.seen.answers) & set(kinds)) >= 7
    assert Counter(one.status for one in right.values()) == {"ok": 150}
    assert found == right


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("length", "truncated"),
        ("refusal", "refused"),
        ("filter", "refused"),
        ("misshapen", "unparseable"),
        ("500", "provider_error"),
        ("413", "provider_error"),
        ("context", "provider_error"),
    ],
)
async def test_three_rows_that_never_come_right_do_not_touch_the_others(
    server: Judge, tmp_path: Path, road: str, kind: str, status: str
) -> None:
    bad = {f"Order {i}:": kind for i in (3, 30, 59)}
    server.behave(Behaviour(latency=0.001, marked=bad))
    found = await run(critic(road, server, tmp_path / "cache.db", max_retries=2), 60)
    assert {name: one.status for name, one in found.items() if one.status != "ok"} == dict.fromkeys(
        ("order-3", "order-30", "order-59"), status
    )
    for name in ("order-3", "order-30", "order-59"):
        if kind != "length":  # the verdicts before the cut were said
            assert found[name].p_correct == (None,) * 6
        assert found[name].first_error is None


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize(
    ("kind", "error", "fix"),
    [
        ("401", ConfigError, "the key was refused; set [A-Z]+_API_KEY"),
        ("403", ConfigError, "may not use this model"),
        ("404", ConfigError, "check the name and --base-url"),
        ("402", BudgetError, "add some and run the same command again"),
        ("quota", BudgetError, "add some and run the same command again"),
    ],
)
async def test_what_fails_for_all_stops_within_a_round_trip_and_keeps_all(
    server: Judge, tmp_path: Path, road: str, kind: str, error: type[CriticPrmError], fix: str
) -> None:
    server.behave(Behaviour(latency=0.002))
    await run(critic(road, server, tmp_path / "cache.db"), 40)
    server.behave(Behaviour(latency=0.002, faults={kind: 1.0}))
    with pytest.raises(error, match=fix) as caught:
        await run(critic(road, server, tmp_path / "cache.db"), 400)
    assert caught.value.exit_code in (4, 5)
    spared = REFUSED if kind == "403" else 0  # so many may be their rows' own
    assert server.seen.bodies.total() <= 32 + spared  # those that were out when the one that stops the run came back
    server.behave(Behaviour(latency=0.002))
    await run(critic(road, server, tmp_path / "cache.db"), 60)
    assert server.seen.bodies.total() == 20  # the first 40 were kept


@pytest.mark.parametrize("road", ROADS)
def test_a_wrong_key_is_never_repeated(server: Judge, tmp_path: Path, road: str) -> None:
    """This server quotes the key it was given, as some do."""
    server.behave(Behaviour(latency=0, key="sk-another-key-altogether"))

    async def refused() -> None:
        await run(critic(road, server, tmp_path / "cache.db"), 3)

    with pytest.raises(ConfigError) as caught:
        asyncio.run(refused())
    assert "sk-the-key-of-this-test" not in str(caught.value)
    for path in tmp_path.iterdir():
        assert b"sk-the-key-of-this-test" not in path.read_bytes()


@pytest.mark.parametrize("road", ROADS)
async def test_more_connections_than_the_pools_own_default(server: Judge, tmp_path: Path, road: str) -> None:
    """aiohttp's default is 100, and no error tells that the rest wait."""
    server.behave(Behaviour(latency=0))
    one = critic(road, server, tmp_path / "cache.db", max_connections=150, timeout=PATIENCE)
    server.hold()
    labelling = asyncio.create_task(drain(label(trajectories(300), one, workers=150)))
    try:
        await until_async(lambda: server.seen.out == 150, "150 requests at once")
        server.release(all_later=True)
        assert len(await labelling) == 300
    finally:
        labelling.cancel()
        await one.close()


async def test_the_server_sees_no_retry_but_ours(server: Judge, tmp_path: Path) -> None:
    server.behave(Behaviour(latency=0, faults={"500": 1.0}))
    found = await run(critic("sdk", server, tmp_path / "cache.db", max_retries=2), 1)
    assert found["order-0"].status == "provider_error"
    assert server.seen.bodies.total() == 3
