"""Other people's dataset formats, one per file."""
