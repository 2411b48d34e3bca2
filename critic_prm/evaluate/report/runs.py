"""The files of a report in, its runs out: what each critic said of which trajectory, what it cost, how it was evaluated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from critic_prm.data.judgement import Judgement
from critic_prm.data.label_rows import LabelledTrajectory, is_labelled, labelled_from_json
from critic_prm.data.records.reading import read_records
from critic_prm.data.trajectory import Trajectory, content_id
from critic_prm.errors import InputError, UsageError
from critic_prm.providers.models import abilities
from critic_prm.providers.provider import Usage

MOST = 8
"""The most files of one report."""


@dataclass(frozen=True, slots=True)
class Run:
    """One label file, one file of saved predictions, or one evaluation without its predictions.

    `evaluation` is what `evaluate -o` wrote, `summary` what `label` wrote into FILE.run.json; {} where there is none.
    """

    name: str
    card: Mapping[str, Any]
    rows: Sequence[LabelledTrajectory]
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)


def read_runs(paths: Iterable[str | Path]) -> list[Run]:
    """Read label files, saved predictions and evaluations, told apart by what is in them.

    An evaluation is joined to the predictions of the same critic when there are any that have none yet. Raises InputError for a
    file that is neither, UsageError for too many.
    """
    files = [Path(path) for path in paths]
    if not 1 <= len(files) <= MOST:
        raise UsageError(f"{len(files)} files for a report; give 1 to {MOST}")
    runs: list[Run] = []
    evaluations: list[tuple[Path, Mapping[str, Any]]] = []
    for path in files:
        records = read_records(path)
        first = next(records, None)
        if first is not None and isinstance(first.data, dict) and {"subsets", "mean", "critic"} <= first.data.keys():
            evaluations.append((path, first.data))
            continue
        if first is None or not isinstance(first.data, dict) or not is_labelled(first.data):
            raise InputError(
                str(path),
                "this is neither a label file nor an evaluation",
                "give what critic-prm label, or evaluate --save or -o, wrote",
            )
        rows = [labelled_from_json(first.data, first.where)]
        rows += [labelled_from_json(record.data, record.where) for record in records]
        runs.append(Run(_name(path), rows[0].critic, rows, summary=_summary(path)))
    for path, evaluation in evaluations:
        fits = [n for n, run in enumerate(runs) if not run.evaluation and dict(run.card) == evaluation["critic"]]
        if fits:
            run = runs[fits[0]]
            runs[fits[0]] = Run(run.name, run.card, run.rows, evaluation, run.summary)
        else:
            runs.append(Run(_name(path), evaluation["critic"], (), evaluation, {}))
    return _named_apart(runs)


def _name(path: Path) -> str:
    name = path.name
    for suffix in (".gz", ".zst", ".jsonl", ".json", ".parquet", ".labels", ".predictions"):
        name = name.removesuffix(suffix)
    return name or "run"


def _named_apart(runs: list[Run]) -> list[Run]:
    seen: dict[str, int] = {}
    named = []
    for run in runs:
        seen[run.name] = seen.get(run.name, 0) + 1
        name = run.name if seen[run.name] == 1 else f"{run.name} ({seen[run.name]})"
        named.append(Run(name, run.card, run.rows, run.evaluation, run.summary))
    return named


def _summary(path: Path) -> Mapping[str, Any]:
    """What the run that wrote a label file said of itself, if that lies beside it."""
    try:
        found = orjson.loads(Path(f"{path}.run.json").read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


Key = tuple[str, str]


def key_of(trajectory: Trajectory) -> Key:
    """What makes two runs' rows the same trajectory: id and content."""
    return trajectory.id, content_id(trajectory.problem, trajectory.steps)


def align(runs: Sequence[Run]) -> list[tuple[Trajectory, list[LabelledTrajectory | None]]]:
    """Every trajectory once, in the order it first comes, with each run's label of it or None."""
    places: dict[Key, int] = {}
    rows: list[tuple[Trajectory, list[LabelledTrajectory | None]]] = []
    for number, run in enumerate(runs):
        for row in run.rows:
            key = key_of(row.trajectory)
            if key not in places:
                places[key] = len(rows)
                rows.append((row.trajectory, [None] * len(runs)))
            rows[places[key]][1][number] = row
    return rows


def source_of(trajectory: Trajectory) -> str:
    """Where a trajectory comes from, in one word: its benchmark, source or dataset; "" when it does not say."""
    for fields in (trajectory.extra, trajectory.meta):
        for name in ("benchmark", "source", "dataset", "subset"):
            if isinstance(value := fields.get(name), str) and value:
                return value
    return ""


def leaves(judgements: Iterable[Judgement]) -> Iterator[Judgement]:
    """The judgements that replies stand behind: of several judges, each one's."""
    for judgement in judgements:
        if judgement.parts:
            yield from leaves(judgement.parts)
        else:
            yield judgement


def usage_of(row: LabelledTrajectory) -> tuple[Usage, float | None]:
    """Tokens of all replies behind a label, and their price in USD by the model table; None where one is not known."""
    total, cost = Usage(), 0.0
    known = True
    for judgement in leaves(row.label.judgements):
        used = judgement.usage
        total += used
        if used == Usage():
            continue
        provider, _, model = judgement.judge.partition("/") if "/" in judgement.judge else _judge(row.critic)
        prices = abilities(provider, model).prices
        usd = prices.cost(used) if prices is not None else None
        known = known and usd is not None
        cost += usd or 0.0
    return total, cost if known else None


def _judge(card: Mapping[str, Any]) -> tuple[str, str, str]:
    return str(card.get("provider") or ""), "", str(card.get("model") or "")
