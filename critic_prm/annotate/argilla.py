"""Argilla 2: records with suggestions, and the settings of their dataset.

The files are what `Dataset.records.from_json` and `Settings.from_json` of the Python SDK read:
https://docs.argilla.io/latest/reference/argilla/records/records and .../settings/settings.
"""

from __future__ import annotations

from typing import Any

from critic_prm.annotate.solutions import Solution

NONE = "none"
"""The answer that no step is wrong; a step is `step_1`, `step_2` and so on."""

MOST_STEPS = 200
"""A label question has one label per step, and a server accepts a few hundred."""


def record(solution: Solution, predictions: bool = True) -> dict[str, Any]:
    """The record of a solution. With `predictions`, the first error that the first judge names is a suggestion."""
    row = solution.row
    texts = []
    for number, step in enumerate(row["steps"], 1):
        text, seen = (step["text"], step.get("observation")) if isinstance(step, dict) else (step, None)
        texts.append(f"[Step {number}] {text}" + ("" if seen is None else f"\n[Observation] {seen}"))
    suggestions = {}
    named = [one for one in solution.judges if predictions and one.get("first_error") is not None]
    for one in named[:1]:
        first = one["first_error"]
        suggestions["first_error"] = {"value": label(first), "score": None, "agent": one["name"]}
        said = [v[3] for v in one.get("verdicts", ()) if v[0] == first and v[3]]
        if said:
            suggestions["comment"] = {"value": said[0], "score": None, "agent": one["name"]}
    return {
        "id": row["id"],
        "fields": {"problem": row["problem"], "solution": "\n\n".join(texts)},
        "metadata": {"key": solution.key},
        "suggestions": suggestions,
        "responses": {},
        "vectors": {},
    }


def label(first_error: int) -> str:
    """The label of a first error."""
    return NONE if first_error < 0 else f"step_{first_error + 1}"


def settings(steps: int) -> dict[str, Any]:
    """The settings of a dataset whose solutions have up to `steps` steps."""
    words = {-1: "No error", **{step: f"Step {step + 1}" for step in range(steps)}}
    options = [{"value": label(step), "text": text, "description": None} for step, text in words.items()]
    return {
        "guidelines": "Which is the first incorrect step? Read the steps in order; later steps do not matter.",
        "fields": [_field("problem", "Problem"), _field("solution", "Solution")],
        "questions": [
            _question(
                "first_error",
                "First incorrect step",
                required=True,
                type="label_selection",
                options=options,
                visible_options=10,
            ),
            _question("comment", "Comment", required=False, type="text", use_markdown=False),
        ],
        "vectors": [],
        "metadata": [],
        "allow_extra_metadata": True,
    }


def _field(name: str, title: str) -> dict[str, Any]:
    form = {"type": "text", "use_markdown": False}
    return {"name": name, "title": title, "required": True, "description": None, "settings": form}


def _question(name: str, title: str, *, required: bool, **form: Any) -> dict[str, Any]:
    return {"name": name, "title": title, "required": required, "description": None, "settings": form}
