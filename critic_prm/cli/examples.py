"""critic-prm examples: copy the data and the stand-in judge that the cookbook uses into a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

FILES = {
    "examples.jsonl": ("examples/trajectories.jsonl", "93 solutions with gold labels: mathematics, proofs, code, agents"),
    "cache.db.example": ("cache.db.example", "a judge's recorded replies about them, for --judge recorded/example-judge"),
    "server.py": ("bench/server.py", "a local server with random verdicts: python server.py --port 8765"),
}
"""What is copied: name in the folder -> shipped file, description."""


def examples(folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to copy them to.")]) -> None:
    """Copy the cookbook's example data to a folder.

    Writes example solutions, recorded replies of a judge and a stand-in server to a folder (DIR). Nothing is downloaded.

    Example: critic-prm examples cookbook
    """
    from critic_prm.data.records.writing import write_whole
    from critic_prm.errors import UsageError
    from critic_prm.registry import resource

    shipped = {folder / name: resource(source).read_bytes() for name, (source, _) in FILES.items()}
    existing = {path for path in shipped if path.exists()}
    for path in existing:
        if path.read_bytes() != shipped[path]:
            raise UsageError(f"{path} exists and is not the example of this version; choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    for path, content in shipped.items():
        if path not in existing:
            write_whole(path, content)
        typer.echo(f"{path}: {FILES[path.name][1]}")
