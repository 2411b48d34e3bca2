"""critic-prm dataset consensus, filter, dedupe, decontaminate, mix: select rows and report what was dropped."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

Out = Annotated[str, typer.Option("-o", "--out", metavar="FILE", help="File to write; - is stdout.")]
In = Annotated[
    str, typer.Argument(metavar="IN", help="A label file, trajectories in any format, or training rows; - is stdin.")
]
Removed = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="List removed rows with their matches here; default: OUT.removed.jsonl."),
]


def consensus(
    a: Annotated[str, typer.Argument(metavar="A", help="Labels to keep, usually a judge's label file.")],
    b: Annotated[
        str, typer.Argument(metavar="B", help="Labels to compare with: Monte Carlo labels, gold labels, or a judge's.")
    ],
    out: Out = "-",
    match: Annotated[
        str, typer.Option(help="Compare by first-error, or by confident: only steps on which B is confident are used.")
    ] = "first-error",
    tau_low: Annotated[float, typer.Option(help="With confident: B rejects a step up to this P(correct).")] = 0.125,
    tau_high: Annotated[float, typer.Option(help="With confident: B accepts a step from this P(correct).")] = 0.75,
    threshold_a: Annotated[
        float | None,
        typer.Option(help="A's first error is the first step with P(correct) below this; default: as stored in A."),
    ] = None,
    threshold_b: Annotated[
        float | None, typer.Option(help="The same for B; 0.01 turns Monte Carlo shares into hard labels.")
    ] = None,
    class_by: Annotated[
        str, typer.Option(help="Source of a solution's class: gold, a, b, or auto (gold if all rows have it, else b).")
    ] = "auto",
    reweight: Annotated[
        bool, typer.Option("--reweight", help="Weight rows by the inverse acceptance rate of their class and position.")
    ] = False,
    resample: Annotated[
        bool, typer.Option("--resample", help="Instead, subsample classes and positions that were accepted more often.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Random seed of --resample.", envvar="CRITIC_PRM_SEED")] = 0,
) -> None:
    """Keep the trajectories on which two label sources agree.

    Reads two label sources (A, B); rows are joined by id, else by content. Writes the kept rows of A (-o), with the agreed
    labels as gold labels. Reports on stderr how the selection changes the class balance.

    Example: critic-prm dataset consensus judge.jsonl mc.jsonl -o agreed.jsonl
    """
    from critic_prm.datasets.balance import acceptance_lines
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
        str | None, typer.Option(help="Apply the rules of a published system: thinkprm. Other options are added.")
    ] = None,
    status: Annotated[bool, typer.Option("--ok", help="Keep only rows with status ok.")] = False,
    min_agreement: Annotated[
        float | None, typer.Option(help="Require that this share of the judgements agrees on the first error.")
    ] = None,
    min_steps: Annotated[int | None, typer.Option(help="Keep only solutions with at least N steps.")] = None,
    max_steps: Annotated[int | None, typer.Option(help="Keep only solutions with at most N steps.")] = None,
    max_chars: Annotated[int | None, typer.Option(help="Allow at most N characters in problem and steps together.")] = None,
    well_formed: Annotated[
        bool, typer.Option("--well-formed", help="Reject empty steps and steps with several Step k: markers.")
    ] = False,
    answered: Annotated[bool, typer.Option("--answered", help="Require a final answer.")] = False,
    complete: Annotated[
        bool, typer.Option("--complete", help="Keep only judgements with verdicts for all steps or up to the first error.")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Keep only judgements that were parsed without any leniency.")] = False,
    max_tokens: Annotated[int | None, typer.Option(help="Keep only judgements whose reply has at most N tokens.")] = None,
    critiques: Annotated[
        str | None,
        typer.Option(help="Reject empty, short, copied or looping critiques: off, error (of the wrong step) or all."),
    ] = None,
    min_words: Annotated[int, typer.Option(help="A critique with fewer words is short.")] = 3,
    matches_gold: Annotated[
        bool, typer.Option("--matches-gold", help="Keep only judgements that equal the gold labels, if there are any.")
    ] = False,
    balance: Annotated[
        bool, typer.Option("--balance", help="Subsample the larger class, erroneous or correct solutions.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Random seed of --balance.", envvar="CRITIC_PRM_SEED")] = 0,
) -> None:
    """Keep the rows, and in label files the judgements, that pass all given rules.

    Reads a label file, trajectories or training rows (IN). Writes the kept rows (-o). Reports on stderr how many rows of each
    class every rule dropped.

    Example: critic-prm dataset filter labels.jsonl --ok --complete -o kept.jsonl
    """
    from critic_prm.datasets.filters import FilterOptions, filter_rows, preset_rules, rule_lines

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
    by: Annotated[str, typer.Option(help="Compare by solution, or by problem (keeps one row per problem).")] = "solution",
    near: Annotated[float, typer.Option(help="Minimum Jaccard similarity of word 3-grams of near duplicates.")] = 0.9,
    exact: Annotated[bool, typer.Option("--exact", help="Remove exact duplicates only.")] = False,
    across_labels: Annotated[
        bool, typer.Option("--across-labels", help="Remove near duplicates even if their first errors differ.")
    ] = False,
    removed: Removed = None,
) -> None:
    """Remove exact and near duplicates; the first row of each group is kept.

    Reads a label file, trajectories or training rows (IN). Writes the kept rows (-o) and a list of the removed rows with the
    row that each one duplicates (--removed).

    Example: critic-prm dataset dedupe labels.jsonl -o unique.jsonl
    """
    from critic_prm.datasets.duplicates import DedupeOptions
    from critic_prm.datasets.duplicates import dedupe as run

    options = DedupeOptions(by=by, near=None if exact else near, across_labels=across_labels)  # type: ignore[arg-type]
    report = run(source, out, options, _listing(out, removed))
    kept = report["near_copies_with_another_first_error_kept"]
    more = [f"kept {kept:,} near copies whose first error is another one; --across-labels drops them"] if kept else []
    tell(report, out, more)


def decontaminate(
    source: In,
    against: Annotated[
        list[str], typer.Option("--against", metavar="BENCH", help="Benchmark whose problems to remove; may be repeated.")
    ],
    out: Out = "-",
    near: Annotated[float, typer.Option(help="Minimum similarity of a match, with names and numbers masked.")] = 0.5,
    contained: Annotated[float, typer.Option(help="Minimum share of one problem that the other contains.")] = 0.8,
    passage: Annotated[float, typer.Option(help="Minimum share of the shorter problem in shared runs of 10 words.")] = 0.5,
    literal: Annotated[
        bool, typer.Option("--literal", help="Do not mask names and numbers; for benchmarks made from one template.")
    ] = False,
    removed: Removed = None,
) -> None:
    """Remove problems of benchmarks: copies, near copies, and copies with other names and numbers.

    Reads a label file, trajectories or training rows (IN) and benchmarks (--against). Writes the kept rows (-o) and a list of
    the removed rows with their matches (--removed).

    Example: critic-prm dataset decontaminate in.jsonl --against math500.jsonl
    """
    from critic_prm.datasets.duplicates import Thresholds
    from critic_prm.datasets.duplicates import decontaminate as run

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
    sources: Annotated[list[str], typer.Argument(metavar="FILE=WEIGHT...", help="Files of rows with their weights.")],
    out: Out = "-",
    total: Annotated[int | None, typer.Option("-n", min=1, help="Write N rows; default: as many as the weights allow.")] = None,
    seed: Annotated[int, typer.Option(help="Random seed of drawing and shuffling.", envvar="CRITIC_PRM_SEED")] = 0,
    repeat: Annotated[bool, typer.Option("--repeat", help="Repeat rows of a source that is too small.")] = False,
) -> None:
    """Draw rows from several files in given proportions and shuffle them.

    Reads files of rows, each with its weight. Writes the mixed rows (-o). Add rows from `generate` families to train only: a
    threshold chosen on such rows in dev does not transfer to other solutions.

    Example: critic-prm dataset mix a.jsonl=0.7 b.jsonl=0.3 -o mixed.jsonl
    """
    from critic_prm.datasets.mix import mix as run
    from critic_prm.datasets.mix import mix_lines, parse_sources

    report = run(parse_sources(sources), out, total, seed, repeat)
    tell(report, out, mix_lines(report))


def tell(report: dict[str, Any], out: str | Path, more: Iterable[str]) -> None:
    """Print the report of a dataset command to stderr."""
    from critic_prm.datasets.rows import lines

    for line in (*lines(report, out), *more):
        typer.echo(line, err=True)


def _listing(out: str, removed: str | None) -> str | None:
    return removed if removed is not None or out == "-" else f"{out}.removed.jsonl"
