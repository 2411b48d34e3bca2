"""Generate trajectories: sampling, rollouts, tree search, planted errors and synthetic problem families."""
