"""Post JSON bodies to model servers, directly or with the headers of a provider's SDK, and decode the replies."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from errno import ECONNREFUSED
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from critic_prm.errors import Cause, ProviderError
from critic_prm.providers.addresses import is_near
from critic_prm.providers.failures import allowance, failed, without_echoes
from critic_prm.providers.provider import MAX_REPLY_BYTES, Provider, RawReply, Wire, reading_answer

if TYPE_CHECKING:
    import aiohttp
    import httpx2
    import yarl
    from anthropic import AsyncAnthropic
    from openai import AsyncOpenAI

CONNECT = 30.0
"""Connect timeout in seconds. The SDKs' 5 s expire needlessly when a thousand connections are opened at once on a busy core."""

KEEPALIVE = 30.0

ERROR_BYTES = 1 << 16
"""Maximum bytes read of an error response, more than any message needs."""

LARGE, LARGE_AT_ONCE = 1 << 19, 4
"""At most LARGE_AT_ONCE bodies of more than LARGE bytes are read at the same time, which bounds memory; the others wait.
aiohttp stops reading from a connection while its data is not consumed."""

OWN_HEADERS = (
    *("host", "connection", "content-length", "content-type", "accept-encoding"),
    *("x-stainless-retry-count", "x-stainless-read-timeout"),
)
"""Headers of an SDK that concern its own transport and retries; they are not copied."""


def with_headers(own: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Headers of our own and those that the user gave, which replace ours of the same name."""
    replaced = {name.lower() for name in given}
    return {name: value for name, value in own.items() if name.lower() not in replaced} | dict(given)


@dataclass(frozen=True, slots=True)
class Answered:
    """An HTTP response. `content` is decompressed; for an error it may be truncated."""

    status: int
    headers: Mapping[str, str]
    content: bytes | bytearray


class Post(Protocol):
    """Sends a JSON body to one endpoint."""

    async def __call__(self, body: bytes) -> Answered:
        """Send once. An HTTP error is returned; a missing, incomplete or too large response raises ProviderError."""
        ...

    async def close(self) -> None: ...


@dataclass
class Direct:
    """POST to one URL over aiohttp."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    max_reply_bytes: int = MAX_REPLY_BYTES
    _large: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LARGE_AT_ONCE), repr=False)
    _session: aiohttp.ClientSession | None = field(default=None, repr=False)
    _url: yarl.URL | None = field(default=None, repr=False)

    async def __call__(self, body: bytes) -> Answered:
        import aiohttp

        session = self._session = self._session or self._open()
        try:
            async with session.post(self._url or self.url, data=body, allow_redirects=False) as response:
                if 200 <= response.status < 300:
                    content = await body_within(response, self.max_reply_bytes, self._large)
                else:
                    content = await body_within(response, ERROR_BYTES, cut=True)
                return Answered(response.status, response.headers, content)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise no_answer(error) from error

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        import aiohttp
        import yarl

        self._url = yarl.URL(self.url)  # parse it once, not for every request
        return aiohttp.ClientSession(
            # The rate limiter limits connections; the pool, whose default limit is 100, must not.
            # The certificates are those of the environment (SSL_CERT_FILE) now, not when aiohttp was imported.
            connector=aiohttp.TCPConnector(
                limit=0,
                keepalive_timeout=KEEPALIVE,
                ttl_dns_cache=300,
                ssl=ssl.create_default_context() if self._url.scheme == "https" else True,
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT),
            headers={"Content-Type": "application/json", **self.headers},
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=not is_near(self.url),  # a proxy lookup costs as much as the request itself
        )


