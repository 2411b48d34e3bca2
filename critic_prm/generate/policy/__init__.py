"""Sample solutions from a policy model, grade their answers and estimate step values by rollouts."""
