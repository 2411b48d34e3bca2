"""AgentProcessBench (RUCBM): tool-using runs, each assistant turn rated 1, 0 or -1 by people; 0 is unscored."""

from __future__ import annotations

from critic_prm.evaluate.benchmarks.benchmark import Benchmark

BENCHMARK = Benchmark(
    name="agentprocessbench",
    source="https://github.com/RUCBM/AgentProcessBench",
    sizes={"hotpotqa": 250, "gaia_dev": 0, "bfcl": 0, "tau2": 0},
    prefixes=("agentprocessbench_",),
)
