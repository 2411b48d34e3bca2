"""Adapt a verifier's decision to a new kind of data, with few labels or none, and store it as a calibration profile."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np

from critic_prm.data.aggregate import log_product
from critic_prm.errors import InputError, UsageError
from critic_prm.metrics.scores import official_f1
from distill.calibration import Calibration, Floats, calibration_from_json, choose
from distill.data import first_error_of
from distill.decision import RULES, Decision, count_hits, decision_from_json
from distill.settings import CalibrationSettings

ERROR_RATE = 0.6
"""Share of solutions to flag if neither the verifier nor the user says otherwise; see `best_share`."""
PRIOR = 100
"""Number of labelled solutions at which the share that is best on the labels counts as much as the default. Chosen on sources
left out of training, as everything in this module."""
SHARES = np.linspace(0.05, 0.95, 37)
"""Candidate shares of solutions to flag."""
SMOOTHED = 7
"""Number of neighbouring candidates over which F1 is averaged before the best share is chosen."""
FEW = 30
"""Fewest solutions to calibrate on, and fewest labelled steps of each class for a new probability map."""
QUANTILES = 101
STORED = ("decision", "calibration", "quantiles", "flagged", "ranks")
"""The keys of a profile in `verifier.json` that are not facts."""
NONE = "none"
"""The name that stands for no profile."""


DEFAULTS = CalibrationSettings()


@dataclass(frozen=True, slots=True)
class Profile:
    """A decision, and with labels a probability map, for one kind of data."""

    decision: Decision
    calibration: Calibration
    quantiles: tuple[float, ...]
    """101 quantiles, 0 to 1, of the solutions' scores (see `Decision.lowest`)."""
    flagged: float
    """Share of the solutions in which an error is found."""
    facts: Mapping[str, Any]
    """Origin and certainty: data, solutions, labelled, shares, intervals, versions."""
    ranks: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """101 quantiles of the scores by which a cascade asks its judge: "step", P(correct) of the steps; "solution", the logarithm
    of their product. Empty if the profile was made by a version without them."""

    def to_json(self) -> dict[str, Any]:
        return {
            **self.facts,
            "decision": asdict(self.decision),
            "calibration": self.calibration.to_json(),
            "quantiles": list(self.quantiles),
            "flagged": self.flagged,
            "ranks": {by: list(values) for by, values in self.ranks.items()},
        }


def profile_from_json(value: Mapping[str, Any]) -> Profile:
    """Restore what `to_json` wrote. Raises ValueError, KeyError or TypeError for a value that does not fit."""
    flagged, data = value["flagged"], value.get("data", "")
    if type(flagged) not in (int, float) or not 0 <= flagged <= 1:
        raise ValueError(f'"flagged" of a profile is {flagged!r:.80}; it must be a share from 0 to 1')
    if not isinstance(data, str):
        raise ValueError(f'"data" of a profile is {data!r:.80}; it must be a text')
    ranks = {by: tuple(float(q) for q in values) for by, values in value.get("ranks", {}).items()}
    if any(len(values) < 2 or not all(b >= a - 1e-9 for a, b in pairwise(values)) for values in ranks.values()):
        raise ValueError('"ranks" of a profile are not quantiles, at least two, ascending')
    return Profile(
        decision_from_json(value["decision"]),
        calibration_from_json(value["calibration"]),
        quantiles_from_json(value["quantiles"]),
        float(flagged),
        {key: part for key, part in value.items() if key not in STORED},
        ranks,
    )


def quantiles_from_json(value: Any) -> tuple[float, ...]:
    """Restore the quantiles of scores. Raises ValueError unless there are none, or QUANTILES ascending numbers from 0 to 1."""
    if not isinstance(value, list) or len(value) not in (0, QUANTILES):
        raise ValueError(f"its quantiles are not a list of {QUANTILES} numbers")
    if not all(type(q) in (int, float) and 0 <= q <= 1 for q in value) or any(b < a - 1e-9 for a, b in pairwise(value)):
        raise ValueError("its quantiles are not ascending numbers from 0 to 1")
    return tuple(map(float, value))


def is_name(name: str) -> bool:
    """Whether a text can be the name of a profile."""
    return name != NONE and re.fullmatch(r"\w[\w.-]{0,63}", name) is not None


def check_name(name: str) -> str:
    """Return the name of a profile. Raises UsageError unless it is a word that is not `none`."""
    if not is_name(name):
        raise UsageError(f"the profile's name is {name[:80]!r}; use up to 64 letters, digits, dots and dashes, and not {NONE}")
    return name


