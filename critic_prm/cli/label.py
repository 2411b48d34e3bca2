"""critic-prm label: judge every step of trajectories and write a label file."""

from __future__ import annotations

from typing import Annotated

import typer

from critic_prm.cli.options import InputOptions
from critic_prm.engine.options import JudgeOptions, RayOptions
from critic_prm.label.run import LabelOptions
from critic_prm.terminal import note


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
    batch: Annotated[
        bool, typer.Option("--batch", help="Use the provider's batch API, at half the price; run again to get the results.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="With --batch: wait until all results have arrived.")] = False,
    batch_size: Annotated[
        int | None,
        typer.Option("--batch-size", min=1, help="Put at most N requests into one batch; default: the provider's limit."),
    ] = None,
    segment_judge: Annotated[
        str | None,
        typer.Option(help="Judge that marks the steps for --segment llm: provider/MODEL; default: the first --judge."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be sent and its estimated cost; send nothing.")
    ] = False,
    *,
    options: LabelOptions,
    reading: InputOptions,
    ray: RayOptions,
    judging: JudgeOptions,
) -> None:
    """Label every step of trajectories with a critique, a verdict and votes.

    Reads trajectories (INPUT) and cached replies (--db). Writes a label file (-o) and a run report (FILE.run.json). Run the
    same command again to resume; cached replies are not paid for twice.

    Example: critic-prm label in.jsonl --judge openai/gpt-5.4-mini -o labels.jsonl
    """
    from critic_prm.cli.running import Input, clients_of, open_judges, run_batched, run_labelling
    from critic_prm.engine.options import on_workers
    from critic_prm.errors import UsageError

    if not judge:
        note("no --judge: judged by `rules`, which checks written equations and nothing else")
    judging = on_workers(judging, ray)
    rows = Input(source, reading, labelling=True)
    if segment_judge and reading.segment != "llm":
        raise UsageError("--segment-judge marks the steps for --segment llm; give both, or leave it out")
    if reading.segment == "llm":
        from dataclasses import replace

        from critic_prm.critics.open import kind_of, share_of

        marker = segment_judge or (judge[0] if judge else "")
        if kind_of(marker) != "judge":
            raise UsageError("--segment llm needs a judge such as openai/MODEL that marks the steps; name it: --segment-judge")
        judging = share_of(judging, 2)  # of the budget
        rows.mark_steps(marker, replace(judging, offline=judging.offline or dry_run))
    critic, stats = open_judges(judge or ["rules"], judging, consensus, options.samples)
    if not judging.offline and any(client.provider.base_url for client in clients_of(critic)):
        rows.check_steps()
    if dry_run:
        from critic_prm.label.estimate import estimates

        for line in estimates(critic, rows, options.samples, batch=batch):
            typer.echo(line)
    elif batch:
        raise typer.Exit(run_batched(rows, critic, out, options, judging, wait=wait, batch_size=batch_size, stats=stats))
    else:
        if not judging.offline:
            from critic_prm.engine.batch.ledger import running_batches

            for line in running_batches(judging.cache, [client.provider for client in clients_of(critic)]):
                note(line)
        raise typer.Exit(run_labelling(rows, critic, out, options, workers=judging.max_connections, stats=stats))
