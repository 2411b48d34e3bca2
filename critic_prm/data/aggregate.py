"""Aggregate step scores into one solution score, and compute lower confidence bounds on P(correct)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

from critic_prm.errors import UsageError

Nulls = Literal["skip", "fail"]
Aggregation = Callable[[Sequence[float]], float]

_EPSILON = 1e-6
"""Probabilities are clipped to [_EPSILON, 1 - _EPSILON] before their logarithm is taken."""

Z95 = 1.6448536269514722
"""The 95% quantile of the standard normal distribution, for one-sided bounds at level 0.95."""


def product(p: Sequence[float]) -> float:
    """Product of the scores: P(every step is correct) if steps were independent. It decreases with length."""
    return math.prod(p)


def log_product(p: Sequence[float]) -> float:
    """Logarithm of the product, which a long solution does not round to 0. Scores are clipped as for log odds."""
    return math.fsum(math.log(max(x, _EPSILON)) for x in p)


def mean(p: Sequence[float]) -> float:
    """Arithmetic mean of the scores."""
    return math.fsum(p) / len(p)


def geometric_mean(p: Sequence[float]) -> float:
    """Geometric mean: the product without its dependence on length. 0 if any step has score 0."""
    if len(p) < 20:
        return math.prod(p) ** (1 / len(p))
    return math.exp(mean([math.log(x) for x in p])) if min(p) > 0 else 0.0  # a long product would be rounded to 0


def mean_logit(p: Sequence[float]) -> float:
    """The probability whose log-odds are the mean of the steps' log-odds."""
    logits = [math.log(q / (1 - q)) for q in (min(max(x, _EPSILON), 1 - _EPSILON) for x in p)]
    return 1 / (1 + math.exp(-mean(logits)))


def softmin(p: Sequence[float], temperature: float = 0.1) -> float:
    """Mean weighted by exp(-p / temperature) (PURE, Cheng et al. 2025). Near the minimum for a low temperature, near the mean
    for a high one."""
    least = min(p)
    weights = [math.exp((least - x) / temperature) for x in p]
    return math.fsum(w * x for w, x in zip(weights, p, strict=True)) / math.fsum(weights)


def discounted(p: Sequence[float], gamma: float = 0.95) -> float:
    """Mean weighted by gamma to the power of the number of steps that follow, so the last step has weight 1."""
    return weighted(p, [gamma ** (len(p) - 1 - i) for i in range(len(p))])


def cvar(p: Sequence[float], alpha: float = 0.3) -> float:
    """Mean of the worst fraction `alpha` of the steps; the step at the boundary counts fractionally. alpha=1 is the mean."""
    k = alpha * len(p)
    weights = [min(max(k - i, 0.0), 1.0) for i in range(len(p))]
    return math.fsum(w * x for w, x in zip(weights, sorted(p), strict=True)) / k


def weighted(p: Sequence[float], weights: Sequence[float]) -> float:
    """Weighted mean with one nonnegative weight per step. Raises UsageError if the weights sum to 0 or their
    number is wrong."""
    total = math.fsum(weights)
    if len(weights) != len(p) or min(weights) < 0 or total <= 0:
        raise UsageError(f"{len(weights)} weights that sum to {total:g} for {len(p)} steps; give one of at least 0 for each")
    return math.fsum(w * x for w, x in zip(weights, p, strict=True)) / total


AGGREGATIONS: dict[str, Aggregation] = {
    "min": min,
    "product": product,
    "geometric_mean": geometric_mean,
    "mean": mean,
    "sum": math.fsum,
    "last": lambda p: p[-1],
    "max": max,
    "softmin": softmin,
    "discounted": discounted,
    "mean_logit": mean_logit,
    "cvar": cvar,
}
"""Aggregations by name. The best choice depends on the labels: "min" for first-error labels, "last" for Monte Carlo labels
(values of a prefix)."""

_TUNED: dict[str, tuple[Callable[[Sequence[float], float], float], float, float]] = {
    "softmin": (softmin, 0.0, math.inf),
    "discounted": (discounted, 0.0, 1.0),
    "cvar": (cvar, 0.0, 1.0),
}
"""Aggregations with a parameter, and its range: greater than the first number, at most the second."""


