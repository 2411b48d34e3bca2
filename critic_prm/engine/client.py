"""Answer requests from the cache, from an identical request in flight, or from the provider; open a client by its options."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from critic_prm import signals
from critic_prm.engine.budget import Budget, with_doubled_max_tokens
from critic_prm.engine.cache import Cache
from critic_prm.engine.concurrency import Deadlines
from critic_prm.engine.entries import PendingRequest, Sharing, fresh_reply, is_whole, to_attempt, to_entry, with_doubled_limit
from critic_prm.engine.limiter import START, AdaptiveLimiter
from critic_prm.engine.options import JudgeOptions
from critic_prm.engine.retries import HealthMonitor, try_again
from critic_prm.engine.writer import Writer
from critic_prm.errors import BudgetError, ConfigError, CriticPrmError, InputError, ProviderError, UsageError
from critic_prm.providers.addresses import is_near
from critic_prm.providers.models import abilities, did_you_mean
from critic_prm.providers.provider import (
    Provider,
    RawReply,
    Reply,
    Request,
    Usage,
    Wire,
    asks_for_schema,
    reading_answer,
    request_key,
    requested_tier,
)
from critic_prm.terminal import detail

if TYPE_CHECKING:
    from critic_prm.engine.ray.sender import SharedLimiter

    RateLimiter = AdaptiveLimiter | SharedLimiter


@dataclass(frozen=True, slots=True)
class Answer:
    """Result of `Client.ask`: exactly one of `reply` and `failure` is set."""

    key: str
    reply: Reply | None = None
    failure: ProviderError | None = None
    cached: bool = False
    usage: Usage = Usage()
    """Tokens spent on this call; zero when `cached`."""


def stored_answer(provider: Provider, key: str, raw: Mapping[str, Any]) -> Answer:
    """Convert a stored body to an Answer; one that cannot be parsed becomes a failure of its row."""
    try:
        with reading_answer():
            return Answer(key, provider.read(raw), cached=True)
    except ProviderError as error:
        problem = f"the reply in the cache cannot be read: {error}; delete its row, or ask again with another --salt"
        return Answer(key, failure=ProviderError(problem, "row", detail=error.detail), cached=True)


Elsewhere: TypeAlias = Callable[[PendingRequest], Awaitable[Answer]]
"""Miss handler: answers the requests that the cache cannot answer, in place of the provider. It stores the replies itself,
truncated ones included."""


class Sender(Protocol):
    """Sends request bodies: a provider, or the workers of a cluster, each with a copy of one."""

    async def complete(self, wire: Wire) -> RawReply: ...

    async def close(self) -> None: ...


class Client:
    """Send requests to one provider through one rate limiter and store every reply in the cache that `options` name.

    A client belongs to one event loop. Close it when done.
    """

    def __init__(
        self,
        provider: Provider,
        options: JudgeOptions,
        gate: RateLimiter,
        money: Budget | None = None,
        sender: Sender | None = None,
    ) -> None:
        self.provider, self.options, self.gate = provider, options, gate
        self.sender: Sender = sender or provider
        self.money = money or Budget()
        self.luck = HealthMonitor()
        self.counts: Counter[str] = Counter()
        self.resting = 0
        self.elsewhere: Elsewhere | None = None
        self._place = options.cache
        self.cache = self._open_cache()
        self._cut = self.cache.cut()
        self._writer = Writer(self._open_cache)
        self._flights: dict[str, asyncio.Future[Answer]] = {}
        self._sharing = Sharing()
        self._deadlines = Deadlines(options.timeout)
        self._halted: CriticPrmError | None = None
        self._halting = asyncio.Event()
        self._abandoned = False
        signals.brakes.add(self)
        if not options.offline:
            signals.note_cache(str(self.cache.path))

    def _open_cache(self) -> Cache:
        return Cache(self._place, durable=self.options.durable, readonly=self.options.offline)

    @property
    def grace(self) -> float:
        return self.options.grace

    async def ask(self, request: Request, sample: int = 0, *, cut_will_do: bool = False) -> Answer:
        """Return the answer to `request`. `sample` distinguishes repeated samples of the same request.

        With `cut_will_do`, a truncated reply that was already paid for is returned instead of asking again, because the caller
        can continue from it. Raises ConfigError, BudgetError or InputError when the whole run has to stop; after that, nothing
        more is sent.
        """
        wire = self.provider.wire(request)
        salt = self.options.salt
        key = request_key(wire, sample, salt)
        while (flight := self._flights.get(key)) is not None:
            self.counts["shared"] += 1
            with suppress(_Abandoned):
                return await asyncio.shield(flight)
        stored = self.cache.get(key)
        if (
            stored is None
            and key in self._cut
            and (wider := with_doubled_max_tokens(wire, self.provider.token_limits)) is not None
        ):
            wider_key = request_key(wider, sample, salt)
            stored = self.cache.get(wider_key) or (self.cache.attempted(wider_key, "length") if cut_will_do else None)
            key, wire = (key, wire) if stored is None else (wider_key, wider)
        if stored is None and cut_will_do and key in self._cut and self.elsewhere is None:
            stored = self.cache.attempted(key, "length")
        if stored is not None:
            found = stored_answer(self.provider, key, stored)
            # One that cannot be read, such as one that the server broke off, is bought again.
            if found.failure is None or self.options.offline or self.elsewhere is not None:
                self.counts["cached"] += 1
                return found
        if self.options.offline:
            self.counts["missing"] += 1
            return Answer(key, failure=ProviderError("no reply in the cache, and --offline asks for none", "row"))
        question = PendingRequest(key, wire, sample, salt, request=request, anew=stored is not None)
        return await (self._fly if self.elsewhere is None else self.elsewhere)(question)

    async def online(self, question: PendingRequest) -> Answer:
        """Send a request to the provider without looking in the cache. Identical requests in flight are sent once."""
        return await self._fly(question)

    def look_again(self) -> None:
        """Reload the set of truncated replies, which is kept in memory, to include what others have written since."""
        self._cut = self.cache.cut()

    def halt(self, error: CriticPrmError) -> None:
        """Stop the run. `error` is raised in all callers that wait for anything but the network; requests in flight may still
        finish, and their replies are stored."""
        if self._halted is None:
            self._halted = error
            self._halting.set()
            self.gate.shut(error)

    def abandon(self) -> None:
        """After `halt`: stop waiting for the requests in flight. Each is stored as a failed attempt."""
        self._abandoned = True
        self._deadlines.end()

    async def close(self) -> None:
        """Finish all writes, then close the provider's connections and the cache."""
        signals.brakes.discard(self)
        await self._writer.close()
        await self.sender.close()
        self.cache.close()

    async def _fly(self, question: PendingRequest) -> Answer:
        """Single flight: send the request and share the answer with identical requests made in the meantime."""
        flight = self._flights[question.key] = asyncio.get_running_loop().create_future()
        try:
            async with self._sharing.turn(self.provider, question) as turned:
                answer = await self._send(turned)
        except BaseException as error:
            if isinstance(error, CriticPrmError):
                self.halt(error)
                error = self._halted or error
            flight.set_exception(error if isinstance(error, Exception) else _Abandoned())
            flight.exception()  # mark the exception as retrieved, since no other caller may await this future
            raise error
        else:
            flight.set_result(answer)
            return answer
        finally:
            del self._flights[question.key]

    async def _send(self, question: PendingRequest) -> Answer:
        """Send a request until the reply is complete. A truncated one is repeated with twice the `max_tokens`, under that
        request's own key."""
        total, reply, asked = Usage(), None, question
        for asking in range(self.options.regenerate + 1):
            try:
                reply, seconds = await self._get(asked)
            except ProviderError as error:
                if reply is not None:
                    break  # the server rejects the larger limit: keep the truncated reply
                if self._halted is not None:
                    raise self._halted from error
                return Answer(question.key, failure=error)
            total += reply.usage
            await self._writer.put(to_entry(self.provider, asked, reply, seconds))
            if is_whole(reply):
                self.counts["paid"] += 1
                break
            self.counts["incomplete"] += 1
            if reply.finish == "length":
                self._cut.add(question.key)
            if asking < self.options.regenerate:
                self.counts["reasked"] += 1
                detail(f"{asked.key[:12]}: the reply is incomplete ({reply.finish}); asking again")
                asked = with_doubled_limit(question, self.provider) if reply.finish == "length" else question
        return Answer(asked.key, reply, usage=total)

    async def _get(self, question: PendingRequest) -> tuple[Reply, float]:
        """Return one reply and its duration in seconds, retrying temporary failures. Raises the last ProviderError."""
        try:
            return await self._once(question)
        except ProviderError as error:
            if error.failure not in ("throttle", "transient"):
                raise
            once = lambda: self._once(question)  # noqa: E731
            return await try_again(error, once, self.luck, self.options.max_retries, self._rest, self._halting.is_set)

    async def _once(self, question: PendingRequest) -> tuple[Reply, float]:
        """Make one round trip through the rate limiter. The slot is held while the request is in flight, not between tries."""
        entered = await self.gate.enter()
        tokens, accepted, throttled = 0, False, None
        try:
            reserved = await self.money.reserve(question.wire)
            usage: Usage | None = None
            started = time.monotonic()
            try:
                if self._halted is not None:
                    raise self._halted
                arrival = await self._deadlines.keep(self.sender.complete(question.marked(self.provider).wire))
                reply = fresh_reply(self.provider, arrival.raw)
                usage, accepted, tokens = reply.usage, True, reply.usage.input + reply.usage.output
            except TimeoutError:
                late = ProviderError(self._too_late(), "transient")
                await self._failed(question, late)
                raise late from None
            except ProviderError as error:
                throttled = error if error.failure == "throttle" else None
                await self._failed(question, error)
                raise
            finally:
                self.money.settle(reserved, usage)
            self.luck.success()
            self.gate.heed(arrival.allowance)
            return reply, time.monotonic() - started
        finally:
            if throttled is not None:
                self.gate.throttle(entered, throttled.retry_after)
            else:
                self.gate.leave(entered, tokens=tokens, accepted=accepted)

    def _too_late(self) -> str:
        if self._abandoned:
            self.counts["abandoned"] += 1
            return f"no answer within {self.options.grace:g} s after the run was stopped (--grace)"
        return f"no answer within {self.options.timeout:g} s (--timeout)"

    async def _failed(self, question: PendingRequest, error: ProviderError) -> None:
        """Store a failed request as an attempt, and stop the run if the failure shows that all requests will fail."""
        if error.failure == "run" and (self.luck.successes or self.counts["cached"]) and self.luck.spares(error):
            error.failure = "row"
        self.counts[error.failure] += 1
        who = f"{self.provider.name}/{self.provider.model}"
        status = "" if error.status is None else f", HTTP {error.status}"
        detail(f"{who}: request {question.key[:12]} failed ({error.failure}{status}): {error}")
        if error.failure == "run" and not (question.roomier and error.status == 400):
            self.halt(ConfigError(f"{who}: {error}"))
        elif error.failure == "quota":
            self.halt(BudgetError(f"{who}: {error}"))
        elif verdict := self.luck.failure(error, schema=asks_for_schema(question.wire)):
            self.halt(ConfigError(f"{who}: {verdict}"))
        await self._writer.put(to_attempt(self.provider, question.key, error))

    async def _rest(self, seconds: float) -> None:
        """Sleep before a retry; return early when the run stops."""
        detail(f"{self.provider.name}/{self.provider.model}: trying again in {seconds:.1f} s")
        self.resting += 1
        try:
            async with asyncio.timeout(seconds):
                await self._halting.wait()
        except TimeoutError:
            pass
        finally:
            self.resting -= 1


