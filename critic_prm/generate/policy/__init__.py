"""Ask a policy model for solutions, check their answers, and estimate step values by rollouts."""
