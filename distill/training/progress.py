"""Show training progress as a live bar or as lines, and plot the finished run."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from critic_prm.terminal import safe_console

EVERY = 30.0
"""Seconds between progress lines without a terminal."""


@contextmanager
def watching(say: Callable[[str], None]) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Yield the callback that `loop.train` calls with each of its records. Dev scores are always also passed to `say`."""
    if sys.stderr.isatty():
        with _bar() as watch:
            yield watch
    else:
        yield _lines(say)


def dev_line(record: Mapping[str, Any]) -> str:
    """Format a dev record: "dev after step 120 (epoch 1.00): F1 0.412, AUROC 0.731, loss 0.480 (best so far)"."""
    dev = record["dev"]
    cells = [f"{name} {dev[key]:.3f}" for key, name in NAMES.items() if dev.get(key) is not None]
    best = " (best so far)" if record["best"] else ""
    return f"dev after step {record['step']} (epoch {record['epoch']:.2f}): {', '.join(cells)}{best}"


NAMES = {"f1": "F1", "auroc": "AUROC", "brier": "Brier", "loss": "loss"}


def _lines(say: Callable[[str], None]) -> Callable[[Mapping[str, Any]], None]:
    last = time.monotonic()

    def watch(record: Mapping[str, Any]) -> None:
        nonlocal last
        if "dev" in record:
            say(dev_line(record))
        elif time.monotonic() - last >= EVERY:
            last = time.monotonic()
            left = record["seconds"] / record["step"] * (record["of"] - record["step"])
            say(
                f"step {record['step']} of {record['of']}: loss {record['loss']:.4f},"
                f" {record['tokens_per_second']:,.0f} tokens/s, {left / 60:.0f} min left"
            )

    return watch


@contextmanager
def _bar() -> Iterator[Callable[[Mapping[str, Any]], None]]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("loss {task.fields[loss]}"),
        TextColumn("{task.fields[speed]} tokens/s"), TextColumn("{task.fields[dev]}"), TimeElapsedColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=safe_console(stderr=True)) as progress:
        task = progress.add_task("", loss="-", speed="-", dev="")
        smooth: float | None = None

        def watch(record: Mapping[str, Any]) -> None:
            nonlocal smooth
            if "dev" in record:
                progress.console.print(dev_line(record), style="dim", highlight=False)
                f1 = record["dev"]["f1"]
                if record["best"] and f1 is not None:
                    progress.update(task, dev=f"best dev F1 {f1:.3f}")
                return
            speed = record["tokens_per_second"]
            smooth = speed if smooth is None else 0.9 * smooth + 0.1 * speed
            progress.update(
                task, completed=record["step"], total=record["of"], loss=f"{record['loss']:.4f}", speed=f"{smooth:,.0f}"
            )

        yield watch


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
