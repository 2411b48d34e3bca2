"""Run an HTTP server for a critic until it receives a signal to stop."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from critic_prm import signals
from critic_prm.data.critic import Critic
from critic_prm.engine.garbage import reduced_gc
from critic_prm.errors import ConfigError, InputError
from critic_prm.serve.connections import HEAD, Connection, Room, strict
from critic_prm.serve.settings import ServeSettings, check

if TYPE_CHECKING:
    import uvicorn

SWITCH = 0.001
"""Interpreter switch interval in seconds while a local critic computes in a thread. The default of 5 ms delays all I/O of the
event loop."""


def require_extra() -> None:
    """Raises ConfigError if uvicorn or starlette is not installed."""
    try:
        import starlette
        import uvicorn
    except ImportError as error:
        raise ConfigError(f"serving needs {error.name}; install it with pip install 'critic-prm[serve]'") from None
    assert starlette
    assert uvicorn


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The event loop of uvloop if installed, which needs one system call per response where asyncio needs two; None
    otherwise."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def serve(critic: Critic, settings: ServeSettings, ready: Callable[[str], None] = lambda url: None) -> None:
    """Serve `critic` until SIGTERM, SIGHUP or SIGINT, then finish the requests in flight for up to `settings.grace` seconds.

    `ready` is called with the address when the server is listening. The critic is closed at the end. Raises ConfigError for a
    public address without a token or for a missing extra, InputError if the address cannot be bound.
    """
    check(settings)
    require_extra()
    from critic_prm.serve.app import build_app

    listening = _listen(settings)
    server = server_of(build_app(critic, settings), settings)
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH)
    try:
        host, port = listening.getsockname()[:2]
        ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
        server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]  # ours come first
        stopping = signals.told(asyncio.get_running_loop(), lambda: server.handle_exit(signal.SIGINT, None))
        with stopping, reduced_gc():  # a body of 4 MB can contain a million lists, and each collection stops all threads
            await server.serve(sockets=[listening])
    finally:
        sys.setswitchinterval(before)
        listening.close()


def server_of(app: Any, settings: ServeSettings) -> uvicorn.Server:
    """A uvicorn server with the limits of `settings`. It logs neither paths nor bodies nor malformed requests."""
    import uvicorn

    config = uvicorn.Config(
        app,
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=max(1, int(settings.reading)),
        timeout_graceful_shutdown=max(1, int(settings.grace)),
        h11_max_incomplete_event_size=HEAD,
    )
    config.load()
    protocol, room = strict(config.http_protocol_class), Room(settings.connections, settings.reading)

    def connection(**given: Any) -> Connection:
        return Connection(protocol(**given), room)

    config.http_protocol_class = connection  # type: ignore[assignment]  # uvicorn only calls it
    return uvicorn.Server(config)


def _listen(settings: ServeSettings) -> socket.socket:
    try:
        found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(2048)
    except OSError as error:
        raise InputError(
            f"{settings.host}:{settings.port}", f"cannot listen there: {error.strerror}", "choose another --host or --port"
        ) from None
    listening.setblocking(False)
    return listening
