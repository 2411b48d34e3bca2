"""Mr-Ben (Zeng et al. 2024): solutions in seven subjects with human-annotated first errors.

Only the first error is scored here; the benchmark's own MR-Score also rates the explanation.
"""

from __future__ import annotations

from critic_prm.evaluate.benchmarks.benchmark import Benchmark

BENCHMARK = Benchmark(
    name="mrben",
    source="https://github.com/dvlab-research/Mr-Ben",
    sizes=dict.fromkeys(("math", "physics", "chemistry", "biology", "medicine", "logic", "coding"), 0),
    prefixes=("mrben_", "college_", "high_school_"),
)
