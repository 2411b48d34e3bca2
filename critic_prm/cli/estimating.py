"""Print the requests and cost that a labelling run would need, before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice, tee

import typer

from critic_prm.data.critic import Critic
from critic_prm.data.trajectory import Trajectory
from critic_prm.label.estimate import estimate, judges_in
from critic_prm.label.sampling import Samples


def print_estimates(
    critic: Critic, trajectories: Iterable[Trajectory], samples: Samples, limit: int | None, *, batch: bool = False
) -> None:
    """Print a few lines for each judge that is asked over a network."""
    judges = judges_in(critic)
    if not judges:
        typer.echo("nothing would be sent: this critic works on this machine and costs nothing")
        return
    for judge, rows in zip(judges, tee(islice(trajectories, limit), len(judges)), strict=True):
        for line in estimate(judge, rows, samples, batch=batch).lines():
            typer.echo(line)
