"""critic-prm label: trajectories in, a label file out."""

from __future__ import annotations

from typing import Annotated

import typer

from critic_prm.cli.options import with_judging
from critic_prm.critic import Judging


@with_judging
def label(
    source: Annotated[str, typer.Argument(metavar="INPUT", help="Trajectories in any format `convert` reads; - is stdin.")],
    out: Annotated[str, typer.Option("-o", "--out", metavar="FILE", help="The label file; - is stdout.")] = "-",
    judge: Annotated[str, typer.Option(help="provider/MODEL, `rules`, or a verifier's folder.")] = "rules",
    samples: Annotated[int, typer.Option(min=1, help="Judgements per trajectory.")] = 1,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many trajectories.")] = None,
    format: Annotated[str, typer.Option("--from", help="The input's format.")] = "auto",
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Report broken rows and go on.")] = False,
    *,
    judging: Judging,
) -> None:
    """Label every step: critique, verdict and votes. Run the same command again to go on where it stopped."""
    from critic_prm.cli.running import run_labelling
    from critic_prm.critic import open_critic
    from critic_prm.formats import read_trajectories

    trajectories = read_trajectories(
        source,
        format,
        on_error="skip" if skip_bad else "stop",
        complain=lambda error: typer.echo(f"skipped: {error}", err=True),
    )
    critic = open_critic(judge, judging)
    raise typer.Exit(
        run_labelling(trajectories, critic, out, source=source, samples=samples, workers=judging.connections, limit=limit)
    )
