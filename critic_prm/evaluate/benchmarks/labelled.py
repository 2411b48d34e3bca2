"""Any file with gold labels in a supported format; each file is a subset."""

from __future__ import annotations

from critic_prm.evaluate.benchmarks.benchmark import Benchmark

BENCHMARK = Benchmark(name="labelled", source="your own files: trajectories with `label` or `step_labels`")
