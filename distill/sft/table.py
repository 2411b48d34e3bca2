"""Print sft.json as tables: what each filter kept and dropped, and why."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def print_chats(summary: Mapping[str, Any], out: Path, console: Console) -> None:
    """Print one row per filter, then the content of the splits, then the warnings."""
    from rich.table import Table

    style = summary["style"]
    console.print(
        f"{out}: chats in the style {style['name']}, {summary['answers']}; tokens by {summary['tokens_by']}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    table = Table("filter", "in", "kept", "erroneous", "correct", "left out", box=None, padding=(0, 2, 0, 0))
    for column in table.columns[1:5]:
        column.justify = "right"
    for stage in summary["funnel"]:
        why = ", ".join(f"{n:,} {reason}" for reason, n in sorted(stage["stopped"].items(), key=lambda item: -item[1]))
        table.add_row(stage["stage"], *(f"{stage[name]:,}" for name in ("in", "out", "erroneous", "correct")), why)
    console.print(table)
    splits = Table("split", "chats", "erroneous", "correct", "mean tokens", "longest", box=None, padding=(0, 2, 0, 0))
    for column in splits.columns[1:]:
        column.justify = "right"
    for name, split in summary["splits"].items():
        mean = f"{split['tokens'] / split['chats']:,.0f}" if split["chats"] else "-"
        counts = (f"{split[column]:,}" for column in ("chats", "erroneous", "correct"))
        splits.add_row(name, *counts, mean, f"{split['longest']:,}")
    console.print(splits)
    if thinned := summary["splits"]["train"]["thinned"]:
        console.print(f"balance: {thinned:,} chats of the larger class left out of train", highlight=False)
    for warning in summary["warnings"]:
        console.print(f"warning: {warning}", style="yellow", highlight=False, markup=False, soft_wrap=True)
