"""critic-prm export: export a transformer verifier to ONNX and check its scores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    verifier: Annotated[Path, typer.Argument(metavar="VERIFIER", help="Folder of a transformer verifier.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="File to write; default: model.onnx in the folder.")
    ] = None,
    int8: Annotated[
        bool, typer.Option("--int8", help="Quantize weights to int8, a quarter of the size; writes model.int8.onnx.")
    ] = False,
    max_drift: Annotated[
        float, typer.Option(min=0, help="Write nothing if P(correct) of any step changes by more than this.")
    ] = 0.05,
    check: Annotated[
        str | None, typer.Option(metavar="INPUT", help="Solutions on which to compare scores; default: the dev split.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Compare at most N solutions.")] = 200,
    trust: Annotated[
        list[str] | None,
        typer.Option(
            "--trust", metavar="FILE", help="VERIFIER/verifier.json: allow it to name a training set outside its folder."
        ),
    ] = None,
) -> None:
    """Export a transformer verifier to ONNX, for `score --backend onnx`.

    Reads a verifier folder (VERIFIER). Writes model.onnx into it, or a file (-o). Scores before and after the export are
    compared first; the file is written only if they agree within --max-drift.

    Example: critic-prm export verifier --int8 --max-drift 0.03
    """
    from distill.scoring.onnx import export_onnx, items_to_check

    items = items_to_check(verifier, check, limit, trust or ())
    path, drift = export_onnx(
        verifier, items, int8=int8, max_drift=max_drift, out=out, say=lambda line: typer.echo(line, err=True)
    )
    typer.echo(
        f"{path}: P(correct) moves by at most {drift.largest:.2g} (mean {drift.mean:.2g}) on {drift.steps} steps;"
        f" {drift.flipped} change sides of the threshold",
        err=True,
    )
