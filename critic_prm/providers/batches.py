"""What a provider's batch API has to be able to do: one order of many requests goes out, its state and results come back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, cast

from critic_prm.errors import ProviderError, UsageError
from critic_prm.providers.provider import Provider, Wire

State = Literal["running", "ended", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class Remote:
    """A batch as its provider tells it.

    `state` is "running" until nothing will change any more, "failed" when none of its requests was run, "cancelled" when
    somebody ended it (there may be results). `status` is the provider's own word. `requests` is how many it has, None where
    that is not said; `done` and `failed` how many of them are through. `made` is in seconds since 1970, by the provider's
    clock. `places` are where results lie.
    """

    id: str
    state: State
    status: str
    requests: int | None = None
    done: int = 0
    failed: int = 0
    made: float = 0.0
    failure: str = ""
    failure_codes: tuple[str, ...] = ()
    places: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """What one request of a batch came to: a body, an error, or nothing because it was never run ("expired", "cancelled"),
    which costs nothing."""

    custom: str
    raw: Mapping[str, Any] | None = None
    error: ProviderError | None = None
    unrun: str = ""


class BatchAPI(Protocol):
    """The batch side of a provider; all but `line` and `result` raise ProviderError. No call is repeated by itself.

    A batch has at most `most_requests` requests in `most_bytes` bytes of a file that begins, is joined and ends with `frame`.
    """

    most_requests: int
    most_bytes: int
    frame: tuple[bytes, bytes, bytes]

    def line(self, custom: str, wire: Wire) -> bytes:
        """One request in this API's form, without a newline."""
        ...

    async def upload(self, path: Path, token: str) -> str:
        """Bring the file there; "" where it travels with `create`."""
        ...

    async def newest(self) -> str:
        """The id of the newest batch, for `find`; "" where that is of no use."""
        ...

    async def create(self, path: Path, file: str, token: str) -> Remote:
        """Order it. After this, it is paid for."""
        ...

    async def find(self, file: str, token: str, newest: str, requests: int, since: float) -> list[tuple[Remote, bool]]:
        """Batches made since `since` that may be the one that `create` was last asked for, each with whether it surely is."""
        ...

    async def look(self, id: str) -> Remote: ...

    async def cancel(self, id: str) -> Remote: ...

    def results(self, remote: Remote) -> AsyncIterator[bytes]:
        """The lines of all that has come in, in any order."""
        ...

    async def close(self) -> None: ...


def custom_id(key: str, sample: int) -> str:
    """The name of a request in a batch. It says which request it is even when nothing else is left: 32 digits of its key, and
    the sample's index; both providers take it."""
    return f"{key[:32]}-{sample}"


def batch_api(provider: Provider) -> BatchAPI:
    """The batch side of `provider`. Raises UsageError where it has none, ConfigError for a missing key."""
    opened = getattr(provider, "batches", None)
    if opened is None:
        raise UsageError(
            f"{provider.name} has no batch API; `critic-prm batch export` writes the requests to a file, for `vllm run-batch`"
            " or whatever answers them, and `critic-prm batch import` takes in the results"
        )
    return cast("BatchAPI", opened())
