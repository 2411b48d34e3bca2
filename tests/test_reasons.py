"""A run says why rows got no label: the most frequent reason of each status, an example, and what to do."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from typer.testing import Result

from critic_prm.data.judgement import STATUSES, Judgement, Label, Status
from critic_prm.data.records.writing import RecordWriter
from critic_prm.engine import retries
from critic_prm.errors import CriticPrmError, ProviderError, UsageError
from critic_prm.label.progress import SOON, RunStats, news
from critic_prm.label.reasons import MOST_REASONS, Reasons, explained
from critic_prm.providers.provider import open_provider
from tests.command import invoke

PAGE = b"<!DOCTYPE html><html><head><title>Sign in</title></head></html>"


class SignIn(BaseHTTPRequestHandler):
    """A captive portal: a page for every request."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def portal() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), SignIn) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()


@pytest.fixture(autouse=True)
def no_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "backoff", lambda state: 0.0)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    rows = [{"id": f"row {i}", "problem": f"p{i}", "steps": ["one", "two"]} for i in range(3)]
    path.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    return path


def failed(status: Status, *notes: str, key: str = "") -> Label:
    return Label((None,), ((0, 0),), None, status, (Judgement(status, keys=(key,) if key else (), notes=notes),))


def test_every_status_has_advice() -> None:
    for status in STATUSES[1:]:
        assert explained(status, ())[1]
        assert explained(status, ("something that nobody has seen",))[0]


def test_the_most_frequent_reason_is_named_with_the_first_row_that_has_it() -> None:
    reasons = Reasons()
    reasons.add("a", failed("unparseable", "the reply is empty"))
    for number in range(3):
        reasons.add(f"b {number}", failed("unparseable", "step 1: 2 notes", f"step {number}: no verdict was found"))
    for number, steps in enumerate(("4", "4, 5")):
        reasons.add(f"c{number}", failed("count_mismatch", f"no verdict for {number + 1} of 5 steps: {steps}"))
    assert reasons.lines("my labels.jsonl") == [
        "unparseable 4: no verdict was found (3 rows; 1 other reason)",
        "  what to do: use another style (`critic-prm prompts list`), or another judge",
        "  see one: critic-prm explain 'my labels.jsonl' 'b 0'",
        "count_mismatch 2: no verdict for 1 of 5 steps: 4",
        "  what to do: allow more follow-ups (--follow-ups 2), or use another style",
        "    (--style first-error)",
        "  see one: critic-prm explain 'my labels.jsonl' c0",
    ]
    assert [row["rows"] for row in reasons.report()] == [3, 2, 1]


def test_without_a_file_the_reply_in_the_cache_is_named() -> None:
    reasons = Reasons()
    reasons.add("a", failed("unparseable", "no verdict was found", key="0123456789abcdef"))
    assert reasons.lines("-")[-1] == "  see one: critic-prm cache show 0123456789ab"


def test_a_combined_judgement_gives_the_reason_of_its_parts() -> None:
    part = Judgement("truncated", notes=("the thinking block was never closed",), keys=("k",))
    reasons = Reasons()
    reasons.add("a", Label((None,), ((0, 0),), None, "truncated", (Judgement("truncated", parts=(part,)),)))
    assert "while the judge was thinking" in reasons.lines("x")[0]


def test_a_million_reasons_take_no_memory() -> None:
    reasons = Reasons()
    for number in range(1000):
        word = "".join(chr(97 + int(digit)) for digit in str(number))
        reasons.add(str(number), failed("provider_error", f"the server says {word}"))
    assert len(reasons.counted) <= MOST_REASONS + 1
    assert sum(reason.rows for reason in reasons.counted.values()) == 1000
    assert len(reasons.lines("x")) < 8
    assert max(map(len, reasons.lines("x"))) <= 80


