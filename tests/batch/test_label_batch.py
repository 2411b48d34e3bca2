"""critic-prm label --batch against servers that behave like both batch APIs."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import orjson
import pytest

from bench.batch_server import Fate
from tests.batch.conftest import Bench

ROOT = Path(__file__).resolve().parents[2]


def labels(bench: Bench) -> bytes:
    return bench.out.read_bytes()


def online(bench: Bench, *options: str) -> bytes:
    """The labels of a run without batches, over a cache of its own."""
    db, bench.db = bench.db, bench.folder / "online.db"
    assert bench.label(*options) in (0, 3)
    bench.db, found = db, labels(bench)
    bench.out.unlink()
    bench.office.begin(bench.office.fate)
    return found


def test_submit_and_come_back(bench: Bench) -> None:
    whole = online(bench)
    bench.office.begin(Fate(60))
    assert bench.label("--batch") == 5
    assert "29 requests are with the provider in 1 batch" in bench.said
    assert not bench.out.exists()
    assert bench.label("--batch") == 5
    assert bench.office.seen()["batches"] == 1
    bench.office.finish()
    assert bench.label("--batch") == 0
    assert labels(bench) == whole
    seen = bench.office.seen()
    assert (seen["requests"], seen["ran_twice"], seen["online"]) == (29, 0, 1)
    assert "29 ok" in bench.said
    assert "1 cached, 29 paid" in bench.said
    assert bench.label("--batch", "--wait") == 0
    assert bench.office.seen()["batches"] == 1
    assert "30 cached, 0 paid" in bench.said


def test_wait_through_full_batches_turned_down_orders_and_lost_answers(bench: Bench) -> None:
    whole = online(bench)
    bench.office.begin(Fate(0.04, turned_down=2, lost=1))
    assert bench.label("--batch", "--wait", "--batch-size", "8") == 0
    assert labels(bench) == whole
    assert [len(made.lines) for made in bench.office.batches] == [8, 8, 8, 5]
    assert "for a new batch (HTTP 429" in bench.said
    assert bench.office.seen()["ran_twice"] == 0


def test_half_of_a_batch_expired(bench: Bench) -> None:
    whole = online(bench)
    bench.office.begin(Fate(0.04, first=("expired",)))
    assert bench.label("--batch", "--wait") == 0
    assert labels(bench) == whole
    assert [len(made.lines) for made in bench.office.batches] == [29, 15]
    assert "15 expired, 14 ok" in bench.said or "14 ok, 15 expired" in bench.said


def test_requests_that_always_expire_are_rows_that_failed(bench: Bench) -> None:
    bench.office.begin(Fate(0.02, shares={"expired": 1.0}))
    assert bench.label("--batch", "--wait", "--limit", "6") == 3
    statuses = Counter(row["status"] for row in bench.rows())
    assert statuses == {"ok": 5, "provider_error": 1}
    assert "not run in 3 batches (expired)" in str(bench.rows())


def test_what_is_no_whole_reply_is_asked_again_as_online(bench: Bench) -> None:
    marked = {
        "Order 3:": "refusal",
        "Order 7:": "length",
        "Order 11:": "misshapen",
        "Order 15:": "context",
        "Order 19:": "blank",
    }
    bench.office.begin(Fate(0.03, marked=marked))
    whole = online(bench)
    bench.office.begin(Fate(0.03, marked=marked))
    assert bench.label("--batch", "--wait") == 3
    assert labels(bench) == whole
    statuses = {row["id"]: row["status"] for row in bench.rows() if row["status"] != "ok"}
    assert statuses == {
        "order-3": "refused",
        "order-7": "truncated",
        "order-11": "unparseable",
        "order-15": "provider_error",
        "order-19": "unparseable",
    }
    attempts = bench.sql("SELECT key, failure, count(*) FROM attempt GROUP BY 1, 2 ORDER BY 1")
    bench.db, db = bench.folder / "online.db", bench.db
    assert attempts == bench.sql("SELECT key, failure, count(*) FROM attempt GROUP BY 1, 2 ORDER BY 1")
    bench.db = db
    before = len(bench.office.batches)
    assert bench.label("--batch", "--wait") == 3  # a run that has ended is over: the next one asks once more
    assert len(bench.office.batches) > before
    assert labels(bench) == whole


def test_questions_that_rest_on_replies_follow_in_rounds(bench: Bench) -> None:
    """A style that asks about one step after the other."""
    style = bench.folder / "own.jinja"
    style.write_text((ROOT / "prompts" / "yes-no.jinja").read_text("utf-8").replace("stops: yes", "stops: no"), "utf-8")
    options = ("--style", str(style), "--limit", "3")
    whole = online(bench, *options)
    assert bench.label("--batch", "--wait", *options) in (0, 3)
    assert labels(bench) == whole
    assert [len(made.lines) for made in bench.office.batches] == [3, 3, 3, 3, 3, 2]
    assert bench.office.seen()["ran_twice"] == 0


def test_one_request_goes_first_so_that_a_bad_parameter_is_known_at_once(bench: Bench) -> None:
    bench.office.begin(Fate(faults={"400": 1.0}))
    assert bench.label("--batch") == 4
    assert "no batch was made, because what was asked online first failed: HTTP 400" in bench.said
    assert bench.office.seen()["batches"] == 0
    assert bench.office.online.total() == 3


@pytest.mark.parametrize("kind", ["refusal", "blank", "filter", "length", "context"])
@pytest.mark.parametrize("options", [(), ("--wait",), ("--wait", "--regenerate", "0")])
def test_the_question_that_goes_first_comes_back_incomplete_and_is_the_only_one(
    bench: Bench, kind: str, options: tuple[str, ...]
) -> None:
    """The labelling after the batches asked the same question again, found it in neither cache nor batch, and ended in a
    traceback; now it gets the status that a run without batches gives it, and costs as many requests."""
    bench.office.begin(Fate(0.04, marked={"Order 0:": kind}))
    again = ("--no-force", *options[1:])  # without a second question, which would make a batch
    whole = online(bench, "--limit", "1", *again)
    bench.office.begin(Fate(0.04, marked={"Order 0:": kind}))
    assert bench.label("--batch", "--limit", "1", "--no-force", *options) == 3
    assert labels(bench) == whole
    assert bench.office.seen()["batches"] == 0
    assert bench.office.online.total() == (1 if "--regenerate" in options or kind == "context" else 2)


def test_a_wrong_key_an_unknown_server_and_an_empty_account(bench: Bench) -> None:
    bench.office.begin(Fate(key="sk-another"))
    assert bench.label("--batch") == 4
    assert "the key was refused" in bench.said
    bench.office.begin(Fate(0.02, marked={"Order 5:": "quota"}))
    assert bench.label("--batch", "--wait") == 5
    assert "made to fail: quota" in bench.said
    kept = bench.sql("SELECT count(*) FROM reply")[0]
    assert kept == 29  # all else that was in the batch
    bench.office.begin(Fate(0.02))
    assert bench.label("--batch", "--wait") == 0
    assert [len(made.lines) for made in bench.office.batches] == [1]


def test_a_key_that_changed_between_runs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.office.begin(Fate(60))
    assert bench.label("--batch") == 5
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "sk-of-another-project")
    assert bench.label("--batch") == 4
    assert "is not known to this key" in bench.said
    assert "critic-prm batch forget 1" in bench.said
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "sk-test-key-000000")
    bench.office.finish()
    assert bench.label("--batch", "--wait") == 0
    assert bench.office.seen()["batches"] == 1


def test_a_batch_given_up_is_ordered_anew(bench: Bench) -> None:
    bench.office.begin(Fate(60))
    assert bench.label("--batch") == 5
    assert bench.run("batch", "forget", "1") == 0
    bench.office.fate = Fate(0.03)
    assert bench.label("--batch", "--wait") == 0
    assert [len(made.lines) for made in bench.office.batches] == [29, 29]


def test_more_tokens_than_may_wait(openai: Bench) -> None:
    """A batch that is too large by itself is halved; one that is too much beside others waits for them."""
    whole = online(openai)
    openai.office.begin(Fate(0.4, queue=16))
    assert openai.label("--batch", "--wait") == 0
    assert labels(openai) == whole
    failed = [len(made.lines) for made in openai.office.batches if made.fate != "completed"]
    assert failed[0] == 29
    assert "its requests go out again in smaller batches" in openai.said
    assert "its requests go out again when others are done" in openai.said
    assert openai.office.seen()["ran_twice"] == 0


def test_a_batch_that_is_wrong_in_itself_stops_the_run(openai: Bench) -> None:
    openai.office.begin(Fate(0.05, first=("invalid_json_line",)))
    assert openai.label("--batch", "--wait") == 4
    assert "failed: invalid_json_line" in openai.said
    assert openai.label("--batch", "--wait") == 0


def test_cancelled_while_it_is_waited_for(bench: Bench) -> None:
    bench.office.begin(Fate(60))
    assert bench.label("--batch") == 5
    assert bench.run("batch", "cancel", "1", "--base-url", bench.address) == 0
    assert bench.run("batch", "status", "--base-url", bench.address) == 0
    assert bench.run("batch", "fetch", "--base-url", bench.address) == 0
    assert "cancelled" in bench.printed
    bench.office.fate = Fate(0.03)
    assert bench.label("--batch", "--wait") == 0
    assert bench.office.seen()["ran_twice"] == 0


def test_a_budget_holds_for_what_is_ordered(bench: Bench) -> None:
    """Each request may cost up to its whole limit of tokens, at half the price; what it did cost is told then."""
    options = ("--batch", "--wait", "--prices", "2,10", "--max-tokens", "1000")
    assert bench.label(*options, "--budget-usd", "0.02") == 5
    assert "stopped by --budget-usd 0.02" in bench.said
    first = len(bench.office.batches[0].lines)
    assert first in (2, 3)  # (1000 * 10 + 1400 * 2) / 1e6 / 2 = $0.0064 each, at most
    spent = bench.sql("SELECT sum(usd) FROM batch")[0]
    assert 0 < spent < 0.02
    assert bench.label(*options, "--budget-usd", "2") == 0
    assert bench.office.seen()["ran_twice"] == 0
    report = orjson.loads(bench.folder.joinpath("out.jsonl.run.json").read_bytes())
    assert report["exit_code"] == 0


def test_half_the_price(bench: Bench) -> None:
    assert bench.label("--dry-run", "--prices", "2,10") == 0
    full = bench.printed
    assert bench.label("--dry-run", "--batch", "--prices", "2,10") == 0
    assert bench.office.seen()["events"] == {}

    def dollars(text: str) -> float:
        return float(text.rpartition("cost: $")[2].partition(" ")[0])

    assert dollars(bench.printed) == pytest.approx(dollars(full) / 2, abs=1e-4)
    assert bench.label("--batch", "--wait", "--prices", "1000,0") == 0
    tokens = bench.sql("SELECT sum(input_tokens) FROM reply")[0]
    first = bench.sql("SELECT input_tokens FROM reply ORDER BY rowid LIMIT 1")[0]  # asked online, at the full price
    cost = orjson.loads(bench.folder.joinpath("out.jsonl.run.json").read_bytes())["cost_usd"]
    assert cost == pytest.approx(((tokens - first) / 2 + first) / 1000)


def test_a_prompt_that_changed_between_runs(bench: Bench) -> None:
    bench.office.begin(Fate(60))
    assert bench.label("--batch") == 5
    assert bench.label("--batch", "--max-tokens", "77") == 5
    assert "batch 1" in bench.said
    assert "holds 29 requests that this command does not send" in bench.said
    bench.office.finish()
    assert bench.label("--batch", "--wait", "--max-tokens", "77") == 0
    assert bench.sql("SELECT count(*) FROM reply") == [60]  # those of the first are kept, too


def test_several_judges_each_in_batches_of_their_own(bench: Bench) -> None:
    other = bench.judge + "-2"
    assert bench.label("--batch", "--wait", "--judge", other) == 0
    assert [len(made.lines) for made in bench.office.batches] == [29, 29]
    assert [len(row["critic"]["judges"]) for row in bench.rows()] == [2] * 30


def test_samples_until_they_decide(bench: Bench) -> None:
    assert bench.label("--batch", "--wait", "--samples", "auto:2-4", "--limit", "5") == 0
    assert {row["votes"][0][1] for row in bench.rows()} == {3}


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--batch", "--offline"), 2, "--offline forbids that"),
        (("--batch", "--engine", "ray"), 2, "--batch and --engine ray exclude each other"),
        (("--batch", "--judge", "vllm/m"), 2, "vllm has no batch API; `critic-prm batch export`"),
        (("--batch", "--judge", "rules"), 2, "--batch needs a judge that is asked over a network"),
    ],
)
def test_what_does_not_go_together(openai: Bench, options: tuple[str, ...], code: int, words: str) -> None:
    if "--judge" in options:
        openai.judge = options[-1]
        openai.address = "" if openai.judge == "rules" else openai.address
        options = options[:-2]
    else:
        assert openai.label() == 0  # there is a cache to read from
        openai.office.begin(Fate())
    assert openai.label(*options) == code
    assert words in openai.said
    assert openai.office.seen()["events"] == {}


def test_a_run_online_is_warned_of_batches_that_run(bench: Bench) -> None:
    bench.office.begin(Fate(60))
    assert bench.label("--batch") == 5
    assert bench.label("--limit", "2") == 0
    assert "batch 1 " in bench.said
    assert "is still running with 29 requests" in bench.said
    bench.office.finish()
    assert bench.run("batch", "fetch", "--base-url", bench.address) == 0
    assert "29 ok" in bench.printed or "28 ok" in bench.printed
    assert bench.label() == 0
    assert "under way" not in bench.said
    assert bench.sql("SELECT count(*) FROM reply") == [30]


def test_it_says_what_is_waited_for_as_long_as_it_is(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every half minute where stderr is no terminal."""
    monkeypatch.setattr("critic_prm.label.progress.EVERY", 0.02)
    bench.office.begin(Fate(0.4))
    assert bench.label("--batch", "--wait") == 0
    waiting = [line for line in bench.said.splitlines() if line.startswith("waiting for batch 1 (")]
    assert len(waiting) > 3
    assert "29 requests, in_progress" in waiting[-1]


