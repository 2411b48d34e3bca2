"""Plot the charts of runs as PNG files for papers, one file per chart with all runs in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from critic_prm.errors import InputError
from critic_prm.evaluate.report.runs import Run, figures
from critic_prm.registry import extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE = (3.4, 2.7)
"""Size in inches: one column of a two-column paper."""

COLOURS = ("#3451b2", "#a2378f", "#00708a", "#8a5a00", "#5f6b2d", "#b3263f", "#6a4fb8", "#4a5560")
DASHES = ("-", "--", ":", "-.", "-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


def write_plots(runs: Sequence[Run], folder: Path, dpi: int = 300) -> list[Path]:
    """Write every chart for which these runs have data, and return the paths. Raises ConfigError, InputError."""
    extra("matplotlib", "plot", "a plot")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    data = [figures(run) for run in runs]
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, (has, draw) in CHARTS.items():
            drawn = [(n, run) for n, run in enumerate(data) if has(run)]
            if not drawn:
                continue
            figure = Figure(figsize=SIZE, layout="constrained")
            FigureCanvasAgg(figure)
            axes = figure.add_subplot()
            axes.tick_params(labelsize=8)
            axes.spines[["top", "right"]].set_visible(False)
            draw(axes, drawn)
            if len(drawn) > 1:
                axes.legend(fontsize=7, frameon=False)
            written.append(folder / f"{name}.png")
            figure.savefig(written[-1], dpi=dpi, metadata={"Software": None})
    except OSError as error:
        raise InputError(str(folder), f"cannot be written: {error.strerror}", "choose another folder with --plots") from None
    return written


Drawn = Sequence[tuple[int, dict[str, Any]]]


def _style(n: int) -> dict[str, Any]:
    return {"color": COLOURS[n % 8], "linestyle": DASHES[n % 8], "linewidth": 1.3}


def _titles(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x, fontsize=8.5)
    axes.set_ylabel(y, fontsize=8.5)


def _reliability(axes: Axes, runs: Drawn) -> None:
    axes.plot([0, 1], [0, 1], color="0.6", linestyle=":", linewidth=1)
    for n, run in runs:
        p, right = [b["p"] for b in run["reliability"]], [b["right"] for b in run["reliability"]]
        style = _style(n) if run["continuous"] else {"color": COLOURS[n % 8], "linestyle": "none"}
        axes.plot(p, right, marker=MARKERS[n % 8], markersize=4, label=run["name"], **style)
    _titles(axes, "P(correct)", "share of correct steps")


def _roc(axes: Axes, runs: Drawn) -> None:
    axes.plot([0, 1], [0, 1], color="0.6", linestyle=":", linewidth=1)
    for n, run in runs:
        axes.plot(*zip(*run["roc"], strict=True), label=run["name"], **_style(n))
    _titles(axes, "share of correct steps flagged", "share of wrong steps flagged")


def _subsets(axes: Axes, runs: Drawn) -> None:
    names = list(dict.fromkeys(s["name"] for _, run in runs for s in run["scores"]["subsets"]))
    for place, (n, run) in enumerate(runs):
        shift = (place - (len(runs) - 1) / 2) * 0.8 / len(runs)
        rows = [(names.index(s["name"]) + shift, s["metrics"]["f1"]) for s in run["scores"]["subsets"]]
        rows = [(y, metric) for y, metric in rows if metric[0] is not None]
        x, y = [100 * metric[0] for _, metric in rows], [y for y, _ in rows]
        low = [100 * (m[0] - (m[0] if m[1] is None else m[1])) for _, m in rows]
        high = [100 * ((m[0] if m[2] is None else m[2]) - m[0]) for _, m in rows]
        axes.errorbar(
            x, y, xerr=[low, high], fmt=MARKERS[n % 8], markersize=4, color=COLOURS[n % 8], linewidth=1.2, label=run["name"]
        )
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(0, 100)
    _titles(axes, "first-error F1 [95%]", "")


def _positions(axes: Axes, runs: Drawn) -> None:
    series = [(run["name"], COLOURS[n % 8], run["positions"]["said"]) for n, run in runs]
    gold = next((run["positions"]["gold"] for _, run in runs if run["positions"]["gold"]), None)
    if gold:
        series.append(("gold", "0.7", gold))
    wide = 0.8 / len(series)
    for place, (name, colour, counts) in enumerate(series):
        shift = (place - (len(series) - 1) / 2) * wide
        axes.bar([i + shift for i in range(len(counts))], counts, wide, color=colour, label=name)
    last = len(series[0][2])
    axes.set_xticks(range(last), [*map(str, range(1, last)), f"{last}+"])
    _titles(axes, "step of the first error", "solutions")
    if len(series) > 1 and len(runs) == 1:
        axes.legend(fontsize=7, frameon=False)


CHARTS: dict[str, tuple[Callable[[dict[str, Any]], bool], Callable[[Axes, Drawn], None]]] = {
    "reliability": (lambda run: bool(run["reliability"]), _reliability),
    "roc": (lambda run: bool(run["roc"]), _roc),
    "f1": (lambda run: bool(run["scores"]), _subsets),
    "first-errors": (lambda run: run["counts"]["trajectories"] > 0, _positions),
}
"""Every chart: whether a run has data for it, and the function that draws it."""
