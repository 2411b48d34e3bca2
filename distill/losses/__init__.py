"""Training losses, one per file."""
