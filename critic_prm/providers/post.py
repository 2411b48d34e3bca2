"""POST JSON bodies over aiohttp, directly or with the headers of a provider's SDK."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from critic_prm.errors import ProviderError
from critic_prm.providers.addresses import is_near
from critic_prm.providers.provider import MAX_REPLY_BYTES

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
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE, ttl_dns_cache=300),
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
    said = str(error) or type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in said or isinstance(error, ssl.SSLCertVerificationError):
        said += " (is the server's certificate trusted by this machine?)"
    elif isinstance(error, ssl.SSLError):
        said += " (the server may not speak TLS at this port: write http:// in --base-url if it is a plain HTTP server)"
    return ProviderError(f"no answer: {said}", "transient", detail=f"{type(error).__name__}: {said}")
