"""MR-MATH of ReasonEval (Xia et al. 2024): 159 solutions with a right answer, half of which contain an error.

The same folder also has PRM800K solutions with one perturbed step.
"""

from __future__ import annotations

from critic_prm.evaluate.benchmarks.benchmark import Benchmark

BENCHMARK = Benchmark(
    name="reasoneval",
    source="https://github.com/GAIR-NLP/ReasonEval",
    sizes={"mr_math": 159, "mr-math_invalid_errors": 159, "perturbation": 0, "perturbed_prm800k": 0},
)
