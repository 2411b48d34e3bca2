"""A request goes in, the reply comes out: from the cache, from an equal request already on its way, or from the provider."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception
from tenacity.wait import wait_random_exponential

from critic_prm.cache import Attempt, Cache, Entry
from critic_prm.engine.gate import Gate
from critic_prm.engine.money import Money
from critic_prm.engine.writer import Writer
from critic_prm.errors import BudgetError, ConfigError, CriticPrmError, ProviderError
from critic_prm.provider import Provider, Reply, Request, Usage, Wire, request_key

DOWN = 40
"""So many requests in a row given up without one success between them: the server is down, and the run stops."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`retries` bounds the repeats of a transient failure, `reasks` those of an answer that is cut, refused or empty;
    throttling is waited out for `patience` seconds. `salt` makes other keys of the same requests; `offline` sends nothing."""

    retries: int = 6
    reasks: int = 1
    patience: float = 3600.0
    salt: str = ""
    offline: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What `ask` found. Exactly one of `reply` and `failure` is set; `usage` is what this asking cost, nothing when
    `cached`."""

    key: str
    reply: Reply | None = None
    failure: ProviderError | None = None
    cached: bool = False
    usage: Usage = Usage()


class Client:
    """Asks one provider through one gate, and keeps what comes back. Belongs to one event loop; close it when done."""

    def __init__(
        self,
        provider: Provider,
        open_cache: Callable[[], Cache],
        gate: Gate,
        money: Money | None = None,
        settings: Settings = Settings(),
    ) -> None:
        self.provider, self.gate, self.settings = provider, gate, settings
        self.money = money or Money()
        self.counts: Counter[str] = Counter()
        self._cache = open_cache()
        self._writer = Writer(open_cache)
        self._flights: dict[str, asyncio.Future[Answer]] = {}
        self._fatal: CriticPrmError | None = None
        self._successes = 0
        self._given_up = 0
        self._retrying = AsyncRetrying(
            retry=retry_if_exception(_may_pass), stop=self._enough, wait=_wait, sleep=asyncio.sleep, reraise=True
        )

    async def ask(self, request: Request, sample: int = 0) -> Answer:
        """The answer to `request`; `sample` tells repeated askings of one request apart.

        Raises ConfigError, BudgetError or InputError when the whole run has to stop; after that every call raises it at once.
        """
        wire = self.provider.wire(request)
        key = request_key(wire, sample, self.settings.salt)
        flight = self._flights.get(key)
        if flight is not None:
            self.counts["shared"] += 1
            return await asyncio.shield(flight)
        stored = self._cache.get(key)
        if stored is not None:
            self.counts["cached"] += 1
            return Answer(key, self.provider.read(stored), cached=True)
        if self.settings.offline:
            self.counts["missing"] += 1
            return Answer(key, failure=ProviderError("no reply in the cache, and --offline asks for none", "row"))
        return await self._fly(key, wire, sample)

    async def close(self) -> None:
        """Finish writing, close the provider's connections and the cache."""
        await self._writer.close()
        await self.provider.close()
        self._cache.close()

    async def _fly(self, key: str, wire: Wire, sample: int) -> Answer:
        """Single flight: whoever asks the same in the meantime gets the same answer."""
        flight = self._flights[key] = asyncio.get_running_loop().create_future()
        try:
            answer = await self._send(key, wire, sample)
        except BaseException as error:
            if isinstance(error, CriticPrmError):
                self._fatal = self._fatal or error
                flight.set_exception(error)
                flight.exception()  # mark it seen: perhaps nobody shares this flight
            else:
                flight.cancel()
            raise
        else:
            flight.set_result(answer)
            return answer
        finally:
            del self._flights[key]

    async def _send(self, key: str, wire: Wire, sample: int) -> Answer:
        total = Usage()
        for asking in range(self.settings.reasks + 1):
            try:
                trip: tuple[Reply, float] = await self._retrying(self._once, key, wire)
            except ProviderError as error:
                return await self._give_up(key, error, total)
            reply, seconds = trip
            self._successes += 1
            self._given_up = 0
            total += reply.usage
            if reply.finish == "stop" and reply.text.strip():
                await self._writer.put(self._entry(key, wire, sample, reply, seconds))
                self.counts["paid"] += 1
                break
            await self._writer.put(self._attempt(key, reply.finish if reply.text.strip() else "empty", reply=reply))
            self.counts["incomplete"] += 1
            if asking < self.settings.reasks:
                self.counts["reasked"] += 1
        return Answer(key, reply, usage=total)

    async def _once(self, key: str, wire: Wire) -> tuple[Reply, float]:
        """One round trip through the gate. The place is held while the request is out, never while waiting for the next try."""
        entered = await self.gate.enter()
        usage: Usage | None = None
        accepted, throttled = False, None
        try:
            if self._fatal is not None:
                raise self._fatal
            self.money.reserve()
            started = time.monotonic()
            try:
                arrival = await self.provider.complete(wire)
                reply = self.provider.read(arrival.raw)
                usage, accepted = reply.usage, True
            except ProviderError as error:
                self.counts[error.failure] += 1
                if error.failure == "throttle":
                    throttled = error
                await self._writer.put(self._attempt(key, error.failure, error=error))
                raise
            finally:
                self.money.settle(usage)
            self.gate.heed(arrival.allowance)
            return reply, time.monotonic() - started
        finally:
            if throttled is not None:
                self.gate.throttle(entered, throttled.retry_after)
            else:
                self.gate.leave(entered, tokens=usage.input + usage.output if usage else 0, accepted=accepted)

    async def _give_up(self, key: str, error: ProviderError, usage: Usage) -> Answer:
        """A request failed for good: the row gets its status, unless the failure is the whole run's."""
        if error.failure == "run":
            raise ConfigError(f"{self.provider.name}/{self.provider.model}: {error}") from error
        if error.failure == "quota":
            raise BudgetError(f"{self.provider.name}/{self.provider.model}: {error}") from error
        self._given_up += 1
        if self._given_up >= DOWN:
            raise ConfigError(
                f"{self.provider.name}/{self.provider.model}: the last {DOWN} requests all failed, most recently: {error};"
                " all earlier replies are kept, run the same command again later"
            ) from error
        return Answer(key, failure=error, usage=usage)

    def _enough(self, state: RetryCallState) -> bool:
        """When to stop trying: throttling is waited out; of other failures so many, and twice as many while nothing gets
        through."""
        error = _error(state)
        if error is None or self._fatal is not None:
            return True
        if error.failure == "throttle":
            return (state.seconds_since_start or 0.0) > self.settings.patience
        first = state.__dict__.setdefault("successes_before", self._successes)
        failures = state.__dict__["failures"] = state.__dict__.get("failures", 0) + 1
        return bool(failures > self.settings.retries * (1 if self._successes > first else 2))

    def _entry(self, key: str, wire: Wire, sample: int, reply: Reply, seconds: float) -> Entry:
        provider = self.provider
        where = (provider.name, provider.model, provider.base_url)
        return Entry(key, wire, sample, self.settings.salt, *where, reply.raw, reply.text, reply.finish, reply.usage, seconds)

    def _attempt(self, key: str, failure: str, *, reply: Reply | None = None, error: ProviderError | None = None) -> Attempt:
        who = (key, self.provider.name, self.provider.model, failure)
        if error is not None:
            return Attempt(*who, detail=error.detail or str(error), http_status=error.status)
        assert reply is not None
        return Attempt(*who, detail=reply.note, usage=reply.usage, raw=reply.raw)


def _error(state: RetryCallState) -> ProviderError | None:
    error = state.outcome.exception() if state.outcome else None
    return error if isinstance(error, ProviderError) else None


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, ProviderError) and error.failure in ("throttle", "transient")


_backoff = wait_random_exponential(multiplier=0.5, max=20)


def _wait(state: RetryCallState) -> float:
    """A throttled request waits at the gate, with all others; a failed one backs off by itself, or as long as the server
    asks."""
    error = _error(state)
    if error is None or error.failure == "throttle":
        return 0.0
    return error.retry_after if error.retry_after is not None else _backoff(state)