class _Abandoned(Exception):
    """The caller that owned this request was cancelled; the waiter must send its own."""


def open_client(provider: Provider, options: JudgeOptions) -> Client:
    """Open a client for `provider` with the cache, rate limiter, prices and limits in `options`.

    Raises UsageError for a dollar budget with an unknown price, and InputError if the provider needs a cache that does not
    exist.
    """
    if provider.cache_only and not options.cache.is_file():
        problem = f"there is no such cache, and {provider.name}/{provider.model} answers from one only"
        raise InputError(str(options.cache), problem, "name it with --db, such as --db cache.db.example")
    prices = options.prices or abilities(provider.name, provider.model).prices
    if options.budget_usd is not None and prices is None:
        raise UsageError(
            f"--budget-usd needs a price, and that of {provider.name}/{provider.model} is unknown;"
            " give it with --prices IN,OUT (USD per million tokens), or use --max-requests"
            f"{did_you_mean(provider.name, provider.model)}"
        )
    tier = requested_tier(options.sampling.extra)
    if options.budget_usd is not None and prices is not None and prices.factor(tier) is None:
        raise UsageError(
            f"--budget-usd needs a price, and that of {provider.name}/{provider.model} in service tier {tier!r} is unknown;"
            " name what you pay with --prices IN,OUT (USD per million tokens), or use --max-requests"
        )
    provider.max_reply_bytes = options.max_reply_bytes
    # Local servers and in-process models have no rate limit to discover, so start at full concurrency.
    near = is_near(provider.base_url) or "in-process" in provider.capabilities
    start = options.max_connections if near else START
    sender: Sender = provider
    gate: RateLimiter = AdaptiveLimiter(options.max_connections, rpm=options.rpm, tpm=options.tpm, start=start)
    if options.cluster is not None:
        from critic_prm.engine.ray.sender import spread

        sender, gate = spread(provider, options, start)
    budget = Budget(prices, options.budget_usd, options.max_requests, provider.token_limits)
    return Client(provider, options, gate, budget, sender)
