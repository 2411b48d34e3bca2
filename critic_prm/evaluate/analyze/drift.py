"""Compare a later run with an earlier one or with a verifier's calibration: scores, decisions and unusable judgements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from critic_prm.data import LabelledTrajectory, problem_key
from critic_prm.errors import InputError
from critic_prm.evaluate.analyze.analysis import Analysis, Cell, Table, correct, first_field, share
from critic_prm.evaluate.settings import DriftSettings
from critic_prm.metrics.bootstrap import ratio
from critic_prm.metrics.scores import Array, cohen_kappa

NUMBERS = {
    "psi": "population stability index of P(correct) over all steps; 0.1 is a shift, 0.25 a large one",
    "psi_worst": "largest psi of any subset",
    "ks": "Kolmogorov-Smirnov distance of P(correct) over all steps",
    "ks_worst": "largest ks of any subset",
    "mean_shift": "change of the mean P(correct)",
    "accepted_shift": "change of the share of solutions in which no error is found",
    "unusable_shift": "change of the share of judgements that cannot be used",
    "flips": "share of solutions judged in both runs whose first error changed",
    "kappa": "chance-corrected agreement of the first errors",
    "exact_shift": "change of the share of solutions whose first error equals the gold one",
    "score_ks": "Kolmogorov-Smirnov distance of the solutions' scores from those a verifier's threshold was chosen on",
    "tests_significant": "number of tests below 0.05 after correction",
}
BINS = 10
GRID = 200
LEVEL = 0.05
PERMUTATIONS = 1999
_CELLS = 1 << 22  # at most this many float64 at once, 32 MB
ALL = "all"
SUBSETS = ("source", "benchmark", "subset")

MATTERS = {"psi": 0.1, "ks": 0.1, "mean": 0.05, "accepted": 0.05, "unusable": 0.02, "exact": 0.05}
"""Changes of at least this size are reported if they are also significant. 0.1 is the usual bound for a stability index."""

WORDS = {
    "psi": "the distribution of P(correct) moved (stability index {:.3f})",
    "ks": "the distribution of P(correct) moved (distance {:.3f})",
    "mean": "the mean P(correct) changed by {:+.3f}",
    "accepted": "the share of solutions found without error changed by {:+.3f}",
    "unusable": "the share of unusable judgements changed by {:+.3f}",
    "exact": "the share of first errors found exactly changed by {:+.3f}",
}


@dataclass(frozen=True, slots=True)
class Run:
    """One solution of a run, reduced to what drift compares."""

    id: str
    problem: str
    subset: str
    p: tuple[float, ...]
    first: int | None
    usable: bool
    gold: int | None


def run_of(row: LabelledTrajectory, subset: str | None = None) -> Run:
    """Convert a row. `subset` is the field of the row or its meta that names its subset; None: the first of SUBSETS."""
    trajectory, label = row.trajectory, row.label
    usable = label.status == "ok" and label.first_error is not None
    return Run(
        id=trajectory.id,
        problem=problem_key(trajectory.problem),
        subset=first_field(trajectory, *([subset] if subset else SUBSETS)) or "",
        p=tuple(p for p in label.p_correct if p is not None),
        first=label.first_error if usable else None,
        usable=usable,
        gold=trajectory.first_error(),
    )


DEFAULTS = DriftSettings()


def drift(old: Iterable[LabelledTrajectory], new: Iterable[LabelledTrajectory], settings: DriftSettings = DEFAULTS) -> Analysis:
    """Compare two runs of one critic at two times, or of two versions of it.

    If both judged the same solutions (by id), those are compared, and the permutation tests swap the two judgements of a
    problem. Otherwise the populations are compared, and the tests reassign problems to the two sides. Every test permutes whole
    problems and is corrected for multiple testing. Raises InputError for an empty file, and for runs whose solutions overlap
    only in part.
    """
    before, after = ([run_of(row, settings.subset) for row in rows] for rows in (old, new))
    if not before or not after:
        raise InputError("the old run" if not before else "the new run", "it has no judgements")
    pairs = _pairs(before, after)
    if pairs:
        before, after = [a for a, _ in pairs], [b for _, b in pairs]
    subsets = sorted({run.subset for run in (*before, *after)} - {""})
    parts = [ALL, *(subsets if len(subsets) > 1 else ())]
    measured = {part: _measure(_part(before, part), _part(after, part), bool(pairs), settings.seed) for part in parts}
    keys = [(part, name) for part in parts for name in measured[part].changes]
    q = dict(zip(keys, correct([measured[part].p[name] for part, name in keys]), strict=True))
    significant = [key for key in keys if _significant(q[key])]
    findings = [
        f"{'' if part == ALL else part + ': '}{WORDS[name].format(measured[part].changes[name])}, q {q[part, name]:.3f}"
        for part, name in significant
        if abs(measured[part].changes[name] or 0.0) >= MATTERS[name]
    ]
    whole = measured[ALL].changes
    flips = _flips(pairs)
    numbers: dict[str, float | None] = {
        "psi": whole["psi"],
        "psi_worst": _worst(measured, "psi"),
        "ks": whole["ks"],
        "ks_worst": _worst(measured, "ks"),
        **{f"{name}_shift": whole[name] for name in ("mean", "accepted", "unusable", "exact")},
        "flips": flips.share,
        "kappa": flips.kappa,
        "score_ks": None,
        "tests_significant": float(len(significant)),
    }
    tables = [_table(measured, q)]
    if pairs:
        tables.append(flips.table)
    return Analysis(
        "drift", numbers, tuple(findings), tuple(_notes(before, after, pairs, len(keys))), tuple(tables), flips.details
    )


CUTS = (10, 25, 50, 75, 90)


def drift_from_calibration(verifier: str | Path, new: Iterable[LabelledTrajectory], profile: str | None = None) -> Analysis:
    """Compare a verifier's scores of new solutions with the scores of those that its decision was chosen on.

    `profile` is a calibration profile, by default the one in use. Solutions are compared by the score that decides whether they
    have an error. Raises InputError for a verifier that has no such scores, for a run without scores, and for rows that another
    verifier or another decision scored.
    """
    from distill.store import read_watch

    watch, made = read_watch(Path(verifier), profile)
    if not watch.quantiles:
        raise InputError(
            str(verifier), "it does not know the scores its threshold was chosen on", "run: critic-prm calibrate VERIFIER FILE"
        )
    scores, unusable = [], 0
    for row in new:
        different = [name for name, value in made.items() if row.critic.get(name) != value]
        if different:
            name = different[0]
            raise InputError(
                row.trajectory.id,
                f"the {name} of its critic is {row.critic.get(name)!r:.80}, that of {verifier} is {made[name]!r:.80}",
                "score the file again with this verifier and --profile",
            )
        known = [p for p in row.label.p_correct if p is not None]
        unusable += not known
        scores += [watch.decision.lowest(known)] if known else []
        watch.add(row.label)
    if not watch.solutions:
        raise InputError("the new run", "it has no scores")
    assert watch.expected is not None and watch.share is not None  # noqa: PT018  (neither is None with scores and quantiles)
    numbers = dict.fromkeys(NUMBERS) | {"score_ks": watch.distance, "accepted_shift": watch.expected - watch.share}
    cuts = np.percentile(scores, CUTS).tolist()
    rows: list[tuple[Cell, ...]] = [("flagged", watch.expected, watch.share)]
    rows += [(f"score, {cut}% below", watch.quantiles[cut], value) for cut, value in zip(CUTS, cuts, strict=True)]
    note = (
        f"Compared: {watch.solutions:,} solutions with those the threshold was chosen on; {unusable:,} without a score. The"
        " score of a solution decides whether it has an error; flagged: the share that has one."
    )
    findings = (watch.finding,) if watch.shifted else ()
    table = Table("Solutions", ("", "calibration", "now"), tuple(rows))
    return Analysis("drift", numbers, findings, (note,), (table,))


def _pairs(before: Sequence[Run], after: Sequence[Run]) -> list[tuple[Run, Run]]:
    other = {(run.id, run.problem): run for run in after}
    pairs = [(run, other[run.id, run.problem]) for run in before if (run.id, run.problem) in other]
    if pairs and len(pairs) < 0.5 * min(len(before), len(after)):
        raise InputError(
            "the two runs",
            f"they share {len(pairs)} of {len(before)} and {len(after)} solutions",
            "compare runs on the same solutions, or on entirely different ones",
        )
    return pairs


def _part(runs: Sequence[Run], part: str) -> list[Run]:
    return [run for run in runs if part in (ALL, run.subset)]


@dataclass(frozen=True, slots=True)
class Measured:
    """Changes from old to new and their p-values; None where undefined."""

    changes: Mapping[str, float | None]
    p: Mapping[str, float | None]
    solutions: tuple[int, int]


def _measure(before: Sequence[Run], after: Sequence[Run], paired: bool, seed: int) -> Measured:
    """All statistics are functions of sums over problems: counts of P(correct) in fine bins, and a few shares."""
    scores = np.array([p for run in (*before, *after) for p in run.p], dtype=np.float64)
    grid = np.unique(np.quantile(scores, np.linspace(0, 1, GRID + 1))) if len(scores) else np.zeros(1)
    coarse = _bins(scores, grid)
    places = {key: place for place, key in enumerate(sorted({run.problem for run in (*before, *after)}))}
    old, new = (_sums(runs, grid, places) for runs in (before, after))
    exchanged = permuted(old, new, paired, seed)
    changes: dict[str, float | None] = {}
    p: dict[str, float | None] = {}
    for name, statistic in _statistics(len(grid), coarse).items():
        observed = float(statistic(old.sum(axis=0), new.sum(axis=0)))
        changes[name] = None if np.isnan(observed) else observed
        p[name] = chance(observed, statistic(*exchanged))
    return Measured(changes, p, (len(before), len(after)))


def _bins(scores: Array, grid: Array) -> NDArray[np.int64]:
    """The index of the equal-share bin, out of ten, for each point of the grid."""
    if not len(scores):
        return np.zeros(len(grid), dtype=np.int64)
    edges = np.unique(np.quantile(scores, np.arange(1, BINS) / BINS))
    return np.searchsorted(edges, grid, side="left").astype(np.int64)


SHARES = ("mean", "accepted", "unusable", "exact")


def _sums(runs: Sequence[Run], grid: Array, places: Mapping[str, int]) -> Array:
    """One row per problem: counts of P(correct) up to each grid point; then (total, hits) for each of SHARES."""
    sums = np.zeros((len(places), len(grid) + 2 * len(SHARES)))
    for run in runs:
        row = sums[places[run.problem]]
        if run.p:
            np.add.at(row, np.minimum(np.searchsorted(grid, run.p, side="left"), len(grid) - 1), 1)
        row[len(grid) :] += (
            *(len(run.p), sum(run.p)),
            *(run.usable, run.usable and run.first == -1),
            *(1, not run.usable),
            *((1, run.first == run.gold) if run.gold is not None else (0, 0)),
        )
    return sums


def _statistics(points: int, coarse: NDArray[np.int64]) -> dict[str, Any]:
    into = np.zeros((points, int(coarse.max()) + 1))
    into[np.arange(points), coarse] = 1

    def shift(place: int) -> Any:
        at = points + 2 * place
        return lambda old, new: ratio(new[..., at : at + 2]) - ratio(old[..., at : at + 2])

    return {
        "psi": lambda old, new: np.where(
            (old[..., :points].sum(axis=-1) > 0) & (new[..., :points].sum(axis=-1) > 0),
            stability(old[..., :points] @ into, new[..., :points] @ into),
            np.nan,
        ),
        "ks": lambda old, new: distance(old[..., :points], new[..., :points]),
        **{name: shift(place) for place, name in enumerate(SHARES)},
    }


@dataclass(frozen=True, slots=True)
class Flips:
    """Changes of first errors on solutions that both runs judged."""

    share: float | None
    kappa: float | None
    table: Table
    details: tuple[Mapping[str, Any], ...]


def _flips(pairs: Sequence[tuple[Run, Run]]) -> Flips:
    both = [(a.id, a.first, b.first, a.gold) for a, b in pairs if a.first is not None and b.first is not None]
    kinds = {
        "the same first error": [a == b for _, a, b, _ in both],
        "none -> an error": [a == -1 < b for _, a, b, _ in both],
        "an error -> none": [b == -1 < a for _, a, b, _ in both],
        "an earlier one": [-1 < b < a for _, a, b, _ in both],
        "a later one": [-1 < a < b for _, a, b, _ in both],
        "by gold: right -> wrong": [a == gold != b for _, a, b, gold in both if gold is not None],
        "by gold: wrong -> right": [b == gold != a for _, a, b, gold in both if gold is not None],
    }
    rows: tuple[tuple[Cell, ...], ...] = tuple((name, sum(flags), share(flags)) for name, flags in kinds.items())
    kappa = cohen_kappa([a for _, a, _, _ in both], [b for _, _, b, _ in both]) if both else None
    if both and kappa is None:  # every first error is the same
        kappa = 1.0
    return Flips(
        share=share(a != b for _, a, b, _ in both),
        kappa=kappa,
        table=Table("First errors, where both runs have one", ("", "n", "share"), rows),
        details=tuple({"id": name, "old": a, "new": b, "gold": gold} for name, a, b, gold in both if a != b),
    )


def _worst(measured: Mapping[str, Measured], name: str) -> float | None:
    return max((value for part in measured.values() if (value := part.changes[name]) is not None), default=None)


def _table(measured: Mapping[str, Measured], q: Mapping[tuple[str, str], float | None]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for part, change in measured.items():
        cells: list[Cell] = [part, f"{change.solutions[0]:,}/{change.solutions[1]:,}"]
        for name, value in change.changes.items():
            sign, mark = "" if name in ("psi", "ks") else "+", "*" if _significant(q[part, name]) else ""
            cells.append(None if value is None else f"{value:{sign}.3f}{mark}")
        rows.append(tuple(cells))
    return Table("Change from old to new (* significant, q < 0.05)", ("", "n", *MATTERS), tuple(rows))


def _significant(q: float | None) -> bool:
    return q is not None and q < LEVEL


def _notes(before: Sequence[Run], after: Sequence[Run], pairs: Sequence[Any], tests: int) -> list[str]:
    compared = f"the same {len(pairs):,} solutions" if pairs else f"{len(before):,} solutions with {len(after):,} others"
    return [
        f"Compared: {compared}. psi, ks: the distribution of P(correct); mean: of P(correct); accepted: no error found;"
        " unusable: judgements; exact: first errors as in gold.",
        f"{tests} tests by permutation of problems, corrected by Benjamini and Hochberg. A judge that samples flips by itself:"
        " compare two runs of the old one to see how much.",
    ]


def stability(old: Array, new: Array) -> Array:
    """The population stability index of bin counts, shape (..., bins): the sum of (q - p) log(q / p). Half a count is added to
    each bin so that empty bins stay finite."""
    p, q = old + 0.5, new + 0.5
    p, q = p / p.sum(axis=-1, keepdims=True), q / q.sum(axis=-1, keepdims=True)
    return np.asarray(((q - p) * np.log(q / p)).sum(axis=-1))


def distance(old: Array, new: Array) -> Array:
    """Kolmogorov-Smirnov distance from counts in ordered bins, shape (..., bins); NaN without counts."""
    with np.errstate(invalid="ignore", divide="ignore"):
        one = np.cumsum(old, axis=-1) / old.sum(axis=-1, keepdims=True)
        other = np.cumsum(new, axis=-1) / new.sum(axis=-1, keepdims=True)
    return np.asarray(np.abs(one - other).max(axis=-1))


def permuted(old: Array, new: Array, paired: bool, seed: int = 0, permutations: int = PERMUTATIONS) -> tuple[Array, Array]:
    """The sums of both sides, (permutations, f), under random exchange of problems between them.

    `old` and `new` are (problems, f). With `paired`, each problem is on both sides and its two rows may be swapped; otherwise
    each problem is on one side, with zeros on the other, and the number of problems per side stays fixed.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    side = (new == 0).all(axis=1)
    both = old + new
    size = max(1, _CELLS // max(1, len(old)))
    parts = []
    for first in range(0, permutations, size):
        count = min(size, permutations - first)
        if paired:
            stays = rng.integers(0, 2, (count, len(old))).astype(np.float64)
            parts.append(stays @ old + (1 - stays) @ new)
        else:
            parts.append((1.0 - rng.permuted(np.tile(side, (count, 1)), axis=1)) @ both)
    one = np.concatenate(parts)
    return one, both.sum(axis=0) - one


def chance(observed: float, by_chance: Array) -> float | None:
    """Permutation p-value: how often the permuted statistic is at least as far from 0 as the observed one, counting the
    observation itself; None if undefined."""
    if np.isnan(observed):
        return None
    defined = by_chance[~np.isnan(by_chance)]
    return float((1 + np.sum(np.abs(defined) >= abs(observed) - 1e-12)) / (len(defined) + 1))
