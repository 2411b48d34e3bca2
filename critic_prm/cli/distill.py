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

    from distill.run import distill as run

    console = Console(stderr=True)
    result = run(data, out, student=student, seed=seed, say=lambda line: console.print(line, style="dim", highlight=False))
    heads = {"solutions": "rows", "steps": "steps", "auroc": "AUROC", "brier": "Brier", "ece": "ECE", "f1": "F1"}
    heads |= {"erroneous": "err.", "correct": "corr."}
    table = Table("split", *heads.values(), title=f"{out}: threshold {result.info['threshold']:.4f}, chosen on dev")
    for split, metrics in result.metrics.items():
        cells = (metrics[name] for name in heads)
        table.add_row(split, *("-" if v is None else f"{v:.3f}" if isinstance(v, float) else str(v) for v in cells))
    console.print(table)
