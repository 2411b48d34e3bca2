"""critic-prm rank: pick the best candidate per problem and estimate best-of-N accuracy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from critic_prm.cli.options import ReadingOptions
from critic_prm.engine.options import JudgeOptions
from critic_prm.option import Option
from critic_prm.search.settings import RankSettings
from critic_prm.terminal import percent, plain_table, safe_console

if TYPE_CHECKING:
    from critic_prm.search.ranking import Choice, Point, Ranking


@dataclass(frozen=True, slots=True)
class RankOptions:
    """How candidates are read and judged, and what is written."""

    critic: str | None = None
    """A verifier folder, `rules`, a .toml file or provider/MODEL; default: use the scores in CANDIDATES."""
    out: Annotated[str | None, Option(("-o", "--out"), metavar="FILE")] = None
    """Write all candidates, best first; `rank` can read this file."""
    floor: float | None = None
    """Keep problems whose chosen candidate scores at least this; escalate the others."""
    kept: Annotated[str | None, Option(metavar="FILE")] = None
    """Write the chosen candidate of each problem that is kept."""
    escalate: Annotated[str | None, Option(metavar="FILE")] = None
    """Write the chosen candidates that score below --floor."""
    samples: Annotated[int, Option(min=1)] = 1
    """Judgements per candidate."""
    as_json: Annotated[bool, Option(("--json",))] = False
    """Print JSON instead of the tables."""


def rank(
    source: Annotated[
        str,
        typer.Argument(
            metavar="CANDIDATES", help="Several solutions per problem: a label file, or trajectories with --critic."
        ),
    ],
    *,
    options: RankOptions,
    reading: ReadingOptions,
    settings: RankSettings,
    judging: JudgeOptions,
) -> None:
    """Choose the best candidate per problem, by best-of-N or weighted majority over final answers.

    Reads candidates (CANDIDATES). Prints accuracy tables; writes the ranked (-o), chosen (--kept) and escalated candidates
    (--escalate) on request. All aggregations are computed in one pass.

    If gold answers are known, the tables show the accuracy of each method with N candidates, beside pass@N (an oracle), the
    majority answer and a random choice.

    Example: critic-prm rank candidates.jsonl --critic verifier -o ranked.jsonl
    """
    from critic_prm import signals
    from critic_prm.cli.running import Input, watched
    from critic_prm.critics.open import open_critic
    from critic_prm.data.aggregate import AGGREGATIONS
    from critic_prm.data.label_rows import read_labels, without_labels
    from critic_prm.data.records.writing import encode, write_records
    from critic_prm.errors import UsageError
    from critic_prm.evaluate.run import predict
    from critic_prm.generate.policy.answers import Grader
    from critic_prm.label.progress import RunStats
    from critic_prm.search import ranking as library

    if options.escalate and options.floor is None:
        raise UsageError("--escalate needs --floor: the score below which a candidate is escalated")
    opened = None if options.critic is None else open_critic(options.critic, judging)
    tally, grader, stats = RunStats(), Grader(), () if opened is None else tuple(opened.stats)
    card: dict[str, Any] = {} if opened is None else dict(opened.card)

    async def run() -> Ranking:
        try:
            if opened is None:
                labels = list(read_labels(source, "add --critic CRITIC, or score it first: critic-prm score CRITIC FILE"))
                rows = [(row.trajectory, row.label) for row in labels]
                for row in labels:
                    card.update(row.critic)
            else:
                # The gold labels are hidden: a judge that saw them would rank too well.
                solutions = (("", without_labels(trajectory)) for trajectory in Input(source, reading))
                workers = judging.max_connections
                async with watched(tally, opened.client, opened.close):
                    judged = predict(opened, solutions, samples=options.samples, workers=workers, tally=tally, stats=stats)
                    rows = [(trajectory, label) async for _, trajectory, label in judged]
            groups = await library.group_candidates(rows, grader, settings.bound, (*AGGREGATIONS, settings.by))
            return library.rank(groups, settings)
        finally:
            await grader.close()

    ranking = signals.run(run())
    messages = [line for part in stats for line in part.lines()]
    for message in filter(None, (grader.note, *messages)):
        typer.echo(message, err=True)
    parts = {
        "kept": [choice for choice in ranking.choices if choice.reaches(options.floor)],
        "escalated": [choice for choice in ranking.choices if not choice.reaches(options.floor)],
    }
    files = ((options.out, ranking.choices, None), (options.kept, parts["kept"], 1), (options.escalate, parts["escalated"], 1))
    for path, choices, most in files:
        if path is not None:
            write_records(path, (row for choice in choices for row in library.ranked_rows(choice, card, settings.by)[:most]))
    candidates = [candidate for choice in ranking.choices for candidate in choice.group.candidates]
    failed = sum(candidate.label.status == "provider_error" for candidate in candidates)
    row = {
        **ranking.counts,
        "by": settings.by,
        "pick": settings.pick,
        "critic": card,
        "unscored": ranking.unscored,
        "without_answer": ranking.without_answer,
        "known": ranking.known,
        "failed": failed,
        "accuracy": _accuracy(ranking.choices),
        "floor": options.floor,
        **{name: {"problems": len(choices), "accuracy": _accuracy(choices)} for name, choices in parts.items()},
        "curves": {name: [asdict(point) for point in points] for name, points in ranking.curves.items()},
        "length": {name: asdict(length) for name, length in ranking.length.items()},
        "run": tally.report(opened.client if opened is not None else None) | {part.name: part.report() for part in stats},
    }
    if options.as_json:
        typer.echo(encode(row), nl=False)
    else:
        _print(ranking, row)
    raise typer.Exit(3 if failed else 0)


def _accuracy(choices: Sequence[Choice]) -> float | None:
    """The share of chosen candidates that are correct, among those where it is known; None if it never is."""
    known = [choice.taken.right for choice in choices if choice.taken.right is not None]
    return sum(known) / len(known) if known else None


def _print(ranking: Ranking, row: Mapping[str, Any]) -> None:
    """Print the curve of the chosen aggregation, all aggregations at the largest N, and warnings."""
    console = safe_console(highlight=False)
    for line in _summary(row):
        console.print(line)
    if ranking.known:
        curves, by = ranking.curves, row["by"]
        rules = ("random", "majority", f"vote:{by}", f"best:{by}", "pass")
        points = zip(*(curves[rule] for rule in rules), strict=True)
        rows = [(point[0].n, *map(_cell, rules, point), f"{point[0].problems:,}") for point in points]
        headings = ("N", "random", "majority", "weighted", "best-of-N [95%]", "pass@N", "problems")
        console.print(plain_table(headings, rows))
        most, best = curves["pass"][-1].n, []
        for name, length in ranking.length.items():
            cells = [_cell(rule, curves[rule][-1]) for rule in (f"vote:{name}", f"best:{name}")]
            rho = ["-" if value is None else f"{value:+.2f}" for value in (length.within, length.equal)]
            best.append((name, *cells, *rho))
        console.print(plain_table((f"N = {most}, by", "weighted", "best-of-N", "length", "length, equal"), best))
        console.print(
            f"Accuracy in %, on the {ranking.known:,} problems whose candidates are all known to be right or wrong; [95%]"
            " bootstrap by problem. Best-of-N, pass@N and random are exact means over all subsets; votes are means over"
            " subsets, sampled where there are many.",
            style="dim",
        )
    else:
        console.print("No gold answers: candidates are ranked, but the accuracy of the ranking is unknown", style="dim")
    flagged = [name for name, length in ranking.length.items() if length.flagged]
    if flagged:
        text = f"Length bias: among equally right solutions, the score depends on the number of steps by {', '.join(flagged)}"
        console.print(text, style="yellow")


def _summary(row: Mapping[str, Any]) -> Iterator[str]:
    right = "" if row["accuracy"] is None else f": {row['accuracy']:.1%} of choices are right"
    yield f"{row['candidates']:,} candidates for {row['problems']:,} problems, by {row['by']}, pick {row['pick']}{right}"
    if row["unscored"] or row["without_answer"]:
        yield f"{row['unscored']:,} have no score and come last, {row['without_answer']:,} state no answer"
    if row["floor"] is not None:
        shares = {name: "" if (a := row[name]["accuracy"]) is None else f" ({a:.1%} right)" for name in ("kept", "escalated")}
        counts = ", ".join(f"{row[name]['problems']:,} {name}{share}" for name, share in shares.items())
        yield f"floor {row['floor']:g}: {counts}"
    if tokens := row["run"].get("tokens"):
        price = "price unknown" if (cost := row["run"]["cost_usd"]) is None else f"${cost:.4f}"
        yield f"bought now: {tokens['input']:,} tokens in, {tokens['output']:,} out, {price}"


def _cell(rule: str, point: Point) -> str:
    return percent(point.accuracy, point.low, point.high) if rule.startswith("best") else percent(point.accuracy)
