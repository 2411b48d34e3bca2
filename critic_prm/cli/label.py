"""critic-prm label: trajectories in, a label file out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from critic_prm.cli import options


def label(
    source: Annotated[str, typer.Argument(metavar="INPUT", help="Trajectories in any format `convert` reads; - is stdin.")],
    out: Annotated[str, typer.Option("-o", "--out", metavar="FILE", help="The label file; - is stdout.")] = "-",
    judge: Annotated[str, typer.Option(help="provider/MODEL, `rules`, or a verifier's folder.")] = "rules",
    samples: Annotated[int, typer.Option(min=1, help="Judgements per trajectory.")] = 1,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many trajectories.")] = None,
    format: Annotated[str, typer.Option("--from", help="The input's format.")] = "auto",
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Report broken rows and go on.")] = False,
    style: options.Style = "stepwise",
    temperature: options.Temperature = None,
    top_p: options.TopP = None,
    max_tokens: options.MaxTokens = None,
    seed: options.Seed = None,
    effort: options.Effort = None,
    logprobs: options.Logprobs = None,
    extra_body: options.ExtraBody = None,
    with_reference: options.Reference = False,
    db: options.Db = Path("critic-prm.db"),
    base_url: options.BaseUrl = None,
    offline: options.Offline = False,
    max_connections: options.Connections = 64,
    rpm: options.Rpm = None,
    tpm: options.Tpm = None,
    max_retries: options.Retries = 6,
    max_reasks: options.Reasks = 1,
    timeout: options.Timeout = 600.0,
    prices: options.OwnPrices = None,
    budget_usd: options.BudgetUsd = None,
    max_requests: options.MaxRequests = None,
    salt: options.Salt = "",
    durable: options.Durable = False,
) -> None:
    """Label every step: critique, verdict and votes. Run the same command again to go on where it stopped."""
    from critic_prm.cli.running import run_labelling
    from critic_prm.critic import open_critic
    from critic_prm.formats import read_trajectories

    judging = options.judging(
        style=style,
        temperature=temperature,
        top_p=top_p,
        max_tokens=max_tokens,
        seed=seed,
        effort=effort,
        logprobs=logprobs,
        extra_body=extra_body,
        with_reference=with_reference,
        db=db,
        base_url=base_url,
        offline=offline,
        max_connections=max_connections,
        rpm=rpm,
        tpm=tpm,
        max_retries=max_retries,
        max_reasks=max_reasks,
        timeout=timeout,
        prices=prices,
        budget_usd=budget_usd,
        max_requests=max_requests,
        salt=salt,
        durable=durable,
    )
    trajectories = read_trajectories(
        source,
        format,
        on_error="skip" if skip_bad else "stop",
        complain=lambda error: typer.echo(f"skipped: {error}", err=True),
    )
    critic = open_critic(judge, judging)
    raise typer.Exit(
        run_labelling(trajectories, critic, out, source=source, samples=samples, workers=max_connections, limit=limit)
    )
