"""critic-prm export: a transformer verifier's folder in, the same model for ONNX Runtime beside it, its scores compared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    verifier: Annotated[Path, typer.Argument(metavar="VERIFIER", help="A transformer verifier's folder.")],
    out: Annotated[Path | None, typer.Option("-o", "--out", metavar="FILE", help="Not model.onnx in the folder.")] = None,
    int8: Annotated[bool, typer.Option("--int8", help="Weights in int8: a quarter of the size; model.int8.onnx.")] = False,
    max_drift: Annotated[
        float, typer.Option(min=0, help="The most that P(correct) of a step may move; beyond it nothing is written.")
    ] = 0.05,
    check: Annotated[
        str | None, typer.Option(metavar="INPUT", help="Solutions to compare scores on; the dev split when not given.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="So many of them at most.")] = 200,
    trust: Annotated[
        list[str] | None,
        typer.Option("--trust", metavar="FILE", help="VERIFIER/verifier.json: it may name a training set outside its folder."),
    ] = None,
) -> None:
    """Export a transformer verifier to ONNX; `critic-prm score VERIFIER INPUT --backend onnx` then uses it.

    The scores before and after are compared before the file is put in place.
    """
    from distill.export import export_onnx, items_to_check

    items = items_to_check(verifier, check, limit, trust or ())
    path, drift = export_onnx(
        verifier, items, int8=int8, max_drift=max_drift, out=out, say=lambda line: typer.echo(line, err=True)
    )
    typer.echo(
        f"{path}: P(correct) moves by at most {drift.largest:.2g} (mean {drift.mean:.2g}) on {drift.steps} steps;"
        f" {drift.flipped} change sides of the threshold",
        err=True,
    )
