"""The options that send a command's work to a Ray cluster, defined once."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from critic_prm.engine.options import JudgeOptions

WHERE = "Where the work is done"

Engine = Annotated[
    str,
    typer.Option(metavar="local|ray", help="local: in this process; ray: by workers on a Ray cluster.", rich_help_panel=WHERE),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        metavar="ADDRESS",
        envvar="RAY_ADDRESS",
        help="A running cluster; without one, a Ray on this machine is started for the run.",
        rich_help_panel=WHERE,
    ),
]
Workers = Annotated[
    int, typer.Option(min=1, help="Of --engine ray; each has its own --max-connections.", rich_help_panel=WHERE)
]
WorkerGpus = Annotated[
    float | None,
    typer.Option("--worker-gpus", min=0, help="GPUs of each; unless given, what its model asks for.", rich_help_panel=WHERE),
]


def on_cluster(judging: JudgeOptions, engine: str, address: str | None, workers: int, gpus: float | None) -> JudgeOptions:
    """`judging` with the cluster that the options name. Raises UsageError for an engine that does not exist."""
    from critic_prm.engine.options import RayOptions
    from critic_prm.errors import UsageError

    if engine == "local":
        return judging
    if engine != "ray":
        raise UsageError(f"--engine is {engine!r}; it is local or ray")
    return replace(judging, connections=judging.connections * workers, cluster=RayOptions(workers, address, gpus))