def open_aggregation(how: str) -> Aggregation:
    """Return the aggregation for `how`: a name in AGGREGATIONS, or a name with its parameter such as "cvar:0.2" or
    "softmin:0.05".

    Raises UsageError, listing the valid names, for anything else.
    """
    name, colon, text = how.replace("-", "_").partition(":")
    if not colon and name in AGGREGATIONS:
        return AGGREGATIONS[name]
    if colon and name in _TUNED:
        function, low, high = _TUNED[name]
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low < value <= high or value == math.inf:
            raise UsageError(
                f"{how!r}: the parameter of {name} is a number above {low:g}" + (f" up to {high:g}" if high == 1 else "")
            )
        return lambda p: function(p, value)
    raise UsageError(
        f"there is no aggregation {how!r}; available: {', '.join(AGGREGATIONS)}, and {', '.join(_TUNED)} with :NUMBER"
    )


def aggregate(p_correct: Sequence[float | None], how: str | Aggregation = "min", nulls: Nulls = "skip") -> float | None:
    """Aggregate the P(correct) of the steps into one score for the solution.

    Steps without a score are skipped (`nulls="skip"`) or make the result None (`nulls="fail"`). The result is also None if no
    step has a score: nothing is imputed. Raises UsageError for an unknown name.
    """
    function = open_aggregation(how) if isinstance(how, str) else how
    known = [p for p in p_correct if p is not None]
    if not known or (nulls == "fail" and len(known) < len(p_correct)):
        return None
    return float(function(known))


def wilson(k: float, n: float, z: float = Z95) -> float:
    """Lower bound of Wilson's score interval for k successes in n > 0 trials (Wilson 1927). One-sided 95% by default."""
    p = k / n
    return max(0.0, (p + z * z / (2 * n) - z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))) / (1 + z * z / n))


def jeffreys(k: float, n: float, level: float = 0.95) -> float:
    """The 1 - `level` quantile of Beta(k + 1/2, n - k + 1/2), the posterior under Jeffreys' prior. 0 if k is 0."""
    from scipy.special import betaincinv

    return float(betaincinv(k + 0.5, n - k + 0.5, 1 - level)) if k else 0.0


def posterior_cvar(k: float, n: float, alpha: float = 0.1) -> float:
    """Mean of the lowest fraction `alpha` of P(correct) under Jeffreys' posterior for k of n: a pessimistic estimate."""
    from scipy.special import betainc, betaincinv

    a, b = k + 0.5, n - k + 0.5
    return float(a / (a + b) * betainc(a + 1, b, betaincinv(a, b, alpha)) / alpha)


def spread(members: Sequence[Sequence[float | None]]) -> list[tuple[float, float] | None]:
    """Mean and standard deviation (n - 1) per step over the ensemble members that score it. The deviation is 0 if only one
    member scores the step, and the entry is None if none does. All members have the same number of steps."""
    steps = [[p for p in column if p is not None] for column in zip(*members, strict=True)]
    return [(mean(known), _deviation(known)) if known else None for known in steps]


def spread_bounds(members: Sequence[Sequence[float | None]], z: float = Z95) -> list[float | None]:
    """Conservative P(correct) per step from an ensemble: the mean minus `z` standard deviations, at least 0. None if no member
    scores the step."""
    return [None if step is None else max(0.0, step[0] - z * step[1]) for step in spread(members)]


def _deviation(values: Sequence[float]) -> float:
    middle = mean(values)
    return math.sqrt(math.fsum((x - middle) ** 2 for x in values) / (len(values) - 1)) if len(values) > 1 else 0.0


BOUNDS: dict[str, Callable[[float, float], float]] = {"wilson": wilson, "jeffreys": jeffreys, "posterior_cvar": posterior_cvar}


def lower_bounds(votes: Sequence[tuple[int, int]], how: str = "wilson", correlation: float = 0.0) -> list[float | None]:
    """Conservative P(correct) per step from its (k, n) votes, None without votes. Aggregate the bounds as usual.

    Bounds rank 14 of 16 votes above 3 of 3; the plain fraction does not. Votes of one judge on one step are correlated:
    `correlation` (0 to 1) reduces n votes to n / (1 + (n - 1) * correlation). Raises UsageError for an unknown name.
    """
    if how not in BOUNDS:
        raise UsageError(f"there is no bound {how!r}; available: {', '.join(BOUNDS)}")
    shrunk = [(k, n, 1 + (n - 1) * correlation) for k, n in votes]
    return [BOUNDS[how](k / factor, n / factor) if n else None for k, n, factor in shrunk]
