"""critic-prm calibrate: adapt a verifier's decision to a new kind of data."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from critic_prm.cli.options import InputOptions
from distill.settings import CalibrationSettings, LoadOptions


def calibrate(
    verifier: Annotated[Path, typer.Argument(metavar="VERIFIER", help="A verifier's folder.")],
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="Trajectories or labels of the new kind of data; - is stdin.")
    ],
    profile: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the profile; default: TARGET's file name.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FOLDER", help="Write a copy of the verifier; default: change VERIFIER."),
    ] = None,
    *,
    reading: InputOptions,
    settings: CalibrationSettings,
    loading: LoadOptions,
) -> None:
    """Adapt a verifier's decision to a new kind of data, with few labels or none.

    Reads a verifier and solutions (TARGET), 100 or more. Adds a calibration profile to the verifier's folder and makes it the
    one in use; `--profile` of the other commands chooses another one, or none. Without labels, the threshold is the one at
    which the share of solutions is flagged that was best on kinds of data left out of training. Gold labels or a judge's labels
    correct that share.

    Example: critic-prm calibrate verifier solutions.jsonl
    """
    from critic_prm.cli.running import Input
    from critic_prm.cli.swapped import check_order
    from critic_prm.terminal import safe_console
    from distill.calibrate import calibrate as run

    name = profile or re.sub(r"[^\w.-]+", "-", Path(target).name.partition(".")[0]).strip("-.") or "stdin"
    check_order("calibrate", verifier, target)
    rows = Input(target, reading)
    result = run(verifier, rows, name, data=Path(target).name, out=out, settings=settings, loading=loading)
    facts, console = result.facts, safe_console(stderr=True)
    low, high = facts["threshold_interval"]
    shares = {"labels": f"{facts['labelled']} labelled solutions and kinds of data left out of training"}
    lines = [
        f"{out or verifier}: profile {name}, in use",
        f"solutions: {facts['solutions']:,}, {facts['labelled']:,} with labels",
        f"flagged: {result.flagged:.0%}, from {shares.get(facts['share_from'], facts['share_from'])}",
        f"threshold: {result.decision.threshold:.4f} [{low:.4f}, {high:.4f}], rule {result.decision.rule}",
    ]
    if facts["threshold_of_range"][0] != facts["threshold_of_range"][1]:
        ends = " to ".join(f"{end:.4f}" for end in facts["threshold_of_range"])
        lines.append(f"threshold over the range of --error-rate: {ends}")
    if facts["brier"]:
        before, after = facts["brier"]["base"], min(facts["brier"].values())
        how = f"fitted again: Brier score {before:.3f} -> {after:.3f}" if after < before else f"kept: Brier score {before:.3f}"
        lines.append(f"P(correct): {result.calibration.method}, {how}, cross-validated")
    if facts["solutions"] < 100:
        lines.append("warning: fewer than 100 solutions give an uncertain threshold; add more, labels are not needed")
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
