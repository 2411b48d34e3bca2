"""Print a summary of dataset.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def print_dataset(summary: Mapping[str, Any], out: Path, console: Console) -> None:
    """Print a training set's contents, one table row per split, then the rows left out by reason and class, then
    the warnings."""
    from rich.table import Table

    console.print(f"{out}: kept {summary['kept']} of {summary['rows']} rows", highlight=False, soft_wrap=True)
    table = Table(box=None)
    table.add_column("split")
    columns = ("problems", "rows", "erroneous", "correct", "partial", "good steps", "bad steps")
    for name in columns:
        table.add_column(name, justify="right")
    for name, split in summary["splits"].items():
        counts = {**split, "good steps": split["steps"]["good"], "bad steps": split["steps"]["bad"]}
        table.add_row(name, *(f"{counts[column]:,}" for column in columns))
    console.print(table)
    for reason, kinds in summary["dropped"].items():
        detail = ", ".join(f"{count} {kind}" for kind, count in kinds.items() if kind != "unknown")
        console.print(
            f"left out: {sum(kinds.values())} {reason}" + (f" ({detail})" if detail else ""), highlight=False, soft_wrap=True
        )
    for warning in summary["warnings"]:
        console.print(f"warning: {warning}", style="yellow", highlight=False, soft_wrap=True)
