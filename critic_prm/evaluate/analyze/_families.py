"""Self-preference: how much each judge favours solutions by its own model family."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from critic_prm.data.aggregate import aggregate
from critic_prm.data.hashing import problem_key
from critic_prm.data.label_rows import LabelledTrajectory
from critic_prm.evaluate.analyze._statistics import Effect, effect, ratio, within
from critic_prm.evaluate.analyze.analysis import Cell, Table, said
from critic_prm.metrics.scores import Array

AUTHORS = ("generator", "model", "policy", "author")
"""Fields of the row or its meta that name the author of a solution."""

_OTHER_NAMES = {"o": "gpt", "chatgpt": "gpt", "davinci": "gpt", "meta": "llama", "codellama": "llama", "qwq": "qwen"}


def family_of(model: str) -> str:
    """The family of a model from its name: "gpt" for openai/gpt-5.4-mini, "qwen" for Qwen/Qwen3-8B."""
    name = re.match(r"[a-z]*", model.lower().rstrip("/").rpartition("/")[2])
    word = name.group() if name else ""
    return _OTHER_NAMES.get(word, word) or model


def self_preference(
    rows: Sequence[LabelledTrajectory],
    how: Callable[[Sequence[float]], float],
    author: str | None,
    replicates: int,
    seed: int,
) -> tuple[Effect, list[Table]]:
    """Estimate how much higher a judge scores its own family than others, and return the effect with a table of mean scores.

    The effect is the difference of mean residuals, after removing what all judges think of a solution and how lenient each
    judge is. It is undefined without two judge families on the same solutions, and solutions by two families, one of them a
    judge's. `author` is the field that names who wrote a solution, None for the first of AUTHORS.
    """
    fields = (author,) if author else AUTHORS
    scores: dict[str, dict[str, tuple[str, str, float]]] = defaultdict(dict)
    for row in rows:
        writer = said(row.trajectory, *fields)
        judge = row.critic.get("model")
        score = aggregate(row.label.p_correct, how)
        if writer is not None and judge is not None and score is not None:
            scores[row.trajectory.id][family_of(str(judge))] = (
                family_of(writer),
                problem_key(row.trajectory.problem),
                score,
            )
    scores = defaultdict(dict, {name: given for name, given in scores.items() if len(given) > 1})
    table = [(name, judge, *value) for name, given in scores.items() for judge, value in given.items()]
    judges, writers = {row[1] for row in table}, {row[2] for row in table}
    if len(judges & writers) < 1 or len(writers) < 2 or len(judges) < 2:
        return Effect(None), []
    flat = np.array([row[4] for row in table])
    rest = within([row[0] for row in table], within([row[1] for row in table], flat))
    own = [row[1] == row[2] for row in table]
    sums = [(mine, mine * r, not mine, (not mine) * r) for mine, r in zip(own, rest, strict=True)]
    found = effect([row[3] for row in table], sums, _difference, replicates=replicates, seed=seed)
    cells: list[tuple[Cell, ...]] = []
    for judge in sorted(judges):
        means = [[row[4] for row in table if row[1] == judge and row[2] == writer] for writer in sorted(writers)]
        cells.append((judge, *(float(np.mean(mean)) if mean else None for mean in means)))
    return found, [Table("Mean score, judges down, writers across", ("judge", *sorted(writers)), tuple(cells))]


def _difference(sums: Array) -> Array:
    return ratio(sums[..., :2]) - ratio(sums[..., 2:])
