"""critic-prm score: trajectories in, the same rows with P(correct) per step and the first error out; a slim label file."""

from __future__ import annotations

from typing import Annotated

import typer

from critic_prm.cli.clusters import Engine, RayAddress, WorkerGpus, Workers


def score(
    critic: Annotated[str, typer.Argument(metavar="CRITIC", help="A verifier's folder, `rules`, or provider/MODEL.")],
    source: Annotated[str, typer.Argument(metavar="INPUT", help="Trajectories in any format `convert` reads; - is stdin.")],
    out: Annotated[str, typer.Option("-o", "--out", metavar="FILE", help="Where the rows go; - is stdout.")] = "-",
    format: Annotated[str, typer.Option("--from", help="The input's format.")] = "auto",
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Report broken rows and go on; exit with 3.")] = False,
    engine: Engine = "local",
    ray_address: RayAddress = None,
    workers: Workers = 2,
    worker_gpus: WorkerGpus = None,
) -> None:
    """Score every step: each row comes back with `p_correct` (per step, null if unjudged) and `first_error`.

    The output is a label file without critiques: `rank`, `report` and `analyze` read it.
    """
    import asyncio

    from critic_prm.cli.clusters import on_cluster
    from critic_prm.critic import Judging, open_critic
    from critic_prm.formats import read_trajectories
    from critic_prm.label import label
    from critic_prm.labels import label_row
    from critic_prm.records import RecordWriter

    judging = on_cluster(Judging(), engine, ray_address, workers, worker_gpus)
    skipped: list[object] = []

    def complain(error: object) -> None:
        skipped.append(error)
        typer.echo(f"skipped: {error}", err=True)

    trajectories = read_trajectories(
        source,
        format,
        on_error="skip" if skip_bad else "stop",
        complain=complain,
    )

    async def run() -> int:
        failed = 0
        opened = open_critic(critic, judging)
        try:
            with RecordWriter(out) as sink:
                async for trajectory, found in label(trajectories, opened, workers=judging.connections):
                    row = label_row(trajectory, found, opened.card)
                    del row["judgements"]
                    failed += found.status != "ok"
                    sink.write(row)
            typer.echo(f"{sink.rows} trajectories scored" + (f", {failed} without a judgement" if failed else ""), err=True)
        finally:
            await opened.close()
        return 3 if failed or skipped else 0

    raise typer.Exit(asyncio.run(run()))
