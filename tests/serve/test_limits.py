"""What a server refuses, how it says so, and that it still serves afterwards."""

from __future__ import annotations

import json
import logging
import random
import re
import socket
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest

import critic_prm.arithmetic.claims as arithmetic_judge
from critic_prm.critics import rules
from critic_prm.data.judgement import Judgement
from critic_prm.data.trajectory import Trajectory
from critic_prm.errors import BudgetError, ConfigError, UsageError
from critic_prm.serve import app, endpoints
from critic_prm.serve.openapi import Refused
from critic_prm.serve.settings import ServeSettings, check, find_token
from tests.effort import PATIENCE, until
from tests.serve.conftest import ONE, Oracle

if TYPE_CHECKING:
    from tests.serve.conftest import Running, Start

TOKEN = "0123456789abcdef"
PATHS = (
    *(("GET", "/metrics"), ("GET", "/openapi.json"), ("GET", "/"), ("GET", "/nowhere"), ("POST", "/v1/score")),
    *(("POST", "/v1/rank"), ("POST", "/pooling"), ("POST", "/get_reward"), ("DELETE", "/v1/score"), ("OPTIONS", "/v1/score")),
)


def code_of(answer: Any) -> str:
    return str(answer["error"]["code"])


def ok(server: Running) -> bool:
    return server.post("/v1/score", ONE)[0] == 200


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b'\xff{"trajectories": []}', {}, 400),
        (b'{"trajectories": [NaN]}', {}, 400),
        (b"[" * 60_000, {}, 400),
        (b"{}", {"content-type": "text/plain"}, 415),
        ({}, {}, 422),
        ([], {}, 422),
        ({"trajectories": [{"problem": "p", "steps": []}]}, {}, 422),
        ({"trajectories": [{"problem": "p", "steps": [1]}]}, {}, 422),
        ({"trajectories": [{"problem": "p", "steps": ["a"] * 1025}]}, {}, 422),
        ({"trajectories": [], "unknown": 1}, {}, 422),
        ({"trajectories": [], "aggregation": "median"}, {}, 422),
        ({"trajectories": "a"}, {}, 422),
        (b" " * 70_000, {}, 413),
    ],
)
def test_bad_requests_are_told_what_is_wrong(start: Start, body: Any, headers: Mapping[str, str], status: int) -> None:
    server = start(max_body=65_536)
    found, answer = server.post("/v1/score", body, headers)
    assert found == status
    assert set(answer) == {"error"}
    assert answer["error"]["message"]
    assert ok(server)


def test_what_is_ignored_may_be_nested_deeply(start: Start) -> None:
    deep = b"[" * 1000 + b"]" * 1000
    assert start().post("/get_reward", b'{"query": [], "labels": ' + deep + b"}")[0] == 200


