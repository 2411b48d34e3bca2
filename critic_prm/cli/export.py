"""critic-prm export: export a transformer verifier to ONNX and check its scores."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from critic_prm.option import Option


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What is exported, and how it is checked."""

    out: Annotated[Path | None, Option(("-o", "--out"), metavar="FILE")] = None
    """File to write; default: model.onnx in the folder."""
    int8: bool = False
    """Quantize weights to int8, a quarter of the size; writes model.int8.onnx."""
    max_drift: Annotated[float, Option(min=0)] = 0.05
    """Write nothing if P(correct) of any step changes by more than this."""
    check: Annotated[str | None, Option(metavar="INPUT")] = None
    """Solutions on which to compare scores; default: the dev split."""
    limit: Annotated[int, Option(min=1)] = 200
    """Compare at most N solutions."""
    trust: Annotated[tuple[str, ...], Option(metavar="FILE")] = ()
    """VERIFIER/verifier.json: allow it to name a training set outside its folder."""


def export(
    verifier: Annotated[Path, typer.Argument(metavar="VERIFIER", help="Folder of a transformer verifier.")],
    options: ExportOptions,
) -> None:
    """Export a transformer verifier to ONNX, for `score --backend onnx`.

    Reads a verifier folder (VERIFIER). Writes model.onnx into it, or a file (-o). Scores before and after the export are
    compared first; the file is written only if they agree within --max-drift.

    Example: critic-prm export verifier --int8 --max-drift 0.03
    """
    from distill.scoring.onnx import export_onnx, items_to_check

    items = items_to_check(verifier, options.check, options.limit, options.trust)
    say = partial(typer.echo, err=True)
    path, drift = export_onnx(verifier, items, int8=options.int8, max_drift=options.max_drift, out=options.out, say=say)
    typer.echo(
        f"{path}: P(correct) moves by at most {drift.largest:.2g} (mean {drift.mean:.2g}) on {drift.steps} steps;"
        f" {drift.flipped} change sides of the threshold",
        err=True,
    )
