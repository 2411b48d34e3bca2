"""Students, one per file: each learns from a training set and returns a scorer."""
