"""critic-prm cascade: tune a cascade of a cheap critic and a judge."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from critic_prm import signals
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import UsageError
from critic_prm.option import Option
from critic_prm.terminal import safe_console

if TYPE_CHECKING:
    from critic_prm.data.critic import Critic
    from critic_prm.data.judgement import Label
    from critic_prm.evaluate.cascade_tuning import CascadeCases, Measured, TuningResult

ROWS = 12
"""Number of rows of the curve to print."""

app = typer.Typer()


@dataclass(frozen=True, slots=True)
class TuneSettings:
    """What to tune, and for which goal."""

    judge: str | None = None
    """The judge: provider/MODEL, or any critic."""
    judged: Annotated[str | None, Option(metavar="FILE")] = None
    """Label file of the judge on DEV, instead of --judge."""
    by: Literal["step", "solution"] | None = None
    """Ask the judge about each uncertain step or the whole solution; default: by its style."""
    target_f1: Annotated[float | None, Option(("--target-f1",), min=0, max=1)] = None
    """Choose the cheapest band with this F1; default: the judge's."""
    budget: Annotated[float | None, Option(min=0)] = None
    """Choose the best F1 with at most N judge calls per solution on average."""
    out: Annotated[Path | None, Option(("-o", "--out"), metavar="FILE")] = None
    """Write the cascade as a critic in TOML."""
    escalate: Annotated[str | None, Option(metavar="FILE")] = None
    """File to which the cascade writes cases that no judge could decide."""
    split_seed: int = 0
    """Random seed of the split of DEV."""
    format: Annotated[str, Option(("--from",))] = "auto"
    """Input format."""

    def __post_init__(self) -> None:
        if (self.judge is None) == (self.judged is None):
            raise UsageError("give either --judge, to ask one, or --judged with a label file of one")
        if self.target_f1 is not None and self.budget is not None:
            raise UsageError("--target-f1 and --budget exclude each other; give one")


