"""Define the options shared by every command that uses a judge."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from critic_prm.engine.options import JudgeOptions

if TYPE_CHECKING:
    from critic_prm.providers.models import Prices

ASK, RUN = "How the judge is asked", "How the run goes"

Style = Annotated[
    str, typer.Option(help="Prompt style: a name from `critic-prm prompts list`, or a .jinja file.", rich_help_panel=ASK)
]
Temperature = Annotated[
    float | None, typer.Option(help="Sampling temperature; the model's default if not given.", rich_help_panel=ASK)
]
TopP = Annotated[
    float | None,
    typer.Option("--top-p", help="Nucleus sampling cutoff; the model's default if not given.", rich_help_panel=ASK),
]
MaxTokens = Annotated[
    int | None, typer.Option("--max-tokens", help="Maximum tokens per reply, including thinking.", rich_help_panel=ASK)
]
Seed = Annotated[int | None, typer.Option(help="Sampling seed, sent to servers that accept one.", rich_help_panel=ASK)]
Effort = Annotated[
    str | None, typer.Option(help="Reasoning effort, by the provider's names for the levels.", rich_help_panel=ASK)
]
Logprobs = Annotated[
    int | None,
    typer.Option(help="Request N alternatives per token, for verdict probabilities. 0 turns this off.", rich_help_panel=ASK),
]
ExtraBody = Annotated[
    str | None, typer.Option("--extra-body", help="JSON object merged into every request body.", rich_help_panel=ASK)
]
ServiceTier = Annotated[
    str | None,
    typer.Option("--service-tier", help="Service tier, by the provider's name, such as flex or priority.", rich_help_panel=ASK),
]
Reask = Annotated[
    int,
    typer.Option(
        "--reask", min=0, help="Send at most N follow-up questions if a reply has no readable verdicts.", rich_help_panel=ASK
    ),
]
Force = Annotated[
    bool,
    typer.Option("--force/--no-force", help="Ask for the verdicts alone if a critique was truncated.", rich_help_panel=ASK),
]
ThinkRounds = Annotated[
    int,
    typer.Option("--think-rounds", min=0, help="Ask the judge to review its reply N times, at most 4.", rich_help_panel=ASK),
]
Structured = Annotated[
    bool, typer.Option("--schema/--no-schema", help="Use structured outputs in styles that support them.", rich_help_panel=ASK)
]
Reference = Annotated[
    bool, typer.Option("--with-reference", help="Show the judge the reference answer, if there is one.", rich_help_panel=ASK)
]
ImageRoot = Annotated[
    Path | None,
    typer.Option("--image-root", help="Also send image files located in this folder or below it.", rich_help_panel=ASK),
]
Db = Annotated[Path, typer.Option(help="Cache file. Every paid reply is stored here and reused.", rich_help_panel=RUN)]
BaseUrl = Annotated[
    str | None, typer.Option("--base-url", help="Base URL of an OpenAI- or Anthropic-compatible server.", rich_help_panel=RUN)
]
Offline = Annotated[bool, typer.Option("--offline", help="Use cached replies only; send nothing.", rich_help_panel=RUN)]
Connections = Annotated[
    int, typer.Option("--max-connections", min=1, help="Keep at most N requests in flight.", rich_help_panel=RUN)
]
Rpm = Annotated[float | None, typer.Option(help="Send at most N requests per minute.", rich_help_panel=RUN)]
Tpm = Annotated[float | None, typer.Option(help="Use at most N tokens per minute.", rich_help_panel=RUN)]
Retries = Annotated[
    int, typer.Option("--max-retries", min=0, help="Retry a failed request at most N times.", rich_help_panel=RUN)
]
Reasks = Annotated[
    int,
    typer.Option(
        "--max-reasks", min=0, help="Regenerate a truncated, refused or empty reply at most N times.", rich_help_panel=RUN
    ),
]
Timeout = Annotated[
    float, typer.Option(min=0.1, help="Seconds to wait for a reply before a request counts as failed.", rich_help_panel=RUN)
]
Grace = Annotated[
    float, typer.Option(min=0, help="Seconds to wait for requests in flight when the run is stopped.", rich_help_panel=RUN)
]
MaxReplyBytes = Annotated[
    int,
    typer.Option(
        "--max-reply-bytes",
        min=1024,
        help="Maximum size of a decoded reply body; a larger one counts as failed.",
        rich_help_panel=RUN,
    ),
]
OwnPrices = Annotated[
    str | None,
    typer.Option(
        "--prices",
        metavar="IN,OUT[,CACHED[,WRITTEN]]",
        help="USD per million tokens, if the model table has no price or an outdated one.",
        rich_help_panel=RUN,
    ),
]
BudgetUsd = Annotated[
    float | None, typer.Option("--budget-usd", help="Stop (exit code 5) before spending more than this.", rich_help_panel=RUN)
]
MaxRequests = Annotated[
    int | None, typer.Option("--max-requests", help="Stop (exit code 5) after N requests.", rich_help_panel=RUN)
]
Salt = Annotated[
    str, typer.Option(help="A new salt sends every request again; replies stored before are kept.", rich_help_panel=RUN)
]
Durable = Annotated[
    bool,
    typer.Option("--durable", help="Flush every reply to disk, so that none is lost in a power failure.", rich_help_panel=RUN),
]
Trust = Annotated[
    list[str] | None,
    typer.Option(
        "--trust",
        metavar="FILE",
        help="Allow this file to name code and paths outside its folder; may be repeated.",
        rich_help_panel=RUN,
    ),
]


def with_judging(command: Callable[..., None]) -> Callable[..., None]:
    """Add all options of `judging` to a command, which receives the resulting JudgeOptions as its argument `judging`."""
    return _with_options(command, frozenset())


def with_policy(command: Callable[..., None]) -> Callable[..., None]:
    """Add the same options to a command that uses a policy, without those that only apply to a judge (FOR_JUDGES)."""
    return _with_options(command, FOR_JUDGES)


FOR_JUDGES = frozenset(("style", "logprobs", "reask", "force", "think_rounds", "schema", "with_reference", "image_root"))


def _with_options(command: Callable[..., None], left_out: frozenset[str]) -> Callable[..., None]:
    own, every = signature(command, eval_str=True), signature(judging, eval_str=True).parameters
    added = {name: parameter for name, parameter in every.items() if name not in left_out}
    kept = [parameter for name, parameter in own.parameters.items() if name != "judging"]

    @wraps(command)
    def run(**given: Any) -> None:
        told = {name: given.pop(name) for name in added}
        command(**given, judging=judging(**told))

    parameters = [*kept, *added.values()]
    run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def judging(
    *,
    style: Style = "stepwise",
    temperature: Temperature = None,
    top_p: TopP = None,
    max_tokens: MaxTokens = None,
    seed: Seed = None,
    effort: Effort = None,
    logprobs: Logprobs = None,
    extra_body: ExtraBody = None,
    service_tier: ServiceTier = None,
    reask: Reask = 1,
    force: Force = True,
    think_rounds: ThinkRounds = 0,
    schema: Structured = True,
    with_reference: Reference = False,
    image_root: ImageRoot = None,
    db: Db = Path("critic-prm.db"),
    base_url: BaseUrl = None,
    offline: Offline = False,
    max_connections: Connections = 64,
    rpm: Rpm = None,
    tpm: Tpm = None,
    max_retries: Retries = 6,
    max_reasks: Reasks = 1,
    timeout: Timeout = 600.0,
    grace: Grace = 10.0,
    max_reply_bytes: MaxReplyBytes = 16_000_000,
    prices: OwnPrices = None,
    budget_usd: BudgetUsd = None,
    max_requests: MaxRequests = None,
    salt: Salt = "",
    durable: Durable = False,
    trust: Trust = None,
) -> JudgeOptions:
    """Convert the options above to JudgeOptions. Raises UsageError if --extra-body or --prices cannot be parsed."""
    import json

    from critic_prm.errors import UsageError
    from critic_prm.providers.provider import Sampling

    try:
        extra = json.loads(extra_body or "{}")
    except ValueError as error:
        raise UsageError(f"--extra-body is no JSON: {error}") from error
    if not isinstance(extra, dict):
        raise UsageError(f"--extra-body is {extra!r}; it must be a JSON object")
    if service_tier is not None:
        extra["service_tier"] = service_tier
    return JudgeOptions(
        style=style,
        sampling=Sampling(
            temperature=temperature,
            top_p=top_p,
            max_tokens=max_tokens,
            seed=seed,
            logprobs=logprobs,
            effort=effort,
            extra=extra,
        ),
        db=db,
        base_url=base_url,
        offline=offline,
        reference=with_reference,
        image_root=image_root,
        connections=max_connections,
        rpm=rpm,
        tpm=tpm,
        retries=max_retries,
        reasks=max_reasks,
        follow_ups=reask,
        force=force,
        think_rounds=think_rounds,
        schema=schema,
        timeout=timeout,
        grace=grace,
        max_reply_bytes=max_reply_bytes,
        prices=None if prices is None else _prices(prices),
        salt=salt,
        durable=durable,
        budget_usd=budget_usd,
        max_requests=max_requests,
        trust=tuple(trust or ()),
    )


def _prices(text: str) -> Prices:
    from critic_prm.errors import UsageError
    from critic_prm.providers.models import ANY_TIER, Prices

    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not 2 <= len(numbers) <= 4 or any(not 0 <= number < float("inf") for number in numbers):
        raise UsageError(f"--prices is {text!r}; write IN,OUT or IN,OUT,CACHED,WRITTEN in USD per million tokens, as in 0.5,2")
    price_in, price_out, cached, written = (*numbers, None, None)[:4]
    assert price_in is not None
    assert price_out is not None
    return Prices(input=price_in, output=price_out, cached=cached, written=written, tiers={ANY_TIER: 1.0}, source="--prices")
