"""A body of JSON goes out over aiohttp, status, headers and bytes come back; with the headers of a provider's SDK, or plain."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from critic_prm.errors import ProviderError
from critic_prm.providers.addresses import is_near

if TYPE_CHECKING:
    import aiohttp
    import httpx2
    import yarl
    from anthropic import AsyncAnthropic
    from openai import AsyncOpenAI

CONNECT = 30.0
"""Seconds. The SDKs' own 5 s fire without cause when a thousand connections are opened at once on a busy core."""

KEEPALIVE = 30.0

MAX_REPLY_BYTES = 16_000_000
"""Bytes of a decoded reply. Five alternatives a token make a reply of 8,192 tokens about 3 MB long."""

ERROR_BYTES = 1 << 16
"""Bytes of an error that are read: more than any message needs."""

LARGE, LARGE_AT_ONCE = 1 << 19, 4
"""A body is large from so many bytes on; so many large ones are read at once, the others wait, so that what comes in at the
same time takes little memory. aiohttp stops reading from a connection while nobody takes its bytes."""

OWN_HEADERS = (
    *("host", "connection", "content-length", "content-type", "accept-encoding"),
    *("x-stainless-retry-count", "x-stainless-read-timeout"),
)
"""What of an SDK's headers is about its own transport and retries."""


@dataclass(frozen=True, slots=True)
class Answered:
    """`content` is decoded; of an error it may be only the beginning."""

    status: int
    headers: Mapping[str, str]
    content: bytes | bytearray


class Post(Protocol):
    async def __call__(self, body: bytes) -> Answered:
        """Send once. Raises ProviderError when no whole answer comes, or one that is too large; an HTTP error is an answer."""
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

        self._url = yarl.URL(self.url)  # taken apart once, not with each request
        return aiohttp.ClientSession(
            # The gate is the limit of connections, never the pool, whose default is 100.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE, ttl_dns_cache=300),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT),
            headers={"Content-Type": "application/json", **self.headers},
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=not is_near(self.url),  # looking for a proxy costs as much as the request itself
        )


@dataclass
class AsTheSDK:
    """POST to `path` as an SDK's client would, which knows keys, regions, versions and headers.

    The client is asked once how it sends a request, through a transport that only looks; from then on the same is sent
    directly, at a fifth of the work and without its retries and timeouts, which belong to the engine.
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
    """The decoded body, of at most `most` bytes. A longer one closes the connection: with `cut` its beginning is the result,
    else it is a ProviderError. A body that grows large takes a place in `large` until it has been read."""
    body = bytearray()
    async with AsyncExitStack() as held:
        while piece := await response.content.readany():
            body += piece
            if len(body) > most:
                response.close()
                if cut:
                    return body[:most]
                body.clear()  # the error's traceback would keep it until the garbage is collected, which is rare in a run
                raise ProviderError(
                    f"the reply is larger than {most / 1e6:g} MB; if that is no mistake of the server, raise --max-reply-bytes",
                    "row",
                    status=response.status,
                )
            if large is not None and len(body) > LARGE:
                await held.enter_async_context(large)
                large = None
    return body


def no_answer(error: BaseException) -> ProviderError:
    """A connection that failed or broke, in words; the types of errors often say more than their texts."""
    said = str(error) or type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in said or isinstance(error, ssl.SSLCertVerificationError):
        said += " (is the server's certificate trusted by this machine?)"
    elif isinstance(error, ssl.SSLError):
        said += " (the server may not speak TLS at this port: write http:// in --base-url if it is a plain HTTP server)"
    return ProviderError(f"no answer: {said}", "transient", detail=f"{type(error).__name__}: {said}")
