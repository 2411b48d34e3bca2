"""Decide on the first error from the scores of a solution's steps, and choose the rule and threshold that do it best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from critic_prm.metrics.scores import official_f1
from distill.calibration import Floats, logit, sigmoid

GRID = 400
"""Number of candidate thresholds: quantiles of the scores."""


@dataclass(frozen=True, slots=True)
class Rule:
    """How the scores of one solution become a first error. The constants were chosen on sources left out of training."""

    length: float
    """Factor of the logarithm of the number of steps, which is added to the log odds of the lowest score: among many steps, one
    is low by chance."""
    margin: float | None
    """The first error is the first step whose log odds are within this of the lowest; None: the first below the threshold."""

    def lowest(self, p: Floats) -> float:
        """The score of the solution: a solution has an error if this is below the threshold. 1 without steps."""
        if not len(p) or not self.length:
            return float(p.min(initial=1.0))
        return float(sigmoid(logit(p.min()) + self.length * math.log(len(p))))

    def step(self, p: Floats, threshold: float) -> int:
        """The first error of a solution that has one, for scores of shape (steps,)."""
        at = p < threshold if self.margin is None else logit(p) <= logit(p.min()) + self.margin
        return int(at.argmax())


RULES: Mapping[str, Rule] = {
    "first-below": Rule(length=0.0, margin=None),
    "lowest-step": Rule(length=0.0, margin=0.0),
    "near-lowest": Rule(length=0.5, margin=0.5),
}


@dataclass(frozen=True, slots=True)
class Decision:
    """A rule with its threshold on P(correct)."""

    threshold: float
    rule: str = "first-below"

    def first_error(self, scores: Sequence[float | None]) -> int:
        """Return the first error, -1 if there is none. Steps without a score (None) are skipped."""
        steps = [step for step, p in enumerate(scores) if p is not None]
        p, rule = np.array([scores[step] for step in steps], dtype=np.float64), RULES[self.rule]
        return steps[rule.step(p, self.threshold)] if rule.lowest(p) < self.threshold else -1

    def lowest(self, scores: Sequence[float | None]) -> float:
        """Return the score of the solution that is compared with the threshold; see `Rule.lowest`."""
        return RULES[self.rule].lowest(np.array([p for p in scores if p is not None], dtype=np.float64))


@dataclass(frozen=True, slots=True)
class Choice:
    """A decision with its F1, and its accuracy on erroneous and on correct solutions of the data it was chosen on.

    The metrics are None if there was no data to choose on.
    """

    decision: Decision
    f1: float | None = None
    erroneous: float | None = None
    correct: float | None = None
    solutions: int = 0


@dataclass(frozen=True, slots=True)
class Solutions:
    """Scored solutions with known first errors, on which a decision is chosen."""

    scores: Sequence[Sequence[float]]
    gold: Sequence[int | None]
    """First errors, -1 for none; solutions with None are skipped."""
    weights: Sequence[float] | None = None
    """Weight of each solution, default 1."""


def choose_threshold(
    scores: Sequence[Sequence[float]],
    gold: Sequence[int | None],
    weights: Sequence[float] | None = None,
    grid: int = GRID,
) -> Choice:
    """Choose the threshold with the best official first-error F1 (Zheng et al. 2024, ProcessBench); see `choose_decision`."""
    return choose_decision([Solutions(scores, gold, weights)], rules=("first-below",), grid=grid)


def choose_decision(parts: Sequence[Solutions], rules: Sequence[str] = tuple(RULES), grid: int = GRID) -> Choice:
    """Choose the rule and threshold with the best official first-error F1, averaged over `parts`, such as kinds of data.

    F1 is the harmonic mean of the exact-index accuracy on erroneous solutions and the accuracy on correct solutions, and 0 if
    both are 0. Parts without erroneous or without correct solutions are left out. The candidates are at most `grid` quantiles
    of the scores. Of equally good thresholds, the middle one is taken, so that a single solution cannot move the threshold far.
    If no part has both kinds, the threshold is 0.5 and the F1 None.
    """
    counts = [part for part in map(_labelled, parts) if part]
    both = [part for part in counts if any(g >= 0 for _, g, _ in part) and any(g < 0 for _, g, _ in part)]
    if not both:
        return Choice(Decision(0.5), solutions=sum(map(len, counts)))
    best = Choice(Decision(0.5), f1=-1.0)
    for rule in rules:
        values = [s if RULES[rule].margin is None else [RULES[rule].lowest(s)] for part in both for s, _, _ in part]
        taus = _candidates(np.concatenate(values), grid)
        sums = np.stack([count_hits(part, RULES[rule], taus) for part in both])  # (parts, thresholds, 4)
        f1 = official_f1(sums).mean(axis=0)
        top = np.flatnonzero(f1 >= f1.max() - 1e-12)
        at = int(top[len(top) // 2])
        if best.f1 is None or f1[at] > best.f1:
            bad, hit_bad, good, hit_good = np.moveaxis(sums[:, at], -1, 0)
            accuracies = float((hit_bad / bad).mean()), float((hit_good / good).mean())
            best = Choice(Decision(float(taus[at]), rule), float(f1[at]), *accuracies, sum(map(len, both)))
    return best


def _labelled(part: Solutions) -> list[tuple[Floats, int, float]]:
    weights = [1.0] * len(part.gold) if part.weights is None else part.weights
    return [
        (np.asarray(s, dtype=np.float64), g, w)
        for s, g, w in zip(part.scores, part.gold, weights, strict=True)
        if g is not None and len(s)
    ]


def count_hits(part: Sequence[tuple[Floats, int, float]], rule: Rule, taus: Floats) -> Floats:
    """Return per threshold the weights of erroneous solutions, first errors found, correct solutions and those accepted."""
    hit_bad, hit_good = np.zeros(len(taus)), np.zeros(len(taus))
    for s, g, w in part:
        if g < 0:
            hit_good += w * (rule.lowest(s) >= taus)
        elif rule.margin is None:
            # With a running minimum, "the first step below tau is g" means that the minimum before g is >= tau and s[g] < tau.
            hit_bad += w * ((s[g] < taus) & ((s[:g].min() if g else np.inf) >= taus))
        elif rule.step(s, 1.0) == g:
            hit_bad += w * (rule.lowest(s) < taus)
    bad, good = sum(w for _, g, w in part if g >= 0), sum(w for _, g, w in part if g < 0)
    return np.stack(np.broadcast_arrays(bad, hit_bad, good, hit_good), axis=-1)


def _candidates(values: Floats, grid: int) -> Floats:
    """Return the midpoints between neighbouring distinct scores, thinned to `grid` quantiles."""
    distinct = np.unique(values)
    if len(distinct) == 1:
        return distinct
    middles = (distinct[1:] + distinct[:-1]) / 2
    if len(middles) <= grid:
        return middles
    return np.unique(np.quantile(middles, np.linspace(0, 1, grid)))


def decision_from_json(value: Mapping[str, Any]) -> Decision:
    """Restore a decision. Raises ValueError for an unknown rule or a threshold that is not a number from 0 to 1."""
    rule, threshold = value.get("rule", "first-below"), value["threshold"]
    if rule not in RULES:
        raise ValueError(f"the decision's rule is {rule!r:.80}; available: {', '.join(RULES)}")
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
        raise ValueError(f'"threshold" is {threshold!r:.80}; it must be a number from 0 to 1')
    return Decision(float(threshold), rule)