def test_cancelled_by_somebody_while_it_is_waited_for(bench: Bench) -> None:
    bench.office.begin(Fate(60))

    def cancel(what: str) -> None:
        if what == "look":
            for made in bench.office.batches:
                made.cancelled = 1.0

    bench.office.at = cancel
    assert bench.label("--batch", "--wait") == 5
    bench.office.at = lambda what: None
    assert "was cancelled; run the same command again to order the rest of it" in bench.said
    bench.office.fate = Fate(0.03)
    assert bench.label("--batch", "--wait") == 0
    assert bench.office.seen()["ran_twice"] == 0
    assert bench.sql("SELECT count(*) FROM reply") == [30]


def test_a_provider_that_does_not_answer_for_a_while(bench: Bench) -> None:
    fails = Counter({"look": 2, "content": 1, "create arrives": 1, "uploaded": 1})

    def fail(what: str) -> None:
        if fails[what] > 0:
            fails[what] -= 1
            raise RuntimeError(f"made to fail: {what}")

    bench.office.at = fail
    assert bench.label("--batch", "--wait") == 0
    bench.office.at = lambda what: None
    assert bench.office.seen()["requests"] == 29


def test_stopped_while_it_waits(bench: Bench) -> None:
    bench.office.begin(Fate(60))

    def stop(what: str) -> None:
        if what == "look":
            os.kill(os.getpid(), signal.SIGTERM)

    bench.office.at = stop
    assert bench.label("--batch", "--wait") == 130
    bench.office.at = lambda what: None
    last = bench.said.splitlines()[-1]
    assert last.startswith(f"interrupted: {bench.out} was not written; replies received so far are stored in {bench.db}; ")
    assert last.endswith("run the same command again to resume; nothing is paid twice")
    bench.office.finish()
    assert bench.label("--batch", "--wait") == 0
    assert bench.office.seen()["batches"] == 1