@dataclass
class AsTheSDK:
    """POST to `path` as an SDK's client would, with its handling of keys, regions, versions and headers.

    The client sends one request through a mock transport that records it. All real requests are then sent directly in the same
    way, at a fifth of the cost and without the SDK's retries and timeouts, which are the engine's job.
    """

    path: str
    connect: Callable[[httpx2.AsyncClient], AsyncOpenAI | AsyncAnthropic]
    max_reply_bytes: int = MAX_REPLY_BYTES
    _direct: Direct | None = field(default=None, repr=False)
    _learning: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    async def __call__(self, body: bytes) -> Answered:
        if self._direct is None:
            async with self._learning:
                self._direct = self._direct or await self._learn()
        return await self._direct(body)

    async def close(self) -> None:
        if self._direct is not None:
            await self._direct.close()
            self._direct = None

    async def _learn(self) -> Direct:
        import httpx2

        seen: list[httpx2.Request] = []

        def look(request: httpx2.Request) -> httpx2.Response:
            seen.append(request)
            return httpx2.Response(200, json={})

        async with self.connect(httpx2.AsyncClient(transport=httpx2.MockTransport(look))) as client:
            await client.post(self.path, cast_to=httpx2.Response, content=b"{}")
        headers = {name: value for name, value in seen[0].headers.items() if name.lower() not in OWN_HEADERS}
        return Direct(str(seen[0].url), headers, self.max_reply_bytes)


async def body_within(
    response: aiohttp.ClientResponse, most: int, large: asyncio.Semaphore | None = None, *, cut: bool = False
) -> bytearray:
    """Read a decompressed body of at most `most` bytes.

    A longer one closes the connection and raises ProviderError or, with `cut`, returns the first `most` bytes. A body larger
    than LARGE holds the semaphore `large` until it has been read.
    """
    body = bytearray()
    async with AsyncExitStack() as held:
        while piece := await response.content.readany():
            body += piece
            if len(body) > most:
                response.close()
                if cut:
                    return body[:most]
                body.clear()  # the error's traceback keeps it until garbage collection, which is rare during a run
                raise ProviderError(
                    f"the reply is larger than {most / 1e6:g} MB; if that is expected, raise --max-reply-bytes",
                    "row",
                    status=response.status,
                )
            if large is not None and len(body) > LARGE:
                await held.enter_async_context(large)
                large = None
    return body


def no_answer(error: BaseException) -> ProviderError:
    """Convert a failed or broken connection to a ProviderError, whose detail also names the error's type."""
    import aiohttp

    said = str(error) or type(error).__name__
    cause: Cause = ""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        said, cause = f"DNS: cannot resolve {error.host} (offline?)", "unresolved"
    elif isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno == ECONNREFUSED:
        what = "the proxy " if isinstance(error, aiohttp.ClientProxyConnectionError) else ""
        said, cause = f"{what}{error.host}:{error.port} refuses connections (is the server running?)", "refused"
    elif "CERTIFICATE_VERIFY_FAILED" in said or isinstance(error, ssl.SSLCertVerificationError):
        said += " (is the server's certificate trusted by this machine?)"
    elif isinstance(error, ssl.SSLError):
        said += " (the server may not speak TLS at this port: write http:// in --base-url if it is a plain HTTP server)"
    return ProviderError(f"no answer: {said}", "transient", detail=f"{type(error).__name__}: {said}", cause=cause)


@dataclass
class HTTPProvider(Provider):
    """Base of providers that post every request to one address of a server."""

    max_reply_bytes: int = field(default=MAX_REPLY_BYTES, kw_only=True)
    headers: Mapping[str, str] = field(default_factory=dict, kw_only=True, repr=False)
    """Further headers of every request. Their values are secret."""
    own_key_variable: str = field(default="", kw_only=True)
    """Environment variable of the key, if the user named one."""
    _post: Post | None = field(default=None, init=False, repr=False)

    def open_post(self) -> Post:
        """Return what sends the requests. Raises ConfigError for a missing key or address."""
        raise NotImplementedError

    async def complete(self, wire: Wire) -> RawReply:
        self._post = self._post or self.open_post()
        return await answer(self._post, wire, self.secrets, self.key_variable)

    async def close(self) -> None:
        if self._post is not None:
            await self._post.close()
            self._post = None


