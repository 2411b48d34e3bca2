"""BIG-Bench Mistake (Tyen et al. 2023): chains of thought on five tasks with human-annotated first mistakes."""

from __future__ import annotations

from critic_prm.evaluate.benchmarks.benchmark import Benchmark

BENCHMARK = Benchmark(
    name="bigbench_mistake",
    source="https://github.com/WHGTyen/BIG-Bench-Mistake",
    sizes={
        "dyck_languages": 986,
        "logical_deduction": 300,
        "multistep_arithmetic": 300,
        "tracking_shuffled_objects": 300,
        "word_sorting": 300,
    },
    prefixes=("bbm_", "bigbench_mistake_"),
)
