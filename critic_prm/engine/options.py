"""Options for asking a judge: sampling, cache, limits, retries, budget; and where Ray workers run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from critic_prm.providers.models import Prices
from critic_prm.providers.provider import Sampling


@dataclass(frozen=True, slots=True)
class RayOptions:
    """Where the work goes with --engine ray. `address` is a running cluster's, None for the one in RAY_ADDRESS or else a Ray of
    its own on this machine. `workers` is how many there are, `gpus` what each asks for (None: what its model asks for)."""

    workers: int = 2
    address: str | None = None
    gpus: float | None = None


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """How an LLM is asked: all that its name does not say. Other critics have no use for it.

    `db` is the cache; `offline` answers from it alone. `connections` is the most requests in flight, `rpm` and `tpm` are
    limits per minute, None for none. `retries` bounds the repeats of a failed request, `reasks` those of an answer that is
    cut, refused or empty; a request without an answer after `timeout` seconds, or with a body of more than `max_reply_bytes`
    when decoded, has failed. When a run is stopped, what is out has `grace` seconds to come in. `prices` come before those of
    the model table. Image files below `image_root` are sent, too,
    not only those below the input's folder.

    A reply without a verdict that can be read is followed up to `follow_ups` times by a question that says what was wrong, one
    that stays cut is forced to its verdicts if `force`, and one that is read is gone over again for `think_rounds` rounds.
    `schema` asks for structured outputs in the styles that have a schema. With `cluster`, its workers send the requests;
    critics that compute are spread over it, too. `trust` are files that may name code and paths outside their folder: cascades
    and mixtures (see `critic_prm.data.trust`).
    """

    style: str = "stepwise"
    sampling: Sampling = Sampling()
    db: Path = Path("critic-prm.db")
    base_url: str | None = None
    offline: bool = False
    reference: bool = False
    image_root: Path | None = None
    connections: int = 64
    rpm: float | None = None
    tpm: float | None = None
    retries: int = 6
    reasks: int = 1
    follow_ups: int = 1
    force: bool = True
    think_rounds: int = 0
    schema: bool = True
    timeout: float = 600.0
    grace: float = 10.0
    max_reply_bytes: int = 16_000_000
    salt: str = ""
    durable: bool = False
    budget_usd: float | None = None
    max_requests: int | None = None
    prices: Prices | None = None
    cluster: RayOptions | None = None
    trust: tuple[str | Path, ...] = ()
