"""Serve the annotation page on this machine: a loopback address, a random token in the URL, a check of the Host header.

The standard library's server is enough: one person, six routes, small JSON bodies; and annotating then needs no extra. It
listens on 127.0.0.1 only. Without the token, a request gets nothing. The page's content security policy allows its own script
and style and requests to this server only.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson

from critic_prm.annotate.session import SHOWS, Conflict, Session
from critic_prm.errors import InputError, UsageError
from critic_prm.serve.settings import is_loopback

HOST = "127.0.0.1"
PAGE = Path(__file__).with_name("page")
LARGEST = 4 << 20
"""Maximum size of a request's body in bytes."""

HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Refused(Exception):
    """A request that is not answered. `problem` is for the person at the page."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status, self.problem = status, problem


class AnnotationServer(ThreadingHTTPServer):
    """A server for one session, at `url`. Raises UsageError if the port is in use."""

    daemon_threads = True

    def __init__(self, session: Session, port: int = 0) -> None:
        self.session, self.token = session, secrets.token_urlsafe(24)
        try:
            super().__init__((HOST, port), Handler)
        except OSError as error:
            raise UsageError(
                f"port {port} cannot be used: {error.strerror}; choose another --port, or 0 for a free one"
            ) from None

    def server_bind(self) -> None:
        """Bind the address. The base class would also look up a name for it, which takes seconds without a name server."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a browser that went away; report anything else."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        """The address of the page, with the token."""
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    @cached_property
    def page(self) -> tuple[bytes, str]:
        """The page and its content security policy."""
        style, script = ((PAGE / name).read_text("utf-8") for name in ("page.css", "page.js"))
        html = (PAGE / "page.html").read_text("utf-8").replace("%%STYLE%%", style).replace("%%SCRIPT%%", script)
        policy = (
            f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; connect-src 'self';"
            " img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        return html.encode(), policy


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of the page."""

    server: AnnotationServer
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        self._answer("GET", {"session": _session, "rows": _rows, "solution": _solution, "next": _next})

    def do_POST(self) -> None:
        self._answer("POST", {"mark": _mark, "reveal": _reveal})

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a line would have the token and fill the terminal."""

    def version_string(self) -> str:
        return "critic-prm"

    def _answer(self, method: str, routes: Mapping[str, Callable[[Session, Mapping[str, Any]], Any]]) -> None:
        body = b""
        try:
            name, query = self._admitted()
            if name == "" and method == "GET":
                page, policy = self.server.page
                self._send(200, page, "text/html; charset=utf-8", {"Content-Security-Policy": policy})
                return
            if name not in routes:
                raise Refused(404, "there is no such page")
            values: Mapping[str, Any] = self._body() if method == "POST" else query
            status, result = 200, routes[name](self.server.session, values)
        except Refused as refusal:
            status, result = refusal.status, {"problem": refusal.problem}
            self.close_connection = True  # a body that was not read would be taken for the next request
        except Conflict as conflict:
            status, result = 409, {"problem": str(conflict), "current": conflict.current}
        except InputError as error:
            status, result = 422, {"problem": f"{error.problem}; {error.fix}" if error.fix else error.problem}
        try:
            body = orjson.dumps(result, default=str)
        except TypeError:  # a row may hold anything, such as lists within lists within lists
            status, body = 422, orjson.dumps({"problem": "this solution is nested too deeply to be shown"})
        self._send(status, body, "application/json")

    def _admitted(self) -> tuple[str, dict[str, Any]]:
        """The path below the token and the query. Raises Refused for another Host, origin or token."""
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or not _is_local(hosts[0]):
            # a web page whose domain was resolved to this machine (DNS rebinding) sends its own name
            raise Refused(421, "this server answers requests to localhost only")
        origin = self.headers.get("Origin")
        if origin is not None and origin.partition("://")[2] != hosts[0]:
            raise Refused(403, "this request comes from another page")
        try:
            url = urlsplit(self.path)
        except ValueError:
            raise Refused(400, "this is not an address") from None
        token, _, name = url.path.removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            raise Refused(403, "open the address that critic-prm annotate printed: it has a token, and a new one at each start")
        return name, {key: values[-1] for key, values in parse_qs(url.query).items()}

    def _body(self) -> dict[str, Any]:
        if self.headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
            raise Refused(415, "send the body as application/json")
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or len(length) > 12 or int(length) > LARGEST:
            raise Refused(413, f"the body needs a length, of at most {LARGEST:,} bytes")
        try:
            value = orjson.loads(self.rfile.read(int(length)))
        except orjson.JSONDecodeError:
            raise Refused(400, "the body is not JSON") from None
        if not isinstance(value, dict):
            raise Refused(400, "the body is not an object")
        return value

    def _send(self, status: int, body: bytes, kind: str, more: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, **(more or {}), "Content-Type": kind, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)


def _is_local(host: str) -> bool:
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False


def _session(session: Session, query: Mapping[str, Any]) -> Any:
    return session.overview()


def _rows(session: Session, query: Mapping[str, Any]) -> Any:
    show = query.get("show", "all")
    if show not in SHOWS:
        raise Refused(400, f"show is one of {', '.join(SHOWS)}")
    return session.window(_number(query, "start"), show)


def _solution(session: Session, query: Mapping[str, Any]) -> Any:
    return session.solution(_place(session, query))


def _next(session: Session, query: Mapping[str, Any]) -> Any:
    return {"at": session.after(_place(session, query)), "counts": session.counts()}


def _mark(session: Session, body: Mapping[str, Any]) -> Any:
    return session.mark(_place(session, body), _number(body, "revision"), body)


def _reveal(session: Session, body: Mapping[str, Any]) -> Any:
    what = body.get("what")
    if what not in ("judge", "reference"):
        raise Refused(400, "what is judge or reference")
    return session.reveal(_place(session, body), _number(body, "revision"), what)


def _place(session: Session, values: Mapping[str, Any]) -> int:
    place = _number(values, "at")
    if not 0 <= place < len(session.solutions):
        raise Refused(404, f"there is no solution {place}")
    return place


def _number(values: Mapping[str, Any], name: str) -> int:
    value = values.get(name)
    if isinstance(value, str) and value.isdecimal() and len(value) < 10:
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Refused(400, f"{name} is a number")
    return value
