"""A real server on a free port of this machine, in a thread, around a critic whose verdicts are known."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from critic_prm.data.critic import Critic
from critic_prm.data.judgement import Judgement, Verdict, first_error_of
from critic_prm.data.trajectory import Trajectory
from critic_prm.serve.settings import ServeSettings
from tests.effort import PATIENCE, until

ONE = {"trajectories": [{"problem": "p", "steps": ["0.9 a"]}]}


@dataclass
class Oracle(Critic):
    """Gives a step the P(correct) its text begins with, else 0.5; none to "silent". `fails` is raised, `status` returned."""

    batch: int = 256
    stochastic: bool = False
    sizes: list[int] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    fails: Callable[[Trajectory], Exception | None] = lambda trajectory: None
    status: Any = "ok"
    seen: list[Trajectory] = field(default_factory=list)
    closed: bool = False
    asked: int = 0

    def __post_init__(self) -> None:
        self.gate.set()

    @property
    def card(self) -> Mapping[str, Any]:
        return {"provider": "test", "model": "oracle"}

    async def judge(self, trajectories: Sequence[Trajectory], sample: int = 0) -> list[Judgement]:
        self.asked += 1
        await asyncio.to_thread(self.gate.wait, PATIENCE)
        self.sizes.append(len(trajectories))
        self.seen.extend(trajectories)
        for trajectory in trajectories:
            if error := self.fails(trajectory):
                raise error
        return [self._judgement(trajectory, sample) for trajectory in trajectories]

    def _judgement(self, trajectory: Trajectory, sample: int) -> Judgement:
        if self.status != "ok":
            return Judgement(self.status, sample=sample)
        verdicts = []
        for index, text in enumerate(trajectory.texts):
            if text == "silent":
                continue
            first = text.split(" ")[0]
            p = float(first) if first.replace(".", "", 1).isdigit() and float(first) <= 1 else 0.5
            verdicts.append(Verdict(index, "correct" if p >= 0.5 else "incorrect", f"about step {index}", p_correct=p))
        return Judgement("ok", tuple(verdicts), first_error_of(verdicts, len(verdicts)), sample)

    async def close(self) -> None:
        self.closed = True


@dataclass
class Running:
    """A server under test."""

    port: int
    critic: Oracle
    stop: Callable[[], None]

    def request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, str], Any]:
        """Status, headers and body of the answer; JSON is decoded. A body that is not bytes is sent as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            sent = {"content-type": "application/json"} if content is not None else {}
            connection.request(method, path, content, sent | dict(headers or {}))
            reply = connection.getresponse()
            found = {name.lower(): value for name, value in reply.getheaders()}
            text = reply.read()
            return reply.status, found, json.loads(text) if "json" in found.get("content-type", "") else text.decode()
        finally:
            connection.close()

    def post(self, path: str, body: Any, headers: Mapping[str, str] | None = None) -> tuple[int, Any]:
        status, _, answer = self.request("POST", path, body, headers)
        return status, answer

    def hold(self) -> threading.Thread:
        """Keep the critic busy with one solution until its gate is set."""
        self.critic.gate.clear()
        thread = threading.Thread(target=self.post, args=("/v1/score", ONE))
        thread.start()
        until(lambda: self.critic.asked > 0)
        return thread

    def waiting(self, count: int) -> bool:
        """Whether so many solutions wait for the critic."""
        return f"critic_prm_queue_depth {count}\n" in self.request("GET", "/metrics")[2]

    def raw(self, data: bytes, timeout: float = PATIENCE) -> bytes:
        """All that comes back on a connection of its own until the server closes it."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            connection.sendall(data)
            answer = b""
            while chunk := connection.recv(65536):
                answer += chunk
            return answer


Start = Callable[..., Running]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a server with these settings; it is stopped after the test."""
    pytest.importorskip("uvicorn", reason="serving is an extra: pip install 'critic-prm[serve]'")
    pytest.importorskip("starlette", reason="serving is an extra: pip install 'critic-prm[serve]'")
    stops: list[Callable[[], None]] = []

    def begin(critic: Oracle | None = None, **changes: Any) -> Running:
        from critic_prm.serve.app import build_app
        from critic_prm.serve.server import server_of

        critic = critic or Oracle()
        settings = replace(ServeSettings(port=0, grace=60), **changes)
        listening = socket.create_server(("127.0.0.1", 0))
        server = server_of(build_app(critic, settings), settings)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])))
        thread.start()

        def stop() -> None:
            server.should_exit = True
            until(lambda: not any(each.is_serving() for each in server.servers), "the server's stop")
            critic.gate.set()
            thread.join(PATIENCE)
            assert not thread.is_alive()

        stops.append(stop)
        until(lambda: server.started, "the server's start")
        return Running(listening.getsockname()[1], critic, stop)

    yield begin
    for stop in stops:
        stop()
