"""Training losses: a function and a `Loss` for each, grouped by what they learn from."""
