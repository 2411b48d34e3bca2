"""Show trajectories and labels in a notebook: HTML with one block per step, coloured by P(correct).

All texts are escaped, since they come from models and files. Colours are marked on the edge and, faintly, behind the text,
which keeps the notebook's own colour, so that a block is readable on a light and on a dark page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from textwrap import shorten
from typing import TYPE_CHECKING

from critic_prm.terminal import safe_text

if TYPE_CHECKING:
    from critic_prm.data.judgement import Label
    from critic_prm.data.trajectory import StepLabel, Trajectory

BAD, MIDDLE, GOOD = (0xD2, 0x55, 0x1F), (0x84, 0x80, 0x77), (0x12, 0x89, 0x7E)
"""Colours of P(correct) 0, 0.5 and 1; each has a contrast of at least 3 to white and to black."""
TINT = 0.13
"""Opacity of the colour behind a text."""

LONGEST, MOST_STEPS, MOST_ROWS = 2000, 100, 10
"""Characters of a text, steps of a solution and rows of a list that are shown."""


def colour(p: float | None) -> tuple[int, int, int]:
    """The colour of P(correct), grey for 0.5 and for an unknown one."""
    if p is None:
        return MIDDLE
    end, share = (GOOD if p >= 0.5 else BAD), abs(p - 0.5) * 2
    red, green, blue = (round(m + (e - m) * share) for m, e in zip(MIDDLE, end, strict=True))
    return red, green, blue


def text(value: object, longest: int = LONGEST) -> str:
    """A text as HTML that is data only: escaped, without control characters, and cut after `longest` characters."""
    shown = str(value)
    cut = f" ... ({len(shown) - longest:,} more characters)" if len(shown) > longest else ""
    return escape(safe_text(shown[:longest])) + cut


def trajectory_html(trajectory: Trajectory, label: Label | None = None) -> str:
    """The problem and its steps. With a label, steps have its P(correct) and critiques; without, the gold labels if any."""
    gold = trajectory.gold()
    p_correct = [_probability(value) for value in gold] if label is None else label.p_correct
    first, critiques = (trajectory.first_error() if label is None else label.first_error), _critiques(label)
    corrected = _corrected(label)
    facts = [f"<b>{text(trajectory.id, 200)}</b>"]
    if label is not None:
        facts += [label.status, _first(first)]
    if trajectory.first_error() is not None:
        facts.append("gold: " + _first(trajectory.first_error()))
    blocks = []
    for index, step in enumerate(trajectory.steps[:MOST_STEPS]):
        marks = ["first error"] * (index == first)
        marks += ["corrected"] * (index in corrected or (label is None and gold[index] == "corrected"))
        if label is not None:
            marks += ["gold"] * (index == trajectory.first_error())
        observed = _soft("observation: " + text(step.observation)) if step.observation else ""
        said = "".join(_soft(critique) for critique in critiques.get(index, ()))
        blocks.append(_block(index, p_correct[index], marks, text(step.text), observed, said))
    if len(trajectory.steps) > MOST_STEPS:
        blocks.append(_soft(f"... and {len(trajectory.steps) - MOST_STEPS} more steps"))
    return _box(_soft(" &middot; ".join(facts)), _prose(text(trajectory.problem)), *blocks)


def label_html(label: Label) -> str:
    """The steps' P(correct) and critiques of a label, which does not hold the steps' texts."""
    critiques = _critiques(label)
    head = _soft(" &middot; ".join((label.status, _first(label.first_error))))
    blocks = (
        _block(index, p, ["first error"] * (index == label.first_error), "".join(critiques.get(index, ())))
        for index, p in enumerate(label.p_correct[:MOST_STEPS])
    )
    return _box(head, *blocks)


def rows_html(summary: str, rows: Iterable[tuple[Trajectory, Label | None]], total: int) -> str:
    """The first rows of a list, each on a line with its steps as a strip of colours."""
    lines = []
    for trajectory, label in rows:
        p_correct = [_probability(value) for value in trajectory.gold()] if label is None else label.p_correct
        first = trajectory.first_error() if label is None else label.first_error
        strip = "".join(_chip(p, index == first) for index, p in enumerate(p_correct[:MOST_STEPS]))
        state = _first(first) if label is None or label.status == "ok" else label.status
        lines.append(
            '<div style="margin:.5em 0">'
            f'<div><b>{text(trajectory.id, 80)}</b> <span style="opacity:.8">{state}</span></div>'
            f'<div style="opacity:.8">{text(shorten(trajectory.problem, 110, placeholder=" ..."))}</div>'
            f'<div style="margin-top:.2em">{strip}</div></div>'
        )
    if total > len(lines):
        lines.append(_soft(f"... and {total - len(lines):,} more"))
    return _box(_soft(escape(summary)), *lines)


def facts_html(title: str, facts: Mapping[str, object]) -> str:
    """A title and a list of facts."""
    lines = (f'<div><span style="opacity:.75">{text(name)}:</span> {text(value)}</div>' for name, value in facts.items())
    return _box(f"<b>{text(title)}</b>", *lines)


def _probability(value: StepLabel) -> float | None:
    special = {"neutral": 0.5, "corrected": 1.0}
    return special[value] if isinstance(value, str) else value


def _critiques(label: Label | None) -> dict[int, list[str]]:
    """The critiques of each step as HTML, of the first judgement that has any."""
    found: dict[int, list[str]] = {}
    for judgement in label.judgements if label is not None else ():
        for verdict in judgement.verdicts:
            if verdict.critique:
                found.setdefault(verdict.step, []).append(text(verdict.critique))
        if found:
            break
    return found


def _corrected(label: Label | None) -> set[int]:
    """The steps that a judgement calls corrected."""
    judgements = () if label is None else label.judgements
    return {verdict.step for judgement in judgements for verdict in judgement.verdicts if verdict.value == "corrected"}


def _first(step: int | None) -> str:
    return "first error unknown" if step is None else "no error" if step < 0 else f"first error: step {step}"


def _block(index: int, p: float | None, marks: Sequence[str], *parts: str) -> str:
    rgb = "{},{},{}".format(*colour(p))
    edge, shown = ("dashed", "-") if p is None else ("solid", f"{p:.2f}")
    named = "".join(f' <b style="border:1px solid;border-radius:3px;padding:0 .3em">{mark}</b>' for mark in marks)
    body = "".join(_prose(part) if place == 0 else part for place, part in enumerate(parts) if part)
    return (
        f'<div style="display:flex;gap:.8em;margin:.3em 0;padding:.35em .7em;border-left:4px {edge} rgb({rgb});'
        f'background:rgba({rgb},{TINT if p is not None else 0})">'
        f'<div style="min-width:1.5em;opacity:.8">{index}</div>'
        f'<div style="flex:1;min-width:0">{body}{named}</div>'
        f'<div style="font-variant-numeric:tabular-nums" title="P(correct)">{shown}</div></div>'
    )


def _chip(p: float | None, first: bool) -> str:
    rgb = "{},{},{}".format(*colour(p))
    fill = "transparent" if p is None else f"rgb({rgb})"
    ring = "outline:2px solid currentColor;outline-offset:1px;" if first else ""
    title = "not judged" if p is None else f"P(correct) {p:.2f}"
    return (
        f'<span title="{title}" style="display:inline-block;width:1.1em;height:.7em;margin-right:.25em;{ring}'
        f'border:1px {"dashed" if p is None else "solid"} rgb({rgb});background:{fill}"></span>'
    )


def _prose(html: str) -> str:
    return f'<div dir="auto" style="white-space:pre-wrap;overflow-wrap:anywhere;unicode-bidi:isolate">{html}</div>'


def _soft(html: str) -> str:
    return f'<div dir="auto" style="opacity:.8;font-size:.92em;white-space:pre-wrap;overflow-wrap:anywhere">{html}</div>'


def _box(*parts: str) -> str:
    """The outer element. Its classes keep MathJax from typesetting texts, in which dollars may be prices."""
    inner = "".join(parts)
    return f'<div class="critic-prm tex2jax_ignore mathjax_ignore" style="max-width:60em;line-height:1.45">{inner}</div>'
