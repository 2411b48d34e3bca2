"""One critic a file, each with `connect(...) -> Critic`."""
