"""Options of an LLM judge: sampling, cache, rate limits, retries, budget and Ray workers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from critic_prm.providers.models import Prices
from critic_prm.providers.provider import Sampling


@dataclass(frozen=True, slots=True)
class RayOptions:
    """Where Ray workers run (`--engine ray`)."""

    workers: int = 2
    """Number of workers."""
    address: str | None = None
    """Address of a running cluster. None: the one in RAY_ADDRESS, or else a new local Ray instance."""
    gpus: float | None = None
    """GPUs per worker. None: as many as the worker's model needs."""


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """How to query an LLM judge: everything that its name does not say. Critics that query no LLM ignore most of these."""

    style: str = "stepwise"
    """Name of the prompt template."""
    sampling: Sampling = Sampling()
    """Sampling parameters of the requests."""
    db: Path = Path("critic-prm.db")
    """The reply cache, a SQLite file."""
    base_url: str | None = None
    """Address of the API. None: the provider's default."""
    offline: bool = False
    """Answer from the cache only and send nothing."""
    reference: bool = False
    """Show the judge the reference answer, where the trajectory has one."""
    image_root: Path | None = None
    """Send image files below this folder, too, besides those below the input's folder."""
    connections: int = 64
    """Maximum number of requests in flight."""
    rpm: float | None = None
    """Maximum requests per minute. None: no limit."""
    tpm: float | None = None
    """Maximum tokens per minute. None: no limit."""
    retries: int = 6
    """Maximum number of retries of a failed request."""
    reasks: int = 1
    """Maximum number of repeats of a request whose reply is truncated, refused or empty."""
    follow_ups: int = 1
    """Maximum number of follow-up questions, which say what was wrong, after a reply without a readable verdict."""
    force: bool = True
    """Force a reply that stays truncated to give its verdicts."""
    think_rounds: int = 0
    """Number of rounds in which the judge reviews a reply that was readable."""
    schema: bool = True
    """Ask for structured outputs in the styles that have a JSON schema."""
    timeout: float = 600.0
    """Seconds after which a request without a reply has failed."""
    grace: float = 10.0
    """Seconds that requests in flight get to finish when the run is stopped."""
    max_reply_bytes: int = 16_000_000
    """Maximum size of a decoded reply body; a request with a larger one has failed."""
    salt: str = ""
    """Part of every cache key; a different salt gives the same requests different keys."""
    durable: bool = False
    """Flush every cache transaction to disk (SQLite synchronous=FULL)."""
    budget_usd: float | None = None
    """Maximum cost of a run in US dollars; needs known prices."""
    max_requests: int | None = None
    """Maximum number of requests of a run."""
    prices: Prices | None = None
    """Prices that take precedence over the model table."""
    cluster: RayOptions | None = None
    """Send requests from Ray workers; critics that compute locally run on them, too."""
    trust: tuple[str | Path, ...] = ()
    """Files, such as cascades and mixtures, that may name code and paths outside their folder (see `critic_prm.data.trust`)."""
