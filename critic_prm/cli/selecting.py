"""critic-prm dataset consensus, filter, dedupe, decontaminate, mix: rows in, those that stay and an account of the rest out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

Out = Annotated[str, typer.Option("-o", "--out", metavar="FILE", help="The file to write; - is stdout.")]
In = Annotated[
    str, typer.Argument(metavar="IN", help="A label file, trajectories in any format, or training rows; - is stdin.")
]
Removed = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Where what goes is listed, with its match; OUT.removed.jsonl when not given."),
]


def consensus(
    a: Annotated[str, typer.Argument(metavar="A", help="The labels to keep: usually a judge's label file.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The labels to compare with: Monte Carlo labels, gold, or a judge's.")],
    out: Out = "-",
    match: Annotated[
        str, typer.Option(help="first-error, or confident: only the steps that B is sure of are compared and labelled.")
    ] = "first-error",
    tau_low: Annotated[float, typer.Option(help="confident: B is sure that a step is wrong up to this P(correct).")] = 0.125,
    tau_high: Annotated[float, typer.Option(help="confident: B is sure that a step is right from this P(correct) on.")] = 0.75,
    threshold_a: Annotated[
        float | None, typer.Option(help="A's first error is the first step with P(correct) below; else what A says.")
    ] = None,
    threshold_b: Annotated[
        float | None, typer.Option(help="The same for B; 0.01 makes hard labels of Monte Carlo shares.")
    ] = None,
    class_by: Annotated[
        str, typer.Option(help="Whose word a solution's class is: gold, a, b; auto is gold where all have it, else b.")
    ] = "auto",
    reweight: Annotated[
        bool, typer.Option("--reweight", help="Weigh rows by the inverse of the acceptance of their class and position.")
    ] = False,
    resample: Annotated[
        bool, typer.Option("--resample", help="Thin the classes and positions that were accepted more often instead.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Another seed thins otherwise.", envvar="CRITIC_PRM_SEED")] = 0,
) -> None:
    """Keep the trajectories on which two label sources agree, and say what that does to the classes.

    Rows are joined by id, else by content. A kept row is A's, with the labels agreed on as its gold labels.
    """
    from critic_prm.datasets.acceptance import acceptance_lines
    from critic_prm.datasets.consensus import ConsensusOptions
    from critic_prm.datasets.consensus import consensus as run
    from critic_prm.errors import UsageError

    if reweight and resample:
        raise UsageError("--reweight and --resample undo the same bias; choose one")
    options = ConsensusOptions(
        match=match,  # type: ignore[arg-type]  # checked by ConsensusOptions
        low=tau_low,
        high=tau_high,
        threshold_a=threshold_a,
        threshold_b=threshold_b,
        class_by=class_by,  # type: ignore[arg-type]
        debias="reweight" if reweight else "resample" if resample else "none",
        seed=seed,
    )
    report = run(a, b, out, options)
    tell(report, out, acceptance_lines(report))


def filter_(
    source: In,
    out: Out = "-",
    preset: Annotated[
        str | None, typer.Option(help="The rules of a published system: thinkprm. Other options come on top.")
    ] = None,
    status: Annotated[bool, typer.Option("--ok", help="Only rows with status ok.")] = False,
    min_agreement: Annotated[
        float | None, typer.Option(help="At least this share of the judgements names the same first error.")
    ] = None,
    min_steps: Annotated[int | None, typer.Option(help="No shorter solutions.")] = None,
    max_steps: Annotated[int | None, typer.Option(help="No longer solutions.")] = None,
    max_chars: Annotated[int | None, typer.Option(help="Problem and steps together have no more characters.")] = None,
    well_formed: Annotated[
        bool, typer.Option("--well-formed", help="No empty step, and no step with several Step k: marks.")
    ] = False,
    answered: Annotated[bool, typer.Option("--answered", help="There is a final answer.")] = False,
    complete: Annotated[
        bool, typer.Option("--complete", help="Judgements with a verdict for every step, or up to the first error.")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Judgements that were read without forgiving anything.")] = False,
    max_tokens: Annotated[int | None, typer.Option(help="Judgements whose reply has no more tokens.")] = None,
    critiques: Annotated[
        str | None, typer.Option(help="No empty, short, copied or looping critique: off, error (of that step), or all.")
    ] = None,
    min_words: Annotated[int, typer.Option(help="What a short critique has fewer of.")] = 3,
    matches_gold: Annotated[
        bool, typer.Option("--matches-gold", help="Judgements that equal the gold labels, where there are any.")
    ] = False,
    balance: Annotated[bool, typer.Option("--balance", help="Thin the larger class, erroneous or correct.")] = False,
    seed: Annotated[int, typer.Option(help="Another seed thins otherwise.", envvar="CRITIC_PRM_SEED")] = 0,
) -> None:
    """Keep the rows, and of label files the judgements, that pass every rule asked for; every rule is counted by class."""
    from critic_prm.datasets.filters import filter_rows, rule_lines
    from critic_prm.datasets.rules import FilterOptions, preset_rules

    asked = FilterOptions(
        status=status,
        min_agreement=min_agreement,
        min_steps=min_steps,
        max_steps=max_steps,
        max_chars=max_chars,
        well_formed=well_formed,
        answered=answered,
        complete=complete,
        forgiven=not plain,
        max_tokens=max_tokens,
        critiques=critiques or "off",  # type: ignore[arg-type]  # checked by FilterOptions
        min_words=min_words,
        matches_gold=matches_gold,
        balance=balance,
        seed=seed,
    )
    options = preset_rules(preset, asked) if preset else asked
    warnings: list[str] = []
    report = filter_rows(source, out, options, warnings.append)
    tell(report, out, [*rule_lines(report), *(f"warning: {warning}" for warning in warnings)])


def dedupe(
    source: In,
    out: Out = "-",
    by: Annotated[str, typer.Option(help="Compare whole solutions, or problems alone (one row a problem stays).")] = "solution",
    near: Annotated[float, typer.Option(help="Copies are texts whose word 3-grams are so similar (Jaccard).")] = 0.9,
    exact: Annotated[bool, typer.Option("--exact", help="Only exact copies.")] = False,
    across_labels: Annotated[
        bool, typer.Option("--across-labels", help="Near copies go even if their first errors differ.")
    ] = False,
    removed: Removed = None,
) -> None:
    """Leave out copies, exact and near; the first stays, and what went is listed with it."""
    from critic_prm.datasets.dedupe import DedupeOptions
    from critic_prm.datasets.dedupe import dedupe as run

    options = DedupeOptions(by=by, near=None if exact else near, across_labels=across_labels)  # type: ignore[arg-type]
    report = run(source, out, options, _listing(out, removed))
    kept = report["near_copies_with_another_first_error_kept"]
    more = [f"kept {kept:,} near copies whose first error is another one; --across-labels drops them"] if kept else []
    tell(report, out, more)


def decontaminate(
    source: In,
    against: Annotated[
        list[str], typer.Option("--against", metavar="BENCH", help="A benchmark to be reported on; may be repeated.")
    ],
    out: Out = "-",
    near: Annotated[float, typer.Option(help="Similarity with names and numbers masked from which it is the same.")] = 0.5,
    contained: Annotated[float, typer.Option(help="The share of one problem that stands in the other.")] = 0.8,
    passage: Annotated[float, typer.Option(help="The share of the shorter problem in shared runs of 10 words.")] = 0.5,
    literal: Annotated[
        bool, typer.Option("--literal", help="Mask no names and numbers: for benchmarks made from one template.")
    ] = False,
    removed: Removed = None,
) -> None:
    """Leave out the problems of benchmarks: copies, near copies, and those with other names and numbers."""
    from critic_prm.datasets.decontaminate import decontaminate as run
    from critic_prm.datasets.overlap import Thresholds

    report = run(source, against, out, Thresholds(near, contained, passage), _listing(out, removed), literal=literal)
    problems = report["problems"]
    tell(
        report,
        out,
        [
            f"{problems['removed']:,} of {problems['distinct']:,} problems are among the {report['benchmark_problems']:,} of "
            + ", ".join(one["name"] for one in report["benchmarks"])
        ],
    )


def mix(
    sources: Annotated[list[str], typer.Argument(metavar="FILE=WEIGHT...", help="Files of rows, each with its weight.")],
    out: Out = "-",
    total: Annotated[
        int | None, typer.Option("-n", min=1, help="How many rows; the most that the weights allow when not given.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Another seed draws and shuffles otherwise.", envvar="CRITIC_PRM_SEED")] = 0,
    repeat: Annotated[bool, typer.Option("--repeat", help="Rows of a source that is too small come again.")] = False,
) -> None:
    """Draw rows from several files in given shares, shuffled.

    Mix what `generate` made into train alone: a threshold that dev chose on it does not carry over to other solutions.
    """
    from critic_prm.datasets.mix import mix as run
    from critic_prm.datasets.mix import mix_lines, parse_sources

    report = run(parse_sources(sources), out, total, seed, repeat)
    tell(report, out, mix_lines(report))


def tell(report: dict[str, Any], out: str | Path, more: Iterable[str]) -> None:
    """Say on stderr what a step did."""
    from critic_prm.datasets.account import lines

    for line in (*lines(report, out), *more):
        typer.echo(line, err=True)


def _listing(out: str, removed: str | None) -> str | None:
    return removed if removed is not None or out == "-" else f"{out}.removed.jsonl"
