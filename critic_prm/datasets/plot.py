"""Plot dataset statistics: classes by source, first errors by position, step labels and P(correct)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from critic_prm.data.records.containers import extra
from critic_prm.datasets.rows import CLASSES
from critic_prm.errors import InputError

_COLOURS = {"erroneous": "#c44e52", "correct": "#4c9a6a", "partial": "#8c8c8c", "unlabelled": "#d0d0d0"}

_UNDATED: Mapping[str, Mapping[str, None]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}


def plot_statistics(summary: Mapping[str, Any], path: str | Path) -> None:
    """Draw the result of `statistics` to `path` as PNG, SVG or PDF, by suffix. Raises ConfigError if matplotlib is missing."""
    extra("matplotlib", "plot", f"drawing {path}")
    figure = extra("matplotlib.figure", "plot", f"drawing {path}").Figure(figsize=(11, 7), layout="constrained")
    sources, errors, steps, chances = figure.subplots(2, 2).ravel()
    names = list(summary["sources"])
    left = [0] * len(names)
    for kind in CLASSES:
        counts = [summary["sources"][name].get(kind, 0) for name in names]
        if any(counts):
            sources.barh(names, counts, left=left, color=_COLOURS[kind], label=kind)
            left = [a + b for a, b in zip(left, counts, strict=True)]
    sources.invert_yaxis()
    sources.set(title="solutions by source", xlabel="rows")
    sources.legend()
    places = summary["first_error_at_step"]
    errors.bar(list(places), list(places.values()), color=_COLOURS["erroneous"])
    errors.set(title="first error at step", ylabel="solutions")
    labels = summary["steps"]
    steps.bar(list(labels), list(labels.values()), color=["#4c9a6a", "#c44e52", "#d0d0d0"])
    steps.set(title="labels of steps", ylabel="steps")
    chances.bar([i / 10 + 0.05 for i in range(10)], summary["p_correct"], width=0.09, color="#4878a8")
    chances.set(title="P(step is correct)", xlabel="P(correct)", ylabel="steps")
    try:
        # no date: equal counts give identical files
        figure.savefig(path, dpi=120, metadata=_UNDATED.get(Path(path).suffix))
    except (OSError, ValueError) as error:
        raise InputError(
            str(path), f"the plot cannot be written: {error}", "use .png, .svg or .pdf in a folder there is"
        ) from None
