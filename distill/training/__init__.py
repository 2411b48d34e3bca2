"""Train a transformer verifier."""