def adapt(
    raw: Sequence[Floats],
    labels: Sequence[Sequence[float | None]],
    problems: Sequence[str],
    base: Calibration,
    rule: str,
    default_share: float = ERROR_RATE,
    settings: CalibrationSettings = DEFAULTS,
    facts: Mapping[str, Any] = MappingProxyType({}),
) -> Profile:
    """Compute a profile from the raw scores of solutions, nan for steps without a score.

    `labels` are P(correct) per step, None where unknown; all may be unknown. Without labels, the threshold is the quantile of
    the solutions' scores at which the wanted share is flagged. With k labelled solutions, the share that is best on them is
    averaged with `default_share` in the ratio k to PRIOR, and P(correct) is fitted again if that improves the cross-validated
    Brier score. `facts` describe the data and are stored. Raises InputError for fewer than FEW scored solutions.
    """
    scored = [~np.isnan(p) for p in raw]
    kept = [i for i, has in enumerate(scored) if has.any()]
    if len(kept) < FEW:
        raise InputError("the data to calibrate on", f"it has {len(kept)} solutions with scores", f"give at least {FEW}")
    p = [raw[i][scored[i]] for i in kept]
    known = [[y for y, has in zip(labels[i], scored[i], strict=True) if has] for i in kept]
    keys = [problems[i] for i in kept]
    calibration, brier = _probabilities(p, known, keys, base)
    p = [calibration(each) for each in p]
    gold = [first_error_of(each) for each in known]
    lowest = np.array([RULES[rule].lowest(each) for each in p])
    labelled = [i for i, first in enumerate(gold) if first is not None]
    low, high, best = 0.0, 0.0, None
    if settings.error_rate is not None:
        low, high = settings.shares()
    else:
        best = best_share([[(p[i], gold[i]) for i in labelled]], rule, lowest)  # type: ignore[misc]
        low = high = default_share if best is None else (len(labelled) * best + PRIOR * default_share) / (len(labelled) + PRIOR)
    threshold, *ends = (threshold_of(lowest, share) for share in ((low + high) / 2, low, high))
    interval = _interval(lowest, keys, (low + high) / 2, settings)
    certainty = {
        "solutions": len(p),
        "labelled": len(labelled),
        "share": (low + high) / 2,
        "share_from": "--error-rate" if settings.error_rate else "labels" if best is not None else "kinds of data left out",
        "best_share_of_labels": best,
        "threshold_of_range": ends,
        "threshold_interval": interval,
        "brier": brier,
        "version": version("critic-prm"),
    }
    ranks = {
        "step": quantiles_of(np.concatenate(p)),
        "solution": quantiles_of(np.array([log_product(each.tolist()) for each in p])),
    }
    flagged = float((lowest < threshold).mean())
    return Profile(Decision(threshold, rule), calibration, quantiles_of(lowest), flagged, {**facts, **certainty}, ranks)


def threshold_of(lowest: Floats, share: float) -> float:
    """The threshold below which a share of the solutions, by their lowest scores, comes closest to `share`.

    It is the quantile, or a float just above it where many solutions have exactly that score: none of these is below it.
    """
    quantile = float(np.quantile(lowest, share))
    above = float(np.nextafter(quantile, 1.0))
    return min((quantile, above), key=lambda threshold: abs(float((lowest < threshold).mean()) - share))


def quantiles_of(values: Floats | Sequence[float]) -> tuple[float, ...]:
    """Return the QUANTILES quantiles that a verifier stores, from the lowest value to the highest."""
    return tuple(np.quantile(values, np.linspace(0, 1, QUANTILES)).tolist())


def best_share(parts: Sequence[Sequence[tuple[Floats, int]]], rule: str, lowest: Floats | None = None) -> float | None:
    """Return the share of flagged solutions with the best first-error F1, averaged over `parts`.

    A part is a list of (scores, first error). `lowest` are the scores of the solutions whose quantiles are the thresholds,
    default: those of the part. None if no part has both erroneous and correct solutions.
    """
    curves = []
    for part in parts:
        if {first < 0 for _, first in part} == {True, False}:
            own = np.array([RULES[rule].lowest(p) for p, _ in part]) if lowest is None else lowest
            taus = np.quantile(own, SHARES)
            curves.append(official_f1(count_hits([(p, first, 1.0) for p, first in part], RULES[rule], taus)))
    if not curves:
        return None
    width = SMOOTHED // 2
    f1 = np.pad(np.mean(curves, axis=0), width, mode="edge")
    smooth = np.convolve(f1, np.ones(SMOOTHED) / SMOOTHED, mode="valid")
    top = np.flatnonzero(smooth >= smooth.max() - 1e-12)
    return float(SHARES[top[len(top) // 2]])


def _probabilities(
    p: Sequence[Floats], labels: Sequence[Sequence[float | None]], problems: Sequence[str], base: Calibration
) -> tuple[Calibration, dict[str, float]]:
    """Return `base` or, if the labels are enough and improve the cross-validated Brier score, a new map of raw scores."""
    steps = [(i, s, y) for i, each in enumerate(labels) for s, y in enumerate(each) if y is not None]
    x, y = np.array([p[i][s] for i, s, _ in steps]), np.array([y for *_, y in steps])
    if min((y >= 0.5).sum(), (y < 0.5).sum()) < FEW:
        return base, {}
    return choose(x, y, np.ones_like(y), [problems[i] for i, *_ in steps], base=base)


def _interval(lowest: Floats, problems: Sequence[str], share: float, settings: CalibrationSettings) -> list[float]:
    """The 95% interval of the threshold: problems are resampled with all their solutions."""
    generator = np.random.default_rng(settings.seed)
    _, owner = np.unique(np.array(problems), return_inverse=True)
    order = np.argsort(lowest)
    draws = np.array([
        np.bincount(generator.integers(owner.max() + 1, size=owner.max() + 1), minlength=owner.max() + 1)[owner[order]]
        for _ in range(settings.resamples)
    ])  # fmt: skip
    reached = np.cumsum(draws, axis=1) >= share * draws.sum(axis=1, keepdims=True)
    low, high = np.percentile(lowest[order][reached.argmax(axis=1)], [2.5, 97.5])
    return [float(low), float(high)]
