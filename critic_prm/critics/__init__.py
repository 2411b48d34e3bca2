"""Critics, one per file: LLM judges, the rule checker, rollouts, consensus, cascades, mixtures."""
