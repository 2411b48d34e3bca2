"""The server answers the page that has the token, on this machine, and nobody else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from critic_prm.annotate.server import LARGEST, AnnotationServer
from critic_prm.errors import UsageError
from tests.annotate.serving import lines, request, served
from tests.report.making import judged, saved

MARK = {"at": 0, "revision": 0, "verdicts": [{"step": 0, "verdict": "correct"}]}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[AnnotationServer]:
    with served(saved(tmp_path / "in.jsonl", [judged("secret", ["x"], -1)]), tmp_path / "ada.jsonl") as running:
        yield running


def test_without_the_token_there_is_nothing(server: AnnotationServer, tmp_path: Path) -> None:
    other = "x" * len(server.token)
    for path in ("", "session", "solution?at=0", "rows?start=0", "../", f"../{server.token}"):
        for token in (other, server.token[:-1], server.token + "x", ""):
            status, reply, _ = request(server, path, token=token or "?")
            assert (status, "secret" in str(reply), server.token in str(reply)) == (403, False, False)
    assert request(server, "mark", MARK, token=other)[0] == 403
    assert lines(tmp_path / "ada.jsonl") == []
    assert len(server.token) >= 32
    assert request(server, "session")[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "10.0.0.1", "[bad"])
def test_another_host_is_refused(server: AnnotationServer, host: str) -> None:
    """A page of another site, whose name was resolved to this machine, sends its own name."""
    assert request(server, "session", headers={"Host": host})[0] == 421
    for near in ("localhost", "127.0.0.1:9", "[::1]:80", "LOCALHOST:1"):
        assert request(server, "session", headers={"Host": near})[0] == 200


def test_another_page_cannot_write(server: AnnotationServer, tmp_path: Path) -> None:
    assert request(server, "mark", MARK, headers={"Origin": "http://evil.example"})[0] == 403
    assert request(server, "mark", MARK, headers={"Origin": "null"})[0] == 403
    assert request(server, "mark", MARK, headers={"Content-Type": "text/plain"})[0] == 415
    assert request(server, "mark")[0] == 404
    assert lines(tmp_path / "ada.jsonl") == []
    assert request(server, "mark", MARK, headers={"Origin": f"http://127.0.0.1:{server.server_port}"})[0] == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[]", 400),
        ({"at": "x", "revision": 0}, 400),
        ({"at": True, "revision": 0}, 400),
        ({"at": 1, "revision": 0}, 404),
        ({"at": -1, "revision": 0}, 404),
        ({"at": 0}, 400),
        ({"at": 0, "revision": 0, "verdicts": [{"step": 1, "verdict": "correct"}]}, 422),
        ({"at": 0, "revision": 0, "verdicts": [{"step": 0, "verdict": "<b>"}]}, 422),
        ({"at": 0, "revision": 0, "note": "x" * 20_001}, 422),
    ],
)
def test_nonsense_changes_nothing(server: AnnotationServer, tmp_path: Path, body: Any, status: int) -> None:
    assert request(server, "mark", body)[0] == status
    for length in (str(LARGEST + 1), "0" * 12 + "9" * 9):
        assert request(server, "mark", MARK, headers={"Content-Length": length})[0] == 413
    assert lines(tmp_path / "ada.jsonl") == []


def test_what_is_no_address_is_refused_without_a_traceback(server: AnnotationServer, capfd: pytest.CaptureFixture[str]) -> None:
    """Nobody needs the token to send this; each such request printed a traceback to the terminal."""
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.request("GET", "http://[", headers={"Host": "localhost"})
    assert connection.getresponse().status == 400
    connection.close()
    assert request(server, "session", headers={"Origin": "http://["})[0] == 403
    assert "Traceback" not in capfd.readouterr().err


def deep(levels: int) -> Any:
    return [deep(levels - 1)] if levels else []


@pytest.mark.parametrize(
    "facts", ["steps", ["steps"], {"steps": 3}, {"steps": "01"}, {"steps": [], "judges": [{"status": deep(300)}]}]
)
def test_a_damaged_escalation_is_shown_or_refused(facts: Any, tmp_path: Path) -> None:
    row = {"id": "a", "problem": "1+1?", "steps": ["2"], "escalated": facts}
    with served(saved(tmp_path / "in.jsonl", [row]), tmp_path / "ada.jsonl") as running:
        assert request(running, "solution?at=0")[1]["doubt"] == []
        status, reply, _ = request(running, "reveal", {"at": 0, "revision": 0, "what": "judge"})
        assert status == 200 or reply["problem"] == "this solution is nested too deeply to be shown"


def test_the_page_names_nothing_outside_itself(server: AnnotationServer) -> None:
    status, page, headers = request(server, "")
    assert status == 200
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert (headers["Cache-Control"], headers["Referrer-Policy"]) == ("no-store", "no-referrer")
    assert not re.search(r"https?:|//\w+\.\w|@import|innerHTML|insertAdjacentHTML|document\.write", page)
    assert "Python" not in headers["Server"]


def test_a_port_in_use_is_named(server: AnnotationServer) -> None:
    with pytest.raises(UsageError, match=f"port {server.server_port} cannot be used"):
        AnnotationServer(server.session, server.server_port)
    assert server.server_address[0] == "127.0.0.1"
