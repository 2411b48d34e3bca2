"""critic-prm distill: train a small local verifier, or a small judge, on a training set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from critic_prm.cli.sft import train_judge
from critic_prm.terminal import safe_console, verbosity
from distill.settings import TrainingSettings


def distill(
    data: Annotated[Path, typer.Argument(metavar="DIR", help="Training set; with --objective sft, chats or a label file.")],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="VERIFIER", help="Folder to write the verifier to.")],
    student: Annotated[
        str,
        typer.Option(
            metavar="NAME[:BASE]",
            help="linear; or BASE, a causal model or encoder by hub name or folder; hybrid:BASE, linear plus probes on a"
            " frozen base; implicit:BASE, trained on outcomes alone.",
        ),
    ] = "linear",
    objective: Annotated[
        Literal["scores", "sft"], typer.Option(help="scores: predict a score per step; sft: train a small judge.")
    ] = "scores",
    seed: Annotated[int, typer.Option(help="Random seed; the same seed and data give the same verifier.")] = 0,
    judge_dev: Annotated[int, typer.Option(help="For sft: judge N dev solutions at the end; 0: none.")] = 32,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Option of the student, such as sources=math_* for hybrid; may be repeated."),
    ] = None,
    leave_out: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Groups of data to leave out of training in turn, to choose a decision that holds on unseen data; 0: choose it"
            " on dev. Default: 5 for linear and hybrid; 0 for students that would train N times as long.",
        ),
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Cross-validate by problem in N folds, with dev and a small test split added to train; 0: calibrate on dev."
            " Default: 5 if dev has fewer than 5 erroneous or correct solutions and the set at most 200, else 0.",
        ),
    ] = None,
    learning_curve: Annotated[
        bool | None,
        typer.Option(
            "--learning-curve/--no-learning-curve",
            help="Train on parts of the data to see what more labels would bring. Default: if cross-validated.",
        ),
    ] = None,
    *,
    settings: TrainingSettings,
) -> None:
    """Train a small local verifier, or a small judge (--objective sft), on a training set.

    Reads a training set from `dataset build`, or for sft chats from `dataset sft` (DIR). Writes the verifier folder (-o) and
    prints metrics per split. Run the same command again to resume the training of a transformer. To use several GPUs or
    processes: torchrun --nproc-per-node N -m critic_prm distill ...

    Example: critic-prm distill dataset -o verifier --student Qwen/Qwen2.5-0.5B
    """
    import os

    from rich.table import Table

    from distill.run import FEW
    from distill.run import distill as run
    from distill.types import choose_student

    console = safe_console(stderr=True, quiet=os.environ.get("RANK", "0") != "0")

    def say(line: str, style: str | None = "dim") -> None:
        if style is not None and verbosity() == "quiet":
            return  # a line about progress
        console.print(line, style=style, highlight=False, markup=False, soft_wrap=True)

    if objective == "sft":
        train_judge(data, out, student, settings, judge_dev, seed, say)
        return
    chosen_student = choose_student(student, settings, option or ())
    result = run(
        data,
        out,
        student=chosen_student,
        seed=seed,
        leave_out=leave_out,
        folds=folds,
        learning_curve=learning_curve,
        say=say,
    )
    columns = {"solutions": "rows", "steps": "steps", "auroc": "AUROC", "brier": "Brier", "ece": "ECE", "f1": "F1"}
    columns |= {"erroneous": "err.", "correct": "corr."}
    chosen = result.info["decision"]
    word = "the default" if chosen["f1"] is None else f"chosen on {chosen['data']}"
    console.print(f"{out}: rule {chosen['rule']}, threshold {chosen['threshold']:.4f}, {word}", highlight=False, markup=False)
    table = Table("split", *columns.values(), box=None, padding=(0, 2, 0, 0))
    for column in table.columns[1:]:
        column.justify = "right"
    for split, metrics in result.metrics.items():
        cells = (metrics[name] for name in columns)
        table.add_row(split, *("-" if v is None else f"{v:.3f}" if isinstance(v, float) else str(v) for v in cells))
    console.print(table)
    console.print("F1: of err. (first error found exactly) and corr. (no step rejected)", highlight=False, style="dim")
    for line in expected_lines(result.info["unseen"]["expected"]):
        console.print(line, highlight=False, markup=False)
    for line in curve_lines(result.info["learning_curve"]):
        console.print(line, highlight=False, markup=False)
    plural = "" if chosen["solutions"] == 1 else "s"
    known = f"{chosen['solutions']} solution{plural} with a known first error ({chosen['data']})"
    if chosen["f1"] is None:
        fix = "add solutions of the other class"
        typer.echo(f"warning: {known}: all erroneous or all correct, so the threshold is 0.5 by default; {fix}", err=True)
    elif chosen["solutions"] < FEW:
        fix = "label more solutions"
        if "cross-validated" not in result.metrics:
            fix = "add solutions, or make dev larger, for example with critic-prm dataset build --split 0.8,0.1,0.1"
        typer.echo(f"warning: the threshold rests on only {known}; {fix}", err=True)
    if verdict := result.info["useless"]:
        typer.echo(f"{out}: {verdict}", err=True)
        raise typer.Exit(3)


def curve_lines(curve: Mapping[str, Any] | None) -> list[str]:
    """The learning curve as text, and how many more labels would help, if that can be told; nothing without a curve."""
    from distill.curve import Curve

    return Curve(**curve).lines() if curve else []


def expected_lines(expected: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Say what to expect on a new kind of data; nothing if too few kinds were left out to tell."""
    names = {"auroc": "AUROC", "f1": "F1 at this threshold", "f1_calibrated": "F1 after calibrate without labels"}
    cells = [
        f"{title} {value['mean']:.2f} [{value['low']:.2f}, {value['high']:.2f}]"
        for name, title in names.items()
        if (value := expected.get(name))
    ]
    return [f"On a new kind of data, with 90% intervals over the kinds left out: {', '.join(cells)}"] if cells else []
