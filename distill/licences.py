"""The name of a base or the folder of a training set in, the licence that its card states out."""

from __future__ import annotations

import os
import re
from pathlib import Path


def licence_of(name: str) -> str:
    """What the README.md of a folder, or of a hub model that was fetched before, says at its top; "" where nothing does."""
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
    """Where the hub's own client keeps a model."""
    home = os.environ.get("HF_HUB_CACHE") or str(Path(os.environ.get("HF_HOME", "~/.cache/huggingface"), "hub"))
    return Path(home).expanduser() / f"models--{name.replace('/', '--')}"
