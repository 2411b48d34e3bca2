"""A body of JSON goes out, status, headers and bytes come back: through a provider's SDK, or straight through aiohttp."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Protocol

from critic_prm.addresses import is_near
from critic_prm.errors import ProviderError

if TYPE_CHECKING:
    import aiohttp
    from anthropic import AsyncAnthropic
    from openai import AsyncOpenAI

CONNECT = 30.0
"""Seconds. The SDKs' own 5 s fire without cause when a thousand connections are opened at once on a busy core."""

KEEPALIVE = 30.0
UNLIMITED = 1_000_000
"""Connections. The gate is the limit, never the pool; None would be aiohttp's default of 100."""


@dataclass(frozen=True, slots=True)
class Answered:
    status: int
    headers: Mapping[str, str]
    content: bytes


class Post(Protocol):
    async def __call__(self, body: bytes) -> Answered:
        """Send once. Raises ProviderError when no whole answer comes; an HTTP error is an answer."""
        ...

    async def close(self) -> None: ...


@dataclass
class Direct:
    """POST to one URL over aiohttp: a third of the work of an SDK, for servers that need nothing of what the SDK adds."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    _session: aiohttp.ClientSession | None = field(default=None, repr=False)

    async def __call__(self, body: bytes) -> Answered:
        import aiohttp

        session = self._session = self._session or self._open()
        try:
            async with session.post(self.url, data=body, allow_redirects=False) as response:
                return Answered(response.status, response.headers, await response.read())
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise no_answer(error) from error

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        import aiohttp

        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE, ttl_dns_cache=300),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT),
            headers={"Content-Type": "application/json", **self.headers},
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=not is_near(self.url),  # looking for a proxy costs as much as the request itself
        )


@dataclass
class ThroughSDK:
    """POST to `path` through an SDK's client, opened at the first request: it knows keys, regions, headers and proxies.

    Its typed layers are left out (a body that is ready goes out as it is, the answer comes back as bytes), and so are its
    retries, because one place owns those.
    """

    sdk: Literal["openai", "anthropic"]
    path: str
    connect: Callable[[], AsyncOpenAI | AsyncAnthropic]
    _client: AsyncOpenAI | AsyncAnthropic | None = field(default=None, repr=False)

    async def __call__(self, body: bytes) -> Answered:
        import aiohttp
        import httpx2

        client = self._client = self._client or self.connect()
        sdk: Any = import_module(self.sdk)
        try:
            response = await client.post(self.path, cast_to=httpx2.Response, content=body)
        except sdk.APIStatusError as error:
            response = error.response
        except (sdk.APIConnectionError, aiohttp.ClientError, httpx2.HTTPError, TimeoutError, OSError) as error:
            raise no_answer(error.__cause__ or error) from error
        # Looking into httpx2's headers takes them all apart each time.
        headers = {name.decode("ascii").lower(): value.decode("latin-1") for name, value in response.headers.raw}
        return Answered(response.status_code, headers, response.content)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None


def client_options() -> dict[str, Any]:
    """What an SDK's DefaultAioHttpClient is opened with: no limit of connections, and no timeout but the engine's own."""
    import httpx2

    return {
        "limits": httpx2.Limits(max_connections=UNLIMITED, max_keepalive_connections=UNLIMITED, keepalive_expiry=KEEPALIVE),
        "timeout": httpx2.Timeout(None, connect=CONNECT),
    }


def no_answer(error: BaseException) -> ProviderError:
    """A connection that failed or broke, in words; the types of errors often say more than their texts."""
    said = str(error) or type(error).__name__
    if isinstance(error, ssl.SSLError):
        said += " (is the server's certificate trusted by this machine?)"
    return ProviderError(f"no answer: {said}", "transient", detail=f"{type(error).__name__}: {said}")
