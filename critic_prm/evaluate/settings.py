"""Settings of evaluations and analyses: the options of the commands `evaluate`, `judge-eval` and `analyze`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from critic_prm.data.aggregate import open_aggregation
from critic_prm.errors import UsageError
from critic_prm.option import Option, check_fields


@dataclass(frozen=True, slots=True)
class EvaluationSettings:
    """How a critic is evaluated. Raises UsageError for contradictory values."""

    samples: Annotated[int, Option(min=1)] = 1
    """Judgements per solution."""
    threshold: Annotated[float | None, Option(min=0, max=1)] = None
    """Count a step as wrong below this P(correct); replaces the critic's own rule."""
    oracle_threshold: bool = False
    """Choose the threshold on the benchmark itself; gives an upper bound."""
    resamples: Annotated[int, Option(min=100)] = 2000
    """Number of bootstrap resamples for the intervals."""
    seed: int = 0
    """Random seed of the bootstrap intervals."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.threshold is not None and self.oracle_threshold:
            raise UsageError("--threshold and --oracle-threshold exclude each other; give one")


@dataclass(frozen=True, slots=True)
class AnalysisSettings:
    """Settings of all analyses. Raises UsageError for a value out of range."""

    seed: int = 0
    """Random seed of all sampling and of the intervals."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class CreditSettings(AnalysisSettings):
    """Settings of the analysis `credit`. Raises UsageError for an unknown aggregation."""

    aggregation: str = "mean"
    """Aggregation of step scores into a solution's score."""
    orders: Annotated[int, Option(min=2)] = 16
    """Permutations to sample for solutions of more than 6 steps, each used with its reverse."""

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True, slots=True)
class _ScoreSettings(AnalysisSettings):
    """Settings of the analyses that use a solution's score. Raises UsageError for an unknown aggregation."""

    aggregation: str = "min"
    """Aggregation of step scores into a solution's score."""
    resamples: Annotated[int, Option(min=100)] = 2000
    """Number of bootstrap resamples for the intervals."""

    def __post_init__(self) -> None:
        _check(self)


def _check(settings: CreditSettings | _ScoreSettings) -> None:
    check_fields(settings)
    open_aggregation(settings.aggregation)


@dataclass(frozen=True, slots=True)
class CounterfactualSettings(_ScoreSettings):
    """Settings of the analysis `counterfactual`."""

    each: Annotated[int, Option(min=1)] = 1
    """Steps to change per solution."""


@dataclass(frozen=True, slots=True)
class RiskSettings(_ScoreSettings):
    """Settings of the analysis `risk`. Raises UsageError for values out of range."""

    alpha: float = 0.2
    """Share of the lowest scores whose mean is the tail (CVaR)."""
    min_continuations: Annotated[int, Option(min=2)] = 4
    """Minimum number of continuations per prefix."""
    good: float = 0.5
    """A prefix looks good if its mean is at least this."""
    floor: float = 0.2
    """A prefix that looks good is risky if its tail is below this."""

    def __post_init__(self) -> None:
        _check(self)
        if not 0 < self.alpha <= 1:
            raise UsageError(f"--alpha is {self.alpha:g}; it must be above 0 and at most 1")


@dataclass(frozen=True, slots=True)
class BiasSettings(_ScoreSettings):
    """Settings of the analysis `bias`."""

    author: Annotated[str | None, Option(metavar="FIELD")] = None
    """Field that names the author of a solution."""
    min_effect: Annotated[float, Option(min=0)] = 0.1
    """Report effects of at least this size as bias."""


@dataclass(frozen=True, slots=True)
class DriftSettings(AnalysisSettings):
    """Settings of the analysis `drift`."""

    subset: Annotated[str | None, Option(metavar="FIELD")] = None
    """Field that names the subset of a row."""
