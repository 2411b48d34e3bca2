"""Plot the losses and dev scores in training.jsonl."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def draw(log: Path, picture: Path) -> bool:
    """Plot the records of `log` as a PNG. Returns False, and writes nothing, without matplotlib or without records."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    records = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    steps = [r for r in records if "loss" in r]
    looks = [r for r in records if "dev" in r]
    if not steps:
        return False
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    left = figure.add_subplot()
    x = [r["step"] for r in steps]
    left.plot(x, [r["loss"] for r in steps], color="0.8", linewidth=0.8)
    left.plot(x, _smooth([r["loss"] for r in steps]), color="tab:blue", label="loss")
    left.set_xlabel("step")
    left.set_ylabel("loss")
    lines: list[Any] = [left.lines[1]]
    if looks:
        lines += left.plot(
            [r["step"] for r in looks], [r["dev"]["loss"] for r in looks], "o--", color="tab:cyan", label="dev loss"
        )
        right = left.twinx()
        right.set_ylim(0, 1)
        right.set_ylabel("dev F1, AUROC")
        for key, name, colour in (("f1", "dev F1", "tab:orange"), ("auroc", "dev AUROC", "tab:green")):
            points = [(r["step"], r["dev"][key]) for r in looks if r["dev"].get(key) is not None]
            if points:
                lines += right.plot(*zip(*points, strict=True), "o-", color=colour, label=name)
    left.legend(handles=lines, loc="center right")
    figure.savefig(picture, dpi=120)
    return True


def _smooth(values: list[float], keep: float = 0.9) -> list[float]:
    """Exponential moving average, corrected for its bias towards the first value."""
    out, mean, weight = [], 0.0, 0.0
    for value in values:
        mean, weight = keep * mean + (1 - keep) * value, keep * weight + 1 - keep
        out.append(mean / weight)
    return out
