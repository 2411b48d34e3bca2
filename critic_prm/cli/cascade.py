"""critic-prm cascade: tune a cascade of a cheap critic and a judge."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from critic_prm import signals
from critic_prm.cli.options import ReadingOptions
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import UsageError
from critic_prm.option import Option
from critic_prm.terminal import safe_console

if TYPE_CHECKING:
    from critic_prm.data.critic import Critic
    from critic_prm.data.judgement import Label
    from critic_prm.evaluate.cascade_ranks import RankTuning, Shares
    from critic_prm.evaluate.cascade_tuning import BandResult, CascadeCases, Measured, TuningResult

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
    loss: Annotated[float | None, Option(min=0, max=1)] = None
    """Accept F1 lower than the judge's by this; default: 0, in ranks 0.01, with the judge as reference 0.02."""
    reference: Literal["gold", "judge"] = "gold"
    """What F1 is measured against: gold labels, or the judge's own labels, for which DEV needs no gold."""
    band: Literal["scores", "ranks"] | None = None
    """Bounds on P(error), or shares of the data of a calibration profile; default: ranks for a verifier with a profile."""
    out: Annotated[Path | None, Option(("-o", "--out"), metavar="FILE")] = None
    """Write the cascade as a critic in TOML."""
    escalate: Annotated[str | None, Option(metavar="FILE")] = None
    """File to which the cascade writes cases that no judge could decide."""
    split_seed: int = 0
    """Random seed of the split of DEV."""

    def __post_init__(self) -> None:
        if (self.judge is None) == (self.judged is None):
            raise UsageError("give either --judge, to ask one, or --judged with a label file of one")
        if self.target_f1 is not None and self.budget is not None:
            raise UsageError("--target-f1 and --budget exclude each other; give one")
        if self.loss is not None and (self.target_f1 is not None or self.budget is not None):
            raise UsageError("--loss sets a target relative to the judge; leave out --target-f1 and --budget")


