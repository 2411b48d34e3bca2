"""ProcessBench (Zheng et al. 2024): 3,400 solutions of four difficulties with human-annotated first errors."""

from __future__ import annotations

from critic_prm.evaluate.benchmarks.benchmark import Benchmark

BENCHMARK = Benchmark(
    name="processbench",
    source="https://huggingface.co/datasets/Qwen/ProcessBench",
    sizes={"gsm8k": 400, "math": 1000, "olympiadbench": 1000, "omnimath": 1000},
    prefixes=("processbench_", "processbench-"),
)
