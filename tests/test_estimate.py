"""A dry run: what it says is what then happens, and it sends nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.runs import trajectories
from critic_prm.critics.llm import LLMCritic, with_provider
from critic_prm.engine.options import JudgeOptions
from critic_prm.label.estimate import Estimate, estimate
from critic_prm.label.run import Samples, label
from critic_prm.providers.models import Prices
from critic_prm.providers.provider import Sampling, Wire
from critic_prm.providers.scripted import ScriptedProvider

ONE = Samples(1, 1)


def reply(wire: Wire) -> dict[str, Any]:
    size = sum(len(message["content"]) for message in wire["messages"])
    text = "Step 1: no\nThe step is \\boxed{incorrect}"
    return {"text": text, "usage": {"prompt_tokens": size // 4, "completion_tokens": 90}}


def judge(db: Path, style: str = "stepwise", prices: Prices | None = None, **sampling: Any) -> LLMCritic:
    judging = JudgeOptions(style=style, db=db, prices=prices, sampling=Sampling(**sampling))
    return with_provider(ScriptedProvider(reply), judging)


def look(critic: LLMCritic, rows: int = 40, samples: Samples = ONE) -> Estimate:
    found = estimate(critic, trajectories(rows), samples)
    assert isinstance(critic.client.provider, ScriptedProvider)
    assert not critic.client.provider.asked
    return found


def run(critic: LLMCritic, rows: int) -> float | None:
    async def all_of_them() -> None:
        async for _ in label(trajectories(rows), critic):
            pass
        await critic.close()

    asyncio.run(all_of_them())
    return critic.client.money.cost()


def test_it_counts_rows_requests_and_what_is_cached(tmp_path: Path) -> None:
    db = tmp_path / "cache.db"
    before = look(judge(db))
    assert (before.rows, before.requests, before.cached, before.to_send) == (40, 40, 0, (40, 40))
    run(judge(db), 25)
    after = look(judge(db))
    assert (after.requests, after.cached, after.to_send) == (40, 25, (15, 15))
    assert look(judge(db), samples=Samples(3, 3)).to_send == (95, 95)


def test_an_unknown_price_is_unknown(tmp_path: Path) -> None:
    found = look(judge(tmp_path / "cache.db"))
    assert (found.usd, found.most_usd) == (None, None)
    assert "price unknown" in found.lines()[-1]


def test_what_it_then_costs_lies_in_the_band(tmp_path: Path) -> None:
    prices = Prices(input=2.0, output=8.0)
    blind = look(judge(tmp_path / "cache.db", prices=prices, max_tokens=2000))
    cost = run(judge(tmp_path / "cache.db", prices=prices, max_tokens=2000), 40)
    assert blind.usd is not None
    assert blind.most_usd is not None
    assert cost is not None
    assert blind.usd[0] * 0.5 < cost < blind.usd[1] <= blind.most_usd


def test_earlier_replies_make_the_band_narrow(tmp_path: Path) -> None:
    db, prices = tmp_path / "cache.db", Prices(input=2.0, output=8.0)
    run(judge(db, prices=prices), 30)
    found = look(judge(db, prices=prices), rows=60)
    assert found.known == 30
    assert found.usd is not None
    cost = run(judge(db, prices=prices), 60)
    assert cost is not None
    assert found.usd[0] < cost < found.usd[1] < 1.5 * found.usd[0]


def test_a_style_per_step_has_a_band_of_requests(tmp_path: Path) -> None:
    """Which steps are asked about depends on where the first error is found."""
    found = look(judge(tmp_path / "cache.db", style="yes-no"), rows=10)
    assert found.requests == 60
    assert found.to_send == (10, 60)


def test_rows_whose_images_cannot_be_sent_are_counted(tmp_path: Path) -> None:
    """A dry run left such rows out of its requests without a word."""
    rows = list(trajectories(10))
    rows[3] = replace(rows[3], images=(str(tmp_path / "none.png"),))
    found = estimate(judge(tmp_path / "cache.db"), rows, ONE)
    assert (found.rows, found.requests, found.left_out) == (10, 9, 1)
    assert any(line.startswith("left out: 1 of the rows") for line in found.lines())
    whole = look(judge(tmp_path / "cache.db"), 10)
    assert whole.left_out == 0
    assert not any("left out" in line for line in whole.lines())