@app.command()
def tune(
    source: Annotated[str, typer.Argument(metavar="DEV", help="Solutions that were not used in training.")],
    first: Annotated[list[str], typer.Option(help="The cheap critic; repeat it to use the mean of several.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
    *,
    settings: TuneSettings,
    reading: ReadingOptions,
    judging: JudgeOptions,
) -> None:
    """Choose when a cascade asks the judge.

    Reads solutions with gold labels, or with --reference judge about a hundred solutions of the target without (DEV). With a
    calibrated verifier, the band is two shares of the target data: those accepted and those flagged without the judge. It is
    chosen on all solutions and measured on folds of the problems. Otherwise it is a range of P(error) of a step, chosen on half
    of the problems and measured on the other half. Prints F1 and cost. Writes the cascade (-o FILE), which is a critic:
    `label --judge FILE`, `evaluate FILE`, `rank --critic FILE`.

    Example: critic-prm cascade tune dev.jsonl --first rules --judge openai/MODEL
    """
    from critic_prm.cli.running import Input
    from critic_prm.critics.cascade import open_first
    from critic_prm.critics.open import open_critic
    from critic_prm.data.label_rows import read_labels
    from critic_prm.data.records.reading import encode
    from critic_prm.evaluate.cascade_ranks import LOSS, Goal, tune_ranks
    from critic_prm.evaluate.cascade_tuning import collect_cases, referred, tune

    cheap = open_first(first, judging)
    if settings.judge is not None:
        name, style = settings.judge, judging.style
        opened = open_critic(name, replace(judging, profile=None))
        judge: Critic | Mapping[str, Label] = opened
        by = settings.by or ("step" if opened.asks_per_step else "solution")
    else:
        rows, by = list(read_labels(settings.judged or "")), settings.by or "solution"
        judge = {row.trajectory.id: row.label for row in rows}
        # The card in the file names the judge that made it, and its style.
        card = rows[0].critic if rows else {}
        provider, model, style = card.get("provider"), card.get("model"), card.get("style", "")
        name = f"{provider}/{model}" if model else str(provider)
    ranked = _ranks(first, judging.profile, by, settings.band)
    trajectories = list(Input(source, reading))
    gold_free = settings.reference == "judge"

    async def run() -> CascadeCases:
        try:
            return await collect_cases(trajectories, cheap, judge, by, judging.max_connections, unlabelled=gold_free)
        finally:
            await cheap.close()
            if not isinstance(judge, Mapping):
                await judge.close()

    cases = signals.run(run())
    row: dict[str, Any] = {"by": by, "first": first, "judge": name, "judge_tokens": cases.tokens}
    tuned: TuningResult | RankTuning
    if ranked is None:
        used = referred(cases.rows) if gold_free else cases.rows
        target, loss, seed = settings.target_f1, settings.loss or 0.0, settings.split_seed
        tuned = tune(used, target=target, budget=settings.budget, loss=loss, seed=seed)
        bounds, profile = {"low": tuned.chosen.low, "high": tuned.chosen.high}, judging.profile
        facts: dict[str, Any] = {"left_out": cases.left_out + len(cases.rows) - len(used)}
    else:
        profile, quantiles = ranked
        loss = LOSS[settings.reference] if settings.loss is None else settings.loss
        goal = Goal(settings.target_f1, settings.budget, loss)
        tuned = tune_ranks(cases.rows, quantiles, reference=settings.reference, goal=goal, seed=settings.split_seed)
        bounds = {"flag": tuned.chosen.flag, "accept": tuned.chosen.accept}
        facts = {"left_out": cases.left_out + tuned.left_out, "profile": profile, "loss": loss}
    row |= asdict(tuned) | facts | {"reference": settings.reference, "share_of_calls": tuned.share}
    if settings.out is not None:
        keys = {"profile": profile, "by": by, "style": style if style and "/" in name else None, "escalate": settings.escalate}
        text = toml(tuned, first, name, keys, bounds, settings.reference, settings.out.parent)
        settings.out.write_text(text, "utf-8")
    if as_json:
        typer.echo(encode(row), nl=False)
    else:
        print_tuned(tuned, row)


def _ranks(first: Sequence[str], profile: str | None, by: str, wanted: str | None) -> tuple[str, Sequence[float]] | None:
    """The profile and quantiles for a band of ranks; None for a band of scores. Raises UsageError if ranks are `wanted` and the
    first critic has none."""
    from critic_prm.critics.cascade import ranks_of

    if wanted == "scores":
        return None
    try:
        return ranks_of(first, profile, by)
    except UsageError:
        if wanted == "ranks":
            raise
        return None


COMMENTS = {
    "low": "# P(error) of a step from which on, and up to which, the judge is asked",
    "flag": "# Shares of the data, by the ranks of the scores in the profile, that are flagged and accepted without the judge",
}


def toml(
    tuned: TuningResult | RankTuning,
    first: Sequence[str],
    judge: str,
    keys: Mapping[str, str | None],
    bounds: Mapping[str, float],
    reference: str,
    folder: Path,
) -> str:
    """Return the cascade as a critic in TOML, with paths relative to `folder`. JSON strings and numbers are valid TOML."""
    names = [_relative(name, folder) for name in first]
    lines = ["[cascade]", f"first = {json.dumps(names[0] if len(names) == 1 else names)}"]
    lines += [f"judges = {json.dumps([_relative(judge, folder)])}"]
    for key, text in keys.items():
        if text is not None:
            lines.append(f"{key} = {json.dumps(_relative(text, folder) if key == 'escalate' else text)}")
    lines.append(COMMENTS[next(iter(bounds))])
    lines += [f"{key} = {value!r}" for key, value in bounds.items()]
    size: Any = tuned.solutions
    chosen_on, measured_on = size if isinstance(size, tuple) else (size, size)
    facts = {
        "on": datetime.now(UTC).date().isoformat(),
        "reference": reference,
        "solutions_chosen_on": chosen_on,
        "solutions_measured_on": measured_on,
        "f1": round(tuned.cascade.f1 or 0.0, 4),
        "f1_judge": round(tuned.judge.f1 or 0.0, 4),
        "f1_first": round(tuned.student.f1 or 0.0, 4),
        "share_of_judge_calls": round(tuned.share, 4),
    }
    lines += ["", "[cascade.tuned]", *(f"{name} = {json.dumps(value)}" for name, value in facts.items())]
    return "\n".join(lines) + "\n"


def _relative(name: str, folder: Path) -> str:
    return os.path.relpath(name, folder) if Path(name).exists() else name


def print_tuned(tuned: TuningResult | RankTuning, row: Mapping[str, Any]) -> None:
    """Print the Pareto-optimal bands, the chosen one, and its result on problems that it was not chosen on."""
    from rich.table import Table

    console = safe_console()
    ranked = "profile" in row
    table = Table("flagged, asked, accepted" if ranked else "P(error) asked about", box=None, padding=(0, 2, 0, 0))
    for heading in ("F1", "calls a solution", "of the judge's"):
        table.add_column(heading, justify="right")
    for one in _thinned(tuned):
        style = "bold" if one == tuned.chosen else None
        table.add_row(_shown(one), f"{100 * one.f1:.1f}", f"{one.calls:.2f}", f"{one.share:.0%}", style=style)
    size: Any = tuned.solutions
    chosen_on, measured_on = size if isinstance(size, tuple) else (size, size)
    whose = "; F1 against the judge's own labels" if row["reference"] == "judge" else ""
    console.print(f"Pareto-optimal bands, on {chosen_on:,} solutions; by {row['by']}{whose}", highlight=False)
    console.print(table)
    if tuned.budget is not None:
        why = f"at most {tuned.budget:g} calls a solution"
    elif tuned.target is not None:
        why = f"F1 of at least {100 * tuned.target:.1f}"
    else:
        why = f"F1 of the judge less {100 * row['loss']:g} points"
    console.print(f"Chosen for {why}: {_shown(tuned.chosen)}", highlight=False)
    how = "Measured by cross-validation on these" if ranked else "Held-out evaluation on the other"
    console.print(f"{how} {measured_on:,} solutions, with 95% intervals by problem:", highlight=False)
    result = Table("", "F1 [95%]", "calls a solution", box=None, padding=(0, 2, 0, 0))
    for name, measured in (("first critic alone", tuned.student), ("cascade", tuned.cascade), ("judge alone", tuned.judge)):
        result.add_row(name, _f1(measured), f"{measured.calls:.2f}")
    console.print(result)
    gap, low, high = tuned.difference
    interval = "" if low is None or high is None else f" [{100 * low:+.1f}, {100 * high:+.1f}]"
    console.print(f"Cascade less judge: {100 * gap:+.1f} points{interval}, for {tuned.share:.0%} of its calls", highlight=False)
    if row["left_out"]:
        console.print(f"{row['left_out']:,} solutions left out: a critic could not judge them", style="dim")


def _shown(one: BandResult | Shares) -> str:
    from critic_prm.evaluate.cascade_tuning import BandResult

    if isinstance(one, BandResult):
        return band(one.low, one.high)
    return f"{one.flag:.0%}, {max(1 - one.flag - one.accept, 0):.0%}, {one.accept:.0%}"


def band(low: float, high: float) -> str:
    """Format both ends with three digits, or more if different ends would look equal, or an end would look like 0 or 1."""
    for digits in range(3, 10):
        shown = [f"{end:.{digits}f}" for end in (low, high)]
        whole = all(float(text) not in (0.0, 1.0) or float(text) == end for text, end in zip(shown, (low, high), strict=True))
        if whole and (shown[0] != shown[1] or low == high):
            break
    return " to ".join(shown)


def _thinned(tuned: TuningResult | RankTuning) -> list[Any]:
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
