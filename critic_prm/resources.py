"""Where the files lie that come with the package but are no code: prompts, examples, the example cache."""

from __future__ import annotations

from pathlib import Path


def resource(name: str) -> Path:
    """The path of "prompts", "examples/trajectories.jsonl" or "cache.db.example": in the installed package, or in a
    checkout."""
    packaged = Path(__file__).parent / name
    return packaged if packaged.exists() else Path(__file__).parents[1] / name
