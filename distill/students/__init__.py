"""One student a file: each learns from a training set and becomes a scorer."""