@app.command()
def tune(
    source: Annotated[str, typer.Argument(metavar="DEV", help="Solutions with gold labels that were not used in training.")],
    first: Annotated[list[str], typer.Option(help="The cheap critic; repeat it to use the mean of several.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
    *,
    settings: TuneSettings,
    judging: JudgeOptions,
) -> None:
    """Choose the band of P(error) in which a cascade asks the judge.

    Reads solutions with gold labels (DEV). The band is chosen on half of the problems and measured once on the other half.
    Prints F1 and cost of the Pareto-optimal bands. Writes the cascade (-o FILE), which is a critic: `label --judge FILE`,
    `evaluate FILE`, `rank --critic FILE`.

    Example: critic-prm cascade tune dev.jsonl --first rules --judge openai/MODEL
    """
    from critic_prm.critics.cascade import open_first
    from critic_prm.critics.open import open_critic
    from critic_prm.data.formats.convert import read_trajectories
    from critic_prm.data.label_rows import read_labels
    from critic_prm.data.records.reading import encode
    from critic_prm.evaluate.cascade_tuning import collect_cases, tune

    cheap = open_first(first, judging)
    if settings.judge is not None:
        name, style = settings.judge, judging.style
        opened = open_critic(name, judging)
        judge: Critic | Mapping[str, Label] = opened
        by = settings.by or ("step" if opened.asks_per_step else "solution")
    else:
        rows, by = list(read_labels(settings.judged or "")), settings.by or "solution"
        judge = {row.trajectory.id: row.label for row in rows}
        # The card in the file names the judge that made it, and its style.
        card = rows[0].critic if rows else {}
        provider, model, style = card.get("provider"), card.get("model"), card.get("style", "")
        name = f"{provider}/{model}" if model else str(provider)
    trajectories = list(read_trajectories(source, settings.format))

    async def run() -> CascadeCases:
        try:
            return await collect_cases(trajectories, cheap, judge, by, judging.max_connections)
        finally:
            await cheap.close()
            if not isinstance(judge, Mapping):
                await judge.close()

    cases = signals.run(run())
    tuned = tune(cases.rows, target=settings.target_f1, budget=settings.budget, seed=settings.split_seed)
    row = {"by": by, "first": first, "judge": name, "left_out": cases.left_out, "judge_tokens": cases.tokens}
    row |= asdict(tuned) | {"share_of_calls": tuned.share}
    if settings.out is not None:
        text = toml(tuned, first, name, by, style if style and "/" in name else None, settings.escalate, settings.out.parent)
        settings.out.write_text(text, "utf-8")
    if as_json:
        typer.echo(encode(row), nl=False)
    else:
        print_tuned(tuned, row)


def toml(
    tuned: TuningResult, first: Sequence[str], judge: str, by: str, style: str | None, escalate: str | None, folder: Path
) -> str:
    """Return the cascade as a critic in TOML, with paths relative to `folder`. JSON strings and numbers are valid TOML."""
    names = [_relative(name, folder) for name in first]
    lines = ["[cascade]", f"first = {json.dumps(names[0] if len(names) == 1 else names)}"]
    lines += [f"judges = {json.dumps([_relative(judge, folder)])}", f'by = "{by}"']
    if style is not None:
        lines.append(f"style = {json.dumps(style)}")
    if escalate is not None:
        lines.append(f"escalate = {json.dumps(_relative(escalate, folder))}")
    lines += ["# P(error) of a step from which on, and up to which, the judge is asked"]
    lines += [f"low = {tuned.chosen.low!r}", f"high = {tuned.chosen.high!r}", "", "[cascade.tuned]"]
    facts = {
        "on": datetime.now(UTC).date().isoformat(),
        "solutions_chosen_on": tuned.solutions[0],
        "solutions_measured_on": tuned.solutions[1],
        "f1": round(tuned.cascade.f1 or 0.0, 4),
        "f1_judge": round(tuned.judge.f1 or 0.0, 4),
        "f1_first": round(tuned.student.f1 or 0.0, 4),
        "share_of_judge_calls": round(tuned.share, 4),
    }
    lines += [f"{name} = {json.dumps(value)}" for name, value in facts.items()]
    return "\n".join(lines) + "\n"


def _relative(name: str, folder: Path) -> str:
    return os.path.relpath(name, folder) if Path(name).exists() else name


def print_tuned(tuned: TuningResult, row: Mapping[str, Any]) -> None:
    """Print the Pareto-optimal bands, the chosen one, and its result on the other half of the problems."""
    from rich.table import Table

    console = safe_console()
    table = Table("P(error) asked about", box=None, padding=(0, 2, 0, 0))
    for heading in ("F1", "calls a solution", "of the judge's"):
        table.add_column(heading, justify="right")
    for one in _thinned(tuned):
        style = "bold" if one == tuned.chosen else None
        cells = (band(one.low, one.high), f"{100 * one.f1:.1f}", f"{one.calls:.2f}", f"{one.share:.0%}")
        table.add_row(*cells, style=style)
    console.print(f"Bands that no cheaper one beats, on {tuned.solutions[0]:,} solutions; by {row['by']}", highlight=False)
    console.print(table)
    why = (
        f"F1 of at least {100 * tuned.target:.1f}" if tuned.target is not None else f"at most {tuned.budget:g} calls a solution"
    )
    console.print(f"Chosen for {why}: {band(tuned.chosen.low, tuned.chosen.high)}", highlight=False)
    console.print(
        f"One look at it on the other {tuned.solutions[1]:,} solutions, with 95% intervals by problem:", highlight=False
    )
    result = Table("", "F1 [95%]", "calls a solution", box=None, padding=(0, 2, 0, 0))
    for name, one in (("first critic alone", tuned.student), ("cascade", tuned.cascade), ("judge alone", tuned.judge)):
        result.add_row(name, _f1(one), f"{one.calls:.2f}")
    console.print(result)
    gap, low, high = tuned.difference
    interval = "" if low is None or high is None else f" [{100 * low:+.1f}, {100 * high:+.1f}]"
    console.print(f"Cascade less judge: {100 * gap:+.1f} points{interval}, for {tuned.share:.0%} of its calls", highlight=False)
    if row["left_out"]:
        console.print(f"{row['left_out']:,} solutions left out: the first critic could not judge them", style="dim")


def band(low: float, high: float) -> str:
    """Format both ends with three digits, or more if different ends would look equal, or an end would look like 0 or 1."""
    for digits in range(3, 10):
        shown = [f"{end:.{digits}f}" for end in (low, high)]
        whole = all(float(text) not in (0.0, 1.0) or float(text) == end for text, end in zip(shown, (low, high), strict=True))
        if whole and (shown[0] != shown[1] or low == high):
            break
    return " to ".join(shown)


def _thinned(tuned: TuningResult) -> list[Any]:
    """Return about ROWS points of the curve, including its ends and the chosen band."""
    step = max(len(tuned.curve) / ROWS, 1.0)
    places = {round(i * step) for i in range(ROWS)} | {len(tuned.curve) - 1}
    return [one for place, one in enumerate(tuned.curve) if place in places or one == tuned.chosen]


def _f1(one: Measured) -> str:
    if one.f1 is None:
        return "-"
    return f"{100 * one.f1:.1f}" + (
        "" if one.low is None or one.high is None else f" [{100 * one.low:.1f}, {100 * one.high:.1f}]"
    )
