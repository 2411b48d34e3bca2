"""PRMBench (Song et al. 2025): 6,216 solutions with injected errors in nine classes, scored by PRMScore.

As in the original score, redundant steps count as incorrect, and the class multi_solutions, which has no errors, is scored by
the F1 of correct steps alone.
"""

from __future__ import annotations

from critic_prm.data.trajectory import Trajectory
from critic_prm.evaluate.benchmarks.benchmark import Benchmark


def _class(trajectory: Trajectory) -> str | None:
    value = trajectory.meta.get("classification")
    return value if isinstance(value, str) and value else None


BENCHMARK = Benchmark(
    name="prmbench",
    source="https://github.com/ssmisya/PRMBench",
    headline="prm_score",
    neutral="bad",
    group=_class,
)
