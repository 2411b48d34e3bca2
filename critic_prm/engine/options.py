"""Options of an LLM judge and of Ray workers; each field is a command-line option of every command that uses one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from critic_prm.engine.place import cache_path
from critic_prm.errors import UsageError
from critic_prm.option import Option
from critic_prm.providers.models import Prices, parse_prices
from critic_prm.providers.provider import Sampling

SENT = ("temperature", "top_p", "max_tokens", "seed", "effort", "logprobs")
"""The sampling parameters that are recorded in a label file's card."""


@dataclass(frozen=True, slots=True)
class RayOptions:
    """Where the work of a run is done."""

    engine: Annotated[Literal["local", "ray"], Option(panel="Execution")] = "local"
    """local: in this process; ray: on workers of a Ray cluster."""
    ray_address: Annotated[str | None, Option(metavar="ADDRESS", envvar="RAY_ADDRESS")] = None
    """Address of a running cluster; default: start Ray on this machine for the run."""
    workers: Annotated[int, Option(min=1)] = 2
    """With --engine ray: number of workers, each with --max-connections."""
    worker_gpus: Annotated[float | None, Option(min=0)] = None
    """GPUs per worker; default: as many as its model needs."""


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """How to query an LLM judge: everything that its name does not say. Critics that query no LLM ignore most of these."""

    style: Annotated[str, Option(panel="Judge")] = "stepwise"
    """Prompt style: a name from `critic-prm prompts list`, or a .jinja file."""
    sampling: Sampling = Sampling()
    """Sampling parameters of the requests."""
    follow_ups: Annotated[int, Option(min=0)] = 1
    """Send at most N follow-up questions if a reply has no readable verdicts."""
    force: bool = True
    """Ask for the verdicts alone if a critique stays truncated."""
    think_rounds: Annotated[int, Option(min=0)] = 0
    """Ask the judge to review its readable reply N times, at most 4."""
    schema: bool = True
    """Use structured outputs in styles that have a JSON schema."""
    with_reference: bool = False
    """Show the judge the reference answer, if there is one."""
    image_root: Path | None = None
    """Also send image files located in this folder or below it."""
    db: Annotated[Path | None, Option(panel="Run")] = None
    """Cache file of paid replies; default: CRITIC_PRM_DB, ./critic-prm.db if it exists, else one per user."""
    base_url: str | None = None
    """Base URL of the provider's server, such as http://localhost:8000/v1."""
    header: Annotated[tuple[str, ...], Option(metavar="NAME=VALUE")] = field(default=(), repr=False)
    """Add an HTTP header to every request; may be repeated. Values are kept secret and are not part of the cache key."""
    api_key_env: Annotated[str | None, Option(metavar="VARIABLE")] = None
    """Environment variable with the API key; default: the provider's own, such as OPENAI_API_KEY."""
    option: Annotated[tuple[str, ...], Option(metavar="KEY=VALUE")] = ()
    """Set an option of the provider or critic; `critic-prm doctor JUDGE` lists those of a provider. May be repeated."""
    offline: bool = False
    """Use cached replies only; send nothing."""
    max_connections: Annotated[int, Option(min=1)] = 64
    """Keep at most N requests in flight."""
    rpm: float | None = None
    """Send at most N requests per minute."""
    tpm: float | None = None
    """Use at most N tokens per minute."""
    max_retries: Annotated[int, Option(min=0)] = 6
    """Retry a failed request at most N times."""
    regenerate: Annotated[int, Option(min=0)] = 1
    """Generate a truncated, refused or empty reply again at most N times."""
    timeout: Annotated[float, Option(min=0.1)] = 600.0
    """Seconds to wait for a reply before a request counts as failed."""
    grace: Annotated[float, Option(min=0)] = 10.0
    """Seconds to wait for requests in flight when the run is stopped."""
    max_reply_bytes: Annotated[int, Option(min=1024)] = 16_000_000
    """Maximum size of a decoded reply body; a larger one counts as failed."""
    prices: Annotated[Prices | None, Option(metavar="IN,OUT[,CACHED[,WRITTEN]]", parse=parse_prices)] = None
    """USD per million tokens, if the model table has no price or an outdated one."""
    budget_usd: float | None = None
    """Stop (exit code 5) before spending more than this."""
    max_requests: int | None = None
    """Stop (exit code 5) after N requests."""
    salt: str = ""
    """A new salt sends every request again; replies stored before are kept."""
    durable: bool = False
    """Flush every reply to disk, so that none is lost in a power failure."""
    profile: str | None = None
    """Calibration profile of a verifier, or none; default: the one in use (see `calibrate`)."""
    trust: Annotated[tuple[str | Path, ...], Option(metavar="FILE")] = ()
    """Allow this file to name code and paths outside its folder; may be repeated."""
    cluster: Annotated[RayOptions | None, Option(hidden=True)] = None
    """Send requests from Ray workers; critics that compute locally run on them, too."""

    @property
    def cache(self) -> Path:
        """The cache file that `db` stands for."""
        return cache_path(self.db)


def with_keywords(options: JudgeOptions, keywords: Mapping[str, Any]) -> JudgeOptions:
    """Return the options with the given fields, which may be fields of `sampling`. Raises UsageError for an unknown name."""
    sampled = {one.name for one in fields(Sampling)} & keywords.keys()
    own = {one.name for one in fields(JudgeOptions)} & keywords.keys()
    if unknown := sorted(keywords.keys() - sampled - own):
        from difflib import get_close_matches

        known = sorted(one.name for cls in (JudgeOptions, Sampling) for one in fields(cls))
        near = get_close_matches(unknown[0], known, 1) or known
        raise UsageError(f"there is no option {unknown[0]!r}; did you mean {', '.join(near)}?")
    given = {name: keywords[name] for name in own}
    if isinstance(given.get("db"), str):
        given["db"] = Path(given["db"])
    changed = replace(options, **given)
    return replace(changed, sampling=replace(changed.sampling, **{name: keywords[name] for name in sampled}))


def on_workers(options: JudgeOptions, ray: RayOptions) -> JudgeOptions:
    """Return the options of a run on Ray workers, each with its own connections; unchanged with the local engine."""
    if ray.engine == "local":
        return options
    return replace(options, max_connections=options.max_connections * ray.workers, cluster=ray)
