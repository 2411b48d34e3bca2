"""The options that every command with a judge shares, defined once."""

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

Style = Annotated[str, typer.Option(help="A prompt of `critic-prm prompts list`, or a .jinja file.", rich_help_panel=ASK)]
Temperature = Annotated[float | None, typer.Option(help="Left to the model when not given.", rich_help_panel=ASK)]
TopP = Annotated[float | None, typer.Option("--top-p", help="Left to the model when not given.", rich_help_panel=ASK)]
MaxTokens = Annotated[
    int | None, typer.Option("--max-tokens", help="The longest reply, thinking included.", rich_help_panel=ASK)
]
Seed = Annotated[int | None, typer.Option(help="Sent to servers that take one.", rich_help_panel=ASK)]
Effort = Annotated[str | None, typer.Option(help="Reasoning effort, by the provider's names.", rich_help_panel=ASK)]
Logprobs = Annotated[
    int | None,
    typer.Option(help="Ask for so many alternatives a token: probabilities of verdicts. 0: none.", rich_help_panel=ASK),
]
ExtraBody = Annotated[str | None, typer.Option("--extra-body", help="JSON merged into every request.", rich_help_panel=ASK)]
ServiceTier = Annotated[
    str | None,
    typer.Option("--service-tier", help="flex, priority, ... by the provider's names.", rich_help_panel=ASK),
]
Reask = Annotated[
    int, typer.Option("--reask", min=0, help="Times to say what was wrong with a reply without verdicts.", rich_help_panel=ASK)
]
Force = Annotated[
    bool, typer.Option("--force/--no-force", help="Ask for the verdicts alone when a critique was cut.", rich_help_panel=ASK)
]
ThinkRounds = Annotated[
    int, typer.Option("--think-rounds", min=0, help="Rounds of going over it again, 4 at most.", rich_help_panel=ASK)
]
Structured = Annotated[
    bool, typer.Option("--schema/--no-schema", help="Structured outputs in styles that have them.", rich_help_panel=ASK)
]
Reference = Annotated[
    bool, typer.Option("--with-reference", help="Show the judge the reference answer where there is one.", rich_help_panel=ASK)
]
ImageRoot = Annotated[
    Path | None,
    typer.Option("--image-root", help="Send image files from below this folder, too.", rich_help_panel=ASK),
]
Db = Annotated[Path, typer.Option(help="The cache: every reply paid for.", rich_help_panel=RUN)]
BaseUrl = Annotated[
    str | None, typer.Option("--base-url", help="Any OpenAI- or Anthropic-compatible server.", rich_help_panel=RUN)
]
Offline = Annotated[bool, typer.Option("--offline", help="Answer from the cache alone; send nothing.", rich_help_panel=RUN)]
Connections = Annotated[int, typer.Option("--max-connections", min=1, help="Most requests in flight.", rich_help_panel=RUN)]
Rpm = Annotated[float | None, typer.Option(help="Requests a minute, at most.", rich_help_panel=RUN)]
Tpm = Annotated[float | None, typer.Option(help="Tokens a minute, at most.", rich_help_panel=RUN)]
Retries = Annotated[int, typer.Option("--max-retries", min=0, help="Repeats of a failed request.", rich_help_panel=RUN)]
Reasks = Annotated[
    int,
    typer.Option("--max-reasks", min=0, help="New tries at an answer that is cut, refused or empty.", rich_help_panel=RUN),
]
Timeout = Annotated[
    float, typer.Option(min=0.1, help="Seconds after which a request without an answer has failed.", rich_help_panel=RUN)
]
Grace = Annotated[
    float, typer.Option(min=0, help="Seconds that what is out has to come in when the run is stopped.", rich_help_panel=RUN)
]
MaxReplyBytes = Annotated[
    int,
    typer.Option("--max-reply-bytes", min=1024, help="A reply with a larger body, decoded, has failed.", rich_help_panel=RUN),
]
OwnPrices = Annotated[
    str | None,
    typer.Option(
        "--prices",
        metavar="IN,OUT[,CACHED[,WRITTEN]]",
        help="USD per million tokens, where the model table is silent or out of date.",
        rich_help_panel=RUN,
    ),
]
BudgetUsd = Annotated[
    float | None, typer.Option("--budget-usd", help="Stop (exit 5) before this is spent.", rich_help_panel=RUN)
]
MaxRequests = Annotated[int | None, typer.Option("--max-requests", help="Stop (exit 5) after so many.", rich_help_panel=RUN)]
Salt = Annotated[str, typer.Option(help="Another salt asks everything anew, beside what is stored.", rich_help_panel=RUN)]
Durable = Annotated[
    bool, typer.Option("--durable", help="Flush every reply to disk: safe against a power cut.", rich_help_panel=RUN)
]
Trust = Annotated[
    list[str] | None,
    typer.Option(
        "--trust",
        metavar="FILE",
        help="A file that may name code, and paths outside its folder; repeat it for more.",
        rich_help_panel=RUN,
    ),
]


def with_judging(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command all the options of `judging`; what they add up to reaches it as its argument `judging`."""
    return _with_options(command, frozenset())


def with_policy(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command with a policy the same options, but for those that only make sense for a judge."""
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
    """The options above as the library takes them. Raises UsageError for --extra-body and --prices that cannot be read."""
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