def test_a_head_has_a_limit(start: Start) -> None:
    """36 MB of header lines, sent without a token, took 775 MB of memory: httptools keeps heads of any length."""
    server = start(token=TOKEN)
    for line in (b"x: y\r\n", b"x" * 64 + b": " + b"y" * 4000 + b"\r\n"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection, suppress(OSError):
            connection.sendall(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n")
            sent = 0
            connection.setblocking(True)
            while sent < 36 << 20:
                sent += connection.send(line * 64)
        assert sent < 8 << 20  # what the sockets of both sides hold, at the very most
    answer = server.raw(b"GET /health HTTP/1.1\r\n" + b"x: y\r\n" * 8000)
    head, _, body = answer.partition(b"\r\n\r\n")
    # The parser that is used without httptools has a limit of its own, and does not say which rule was broken.
    expected = {b"HTTP/1.1 431": "head_too_large", b"HTTP/1.1 400": "bad_request"}
    assert json.loads(body)["error"]["code"] == expected[head[:12]]
    assert server.request("GET", "/health", headers={"x": "y" * 20_000})[0] == 200


def test_a_long_body_before_the_next_head_on_one_connection_is_no_long_head(start: Start) -> None:
    server = start()
    content = json.dumps({"trajectories": [{"problem": "p" * 200_000, "steps": ["0.9 a"]}]}).encode()
    head = b"POST /v1/score HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%s\r\n"
    one = head % (len(content), b"") + content
    answer = server.raw(one + one + head % (len(content), b"connection: close\r\n") + content)
    assert answer.count(b"HTTP/1.1 200 ") == 3


@pytest.mark.parametrize(
    "request_",
    [
        b"garbage\r\n\r\n",
        b"POST /v1/score HTTP/1.1\r\nhost: localhost\r\ncontent-length: abc\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\nconnection: close\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nno colon\r\n\r\n",
    ],
)
def test_broken_requests_are_refused_in_json(start: Start, request_: bytes) -> None:
    """Errors of the protocol were plain text, and of two Host headers the last one counted."""
    answer = start().raw(request_)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"application/json" in head
    assert json.loads(body)["error"]["code"] == "bad_request"


LARGE_BODIES = {
    "steps": ("/v1/score", {"trajectories": [{"problem": "p", "steps": ["0.9 step"] * 1024}] * 20}),
    "objects": ("/v1/score", {"trajectories": [{"problem": "p", "steps": [{"text": "0.9 step"}] * 400}] * 40}),
    "turns": ("/pooling", {"input": "[INST]" * 20_000}),
    "chatml": ("/pooling", {"input": "<|im_start|>user\n" * 10_000}),
    "tags": ("/pooling", {"input": "p\n\n" + "<extra_0>" * 20_000}),
    "noise": ("/pooling", {"input": "p\n\n" + "</s>" * 40_000 + "0.9 a<extra_0>"}),
    "reward": ("/get_reward", {"query": ["p\n\n0.9 a\n\n0.9 b" * 400] * 20}),
}


@pytest.mark.parametrize("name", LARGE_BODIES)
def test_a_large_request_is_read_and_answered_off_the_event_loop(
    start: Start, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """One body of 3.5 MB stopped all other requests, /health too, for up to eight seconds. The parser waits here until /health
    was answered: on the loop it could not be."""
    path, body = LARGE_BODIES[name]
    server, answered, where = start(), threading.Event(), []
    real = app._parsed

    def parsed(raw: bytes, schema: dict[str, Any]) -> dict[str, Any]:
        where.append(threading.current_thread().name)
        assert answered.wait(20)
        return real(raw, schema)

    monkeypatch.setattr(app, "_parsed", parsed)
    assert len(json.dumps(body)) > app.LARGE
    found: list[int] = []
    asking = threading.Thread(target=lambda: found.append(server.post(path, body)[0]))
    asking.start()
    until(lambda: bool(where))
    assert server.request("GET", "/health")[0] == 200
    answered.set()
    asking.join(30)
    assert found == [422 if name in ("turns", "chatml", "tags") else 200]
    assert where[0].startswith("large-requests")


def test_what_is_cut_is_bounded_before_it_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these texts of 3.6 MB was cut into hundreds of thousands of parts, and only then refused."""
    cleaned: list[str] = []
    real = endpoints.clean

    def clean(text: str) -> str:
        cleaned.append(text)
        return real(text)

    monkeypatch.setattr(endpoints, "clean", clean)
    for text in ("[INST]" * 600_000, "<|im_start|>user\n" * 200_000, "<start_of_turn>user\n" * 180_000):
        with pytest.raises(Refused):
            endpoints.turns(text)
    assert not cleaned
    with pytest.raises(Refused):
        endpoints.steps_of("<extra_0>" * 400_000, "<extra_0>")
    assert endpoints.turns("[INST]q[/INST]a" * 512)[-1] == ("assistant", "a")
    assert len(endpoints.steps_of("a<extra_0>" * 1024, "<extra_0>")) == 1024


def test_errors_name_places_and_not_what_was_said(start: Start) -> None:
    _, answer = start().post("/v1/score", {"trajectories": [{"problem": {"canary": 1}, "steps": ["canary"]}]})
    assert "trajectories[0].problem" in answer["error"]["message"]
    assert "canary" not in answer["error"]["message"]


def test_unknown_paths_and_methods(start: Start) -> None:
    server = start()
    status, _, answer = server.request("GET", "/nowhere")
    assert (status, code_of(answer)) == (404, "not_found")
    status, headers, _ = server.request("GET", "/v1/score")
    assert (status, headers["allow"]) == (405, "POST")


def test_without_the_token_nothing_answers_but_health(start: Start) -> None:
    server = start(token=TOKEN)
    assert server.request("GET", "/health")[0] == 200
    for wrong in ({}, {"authorization": "Bearer wrong"}, {"authorization": TOKEN}, {"authorization": f"Basic {TOKEN}"}):
        for method, path in PATHS:
            status, headers, answer = server.request(method, path, ONE if method == "POST" else None, wrong)
            assert (status, code_of(answer), headers["www-authenticate"]) == (401, "unauthorized", "Bearer"), (method, path)
    assert server.critic.seen == []
    assert server.post("/v1/score", ONE, {"authorization": f"bearer {TOKEN}"})[0] == 200
    assert server.request("GET", "/metrics", headers={"authorization": f"Bearer {TOKEN}"})[0] == 200


def test_a_page_that_resolves_its_own_name_to_this_machine_gets_nothing(start: Start) -> None:
    server = start()
    assert server.post("/v1/score", ONE, {"host": "rebound.example:80"})[0] == 421
    assert server.post("/v1/score", ONE, {"host": "localhost:9"})[0] == 200
    assert server.post("/v1/score", ONE, {"host": "[::1]:9"})[0] == 200
    for name in ("[::1].evil.example", "[::1].evil.example:80", "[::1]:80.evil.example", "127.0.0.1.evil.example"):
        assert server.post("/v1/score", ONE, {"host": name})[0] == 421, name


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.7", "example.org"])
def test_a_public_address_needs_a_token(host: str) -> None:
    with pytest.raises(ConfigError, match="CRITIC_PRM_TOKEN"):
        check(ServeSettings(host=host))
    check(ServeSettings(host=host, token=TOKEN))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_this_machines_own_addresses_do_not(host: str) -> None:
    check(ServeSettings(host=host))


def test_settings_that_cannot_be() -> None:
    with pytest.raises(UsageError, match="median"):
        check(ServeSettings(aggregation="median"))
    with pytest.raises(UsageError, match="step-tag"):
        check(ServeSettings(step_tag=" "))


def test_where_the_token_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert find_token(None, {}) is None
    assert find_token(None, {"CRITIC_PRM_TOKEN": TOKEN}) == TOKEN
    assert find_token(file, {"CRITIC_PRM_TOKEN": "other"}) == TOKEN
    with pytest.raises(ConfigError, match="openssl"):
        find_token(None, {"CRITIC_PRM_TOKEN": "short"})
    with pytest.raises(ConfigError, match="openssl"):
        find_token(None, {"CRITIC_PRM_TOKEN": ""})
    with pytest.raises(ConfigError, match="cannot be read"):
        find_token(tmp_path / "none", {})


def test_what_waits_goes_together(start: Start) -> None:
    server = start()
    threads = [server.hold(), *(threading.Thread(target=server.post, args=("/v1/score", ONE)) for _ in range(19))]
    for thread in threads[1:]:
        thread.start()
    until(lambda: server.waiting(19))
    server.critic.gate.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert server.critic.sizes == [1, 19]


def test_a_full_queue_says_when_to_come_back(start: Start) -> None:
    server = start(max_queue=2)
    threads = [server.hold(), *(threading.Thread(target=server.post, args=("/v1/score", ONE)) for _ in range(2))]
    for thread in threads[1:]:
        thread.start()
    until(lambda: server.waiting(2))
    status, headers, answer = server.request("POST", "/v1/score", ONE)
    assert (status, code_of(answer)) == (429, "busy")
    assert 1 <= int(headers["retry-after"]) <= 60
    server.critic.gate.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert ok(server)


def test_one_solutions_fault_is_not_its_neighbours(start: Start) -> None:
    critic = Oracle(fails=lambda t: ValueError("canary") if t.problem == "bad" else None)
    server = start(critic)
    first = server.hold()
    found: dict[str, int] = {}

    def ask(problem: str) -> None:
        found[problem] = server.post("/v1/score", {"trajectories": [{"problem": problem, "steps": ["a"]}]})[0]

    threads = [threading.Thread(target=ask, args=(problem,)) for problem in ("good", "bad", "fine")]
    for thread in threads:
        thread.start()
    until(lambda: server.waiting(3))
    critic.gate.set()
    for thread in (first, *threads):
        thread.join(PATIENCE)
    assert found == {"good": 200, "bad": 500, "fine": 200}


def test_a_critic_that_cannot_work_is_said_to_be_unavailable(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    server = start(Oracle(fails=lambda t: BudgetError("the budget of $1 is spent")))
    status, headers, answer = server.request("POST", "/v1/score", ONE)
    assert (status, code_of(answer), headers["retry-after"]) == (503, "unavailable", "60")
    assert "the budget of $1 is spent" in caplog.text


def test_no_answer_in_time(start: Start) -> None:
    server = start(answer_timeout=0.2)
    server.critic.gate.clear()
    status, answer = server.post("/v1/score", ONE)
    assert (status, code_of(answer)) == (504, "timeout")
    server.critic.gate.set()
    until(lambda: ok(server))  # 0.2 s may be too short for a busy machine, but not every time


def test_a_body_that_does_not_come(start: Start) -> None:
    server = start(read_timeout=0.2)
    head = b"POST /v1/score HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n"
    until(lambda: server.raw(head + b'{"traj').startswith(b"HTTP/1.1 408 "))  # unless the head itself came too late
    assert server.raw(b"POST /v1/sco") == b""
    assert server.raw(b"") == b""
    until(lambda: ok(server))


def test_who_has_gone_is_not_scored(start: Start) -> None:
    server = start()
    first = server.hold()
    content = json.dumps({"trajectories": [{"problem": "gone", "steps": ["a"]}]}).encode()
    head = b"POST /v1/score HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(head % len(content) + content)
        until(lambda: server.waiting(1))
    until(lambda: 'endpoint="score",code="499"' in server.request("GET", "/metrics")[2])
    server.critic.gate.set()
    first.join(PATIENCE)
    assert ok(server)
    assert "gone" not in [seen.problem for seen in server.critic.seen]


def test_too_many_connections_are_told_so(start: Start) -> None:
    server = start(max_clients=2)
    held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2)]
    assert server.raw(b"").startswith(b"HTTP/1.1 503 ")
    for connection in held:
        connection.close()
    until(lambda: server.request("GET", "/health")[0] == 200)


def test_stopping_finishes_what_is_being_answered(start: Start) -> None:
    server = start()
    server.critic.gate.clear()
    found: list[int] = []
    asking = threading.Thread(target=lambda: found.append(server.post("/v1/score", ONE)[0]))
    asking.start()
    until(lambda: server.critic.asked > 0)
    server.stop()
    asking.join(PATIENCE)
    assert found == [200]
    assert server.critic.closed


def test_no_request_text_is_logged(start: Start, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    caplog.set_level(logging.DEBUG)

    def fails(trajectory: Trajectory) -> Exception | None:
        return ValueError(trajectory.problem) if trajectory.problem == "canary" else None

    server = start(Oracle(fails=fails))
    for body in ({"trajectories": [{"problem": "canary", "steps": ["canary"]}]}, {"canary": 1}, b'{"canary'):
        server.post("/v1/score?canary=1", body, {"x-canary": "canary"})
    server.request("GET", "/canary")
    server.raw(b"canary canary canary\r\n\r\n")
    assert "ValueError" in caplog.text
    written = capfd.readouterr()
    assert "canary" not in caplog.text + written.out + written.err


def test_metrics_are_prometheus_text(start: Start) -> None:
    server = start()
    assert ok(server)
    _, headers, text = server.request("GET", "/metrics")
    assert headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert text.endswith("\n")
    families: dict[str, str] = {}
    samples: set[str] = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in families
            families[name] = kind
        elif not line.startswith("#"):
            sample, value = line.rsplit(" ", 1)
            float(value)
            assert sample not in samples
            samples.add(sample)
            assert any(sample.startswith(name) for name in families)
    assert families["critic_prm_request_duration_seconds"] == "histogram"
    assert 'critic_prm_request_duration_seconds_bucket{endpoint="score",le="+Inf"} 1' in text
    assert 'critic_prm_requests_total{endpoint="score",code="200"} 1' in text
    assert "critic_prm_steps_scored_total 1" in text
    assert 'critic_prm_solutions_scored_total{status="ok"} 1' in text


def hostile(rng: random.Random) -> bytes:
    """A request that is broken somewhere: in its start line, headers, length, encoding, JSON, or by being cut."""
    content = json.dumps(ONE).encode()
    if rng.random() < 0.5:
        place = rng.randrange(len(content))
        content = content[:place] + rng.randbytes(rng.randrange(1, 20)) + content[place:]
    length = rng.choice([len(content), len(content) + 50, 0, -1, 10**9, "abc", f"{len(content)}, 7"])
    method, path = (
        rng.choice(["POST", "GET", "PUT", "\x00", "POST" * 50]),
        rng.choice(["/v1/score", "/v1/rank", "/pooling", "*", "/%00"]),
    )
    lines = [f"{method} {path} HTTP/{rng.choice(['1.1', '1.0', '9.9', ''])}", "host: localhost", f"content-length: {length}"]
    lines.append(
        rng.choice(["content-type: application/json", "content-type: x", "no colon", "expect: 100-continue", "upgrade: h2c"])
    )
    lines.append(rng.choice(["x: " + "y" * rng.randrange(70_000), "transfer-encoding: chunked", "connection: close", "a: b"]))
    whole = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + content
    return whole[: rng.randrange(len(whole))] if rng.random() < 0.3 else whole


def test_two_thousand_hostile_requests_leave_it_serving(start: Start) -> None:
    server = start(max_body=4096, read_timeout=0.5, max_clients=200)
    rng = random.Random(0)
    requests = [hostile(rng) for _ in range(2000)]
    slow: list[socket.socket] = []
    for index, request in enumerate(requests):
        connection = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
        with suppress(OSError):  # refused while it was still being sent
            connection.sendall(request)
        if index % 10 == 0:
            slow.append(connection)  # says no more, and does not hang up either
        else:
            connection.close()
    until(lambda: server.request("GET", "/health")[0] == 200)
    until(lambda: ok(server))
    for connection in slow:
        connection.close()

    def quiet() -> bool:
        text = server.request("GET", "/metrics")[2]
        return "critic_prm_held_bytes 0\n" in text and "critic_prm_queue_depth 0\n" in text and 'code="500"' not in text

    until(quiet)


def test_rules_are_judged_off_the_event_loop(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """32 solutions at a time were judged by `rules` on the loop, and /health had to wait for them. Here they wait for it."""
    answered, began, real = threading.Event(), threading.Event(), arithmetic_judge.judge_one

    def judge_one(trajectory: Trajectory, sample: int = 0) -> Judgement:
        began.set()
        assert answered.wait(20)
        return real(trajectory, sample)

    class Rules(Oracle):
        async def judge(self, trajectories: Sequence[Trajectory], sample: int = 0) -> list[Judgement]:
            return await rules.RuleCritic().judge(trajectories, sample)

    monkeypatch.setattr(rules, "judge_one", judge_one)
    server = start(Rules())
    found: list[Any] = []
    asking = threading.Thread(target=lambda: found.append(server.post("/v1/score", ONE)))
    asking.start()
    assert began.wait(20)
    assert server.request("GET", "/health")[0] == 200
    answered.set()
    asking.join(PATIENCE)
    assert found[0][0] == 200


@pytest.mark.parametrize("pattern", [endpoints._MARKERS, endpoints._NOISE])
def test_no_search_looks_through_more_than_a_window(monkeypatch: pytest.MonkeyPatch, pattern: re.Pattern[str]) -> None:
    """A single search through 3.5 MB held the interpreter, and so all other requests, for most of a second. What is found is
    the same, also where a marker lies across the end of a window."""
    monkeypatch.setattr(endpoints, "WINDOW", 16)
    rng = random.Random(0)
    parts = (
        *(
            "<|im_start|>",
            "user\n",
            "assistant\n",
            " ",
            "<|user|>",
            "[INST]",
            "[/INST]",
            "<start_of_turn>",
            "<|im_end|>",
            "</s>",
        ),
        *("x", "<", "|>", "<|start_header_id|>", "user", "<|end_header_id|>\n\n", "<|", "aaaa" * 20),
    )
    for _ in range(2000):
        text = "".join(rng.choices(parts, k=rng.randrange(25)))
        assert [m.span() for m in endpoints._matches(pattern, text)] == [m.span() for m in pattern.finditer(text)], text

    class Counted:
        spans: ClassVar[list[int]] = []

        def search(self, text: str, place: int, end: int) -> re.Match[str] | None:
            self.spans.append(end - place)
            return pattern.search(text, place, end)

    assert list(endpoints._matches(cast(Any, Counted()), "a" * 10_000)) == []
    assert max(Counted.spans) == endpoints.WINDOW + endpoints.LONGEST
    assert len(Counted.spans) == 625
