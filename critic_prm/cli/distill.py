"""critic-prm distill: a training-set folder in, a verifier folder out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def distill(
    data: Annotated[Path, typer.Argument(metavar="DIR", help="A training set: a folder with train.jsonl and dev.jsonl.")],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="VERIFIER", help="The folder to write the verifier to.")],
    student: Annotated[str, typer.Option(help="What to train.")] = "linear",
    seed: Annotated[int, typer.Option(help="The same seed and data give the same verifier.")] = 0,
) -> None:
    """Distill a training set into a small local verifier."""
    from rich.console import Console
    from rich.table import Table

    from distill.run import FEW
    from distill.run import distill as run

    console = Console(stderr=True)
    result = run(data, out, student=student, seed=seed, say=lambda line: console.print(line, style="dim", highlight=False))
    heads = {"solutions": "rows", "steps": "steps", "auroc": "AUROC", "brier": "Brier", "ece": "ECE", "f1": "F1"}
    heads |= {"erroneous": "err.", "correct": "corr."}
    chosen = result.info["threshold_from"]
    word = "not chosen" if chosen["f1"] is None else "chosen on dev"
    console.print(f"{out}: threshold {chosen['threshold']:.4f}, {word}", highlight=False, markup=False)
    table = Table("split", *heads.values(), box=None, padding=(0, 2, 0, 0))
    for column in table.columns[1:]:
        column.justify = "right"
    for split, metrics in result.metrics.items():
        cells = (metrics[name] for name in heads)
        table.add_row(split, *("-" if v is None else f"{v:.3f}" if isinstance(v, float) else str(v) for v in cells))
    console.print(table)
    console.print("F1: of err. (first errors found exactly) and corr. (right ones left alone)", highlight=False, style="dim")
    known = f"{chosen['solutions']} solutions of dev with a known first error"
    if chosen["f1"] is None:
        typer.echo(f"warning: the {known} are all erroneous or all correct, so the threshold is 0.5 by default", err=True)
    elif chosen["solutions"] < FEW:
        typer.echo(
            f"warning: the threshold rests on only {known}; make dev larger, for example with"
            " critic-prm dataset build --split 0.8,0.1,0.1",
            err=True,
        )