def test_the_page_of_a_proxy_is_named_in_the_summary(source: Path, portal: str) -> None:
    out = source.with_name("out.jsonl")
    asked = ("--judge", "openai/m", "--base-url", portal, "--max-retries", "1")
    done = invoke("label", source, "-o", out, *asked)
    assert done.exit_code == 3
    summary = " ".join(done.stderr.split())
    assert "provider_error 3: the server answered 200 with HTML (text/html) what to do: a proxy or a login page" in summary
    assert f"critic-prm explain {out} 'row 0'" in summary
    report = orjson.loads(Path(f"{out}.run.json").read_bytes())
    assert report["reasons"] == [
        {
            "status": "provider_error",
            "reason": "the server answered 200 with HTML (text/html)",
            "rows": 3,
            "first": "row 0",
        }
    ]


def test_replies_without_verdicts_are_explained(source: Path) -> None:
    replies = source.with_name("replies.jsonl")
    replies.write_bytes(orjson.dumps({"text": "It looks fine to me."}))
    done = invoke("label", source, "-o", source.with_name("out.jsonl"), "--judge", f"scripted/{replies}")
    assert done.exit_code == 3
    assert re.search(r"^unparseable 3: no verdict was found\n  what to do: use another style", done.stderr, re.MULTILINE)


def test_a_host_without_an_address_ends_a_small_run_with_the_reason(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "UNREACHABLE", {"unresolved": 0.0, "refused": 0.0})
    with pytest.raises(CriticPrmError, match=r"DNS: cannot resolve no-such-host\.invalid \(offline\?\)") as ended:
        label(source, "http://no-such-host.invalid/v1")
    assert ended.value.exit_code == 4


def test_a_port_that_refuses_ends_a_small_run_only_after_a_while(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nothing listens
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        assert label(source, url).exit_code == 3  # all retries are used up within UNREACHABLE seconds
        monkeypatch.setattr(retries, "UNREACHABLE", {"refused": 0.0})
        with pytest.raises(CriticPrmError, match=r"refuses connections \(is the server running\?\); all \d+ requests"):
            label(source, url)


def label(source: Path, url: str) -> Result:
    return invoke("label", source, "-o", source.with_name("out.jsonl"), "--judge", "openai/m", "--base-url", url)


def test_the_first_failure_of_a_judge_is_printed_once_while_the_run_goes_on() -> None:
    failure = ProviderError("no answer: DNS: cannot resolve x.invalid (offline?)", "transient")
    luck: Any = SimpleNamespace(last=None, successes=0)
    client: Any = SimpleNamespace(luck=luck, provider=SimpleNamespace(name="openai", model="m"))
    tally = RunStats(clients=[client])
    assert news(tally) == []
    luck.last = failure
    assert news(tally) == [f"openai/m: {failure}; trying again"]
    assert news(tally) == []


def test_the_rows_of_a_run_can_be_read_before_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with RecordWriter("labels.jsonl") as sink:
        tally = RunStats(output=sink, rows=1)
        sink.write({"id": "a"})
        assert news(tally) == []  # a short run needs no hint
        assert sink.readable is not None
        assert sink.readable.read_bytes() == b'{"id":"a"}\n'
        tally.started -= SOON
        assert news(tally) == [f"finished rows so far: tail -f {sink.readable.name}"]
        assert news(tally) == []
    for name in ("labels.json", "labels.jsonl.gz", "-"):
        with RecordWriter(name) as sink:
            assert sink.readable is None
            sink.flush()


@pytest.mark.parametrize(
    ("given", "fix"),
    [
        ("127.0.0.1:8799/v1", "http://127.0.0.1:8799/v1"),
        ("localhost:8000", "http://localhost:8000"),
        ("api.example.com/v1", "https://api.example.com/v1"),
        ("me:secret-word@10.0.0.7:80/v1?key=secret-word", "http://10.0.0.7:80/v1"),
        ("http://", "such as http://localhost:8000/v1"),
        ("http://[::1", "such as http://localhost:8000/v1"),
    ],
)
def test_an_address_without_a_scheme_is_refused_at_once(given: str, fix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError) as refused:
        open_provider("openai/m", given)
    assert str(refused.value).endswith(fix)
    assert "secret" not in str(refused.value)
    monkeypatch.setenv("OPENAI_BASE_URL", given)
    with pytest.raises(UsageError):
        open_provider("openai/m")
