"""A run that dies at any instant: nothing is ordered twice, nothing ordered is lost, and the labels are the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from bench.batch import four_backends, killed
from bench.batch_server import Fate
from critic_prm.engine.batch.ledger import Ledger
from critic_prm.engine.entries import PendingRequest
from critic_prm.errors import ProviderError
from critic_prm.providers.anthropic import AnthropicBatches
from critic_prm.providers.openai import OpenAIBatches, OpenAIProvider
from tests.batch.conftest import Bench

WRITES = ("begin", "add", "note", "record", "end", "drop", "settle")
"""All that changes the ledger."""


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_killed_at_what_the_server_sees_and_at_random(tmp_path: Path, provider: str) -> None:
    """Real processes and SIGKILL; `python -m bench.batch` does the same at full size."""
    lines = list(killed(tmp_path, provider, kills=3, rows=16, size=8, seed=5))
    assert "no request run twice, no batch lost" in lines[-1]


def test_a_job_through_four_backends(tmp_path: Path) -> None:
    (line,) = four_backends(tmp_path, 24)
    assert line.startswith("24 rows: 6 online, 12 by batch, 6 through files")


class Killed(BaseException):
    """As good as a SIGKILL: nothing that this process still does reaches the ledger."""


def dying(monkeypatch: pytest.MonkeyPatch, at: int, *, before: bool) -> list[str]:
    """Let the process die at the `at`-th write into the ledger, just before or just after it. What was written until then."""
    done: list[str] = []

    def wrapped(name: str, write: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(write)
        def deadly(*given: Any, **facts: Any) -> Any:
            if len(done) == at and before:
                raise Killed
            if len(done) > at:
                raise Killed
            done.append(name)
            result = write(*given, **facts)
            if len(done) == at + 1 and not before:
                done.append("dead")
                raise Killed
            return result

        return deadly

    for name in WRITES:
        monkeypatch.setattr(Ledger, name, wrapped(name, getattr(Ledger, name)))
    return done


@pytest.mark.parametrize(("provider", "before"), [("openai", True), ("anthropic", False)])
def test_dead_at_every_write(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, provider: str, before: bool
) -> None:
    bench: Bench = request.getfixturevalue("openai" if provider == "openai" else "claude")
    options = ("--batch", "--wait", "--limit", "4")
    bench.office.begin(Fate(0.01))
    assert bench.label(*options) == 0
    whole = bench.out.read_bytes()
    at, died = 0, True
    while died:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{bench.db}{suffix}").unlink(missing_ok=True)
        bench.office.begin(Fate(0.01))
        with monkeypatch.context() as patch:
            dying(patch, at, before=before)
            try:
                assert bench.label(*options) == 0
                died = False
            except Killed:
                pass
        assert bench.label(*options) == 0
        seen = bench.office.seen()
        assert (seen["ran_twice"], seen["requests"]) == (0, 3), f"write {at}"
        assert bench.sql("SELECT count(*) FROM batch WHERE state <> 'ended'") == [0]
        assert bench.out.read_bytes() == whole
        at += 1
    assert at > 9


def test_an_order_whose_fate_is_unknown_is_looked_for_and_not_repeated(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It arrives, is taken, and the sender dies before it hears of it."""
    api = AnthropicBatches if "claude" in bench.judge else OpenAIBatches
    create = api.create

    async def taken(self: Any, *given: Any) -> Any:
        await create(self, *given)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(api, "create", taken)
        with pytest.raises(Killed):
            bench.label("--batch")
    assert bench.sql("SELECT state, remote FROM batch") == [("sending", "")]
    assert bench.label("--batch", "--wait") == 0
    assert "found again" in bench.said
    assert bench.office.seen()["batches"] == 1


