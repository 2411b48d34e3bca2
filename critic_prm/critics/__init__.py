"""Critics, one per file: LLM judges, rule checker, Monte Carlo rollouts, consensus, cascade, mixture."""
