"""Render runs as one self-contained HTML file: an index for lists and filters, and blocks of texts decoded on demand.

A content security policy blocks all other resources.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from itertools import combinations
from pathlib import Path
from typing import Any

from critic_prm.data import Judgement, Label, LabelledTrajectory, Trajectory
from critic_prm.data.judgement import STATUSES
from critic_prm.data.records.writing import encode, write_whole
from critic_prm.errors import InputError
from critic_prm.evaluate.report.runs import Run, align, difference, figures, leaves, source_of, usage_of

PAGE = Path(__file__).with_name("page")
SCRIPTS = ("start.js", "store.js", "dom.js", "charts.js", "overview.js", "list.js", "detail.js", "main.js")
"""The scripts of the page, concatenated in this order: a page opened from disk cannot load modules."""

TITLE = "critic-prm report"

BLOCK = 100
"""Trajectories per block: few enough to be decoded between two frames."""

EXCERPT = 110
"""Characters of a problem shown in the list."""

Aligned = Sequence[tuple[Trajectory, Sequence[LabelledTrajectory | None]]]


@dataclass(frozen=True, slots=True)
class Made:
    """When, by what version and by what command a report was made; the page shows what is given."""

    at: str = ""
    """ISO 8601, UTC."""
    by: str = ""
    command: str = ""


def render(runs: Sequence[Run], title: str = TITLE, made: Made = Made()) -> str:
    """Render the page. Text from judges and datasets is never inserted as markup; it is stored in packed data and shown as
    text."""
    style = (PAGE / "page.css").read_text("utf-8")
    script = "".join((PAGE / name).read_text("utf-8") for name in SCRIPTS)
    rows = align(runs)
    first = {**index(runs, rows), "made": asdict(made)}
    data = [f'<script type="application/x-packed" id="index">{packed(first)}</script>']
    data += [f'<script type="application/x-packed" class="block">{packed(block)}</script>' for block in blocks(rows)]
    parts = {
        "TITLE": escape(title),
        "POLICY": _policy(style, script),
        "STYLE": style,
        "DATA": "\n".join(data),
        "SCRIPT": script,
    }
    page = (PAGE / "page.html").read_text("utf-8")
    pieces = page.split("%%")  # text, NAME, text, NAME, ..., text: inserted values are never searched for names
    return "".join(parts[piece] if place % 2 else piece for place, piece in enumerate(pieces))


def write_report(runs: Sequence[Run], out: Path, title: str = TITLE, made: Made = Made()) -> int:
    """Write the page to `out` atomically and return its size in bytes. Raises InputError if it cannot be written."""
    content = render(runs, title, made).encode("utf-8", "replace")
    try:
        write_whole(out, content)
    except OSError as error:
        raise InputError(str(out), f"cannot be written: {error.strerror}", "choose another path with -o") from None
    return len(content)


def _policy(style: str, script: str) -> str:
    """A Content-Security-Policy that allows this style and this script, and no fetching, sending or framing."""
    allowed = f"style-src '{_digest(style)}'; script-src '{_digest(script)}'"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def index(runs: Sequence[Run], rows: Aligned) -> dict[str, Any]:
    """The data the page loads at the start: the figures of each run, and per trajectory the values for lists, filters and
    sorting."""
    return {
        "block": BLOCK,
        "statuses": list(STATUSES),
        "runs": [figures(run) for run in runs],
        "differences": [
            {"a": a, "b": b, **gap}
            for a, b in combinations(range(len(runs)), 2)
            if (gap := difference(runs[a], runs[b])) is not None
        ],
        "rows": [_entry(trajectory, labels) for trajectory, labels in rows],
    }


def _entry(trajectory: Trajectory, labels: Sequence[LabelledTrajectory | None]) -> list[Any]:
    """[id, source, excerpt, steps, gold first error, a label or null for each run]."""
    excerpt = " ".join(trajectory.problem[: 4 * EXCERPT].split())[:EXCERPT]
    marks = [None if row is None else _mark(row) for row in labels]
    return [trajectory.id, source_of(trajectory), excerpt, len(trajectory.steps), trajectory.first_error(), marks]


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
    texts: dict[str, Any] = {
        "problem": trajectory.problem,
        "steps": [step.text if step.observation is None else [step.text, step.observation] for step in trajectory.steps],
        "gold": list(trajectory.gold()),
        "runs": [None if row is None else _texts_of_label(row.label) for row in labels],
    }
    texts |= {"final_answer": trajectory.final_answer, "gold_answer": trajectory.gold_answer, "meta": dict(trajectory.meta)}
    return {name: value for name, value in texts.items() if value is not None and value != {}}


def _texts_of_label(label: Label) -> dict[str, Any]:
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
