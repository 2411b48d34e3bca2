"""Read the input files of a report into runs, and compute the data of their charts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from shlex import join
from typing import Any

import numpy as np
import orjson

from critic_prm.data import Judgement, LabelledTrajectory, Trajectory, Usage, content_id
from critic_prm.data.label_rows import is_labelled, labelled_from_json
from critic_prm.data.records.reading import read_records
from critic_prm.errors import InputError, UsageError
from critic_prm.metrics.bootstrap import REPLICATES
from critic_prm.metrics.scorecard import Case, case_of, compare, has_gold, score
from critic_prm.metrics.scores import Array, bin_rows
from critic_prm.providers.models import abilities

MOST = 8
"""Maximum number of files per report."""

BINS = 10
POSITIONS = 12
"""First errors at this step or later are counted together."""

CONTINUOUS = 10
"""Scores with more distinct values than this are drawn as a line in the reliability diagram; of others, such as votes, only the
values that occur are drawn, since nothing is measured between them."""

INPUTS = ("source", "sources", "bench")
ARGUMENTS = ("critic", *INPUTS)
"""What the record of a run calls its input, and the arguments of the command in their order."""
SOURCES = 4
"""Sources that are named as the input of a run without a record."""

SHOWN = ("f1", "accuracy_erroneous", "accuracy_correct", "auroc", "ece", "brier", "step_accuracy")


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
    file: str = ""
    written: str = ""
    """When the labels were made, in ISO 8601, UTC; the file's date if its run left no record."""


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
        data = first.data if first is not None else None
        if isinstance(data, dict) and {"subsets", "mean", "critic"} <= data.keys():
            evaluations.append((path, data))
            continue
        if first is None or not isinstance(data, dict) or not is_labelled(data):
            raise InputError(
                str(path),
                "this is neither a label file nor an evaluation",
                "give a file that critic-prm label, or evaluate --save or -o, wrote",
            )
        rows = [labelled_from_json(record.data, record.where) for record in (first, *records)]
        summary = _summary(path)
        runs.append(Run(_name(path), rows[0].critic, rows, {}, summary, path.name, _date(path, summary)))
    for path, evaluation in evaluations:
        same = (place for place, run in enumerate(runs) if not run.evaluation and dict(run.card) == evaluation["critic"])
        date = _date(path, evaluation.get("run", {}))
        if (place := next(same, None)) is not None:
            file = f"{runs[place].file}, {path.name}"
            runs[place] = replace(runs[place], evaluation=evaluation, file=file, written=date)
        else:
            runs.append(Run(_name(path), evaluation["critic"], (), evaluation, file=path.name, written=date))
    seen: Counter[str] = Counter()
    for place, run in enumerate(runs):
        seen[run.name] += 1
        if seen[run.name] > 1:
            runs[place] = replace(run, name=f"{run.name} ({seen[run.name]})")
    return runs


def _name(path: Path) -> str:
    name = path.name
    for suffix in (".gz", ".zst", ".jsonl", ".json", ".parquet", ".labels", ".predictions"):
        name = name.removesuffix(suffix)
    return name or "run"


