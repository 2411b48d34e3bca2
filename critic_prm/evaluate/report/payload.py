"""Build the data of a report page: an index for lists and filters, and blocks of texts decoded on demand."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterator, Sequence
from typing import Any

from critic_prm.data.judgement import STATUSES, Judgement, Label
from critic_prm.data.label_rows import LabelledTrajectory
from critic_prm.data.records.reading import encode
from critic_prm.data.trajectory import Trajectory
from critic_prm.evaluate.report.figures import difference, figures
from critic_prm.evaluate.report.runs import Run, align, leaves, source_of, usage_of

BLOCK = 100
"""Trajectories per block: few enough to be decoded between two frames."""

EXCERPT = 110
"""Characters of a problem shown in the list."""

Aligned = Sequence[tuple[Trajectory, Sequence[LabelledTrajectory | None]]]


def index(runs: Sequence[Run], rows: Aligned) -> dict[str, Any]:
    """The data the page loads at the start: the figures of each run, and per trajectory the values for lists, filters and
    sorting."""
    return {
        "block": BLOCK,
        "statuses": list(STATUSES),
        "runs": [figures(run) for run in runs],
        "differences": [
            {"a": a, "b": b, **found}
            for a in range(len(runs))
            for b in range(a + 1, len(runs))
            if (found := difference(runs[a], runs[b])) is not None
        ],
        "rows": [_entry(trajectory, labels) for trajectory, labels in rows],
    }


def _entry(trajectory: Trajectory, labels: Sequence[LabelledTrajectory | None]) -> list[Any]:
    """[id, source, excerpt, steps, gold first error, a label or null for each run]."""
    excerpt = " ".join(trajectory.problem[: 4 * EXCERPT].split())[:EXCERPT]
    said = [None if row is None else _mark(row) for row in labels]
    return [trajectory.id, source_of(trajectory), excerpt, len(trajectory.steps), trajectory.first_error(), said]


def _mark(row: LabelledTrajectory) -> list[Any]:
    """[P(correct) per step in percent or -1, first error, status, whether votes are split, tokens, USD or null]."""
    label = row.label
    usage, cost = usage_of(row)
    percent = [-1 if p is None else round(100 * p) for p in label.p_correct]
    split = int(any(0 < k < n for k, n in label.votes))
    return [percent, label.first_error, STATUSES.index(label.status), split, usage.input + usage.output, cost]


def blocks(rows: Aligned) -> Iterator[list[dict[str, Any]]]:
    """Yield the texts, BLOCK trajectories at a time."""
    for start in range(0, len(rows), BLOCK):
        yield [_texts(trajectory, labels) for trajectory, labels in rows[start : start + BLOCK]]


def _texts(trajectory: Trajectory, labels: Sequence[LabelledTrajectory | None]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "problem": trajectory.problem,
        "steps": [step.text if step.observation is None else [step.text, step.observation] for step in trajectory.steps],
        "gold": [None if value is None else value for value in trajectory.gold()],
        "runs": [None if found is None else _said(found.label) for found in labels],
    }
    for name in ("final_answer", "gold_answer"):
        if getattr(trajectory, name) is not None:
            row[name] = getattr(trajectory, name)
    if trajectory.meta:
        row["meta"] = dict(trajectory.meta)
    return row


def _said(label: Label) -> dict[str, Any]:
    return {
        "p": [None if p is None else round(p, 4) for p in label.p_correct],
        "votes": [list(vote) for vote in label.votes],
        "judgements": [_judgement(judgement) for judgement in leaves(label.judgements)],
    }


def _judgement(judgement: Judgement) -> dict[str, Any]:
    used = judgement.usage
    return {
        "sample": judgement.sample,
        "judge": judgement.judge,
        "status": judgement.status,
        "first": judgement.first_error,
        "how": list(judgement.how),
        "notes": list(judgement.notes),
        "keys": [key[:12] for key in judgement.keys],
        "tokens": [used.input, used.cached, used.output, used.reasoning] if used.input or used.output else None,
        "verdicts": [
            [v.step, v.value, None if v.p_correct is None else round(v.p_correct, 4), v.critique] for v in judgement.verdicts
        ],
    }


def packed(value: Any) -> str:
    """Encode a value as gzipped JSON in base64. The result contains only letters, digits, + / =, so it cannot end its HTML
    element."""
    return base64.b64encode(gzip.compress(encode(value), 6, mtime=0)).decode("ascii")


def data_of(runs: Sequence[Run]) -> tuple[str, list[str]]:
    """The packed index and the packed blocks of a page."""
    rows = align(runs)
    return packed(index(runs, rows)), [packed(block) for block in blocks(rows)]
