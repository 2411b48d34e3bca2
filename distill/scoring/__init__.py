"""Score steps with a stored verifier."""
