"""Read the input files of a report into runs: labels, cost and evaluation per critic."""

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
"""Maximum number of files per report."""


@dataclass(frozen=True, slots=True)
class Run:
    """One label file, one file of saved predictions, or one evaluation without its predictions.

    `evaluation` is the output of `evaluate -o`, `summary` the FILE.run.json written by `label`; {} if there is none.
    """

    name: str
    card: Mapping[str, Any]
    rows: Sequence[LabelledTrajectory]
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)


def read_runs(paths: Iterable[str | Path]) -> list[Run]:
    """Read label files, saved predictions and evaluations; the type is detected from the content.

    An evaluation is joined to predictions of the same critic that have no evaluation yet. Raises InputError for any other file,
    UsageError for too many files.
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
                "give an output file of critic-prm label, or of evaluate --save or -o",
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
    """The run summary stored next to a label file, if there is one."""
    try:
        found = orjson.loads(Path(f"{path}.run.json").read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


Key = tuple[str, str]


def key_of(trajectory: Trajectory) -> Key:
    """The key that identifies a trajectory across runs: id and content."""
    return trajectory.id, content_id(trajectory.problem, trajectory.steps)


def align(runs: Sequence[Run]) -> list[tuple[Trajectory, list[LabelledTrajectory | None]]]:
    """Every trajectory once, in order of first appearance, with the label of each run or None."""
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
    """The origin of a trajectory: its benchmark, source or dataset; "" if not recorded."""
    for fields in (trajectory.extra, trajectory.meta):
        for name in ("benchmark", "source", "dataset", "subset"):
            if isinstance(value := fields.get(name), str) and value:
                return value
    return ""


def leaves(judgements: Iterable[Judgement]) -> Iterator[Judgement]:
    """The judgements that are based on replies; for a combined judgement, those of each judge."""
    for judgement in judgements:
        if judgement.parts:
            yield from leaves(judgement.parts)
        else:
            yield judgement


def usage_of(row: LabelledTrajectory) -> tuple[Usage, float | None]:
    """Tokens of all replies behind a label, and their price in USD from the model table; None if a price is unknown."""
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
