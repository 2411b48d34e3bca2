"""Keep the trajectories on which two label sources agree."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from critic_prm.data.hashing import unit
from critic_prm.data.records.reading import RecordWriter
from critic_prm.datasets.balance import Propensity, Stratum, Tally, accepted, inverse_propensity, stratum
from critic_prm.datasets.rows import DatasetStats, Row, Spool, class_of, read_rows, spool
from critic_prm.errors import InputError, UsageError
from critic_prm.option import Option, check_fields

Probabilities: TypeAlias = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class StepLabels:
    """The labels of a solution by one source, or those on which two agree: P(correct) per step, None if there is none, and the
    first error, None if unknown."""

    p: tuple[float | None, ...]
    first_error: int | None


def labels_of(row: Row, threshold: float | None = None) -> StepLabels:
    """The labels of a row. With a threshold, the first error is the first step whose P(correct) is below it, regardless of the
    row's own.

    Any threshold in (0, 1/K] gives the hard labels of Monte Carlo rollouts with K completions: a step is correct if one
    completion reached the answer.
    """
    if threshold is None:
        return StepLabels(row.labels, row.first_error)
    for step, p in enumerate(row.labels):
        if p is None:
            return StepLabels(row.labels, None)
        if p < threshold:
            return StepLabels(row.labels, step)
    return StepLabels(row.labels, -1)


def same_first_error(a: StepLabels, b: StepLabels) -> StepLabels | str:
    """Exact agreement on the first error (Qwen's consensus filter, arXiv 2501.07301, keeps about 40%)."""
    for name, source in (("A", a), ("B", b)):
        if source.first_error is None:
            return f"{name} has no first error"
    if a.first_error != b.first_error:
        return "another first error"
    first, steps = a.first_error, len(a.p)
    if first is None or first < 0:
        return StepLabels((1.0,) * steps, first)
    return StepLabels((*(1.0,) * first, 0.0, *(None,) * (steps - first - 1)), first)


def same_on_confident(a: StepLabels, b: StepLabels, low: float, high: float) -> StepLabels | str:
    """Agreement on the steps of which B is confident: correct if P >= `high`, incorrect if P <= `low` (VRPRM2: 0.125, 0.75).

    Steps in between get no label. Steps after A's first error are not compared because A does not judge them.
    """
    if a.first_error is None:
        return "A has no first error"
    end = len(a.p) if a.first_error < 0 else a.first_error + 1
    sure = [None if p is None or low < p < high else float(p >= high) for p in b.p[:end]]
    if all(label is None for label in sure):
        return "B is sure of no step"
    if any(label is not None and label != float(step != a.first_error) for step, label in enumerate(sure)):
        return "another verdict on a step B is sure of"
    first = a.first_error if a.first_error >= 0 and sure[a.first_error] == 0.0 else None
    if None not in sure and a.first_error < 0:
        first = -1
    return StepLabels((*sure, *(None,) * (len(a.p) - end)), first)


Match = Literal["first-error", "confident"]
View = Literal["auto", "gold", "a", "b"]
Debias = Literal["none", "reweight", "resample"]


@dataclass(frozen=True, slots=True)
class ConsensusOptions:
    """How agreement is defined, and how its selection bias is handled."""

    match: Match = "first-error"
    """Compare by first-error, or by confident: A must agree on every step of which B is confident."""
    low: Annotated[float, Option(("--tau-low",), min=0, max=1)] = 0.125
    """With confident: B rejects a step up to this P(correct)."""
    high: Annotated[float, Option(("--tau-high",), min=0, max=1)] = 0.75
    """With confident: B accepts a step from this P(correct)."""
    threshold_a: float | None = None
    """A's first error is the first step with P(correct) below this; default: as stored in A."""
    threshold_b: float | None = None
    """The same for B; 0.01 turns Monte Carlo shares into hard labels."""
    class_by: View = "auto"
    """Source of a solution's class: gold, a, b, or auto (gold if all rows have it, else b)."""
    debias: Debias = "none"
    """Undo the selection bias by class and position: "reweight" weights each row by the inverse acceptance rate of its stratum,
    "resample" thins the strata that were accepted more often."""
    seed: Annotated[int, Option(envvar="CRITIC_PRM_SEED")] = 0
    """Random seed of resampling."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.low >= self.high:
            raise UsageError(f"--tau-low is {self.low:g} and --tau-high {self.high:g}; the first must be the smaller")
        for name, number in (("--threshold-a", self.threshold_a), ("--threshold-b", self.threshold_b)):
            if number is not None and not 0 < number <= 1:
                raise UsageError(f"{name} is {number:g}; it must be a probability above 0")


DEFAULT = ConsensusOptions()


@dataclass(frozen=True, slots=True)
class _Other:
    """The data kept in memory for a row of B."""

    content: bytes
    p: array[float]
    first_error: int | None
    gold: int | None

    def labels(self) -> StepLabels:
        return StepLabels(tuple(None if p < 0 else p for p in self.p), self.first_error)


def consensus(
    a: str | Path,
    b: str | Path,
    out: str | Path,
    options: ConsensusOptions = DEFAULT,
) -> dict[str, Any]:
    """Write the rows of `a` on which `b` agrees to `out`, with the agreed labels, and return the report.

    Each file is a label file (from a judge or Monte Carlo rollouts), trajectories with gold labels, or training rows. They are
    joined by id, else by content. A kept row is A's row with `label` and `step_labels` (training rows: `labels`) replaced by
    the agreed ones, its `weight`, and under `consensus` both sources' labels and its original gold label. B is held in memory,
    a few hundred bytes per row; A is streamed and spooled to disk. Raises InputError and UsageError.
    """
    by_id, by_content, others = _index(b, options)
    account, tally = DatasetStats("consensus"), Tally()
    met: set[bytes] = set()
    with spool(out) as rows:
        for row in account.read(a):
            other = _partner(row, by_id, by_content)
            if isinstance(other, str):
                tally.only_a += other == "only in A"
                account.drop(other, row.kind)
                continue
            met.add(other.content)
            tally.joined += 1
            mine, theirs = labels_of(row, options.threshold_a), other.labels()
            strata = _strata(row, mine, other)
            for view, where in strata.items():
                tally.offered[view][where] += 1
            tally.pairs[_pair(mine, theirs)] += 1
            agreed = _compare(mine, theirs, options)
            if isinstance(agreed, str):
                account.drop(agreed, row.kind)
                continue
            for view, where in strata.items():
                tally.kept[view][where] += 1
            gold = row.gold if row.gold is not None else other.gold
            if gold is not None and agreed.first_error is not None:
                tally.agreed[class_of(agreed.first_error)] += 1
                tally.right[class_of(agreed.first_error)] += agreed.first_error == gold
            rows.write([row.kind, row.content, strata, _agreed_row(row, agreed, mine, theirs, other)])
        account.file(b, others)
        view = _view(tally, options)
        propensity = inverse_propensity(tally.offered[view], tally.kept[view])
        written = _write(rows, out, view, propensity, options, account)
    more = accepted(tally, view, propensity, written, options.debias)
    return account.report(out, asdict(options), {"only_in_b": len(by_content.keys() - met), **more})


def _index(path: str | Path, options: ConsensusOptions) -> tuple[dict[str, _Other], dict[bytes, _Other], int]:
    count = 0
    by_id: dict[str, _Other] = {}
    by_content: dict[bytes, _Other] = {}
    for count, row in enumerate(read_rows(path), 1):  # noqa: B007  (the last number is what is wanted)
        theirs, content = labels_of(row, options.threshold_b), bytes.fromhex(row.content)
        other = _Other(content, array("d", (-1.0 if p is None else p for p in theirs.p)), theirs.first_error, row.gold)
        if (earlier := by_id.setdefault(row.id, other)) is not other and earlier.content != content:
            raise InputError(row.where, f"the id {row.id!r} was already used for other steps", "ids must be unique in a file")
        by_content.setdefault(content, other)
    return by_id, by_content, count


def _partner(row: Row, by_id: Mapping[str, _Other], by_content: Mapping[bytes, _Other]) -> _Other | str:
    content = bytes.fromhex(row.content)
    named = by_id.get(row.id)
    if named is not None and named.content == content:
        return named
    same = by_content.get(content)
    if same is not None:
        return same
    return "only in A" if named is None else "other steps under the same id in B"


def _compare(a: StepLabels, b: StepLabels, options: ConsensusOptions) -> StepLabels | str:
    if options.match == "confident":
        return same_on_confident(a, b, options.low, options.high)
    return same_first_error(a, b)


def _strata(row: Row, mine: StepLabels, other: _Other) -> dict[str, Stratum]:
    """The stratum of a solution for each view that knows its class."""
    firsts = {"gold": row.gold if row.gold is not None else other.gold, "a": mine.first_error, "b": other.first_error}
    steps = len(row.trajectory.steps)
    return {view: stratum(class_of(first), first, steps) for view, first in firsts.items() if first is not None}


def _pair(a: StepLabels, b: StepLabels) -> str:
    if a.first_error is None or b.first_error is None:
        return "open"
    if a.first_error == b.first_error:
        return "the same error" if a.first_error >= 0 else "both right"
    if a.first_error < 0 or b.first_error < 0:
        return "A right, B wrong" if a.first_error < 0 else "A wrong, B right"
    return "one step apart" if abs(a.first_error - b.first_error) == 1 else "further apart"


def _agreed_row(row: Row, agreed: StepLabels, mine: StepLabels, theirs: StepLabels, other: _Other) -> dict[str, Any]:
    came = {name: row.data[name] for name in ("label", "step_labels", "labels", "weight") if name in row.data}
    note = {"a": mine.first_error, "b": theirs.first_error, "b_p_correct": [p if p is None else round(p, 6) for p in theirs.p]}
    data = {**row.data, "weight": 1.0, "consensus": {**note, **({"before": came} if came else {})}}
    if row.shape == "training row":
        return {**data, "labels": list(agreed.p)}
    return {**data, "label": agreed.first_error, "step_labels": list(agreed.p)}


def _view(tally: Tally, options: ConsensusOptions) -> str:
    if options.class_by != "auto":
        if tally.joined and not tally.offered[options.class_by]:
            raise UsageError(f"class_by is {options.class_by}, which gives no row a class; choose another")
        return options.class_by
    return "gold" if tally.joined and tally.offered["gold"].total() == tally.joined else "b"


def _write(
    rows: Spool, out: str | Path, view: str, propensity: Propensity, options: ConsensusOptions, account: DatasetStats
) -> Counter[tuple[str, float]]:
    """Write the kept rows, weighted or thinned. Returns the number of rows by class and weight."""
    limits = _limits(rows, view, propensity, options.seed) if options.debias == "resample" else {}
    written: Counter[tuple[str, float]] = Counter()
    with RecordWriter(out) as writer:
        for kind, content, strata, data in rows.rows():
            where = _stratum(strata, view)
            if limits and unit("consensus", options.seed, content) > limits.get(where, 1.0):
                account.drop("resampled away", kind)
                continue
            if options.debias == "reweight":
                data["weight"] = round(propensity.weight.get(where, 1.0), 6)
            account.keep(kind)
            written[where[0], data["weight"]] += 1
            writer.write(data)
    return written


def _limits(rows: Spool, view: str, propensity: Propensity, seed: int) -> dict[Stratum, float]:
    """For each stratum, the cutoff below which its rows are kept, so that the strata keep their proportions among the offered
    rows."""
    lots: dict[Stratum, list[float]] = {}
    for _, content, strata, _ in rows.rows():
        lots.setdefault(_stratum(strata, view), []).append(unit("consensus", seed, content))
    highest = max((propensity.weight.get(where, 0.0) for where in lots), default=1.0)
    limits = {}
    for where, drawn in lots.items():
        stay = round(len(drawn) * propensity.weight.get(where, 0.0) / highest)
        limits[where] = sorted(drawn)[stay - 1] if stay else -1.0
    return limits


def _stratum(strata: Mapping[str, Sequence[Any]], view: str) -> Stratum:
    kind, number = strata.get(view, ("unlabelled", 0))
    return str(kind), int(number)
