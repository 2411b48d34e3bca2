"""Define the options that run a command's work on a Ray cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from critic_prm.engine.options import JudgeOptions

WHERE = "Where the work is done"

Engine = Annotated[
    str,
    typer.Option(metavar="local|ray", help="local: in this process; ray: on workers of a Ray cluster.", rich_help_panel=WHERE),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        metavar="ADDRESS",
        envvar="RAY_ADDRESS",
        help="Address of a running cluster; default: start Ray on this machine for the run.",
        rich_help_panel=WHERE,
    ),
]
Workers = Annotated[
    int, typer.Option(min=1, help="With --engine ray: number of workers, each with --max-connections.", rich_help_panel=WHERE)
]
WorkerGpus = Annotated[
    float | None,
    typer.Option("--worker-gpus", min=0, help="GPUs per worker; default: as many as its model needs.", rich_help_panel=WHERE),
]


def on_cluster(judging: JudgeOptions, engine: str, address: str | None, workers: int, gpus: float | None) -> JudgeOptions:
    """Return `judging` with the cluster options applied. Raises UsageError for an unknown engine."""
    from critic_prm.engine.options import RayOptions
    from critic_prm.errors import UsageError

    if engine == "local":
        return judging
    if engine != "ray":
        raise UsageError(f"--engine is {engine!r}; it is local or ray")
    return replace(judging, connections=judging.connections * workers, cluster=RayOptions(workers, address, gpus))
