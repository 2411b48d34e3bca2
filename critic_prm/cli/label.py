"""critic-prm label: judge every step of trajectories and write a label file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from critic_prm.engine.options import JudgeOptions, RayOptions

if TYPE_CHECKING:
    from critic_prm.data.trajectory import Trajectory


def label(
    source: Annotated[
        str, typer.Argument(metavar="INPUT", help="Trajectories in any format that `convert` reads; - is stdin.")
    ],
    out: Annotated[str, typer.Option("-o", "--out", metavar="FILE", help="Label file to write; - is stdout.")] = "-",
    judge: Annotated[
        list[str] | None,
        typer.Option(help="provider/MODEL, `rules` (default), or a verifier folder; repeat for several judges."),
    ] = None,
    consensus: Annotated[
        str, typer.Option(help="How to combine several judges: majority, unanimous, weighted:ACCURACIES or weighted:FILE.")
    ] = "majority",
    samples: Annotated[
        str,
        typer.Option(help="Judgements per trajectory: a number, or auto or bayes (auto:3-9) to stop when votes are decided."),
    ] = "1",
    prior: Annotated[str, typer.Option(help="P(correct) from k of n votes: none is k/n, jeffreys is (k+0.5)/(n+1).")] = "none",
    reread: Annotated[
        bool, typer.Option("--reread", help="Parse cached replies again, for free; INPUT is a label file or trajectories.")
    ] = False,
    batch: Annotated[
        bool, typer.Option("--batch", help="Use the provider's batch API, at half the price; run again to get the results.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="With --batch: wait until all results have arrived.")] = False,
    batch_size: Annotated[
        int | None,
        typer.Option("--batch-size", min=1, help="Put at most N requests into one batch; default: the provider's limit."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be sent and its estimated cost; send nothing.")
    ] = False,
    import_human: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Apply the human answers in FILE (a filled-in escalate.jsonl) to the label file INPUT."
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Process at most N trajectories.")] = None,
    format: Annotated[str, typer.Option("--from", help="Input format.")] = "auto",
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Report and skip invalid rows; exit with code 3.")] = False,
    *,
    ray: RayOptions,
    judging: JudgeOptions,
) -> None:
    """Label every step of trajectories with a critique, a verdict and votes.

    Reads trajectories (INPUT) and cached replies (--db). Writes a label file (-o) and a run report (FILE.run.json). Run the
    same command again to resume; cached replies are not paid for twice.

    Example: critic-prm label in.jsonl --judge openai/gpt-5.4-mini -o labels.jsonl
    """
    from dataclasses import replace

    from critic_prm.cli.batching import run_batched, warn_of_batches
    from critic_prm.cli.judges import open_judges
    from critic_prm.cli.rereading import is_label_file, run_rereading
    from critic_prm.cli.running import run_labelling
    from critic_prm.data.formats.convert import read_trajectories
    from critic_prm.data.judgement import parse_prior
    from critic_prm.engine.options import on_workers
    from critic_prm.label.sampling import parse_samples

    if import_human is not None:
        from critic_prm.cli.importing import run_import

        raise typer.Exit(run_import(source, out, import_human))
    if reread:
        if is_label_file(source):
            raise typer.Exit(run_rereading(source, out, judging, limit))
        judging = replace(judging, offline=True)
    judging = on_workers(judging, ray)
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
            workers=judging.max_connections,
            limit=limit,
            accounts=accounts,
            skipped=skipped,
        )
    )