def _summary(path: Path) -> Mapping[str, Any]:
    """The run summary stored next to a label file, if there is one."""
    try:
        summary = orjson.loads(Path(f"{path}.run.json").read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return summary if isinstance(summary, dict) else {}


def _date(path: Path, summary: Mapping[str, Any]) -> str:
    """When the run began, by its summary, else when the file was last changed."""
    began = summary.get("started_at")
    return str(began) if began else datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")


def align(runs: Sequence[Run]) -> list[tuple[Trajectory, list[LabelledTrajectory | None]]]:
    """Every trajectory once (by id and content), in order of first appearance, with the label of each run or None."""
    rows: dict[tuple[str, str], tuple[Trajectory, list[LabelledTrajectory | None]]] = {}
    for number, run in enumerate(runs):
        for row in run.rows:
            key = row.trajectory.id, content_id(row.trajectory.problem, row.trajectory.steps)
            rows.setdefault(key, (row.trajectory, [None] * len(runs)))[1][number] = row
    return list(rows.values())


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
    total = Usage()
    costs: list[float | None] = [0.0]
    for judgement in leaves(row.label.judgements):
        total += judgement.usage
        if judgement.usage == Usage():
            continue
        provider, slash, model = judgement.judge.partition("/")
        if not slash:
            provider, model = (str(row.critic.get(name) or "") for name in ("provider", "model"))
        prices = abilities(provider, model).prices
        costs.append(None if prices is None else prices.cost(judgement.usage))
    return total, None if None in costs else sum(cost for cost in costs if cost is not None)


def figures(run: Run) -> dict[str, Any]:
    """All data that the page shows for one run except its trajectories, as JSON."""
    cases = cases_of(run.rows)
    good, p = steps_with_gold(cases)
    all_p = [value for row in run.rows for value in row.label.p_correct if value is not None]
    return {
        "name": run.name,
        "card": dict(run.card),
        "origin": _origin(run),
        "counts": _counts(run.rows),
        "scores": _scores(run, cases),
        "reliability": reliability(good, p),
        "continuous": len(np.unique(p)) > CONTINUOUS,
        "roc": roc(good, p),
        "positions": positions(run.rows),
        "spread": np.histogram(all_p, bins=20, range=(0, 1))[0].tolist(),
        "money": _money(run),
    }


def _origin(run: Run) -> dict[str, Any]:
    """Where the labels come from: file, date, command, input, and judgements per trajectory (the least and the most)."""
    made = run.summary.get("run") or run.evaluation.get("command") or {}
    samples = [sum(1 for _ in leaves(row.label.judgements)) for row in run.rows]
    words = [text for name in ("command", *ARGUMENTS) for text in _texts(made.get(name))]
    words += [word for judge in _texts(made.get("judge")) for word in ("--judge", judge)]
    inputs = [text for name in INPUTS for text in _texts(made.get(name))]
    sources = sorted({source_of(row.trajectory) for row in run.rows} - {""})
    return {
        "file": run.file,
        "date": run.written,
        "command": join(["critic-prm", *words]) if words else "",
        "input": ", ".join(inputs or sources[:SOURCES]) + (", ..." if not inputs and len(sources) > SOURCES else ""),
        "samples": [min(samples), max(samples)] if any(samples) else None,
        "sampling": {name: value for name, value in dict(run.card.get("sampling") or {}).items() if value is not None},
        "resamples": run.evaluation.get("intervals", {}).get("replicates", REPLICATES),
        "replies": any(judgement.keys for row in run.rows for judgement in leaves(row.label.judgements)),
    }


def _texts(value: Any) -> list[str]:
    """A value of a run's record as a list of texts."""
    return [] if value is None else [str(item) for item in value] if isinstance(value, list | tuple) else [str(value)]


def cases_of(rows: Sequence[LabelledTrajectory]) -> dict[str, list[Case]]:
    """The rows that have gold, by source."""
    cases: dict[str, list[Case]] = {}
    for row in rows:
        if has_gold(row.trajectory):
            cases.setdefault(source_of(row.trajectory) or "all", []).append(case_of(row.trajectory, row.label))
    return cases


def steps_with_gold(cases: Mapping[str, Sequence[Case]]) -> tuple[Array, Array]:
    """Gold (1 correct, 0 incorrect) and P(correct) of every step that has both. Shape (n,) each."""
    pairs = [
        (y >= 0.5, p)
        for group in cases.values()
        for case in group
        for y, p in zip(case.steps, case.p_correct, strict=True)
        if y is not None and p is not None
    ]
    table = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def reliability(good: Array, p: Array) -> list[dict[str, float]]:
    """For each nonempty bin (a, b] of equal width: number of steps, mean P(correct), share of correct steps."""
    cells = bin_rows(good, p, BINS).sum(axis=0).reshape(BINS, 3)
    return [{"n": int(n), "p": total / n, "right": right / n} for n, total, right in cells.tolist() if n]


def roc(good: Array, p: Array, most: int = 160) -> list[list[float]]:
    """(share of correct steps called incorrect, share of incorrect steps called incorrect) per threshold, at most `most`
    points.

    The positive class is the incorrect step, since that is what a critic looks for. Returns [] unless both kinds are present.
    """
    bad = 1 - good
    if not bad.sum() or not good.sum():
        return []
    order = np.argsort(p, kind="stable")
    last = np.flatnonzero(np.diff(p[order], append=np.inf))
    hits = np.concatenate([[0.0], np.cumsum(bad[order])[last] / bad.sum()])
    false = np.concatenate([[0.0], np.cumsum(good[order])[last] / good.sum()])
    if len(hits) > most:
        kept = np.unique(np.linspace(0, len(hits) - 1, most).astype(int))
        hits, false = hits[kept], false[kept]
    return np.round(np.stack([false, hits], axis=-1), 4).tolist()  # type: ignore[no-any-return]


def positions(rows: Sequence[LabelledTrajectory]) -> dict[str, list[int] | None]:
    """Number of first errors at step 1, 2, ... (last entry: POSITIONS and later), by the critic and by gold."""
    gold = [row.trajectory.first_error() for row in rows]
    has_gold = any(first is not None for first in gold)
    return {"said": _by_step([row.label.first_error for row in rows]), "gold": _by_step(gold) if has_gold else None}


def _by_step(first_errors: Iterable[int | None]) -> list[int]:
    counts = Counter(min(first, POSITIONS - 1) for first in first_errors if first is not None and first >= 0)
    return [counts[step] for step in range(POSITIONS)]


def difference(one: Run, other: Run) -> dict[str, Any] | None:
    """First-error F1 of `one` minus `other` on the solutions both judged, with its interval; None without such solutions.

    Solutions are matched by id and content; both runs are split by the sources that `one` names.
    """
    ours: dict[str, list[Case]] = {}
    theirs: dict[str, list[Case]] = {}
    for trajectory, labels in align([one, other]):
        if labels[0] is not None and labels[1] is not None and has_gold(trajectory):
            for cases, row in ((ours, labels[0]), (theirs, labels[1])):
                cases.setdefault(source_of(trajectory) or "all", []).append(case_of(trajectory, row.label))
    try:
        comparison = compare(ours, theirs)
    except UsageError:
        return None
    return {"matched": comparison.matched, **asdict(comparison.mean)}


def _counts(rows: Sequence[LabelledTrajectory]) -> dict[str, Any]:
    p = [value for row in rows for value in row.label.p_correct]
    judgements = [judgement for row in rows for judgement in leaves(row.label.judgements)]
    return {
        "trajectories": len(rows),
        "steps": len(p),
        "judged": sum(value is not None for value in p),
        "gold": sum(has_gold(row.trajectory) for row in rows),
        "statuses": dict(Counter(row.label.status for row in rows).most_common()),
        "judgements": dict(Counter(judgement.status for judgement in judgements).most_common()),
        "p_from": dict(Counter(row.label.p_from or "none" for row in rows).most_common()),
    }


def _scores(run: Run, cases: Mapping[str, Sequence[Case]]) -> dict[str, Any] | None:
    """Scores by subset and their mean, from the evaluation file or else computed here; None without gold."""
    if run.evaluation:
        subsets, mean = run.evaluation["subsets"], run.evaluation["mean"]
        words = run.evaluation.get("threshold", {}).get("words", "")
    elif cases:
        own = run.card.get("threshold")
        computed = score(cases, own=own if isinstance(own, float) else None)
        subsets, mean = [asdict(subset) for subset in computed.subsets], {n: asdict(m) for n, m in computed.mean.items()}
        words = "the critic's own verdicts"
    else:
        return None
    f1 = "f1_oracle" if "f1_oracle" in mean else "f1"

    def shown(metrics: Mapping[str, Any]) -> dict[str, list[float | None]]:
        given = {name: metrics.get(f1 if name == "f1" else name) for name in SHOWN}
        return {name: [m["value"], m["low"], m["high"]] for name, m in given.items() if m is not None}

    return {
        "words": words,
        "oracle": f1 == "f1_oracle",
        "mean": shown(mean),
        "subsets": [{"name": str(s["name"]), "n": s["solutions"], "metrics": shown(s["metrics"])} for s in subsets],
    }


def _money(run: Run) -> dict[str, Any]:
    """Tokens of the replies behind the labels at current prices, and what the run that wrote the file paid for."""
    used = [usage_of(row) for row in run.rows]
    costs = [cost for _, cost in used if cost is not None]
    total = sum((usage for usage, _ in used), Usage())
    each = [usage.input + usage.output for usage, _ in used if usage.input + usage.output]
    return {
        "tokens": {name: getattr(total, name) for name in ("input", "cached", "output", "reasoning")},
        "cost": sum(costs) if total.input + total.output and len(costs) == len(used) else None,
        "quantiles": [int(np.quantile(each, q)) for q in (0.1, 0.5, 0.9)] if each else None,
        "bought": run.summary.get("cost_usd", run.evaluation.get("run", {}).get("cost_usd")),
        "seconds": run.summary.get("seconds"),
    }
