"""Render a labelled trajectory for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from critic_prm.data.judgement import Label
from critic_prm.data.trajectory import Trajectory

if TYPE_CHECKING:
    from rich.console import RenderableType

MARKS = {"correct": "[green]right[/]", "incorrect": "[red]wrong[/]", "neutral": "[yellow]neutral[/]"}


def picture(trajectory: Trajectory, label: Label) -> RenderableType:
    """Render the problem, then each step with the verdict and critique of the first judgement."""
    from rich.console import Group
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    verdicts = {verdict.step: verdict for judgement in label.judgements[:1] for verdict in judgement.verdicts}
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", style="bold")
    table.add_column(width=7)
    table.add_column()
    for index, step in enumerate(trajectory.steps):
        verdict = verdicts.get(index)
        mark = MARKS[verdict.value] if verdict else "[dim]-[/]"
        table.add_row(str(index), mark, escape(_short(step.text)))
        if verdict and verdict.critique:
            table.add_row("", "", Text(_short(verdict.critique), style="italic dim"))
    return Group(Text(_short(trajectory.problem), style="bold"), table)


def _short(text: str, limit: int = 300) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 3].rstrip() + "..."