def test_an_order_of_unknown_fate_outlives_a_provider_that_is_gone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It arrived, nobody answered for longer than the run has patience, and the list of batches could not be had either."""
    api = AnthropicBatches if "claude" in bench.judge else OpenAIBatches
    create = api.create

    async def taken(self: Any, *given: Any) -> Any:
        await create(self, *given)
        raise ProviderError("no answer", "transient")

    async def gone(self: Any, *given: Any) -> Any:
        raise ProviderError("no answer", "transient")

    with monkeypatch.context() as patch:
        patch.setattr(api, "create", taken)
        patch.setattr(api, "find", gone)
        patch.setattr("critic_prm.engine.batch.manager.PATIENCE", 0.1)
        assert bench.label("--batch") == 4
    assert "run the same command again to pick them up" in bench.said
    assert bench.sql("SELECT state FROM batch") == ["sending"]
    assert bench.label("--batch", "--wait") == 0
    assert "found again" in bench.said
    assert bench.office.seen()["batches"] == 1


def test_an_order_that_is_refused_leaves_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    api = AnthropicBatches if "claude" in bench.judge else OpenAIBatches

    async def refused(self: Any, *given: Any) -> Any:
        raise ProviderError("HTTP 400: not like this", "row", status=400)

    with monkeypatch.context() as patch:
        patch.setattr(api, "create", refused)
        assert bench.label("--batch") == 4
    assert "not like this" in bench.said
    assert bench.sql("SELECT count(*) FROM batch") == [0]
    assert bench.label("--batch", "--wait") == 0


def test_an_order_that_never_arrived_is_made_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    api = AnthropicBatches if "claude" in bench.judge else OpenAIBatches

    async def lost(self: Any, *given: Any) -> Any:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(api, "create", lost)
        with pytest.raises(Killed):
            bench.label("--batch")
    assert bench.label("--batch", "--wait") == 0
    assert "the order had not arrived" in bench.said
    assert bench.office.seen()["requests"] == 29


def test_a_batch_that_only_looks_like_ours(claude: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anthropic's batches carry no mark: somebody else's of the same size is taken for ours until its results tell."""

    async def lost(self: Any, *given: Any) -> Any:
        lines = [(f"theirs-{place}", {"model": "m", "messages": [{"role": "user", "content": "x"}]}) for place in range(27)]
        claude.office.add(claude.office.batches[0].owner, "msgbatch_", lines)
        raise Killed

    claude.office.begin(Fate(60))
    assert claude.label("--batch", "--limit", "3") == 5  # so that the account is known
    with monkeypatch.context() as patch:
        patch.setattr(AnthropicBatches, "create", lost)
        with pytest.raises(Killed):
            claude.label("--batch")
    assert claude.label("--batch") == 5
    assert "found again" in claude.said
    claude.office.finish()
    claude.office.fate = Fate(0.03)
    assert claude.label("--batch", "--wait") == 0
    assert "that one is somebody else's; looking for ours" in claude.said
    assert [len(made.lines) for made in claude.office.batches] == [2, 27, 27]
    assert claude.sql("SELECT count(*) FROM reply") == [30]


def test_results_that_break_off_are_fetched_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    api = AnthropicBatches if "claude" in bench.judge else OpenAIBatches
    results = api.results
    broken: list[int] = []

    async def breaking(self: Any, remote: Any) -> Any:
        place = 0
        async for line in results(self, remote):
            place += 1
            if place == 20 and not broken:
                broken.append(place)
                yield line[:40]
                return
            yield line

    monkeypatch.setattr(api, "results", breaking)
    monkeypatch.setattr("critic_prm.engine.batch.manager.PART", 8)
    assert bench.label("--batch", "--wait") == 0
    assert "s for its results" in bench.said
    assert bench.sql("SELECT count(*) FROM reply") == [30]


def test_what_is_found_half_done_is_dropped(openai: Bench) -> None:
    """A batch that was gathered, or meant to be sent, by a run that died before: nobody else knew of it."""
    openai.label("--limit", "1")
    with Ledger(openai.db) as ledger:
        row = {"model": "bench", "messages": [{"role": "user", "content": "of another job"}]}
        provider = OpenAIProvider("bench", openai.address, "k")
        for state in ("gathering", "ready"):
            batch = ledger.begin(provider)
            ledger.add(batch, [PendingRequest(f"{state:0<64}", row, 0, "")])
            ledger.note(batch, state=state)
    assert openai.label("--batch", "--wait") == 0
    assert openai.sql("SELECT id, requests, state FROM batch") == [(3, 29, "ended")]
    assert openai.sql("SELECT count(*) FROM request") == [0]