@pytest.mark.parametrize("by", ["solution", "step"])
def test_a_cascade_asks_its_judge_by_batch(openai: Bench, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", openai.address)
    path = openai.folder / "cascade.toml"
    path.write_text(
        f'[cascade]\nfirst = "rules"\njudges = ["openai/bench"]\nby = "{by}"\nstyle = "yes-no"\nlow = 0.1\nhigh = 0.9\n'
    )
    openai.judge, openai.address = str(path), ""
    whole = online(openai, "--limit", "6")
    said = [line for line in openai.said.splitlines() if line.startswith("cascade:")]
    assert openai.label("--batch", "--wait", "--limit", "6") == 0
    assert labels(openai) == whole
    assert [line for line in openai.said.splitlines() if line.startswith("cascade:")] == said
    assert openai.office.seen()["batches"] > 0


def test_two_at_once(bench: Bench) -> None:
    from critic_prm.engine.batch.ledger import Ledger

    held = Ledger(bench.db).alone()
    assert bench.label("--batch") == 2
    assert "another process is processing the batches" in bench.said
    held.close()
    assert bench.label("--batch", "--wait") == 0


def test_the_body_is_the_one_that_would_have_gone_online(bench: Bench) -> None:
    """In its order, too: a model writes the properties of a schema in the order in which they stand."""
    options = ("--style", "json", "--limit", "2")
    bench.office.begin(Fate(60))
    bench.label("--batch", *options)
    (_, ordered) = bench.office.batches[0].lines[0]
    schema = (ordered.get("response_format") or ordered.get("output_config"))[
        "json_schema" if "response_format" in ordered else "format"
    ]
    assert "critique" in orjson.dumps(schema).decode()
    stored = bench.sql("SELECT params FROM reply")[0]
    assert orjson.dumps(orjson.loads(stored), option=orjson.OPT_SORT_KEYS) == orjson.dumps(
        {name: value for name, value in ordered.items() if name not in ("messages", "system")}, option=orjson.OPT_SORT_KEYS
    )


@pytest.mark.parametrize("id", ["../../files/x", "batch_1/cancel", "batch?1", "", "a" * 201, "batch_1\n"])
def test_an_id_in_a_cache_that_is_no_id_reaches_no_address(openai: Bench, id: str) -> None:
    """The id of a batch was put into the provider's address as it stood in the cache, which somebody else may have written."""
    openai.office.begin(Fate(60))
    assert openai.label("--batch") == 5
    with closing(sqlite3.connect(openai.db)) as conn, conn:
        conn.execute("UPDATE batch SET remote = ? WHERE state = 'running'", (id,))
    assert openai.label("--batch") == 4
    assert "which no provider assigned" in openai.said
    assert "batch forget 1" in openai.said
    assert openai.said.count("error:") == 1