async def answer(post: Post, wire: Wire, secrets: Sequence[str], key: str = "") -> RawReply:
    """Send `wire` and decode the reply. Raises ProviderError if it is not a JSON reply.

    The error's text contains neither secrets nor the prompt. `key` is the environment variable of the API key.
    """
    try:
        answered = await post(orjson.dumps(wire))
    except ProviderError as error:  # it may quote what the server sent
        raise without_echoes(error, wire, secrets) from None
    return arrival(answered, wire, secrets, key)


def arrival(answered: Answered, wire: Wire, secrets: Sequence[str], key: str = "") -> RawReply:
    """Decode the response to a POST. Raises ProviderError if it is not a JSON reply.

    The error's text contains neither secrets nor the prompt.
    """
    content_type = answered.headers.get("content-type", "")
    try:
        with reading_answer():
            if 200 <= answered.status < 300:
                content = without_echoed_keys(answered.content, secrets)
                return RawReply(decoded(content, content_type, answered.headers, key), allowance(answered.headers))
            raise failed(answered.status, answered.headers, _error_body(answered.content, content_type), key)
    except ProviderError as error:
        raise without_echoes(error, wire, secrets) from None


LONG_KEY = 16
"""Characters from which on a key is taken out of replies. A shorter one may be a word of the reply."""


def without_echoed_keys(content: bytes | bytearray, secrets: Sequence[str]) -> bytes | bytearray:
    """A reply without the keys that a server, such as a proxy that shows what it was sent, repeats in it: replies are kept."""
    for secret in secrets:
        if len(secret) >= LONG_KEY and (key := secret.encode()) in content:
            content = content.replace(key, b"[key]")
    return content


def decoded(content: bytes | bytearray, content_type: str, headers: Mapping[str, str], key: str = "") -> dict[str, Any]:
    """Decode the JSON object of a 200 response. A proxy's HTML, a truncated body and other content are transient errors.

    Raises ProviderError.
    """
    try:
        body = parsed(content, content_type)
    except orjson.JSONDecodeError as error:
        start = content[:64].lstrip().lower()
        what = "HTML" if start.startswith((b"<!doctype", b"<html")) else "no JSON"
        if start[:1] == b"{":
            what = "a cut or broken JSON body"
        raise ProviderError(
            f"the server answered 200 with {what} ({content_type or 'no content type'})", "transient", status=200
        ) from error
    if not isinstance(body, dict):
        raise ProviderError("the server answered 200 with JSON that is not an object", "transient", status=200)
    if body.get("error") and "choices" not in body and "content" not in body:
        raise failed(200, headers, body, key)
    return body


ENCODINGS = frozenset({"iso-8859-1", "latin1", "latin-1", "windows-1252", "cp1252"})
"""Encodings other than UTF that a content type may name. Other names are not passed to Python's codecs."""


def parsed(content: bytes | bytearray, content_type: str) -> Any:
    """Parse JSON in UTF-8 or, as some servers send it, with a byte order mark, in UTF-16 or UTF-32, or in Latin-1 if the
    content type says so. Raises orjson.JSONDecodeError."""
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        named = _CHARSET.search(content_type.lower())
        encoding = named.group(1) if named and named.group(1) in ENCODINGS else json.detect_encoding(content)
        try:
            return orjson.loads(content.decode(encoding))
        except UnicodeDecodeError:
            pass
        raise


_CHARSET = re.compile(r"charset=[\"']?([a-z0-9_-]+)")


def unshaped(what: str, raw: Mapping[str, Any]) -> ProviderError:
    """Return the error for a decoded body that does not have the structure of a reply."""
    shown = ", ".join(list(raw)[:6]) or "nothing"
    return ProviderError(f"the server's answer has {what} (fields: {shown})", "transient", status=200)


def _error_body(content: bytes | bytearray, content_type: str) -> Any:
    """Decode the body of an error response: JSON, the title of an HTML page, or else the text."""
    try:
        return parsed(content, content_type)
    except orjson.JSONDecodeError:
        text = content[:4096].decode("utf-8", "replace")
        title = _TITLE.search(text)
        return title.group(1) if title else "" if text.lstrip().startswith("<") else text


_TITLE = re.compile(r"<title>([^<]*)", re.IGNORECASE)
