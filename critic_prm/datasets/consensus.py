"""Two label sources in, the trajectories on which they agree out, with the acceptance by class and position reported."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from critic_prm.data.hashing import unit
from critic_prm.data.records.reading import RecordWriter
from critic_prm.datasets.acceptance import Tally, accepted
from critic_prm.datasets.account import DatasetStats, write_report
from critic_prm.datasets.agreement import Agreed, Said, said, same_first_error, same_on_confident
from critic_prm.datasets.propensity import Propensity, Stratum, inverse_propensity, stratum
from critic_prm.datasets.rows import Row, Spool, class_of, read_rows, spool
from critic_prm.errors import InputError, UsageError

Match = Literal["first-error", "confident"]
View = Literal["auto", "gold", "a", "b"]
Debias = Literal["none", "reweight", "resample"]


@dataclass(frozen=True, slots=True)
class ConsensusOptions:
    """What agreement is, and what is done about its bias.

    match: "first-error", or "confident": A agrees with B on every step of which B is sure, right from `high` on and wrong up to
    `low`. threshold_a, threshold_b: take the first step whose P(correct) is below for the source's first error. class_by: whose
    word the class of a solution is for acceptance and weights: gold labels, A or B; "auto" is gold where every row has it,
    else B. debias: "reweight" gives each row the inverse of its stratum's acceptance rate as weight, "resample" thins the
    strata that were kept more often; strata are class x position of the first error (or length).
    """

    match: Match = "first-error"
    low: float = 0.125
    high: float = 0.75
    threshold_a: float | None = None
    threshold_b: float | None = None
    class_by: View = "auto"
    debias: Debias = "none"
    seed: int = 0

    def check(self) -> None:
        """Raises UsageError for a value that does not exist."""
        for name, value, known in (
            ("match", self.match, get_args(Match)),
            ("class_by", self.class_by, get_args(View)),
            ("debias", self.debias, get_args(Debias)),
        ):
            if value not in known:
                raise UsageError(f"{name} is {value!r}; it is one of {', '.join(known)}")
        if not 0 <= self.low < self.high <= 1:
            raise UsageError(f"sure is up to {self.low:g} and from {self.high:g} on; it needs 0 <= low < high <= 1")
        for name, number in (("A", self.threshold_a), ("B", self.threshold_b)):
            if number is not None and not 0 < number <= 1:
                raise UsageError(f"the threshold of {name} is {number:g}; it is a probability above 0")


DEFAULT = ConsensusOptions()


@dataclass(frozen=True, slots=True)
class _Other:
    """What is held of a row of B."""

    content: bytes
    p: array[float]
    first_error: int | None
    gold: int | None

    def said(self) -> Said:
        return Said(tuple(None if p < 0 else p for p in self.p), self.first_error)


def consensus(
    a: str | Path,
    b: str | Path,
    out: str | Path,
    options: ConsensusOptions = DEFAULT,
) -> dict[str, Any]:
    """Write the rows of `a` on which `b` agrees to `out`, with the labels agreed on, and return the report.

    Either file is a label file (of a judge, or of Monte Carlo rollouts), trajectories with gold labels, or training rows; they
    are joined by id, else by content. A row that is kept is A's with `label` and `step_labels` (training rows: `labels`) as
    agreed, its `weight`, and under `consensus` what both said and the gold label it came with. B is held, some hundred bytes a
    row; A is streamed and waits on disk. Raises InputError and UsageError.
    """
    options.check()
    by_id, by_content, others = _index(b, options)
    account, tally = DatasetStats("consensus"), Tally()
    met: set[bytes] = set()
    with spool(out) as rows:
        for row in read_rows(a):
            account.take(row.kind)
            other = _partner(row, by_id, by_content)
            if isinstance(other, str):
                tally.only_a += other == "only in A"
                account.drop(other, row.kind)
                continue
            met.add(other.content)
            tally.joined += 1
            mine, theirs = said(row, options.threshold_a), other.said()
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
        account.file(a, account.rows_in.total())
        account.file(b, others)
        view = _view(tally, options)
        propensity = inverse_propensity(tally.offered[view], tally.kept[view])
        written = _write(rows, out, view, propensity, options, account)
    more = accepted(tally, view, propensity, written, options.debias)
    report = account.summary(asdict(options), {"only_in_b": len(by_content.keys() - met), **more})
    write_report(out, report)
    return report


def _index(path: str | Path, options: ConsensusOptions) -> tuple[dict[str, _Other], dict[bytes, _Other], int]:
    count = 0
    by_id: dict[str, _Other] = {}
    by_content: dict[bytes, _Other] = {}
    for count, row in enumerate(read_rows(path), 1):  # noqa: B007  (the last number is what is wanted)
        theirs, content = said(row, options.threshold_b), bytes.fromhex(row.content)
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


def _compare(a: Said, b: Said, options: ConsensusOptions) -> Agreed | str:
    if options.match == "confident":
        return same_on_confident(a, b, options.low, options.high)
    return same_first_error(a, b)


def _strata(row: Row, mine: Said, other: _Other) -> dict[str, Stratum]:
    """The stratum of a solution from each point of view that knows its class."""
    firsts = {"gold": row.gold if row.gold is not None else other.gold, "a": mine.first_error, "b": other.first_error}
    steps = len(row.trajectory.steps)
    return {view: stratum(class_of(first), first, steps) for view, first in firsts.items() if first is not None}


def _pair(a: Said, b: Said) -> str:
    if a.first_error is None or b.first_error is None:
        return "open"
    if a.first_error == b.first_error:
        return "the same error" if a.first_error >= 0 else "both right"
    if a.first_error < 0 or b.first_error < 0:
        return "A right, B wrong" if a.first_error < 0 else "A wrong, B right"
    return "one step apart" if abs(a.first_error - b.first_error) == 1 else "further apart"


def _agreed_row(row: Row, agreed: Agreed, mine: Said, theirs: Said, other: _Other) -> dict[str, Any]:
    came = {name: row.data[name] for name in ("label", "step_labels", "labels", "weight") if name in row.data}
    note = {"a": mine.first_error, "b": theirs.first_error, "b_p_correct": [p if p is None else round(p, 6) for p in theirs.p]}
    data = {**row.data, "weight": 1.0, "consensus": {**note, **({"before": came} if came else {})}}
    if row.shape == "training row":
        return {**data, "labels": list(agreed.labels)}
    return {**data, "label": agreed.first_error, "step_labels": list(agreed.labels)}


def _view(tally: Tally, options: ConsensusOptions) -> str:
    if options.class_by != "auto":
        if tally.joined and not tally.offered[options.class_by]:
            raise UsageError(f"class_by is {options.class_by}, which says the class of no row; choose another")
        return options.class_by
    return "gold" if tally.joined and tally.offered["gold"].total() == tally.joined else "b"


def _write(
    rows: Spool, out: str | Path, view: str, propensity: Propensity, options: ConsensusOptions, account: DatasetStats
) -> Counter[tuple[str, float]]:
    """Write what was kept, weighted or thinned; returns how many rows of each class have which weight."""
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
    """For each stratum the lot up to which its rows stay, so that what stays has the strata's shares among the offered."""
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
