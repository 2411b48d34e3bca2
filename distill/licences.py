"""Look up the licence of a base model or training set in its card."""

from __future__ import annotations

import os
import re
from pathlib import Path


def licence_of(name: str) -> str:
    """Return the licence in the README.md metadata of a folder or of a cached hub model; "" if none is stated."""
    folder = Path(name)
    cards = [folder / "README.md"] if folder.is_dir() else sorted(_fetched(name).glob("snapshots/*/README.md"))
    for card in cards:
        if card.is_file():
            front = re.match(r"---\n(.*?)\n---", card.read_text("utf-8", errors="replace"), re.DOTALL)
            found = re.search(r"^licen[sc]e: *[\"']?([^\"'\n]+)", front.group(1), re.MULTILINE) if front else None
            if found:
                return found.group(1).strip()
    return ""


def _fetched(name: str) -> Path:
    """Return the folder in which the hub client caches a model."""
    home = os.environ.get("HF_HUB_CACHE") or str(Path(os.environ.get("HF_HOME", "~/.cache/huggingface"), "hub"))
    return Path(home).expanduser() / f"models--{name.replace('/', '--')}"
