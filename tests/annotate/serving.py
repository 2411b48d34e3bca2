"""A running annotation server for tests, and requests to it that a browser would not send."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from critic_prm.annotate.answers import AnswerFile
from critic_prm.annotate.server import AnnotationServer
from critic_prm.annotate.session import Session
from critic_prm.annotate.solutions import Selection, Solutions
from critic_prm.data.formats.convert import read_trajectories

NO_SELECTION = Selection()


@contextmanager
def served(
    source: Path, out: Path, *, by: str = "ada", selection: Selection = NO_SELECTION, all_steps: bool = False
) -> Iterator[AnnotationServer]:
    """Serve a file as `critic-prm annotate` does."""
    answers = AnswerFile(out, by)
    session = Session(source, Solutions(read_trajectories(source), selection), answers, all_steps=all_steps)
    with AnnotationServer(session) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
            answers.close()
            session.solutions.close()


def request(
    server: AnnotationServer, path: str, body: Any = None, *, token: str | None = None, headers: Mapping[str, str] | None = None
) -> tuple[int, Any, Mapping[str, str]]:
    """Status, body and headers of the reply to a request below the token. A `body` that is not bytes is sent as JSON."""
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    sent = {**({} if content is None else {"Content-Type": "application/json"}), **(headers or {})}
    connection.request("GET" if content is None else "POST", f"/{token or server.token}/{path}", content, sent)
    reply = connection.getresponse()
    text = reply.read()
    connection.close()
    kind = reply.headers.get("Content-Type", "")
    return reply.status, json.loads(text) if kind == "application/json" else text.decode(), dict(reply.headers)


def lines(path: Path) -> list[dict[str, Any]]:
    """The rows of an answer file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
