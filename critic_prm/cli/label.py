"""critic-prm label: trajectories in, a label file out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from critic_prm.cli.clusters import Engine, RayAddress, WorkerGpus, Workers
from critic_prm.cli.options import with_judging
from critic_prm.engine.options import JudgeOptions

if TYPE_CHECKING:
    from critic_prm.data.trajectory import Trajectory


@with_judging
def label(
    source: Annotated[str, typer.Argument(metavar="INPUT", help="Trajectories in any format `convert` reads; - is stdin.")],
    out: Annotated[str, typer.Option("-o", "--out", metavar="FILE", help="The label file; - is stdout.")] = "-",
    judge: Annotated[
        list[str] | None, typer.Option(help="provider/MODEL, `rules` (default), or a verifier's folder; repeat it for several.")
    ] = None,
    consensus: Annotated[
        str, typer.Option(help="How several judges add up: majority, unanimous, weighted:ACCURACIES or weighted:FILE.")
    ] = "majority",
    samples: Annotated[
        str, typer.Option(help="Judgements a trajectory: a number, or auto or bayes (auto:3-9) to stop when votes are decided.")
    ] = "1",
    prior: Annotated[str, typer.Option(help="none: P(correct) is k/n of the votes; jeffreys: (k+0.5)/(n+1).")] = "none",
    reread: Annotated[
        bool, typer.Option("--reread", help="Read the stored replies again, for free; INPUT is a label file or trajectories.")
    ] = False,
    batch: Annotated[
        bool, typer.Option("--batch", help="Through the provider's batch API, at half the price; run again to pick up.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="With --batch: wait until everything is here.")] = False,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", min=1, help="Most requests in one batch; the provider's limit without it.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be sent and what it would cost; send nothing.")
    ] = False,
    import_human: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="INPUT is a label file: put in what a person filled in in this escalate.jsonl."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many trajectories.")] = None,
    format: Annotated[str, typer.Option("--from", help="The input's format.")] = "auto",
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Report broken rows and go on; exit with 3.")] = False,
    engine: Engine = "local",
    ray_address: RayAddress = None,
    workers: Workers = 2,
    worker_gpus: WorkerGpus = None,
    *,
    judging: JudgeOptions,
) -> None:
    """Label every step: critique, verdict and votes. Run the same command again to go on where it stopped."""
    from dataclasses import replace

    from critic_prm.cli.batching import run_batched, warn_of_batches
    from critic_prm.cli.clusters import on_cluster
    from critic_prm.cli.judges import open_judges
    from critic_prm.cli.rereading import is_label_file, run_rereading
    from critic_prm.cli.running import run_labelling
    from critic_prm.data.formats.convert import read_trajectories
    from critic_prm.data.judgement import parse_prior
    from critic_prm.label.sampling import parse_samples

    if import_human is not None:
        from critic_prm.cli.importing import run_import

        raise typer.Exit(run_import(source, out, import_human))
    if reread:
        if is_label_file(source):
            raise typer.Exit(run_rereading(source, out, judging, limit))
        judging = replace(judging, offline=True)
    judging = on_cluster(judging, engine, ray_address, workers, worker_gpus)
    policy = parse_samples(samples)
    counted = parse_prior(prior)
    skipped: list[object] = []
    told: set[str] = set()

    def complain(error: object) -> None:
        skipped.append(error)
        if str(error) not in told:
            told.add(str(error))
            typer.echo(f"skipped: {error}", err=True)

    def read() -> Iterator[Trajectory]:
        return read_trajectories(source, format, on_error="skip" if skip_bad else "stop", complain=complain)

    if not judge:
        typer.echo("no --judge: judged by `rules`, which checks written equations and nothing else", err=True)
    critic, accounts = open_judges(judge or ["rules"], judging, consensus, policy)
    if dry_run:
        from critic_prm.cli.estimating import print_estimates

        print_estimates(critic, read(), policy, limit, batch=batch)
        raise typer.Exit
    if batch:
        raise typer.Exit(
            run_batched(
                source,
                read,
                critic,
                out,
                judging,
                samples=policy,
                prior=counted,
                wait=wait,
                size=batch_size,
                limit=limit,
                accounts=accounts,
                skipped=skipped,
            )
        )
    warn_of_batches(critic, judging)
    raise typer.Exit(
        run_labelling(
            read(),
            critic,
            out,
            source=source,
            samples=policy,
            prior=counted,
            workers=judging.connections,
            limit=limit,
            accounts=accounts,
            skipped=skipped,
        )
    )
