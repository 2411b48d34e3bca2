"""Tune a cascade on a dev set and write the chosen band as a table, JSON and TOML."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from critic_prm import signals
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import UsageError
from critic_prm.terminal import safe_console

if TYPE_CHECKING:
    from critic_prm.critics.cascade import By
    from critic_prm.data.critic import Critic
    from critic_prm.data.judgement import Label
    from critic_prm.evaluate.cascade_cases import CascadeCases
    from critic_prm.evaluate.cascade_tuning import Measured, TuningResult

ROWS = 12
"""Number of rows of the curve to print."""


def run_tuning(
    source: str,
    first: Sequence[str],
    judge: str | None,
    judged: str | None,
    judging: JudgeOptions,
    *,
    by: str | None,
    target: float | None,
    budget: float | None,
    seed: int,
    out: Path | None,
    escalate: str | None,
    format: str,
) -> tuple[TuningResult, dict[str, Any]]:
    """Tune the band on DEV and write the cascade to `out`. Returns the result and its JSON row."""
    from critic_prm.critics.cascade import BYS, open_first
    from critic_prm.critics.open import open_critic
    from critic_prm.data.formats.convert import read_trajectories
    from critic_prm.evaluate.cascade_cases import collect_cases
    from critic_prm.evaluate.cascade_tuning import tune

    if (judge is None) == (judged is None):
        raise UsageError("give --judge to ask one, or --judged with a label file of one: one of the two")
    if target is not None and budget is not None:
        raise UsageError("--target-f1 and --budget exclude each other; give one")
    if by is not None and by not in BYS:
        raise UsageError(f"--by is {by!r}; it is {' or '.join(BYS)}")
    cheap = open_first(list(first), judging)
    asked: Critic | Mapping[str, Label] = open_critic(judge, judging) if judge is not None else _labels(judged or "")
    unit = _unit(by, asked)
    trajectories = list(read_trajectories(source, format))

    async def run() -> CascadeCases:
        try:
            return await collect_cases(trajectories, cheap, asked, unit, judging.max_connections)
        finally:
            await cheap.close()
            if not isinstance(asked, Mapping):
                await asked.close()

    heard = signals.run(run())
    tuned = tune(heard.rows, target=target, budget=budget, seed=seed)
    named, style = (judge, judging.style) if judge is not None else _judge_of(judged or "")
    row = {"by": unit, "first": list(first), "judge": named, "left_out": heard.left_out, "judge_tokens": heard.tokens}
    row |= asdict(tuned) | {"share_of_calls": tuned.share}
    if out is not None:
        asks = style if "/" in named else None
        out.write_text(toml(tuned, list(first), named, unit, asks, escalate, out.parent), "utf-8")
    return tuned, row


def _unit(by: str | None, judge: Critic | Mapping[str, Label]) -> By:
    natural: By = "step" if not isinstance(judge, Mapping) and judge.asks_per_step else "solution"
    return natural if by is None else "step" if by == "step" else "solution"


def _labels(path: str) -> dict[str, Label]:
    from critic_prm.data.label_rows import read_labels

    return {row.trajectory.id: row.label for row in read_labels(path)}


def _judge_of(path: str) -> tuple[str, str | None]:
    """Return the judge that made a label file, and its style, from the card in the file."""
    from critic_prm.data.label_rows import read_labels

    card = next(iter(read_labels(path))).critic
    provider, model = card.get("provider"), card.get("model")
    return (f"{provider}/{model}" if model else str(provider)), card.get("style")


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
    import os

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
        console.print(f"{row['left_out']:,} solutions left out: the first critic could say nothing of them", style="dim")


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
