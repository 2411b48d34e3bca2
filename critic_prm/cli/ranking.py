"""Rank candidates by a critic's scores or stored scores; write the files, tables and JSON."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast, get_args

from critic_prm import signals
from critic_prm.terminal import safe_console

if TYPE_CHECKING:
    from critic_prm.data.judgement import Label
    from critic_prm.data.trajectory import Trajectory
    from critic_prm.engine.options import JudgeOptions
    from critic_prm.search.rank_curve import Point
    from critic_prm.search.ranking import Choice, Ranking


def numbers(text: str | None) -> list[int] | None:
    """Parse a list of numbers such as "1,2,4". Raises UsageError for other text."""
    from critic_prm.errors import UsageError

    if text is None:
        return None
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise UsageError(f"-n is {text!r}; write numbers of candidates as in 1,2,4,8")
    return sorted({int(part) for part in parts})


def run_ranking(
    source: str,
    critic: str | None,
    judging: JudgeOptions,
    *,
    by: str,
    pick: str,
    sizes: Sequence[int] | None,
    bound: str | None,
    samples: int,
    seed: int,
    floor: float | None,
    files: Mapping[str, str | None],
    format: str,
) -> tuple[Ranking, dict[str, Any]]:
    """Rank candidates and write the requested files. Returns the ranking and the JSON row that describes it."""
    from critic_prm.critics.open import open_critic
    from critic_prm.data.aggregate import AGGREGATIONS, open_aggregation
    from critic_prm.errors import UsageError
    from critic_prm.generate.policy.answers import Grader
    from critic_prm.label.progress import watch
    from critic_prm.label.run import RunStats
    from critic_prm.search.ranking import Pick, group_candidates, rank

    if pick not in get_args(Pick):
        raise UsageError(f"--pick is {pick!r}; it is {' or '.join(get_args(Pick))}")
    if files["escalate"] and floor is None:
        raise UsageError("--escalate needs --floor: the score below which a candidate is escalated")
    open_aggregation(by)
    by = by.replace("-", "_")
    opened = None if critic is None else open_critic(critic, judging)
    tally = RunStats()
    cards: dict[str, Any] = {} if opened is None else dict(opened.card)

    async def run() -> Ranking:
        grader = Grader()
        asked = opened is not None
        watching = asyncio.create_task(watch(tally, opened.client) if asked else asyncio.sleep(0))
        try:
            rows = _stored(source, cards) if opened is None else _judged(source, opened, format, samples, judging, tally)
            extra = () if by in AGGREGATIONS else (by,)
            groups = await group_candidates(rows, grader, bound, extra)
            return rank(groups, by=by, pick=cast(Pick, pick), sizes=sizes, seed=seed)
        finally:
            watching.cancel()
            await asyncio.gather(watching, grader.close(), return_exceptions=True)
            if grader.note:
                _say(grader.note)
            if opened is not None:
                await opened.close()
                for account in opened.stats:
                    for said in account.lines():
                        _say(said)

    ranking = signals.run(run())
    kept, escalated = divide(ranking.choices, floor)
    write(ranking, kept, escalated, cards, by, files)
    failed = sum(c.label.status == "provider_error" for choice in ranking.choices for c in choice.group.candidates)
    row = {
        **ranking.counts,
        "by": by,
        "pick": pick,
        "critic": cards,
        "unscored": ranking.unscored,
        "without_answer": ranking.without_answer,
        "known": ranking.known,
        "failed": failed,
        "accuracy": accuracy(ranking.choices),
        "floor": floor,
        "kept": {"problems": len(kept), "accuracy": accuracy(kept)},
        "escalated": {"problems": len(escalated), "accuracy": accuracy(escalated)},
        "curves": {name: [asdict(point) for point in points] for name, points in ranking.curves.items()},
        "length": {how: asdict(length) for how, length in ranking.length.items()},
        "run": tally.report(None if opened is None else opened.client),
    }
    return ranking, row


async def _stored(source: str, card: dict[str, Any]) -> AsyncIterator[tuple[Trajectory, Label]]:
    from critic_prm.data.label_rows import read_labels

    for row in read_labels(source):
        card.update(row.critic)
        yield row.trajectory, row.label


async def _judged(
    source: str, critic: Any, format: str, samples: int, judging: JudgeOptions, tally: Any
) -> AsyncIterator[tuple[Trajectory, Label]]:
    """Judge candidates with the gold labels hidden; a judge that saw them would rank too well."""
    from critic_prm.data.formats.convert import read_trajectories
    from critic_prm.data.label_rows import without_labels
    from critic_prm.evaluate.run import predict

    rows = (("", without_labels(trajectory)) for trajectory in read_trajectories(source, format))
    async for _, trajectory, found in predict(critic, rows, samples=samples, workers=judging.max_connections):
        tally.add(found)
        yield trajectory, found


def divide(choices: Sequence[Choice], floor: float | None) -> tuple[list[Choice], list[Choice]]:
    """Split choices into those whose chosen candidate scores at least `floor` (all, if it is None) and the others."""
    kept = [choice for choice in choices if floor is None or (choice.score is not None and choice.score >= floor)]
    return kept, [choice for choice in choices if floor is not None and (choice.score is None or choice.score < floor)]


def accuracy(choices: Sequence[Choice]) -> float | None:
    """Return the share of chosen candidates that are correct, among those where it is known; None if it never is."""
    known = [choice.taken.right for choice in choices if choice.taken.right is not None]
    return sum(known) / len(known) if known else None


def write(
    ranking: Ranking,
    kept: Sequence[Choice],
    escalated: Sequence[Choice],
    card: Mapping[str, Any],
    by: str,
    files: Mapping[str, str | None],
) -> None:
    """Write the files that have a path: all ranked candidates, or only the chosen one per problem that is kept or escalated."""
    from critic_prm.data.records.reading import RecordWriter
    from critic_prm.search.ranking import ranked_rows

    wanted = {"out": (ranking.choices, None), "kept": (kept, 1), "escalate": (escalated, 1)}
    with ExitStack() as stack:
        for name, (choices, most) in wanted.items():
            if (path := files[name]) is None:
                continue
            sink = stack.enter_context(RecordWriter(path))
            for choice in choices:
                for row in ranked_rows(choice, card, by)[:most]:
                    sink.write(row)


def print_ranking(ranking: Ranking, row: Mapping[str, Any]) -> None:
    """Print the curve of the chosen aggregation, all aggregations at the largest N, and warnings."""

    console = safe_console()
    by, known = row["by"], ranking.known
    for line in _summary(row):
        console.print(line, highlight=False)
    if known:
        console.print(_curve_table(ranking.curves, by))
        console.print(_aggregation_table(ranking))
        console.print(
            f"Accuracy in %, on the {known:,} problems where it is known who is right; [95%] bootstrap by problem. Best-of-N,"
            " pass@N and random are exact means over all subsets; votes are means over subsets, drawn where there are many.",
            style="dim",
            highlight=False,
            markup=False,
        )
    else:
        console.print("No gold answers: candidates are ranked, but what that is worth is unknown", style="dim")
    flagged = [how for how, length in ranking.length.items() if length.flagged]
    if flagged:
        console.print(
            f"Length bias: among equally right solutions the score goes with the number of steps by {', '.join(flagged)}",
            style="yellow",
            highlight=False,
        )


def _summary(row: Mapping[str, Any]) -> list[str]:
    lines = [f"{row['candidates']:,} candidates for {row['problems']:,} problems, by {row['by']}, pick {row['pick']}"]
    if row["accuracy"] is not None:
        lines[0] += f": {row['accuracy']:.1%} of those taken are right"
    if row["unscored"] or row["without_answer"]:
        lines.append(f"{row['unscored']:,} have no score and come last, {row['without_answer']:,} state no answer")
    if row["floor"] is not None:
        parts = [f"{row[name]['problems']:,} {name}" + _share(row[name]["accuracy"]) for name in ("kept", "escalated")]
        lines.append(f"floor {row['floor']:g}: " + ", ".join(parts))
    tokens = row["run"].get("tokens")
    if tokens:
        cost = row["run"]["cost_usd"]
        price = "price unknown" if cost is None else f"${cost:.4f}"
        lines.append(f"bought now: {tokens['input']:,} tokens in, {tokens['output']:,} out, {price}")
    return lines


def _share(value: float | None) -> str:
    return "" if value is None else f" ({value:.1%} right)"


def _curve_table(curves: Mapping[str, Sequence[Point]], by: str) -> Any:
    from rich.table import Table

    columns = {
        "random": "random",
        "majority": "majority",
        f"vote:{by}": "weighted",
        f"best:{by}": "best-of-N",
        "pass": "pass@N",
    }
    table = Table("N", box=None, padding=(0, 2, 0, 0))
    for name, heading in columns.items():
        table.add_column(heading + (" [95%]" if name.startswith("best") else ""), justify="right")
    table.add_column("problems", justify="right")
    for at, point in enumerate(curves["pass"]):
        cells = [_cell(curves[name][at], name.startswith("best")) for name in columns]
        table.add_row(str(point.n), *cells, f"{point.problems:,}")
    return table


def _aggregation_table(ranking: Ranking) -> Any:
    from rich.table import Table

    most = ranking.curves["pass"][-1].n
    table = Table(f"N = {most}, by", box=None, padding=(0, 2, 0, 0))
    for heading in ("weighted", "best-of-N", "length", "length, equal"):
        table.add_column(heading, justify="right")
    for how, length in ranking.length.items():
        vote, best = (ranking.curves[f"{kind}:{how}"][-1] for kind in ("vote", "best"))
        rho = ["-" if value is None else f"{value:+.2f}" for value in (length.within, length.equal)]
        table.add_row(how, _cell(vote, False), _cell(best, True), *rho)
    return table


def _cell(point: Point, interval: bool) -> str:
    cell = f"{100 * point.accuracy:.1f}"
    if interval and point.low is not None and point.high is not None:
        cell += f" [{100 * point.low:.1f}, {100 * point.high:.1f}]"
    return cell


def _say(line: str) -> None:
    import typer

    typer.echo(line, err=True)
