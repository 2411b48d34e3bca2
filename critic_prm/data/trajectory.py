"""The trajectory type: a problem and the steps of one solution or agent run, with JSON conversion."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from critic_prm.errors import InputError
from critic_prm.providers.images import from_data

StepLabel: TypeAlias = float | Literal["neutral", "corrected"] | None
"""Gold label of a step: P(correct) in [0, 1] (1.0 correct, 0.0 incorrect), "neutral", "corrected" (wrong, but withdrawn or
repaired later by the solution itself; never the first error), or None if unknown."""

Method: TypeAlias = Literal["auto", "lines", "paragraphs", "numbered", "sentences", "thoughts", "none"]
"""How a text is split into steps, by rules."""

KNOWN = {"id", "problem", "steps", "final_answer", "gold_answer", "label", "step_labels", "images", "tools", "meta"}
"""The fields of a native row."""


@dataclass(frozen=True, slots=True)
class Step:
    """One unit that is judged. `observation` (the output of a tool) is shown to the judge but not judged."""

    text: str
    observation: str | None = None


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A problem and the steps of one solution.

    `label` is the gold first error: 0-based, -1 if every step is correct, None if unknown. `step_labels` has one entry per
    step. Neither these nor `gold_answer` and `meta` are shown to a judge or used as features unless the user asks for it.
    `extra` holds unknown fields, which are carried through unchanged.
    """

    id: str
    problem: str
    steps: tuple[Step, ...]
    final_answer: str | None = None
    gold_answer: str | None = None
    label: int | None = None
    step_labels: tuple[StepLabel, ...] | None = None
    images: tuple[str, ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_text(cls, problem: str, text: str, *, segment: Method = "auto", id: str = "") -> Trajectory:
        """The trajectory of a solution that is one text, split into steps as by --segment. The id is derived from the content
        unless given.

        Raises InputError for an empty problem or solution.
        """
        from critic_prm.data.segment import methods

        steps = tuple(map(Step, methods.segment(text, segment)[0]))
        for what, empty in (("problem", not problem.strip()), ("solution", not steps)):
            if empty:
                raise InputError("from_text", f"the {what} is empty", f"give the text of the {what}")
        return cls(id or content_id(problem, steps), problem, steps)

    def _repr_html_(self) -> str:
        from critic_prm.data.html import trajectory_html

        return trajectory_html(self)

    @property
    def texts(self) -> list[str]:
        """The step texts, without observations."""
        return [step.text for step in self.steps]

    def gold(self) -> tuple[StepLabel, ...]:
        """Gold label per step: `step_labels` if given, else derived from `label` (1.0 before the first error, None after)."""
        if self.step_labels is not None:
            return self.step_labels
        if self.label is None:
            return (None,) * len(self.steps)
        if self.label < 0:
            return (1.0,) * len(self.steps)
        return (1.0,) * self.label + (0.0,) + (None,) * (len(self.steps) - self.label - 1)

    def first_error(self) -> int | None:
        """Gold first error: `label` if given, else the first step whose label is below 0.5. None if unknown."""
        if self.label is not None or self.step_labels is None:
            return self.label
        for index, value in enumerate(self.step_labels):
            if isinstance(value, float) and value < 0.5:
                return index
            if value is None:
                return None
        return -1

    def prefix(self, length: int) -> Trajectory:
        """The same problem with only the first `length` steps, without final answer and gold labels."""
        return replace(self, steps=self.steps[:length], final_answer=None, label=None, step_labels=None)


def trajectory_from_json(row: Any, where: str) -> Trajectory:
    """Parse one native row. `where` is the file and line for error messages. Raises InputError."""
    if not isinstance(row, dict):
        raise InputError(where, f"a trajectory is a JSON object, this line contains {_say(row)}")
    problem = row.get("problem")
    if not isinstance(problem, str) or not problem.strip():
        raise InputError(where, f'"problem" is {_say(problem)}', "it must be the text of the problem")
    steps = _steps(row.get("steps"), where)
    label = row.get("label")
    if isinstance(label, float) and label.is_integer():
        label = int(label)  # pandas writes whole numbers so where some are missing
    if label is not None and (not isinstance(label, int) or isinstance(label, bool) or not -1 <= label < len(steps)):
        raise InputError(where, f'"label" is {_say(label)}', f"it is the first wrong step, 0 to {len(steps) - 1}, -1 or null")
    identity = row.get("id")
    return Trajectory(
        id=content_id(problem, steps) if identity is None else str(identity),
        problem=problem,
        steps=steps,
        final_answer=_text(row, "final_answer", where),
        gold_answer=_text(row, "gold_answer", where),
        label=label,
        step_labels=_step_labels(row.get("step_labels"), len(steps), where),
        images=from_data(_list(row, "images", str, where), where),
        tools=tuple(_list(row, "tools", dict, where)),
        meta=_object(row, "meta", where),
        extra={key: value for key, value in row.items() if key not in KNOWN},
    )


def trajectory_to_json(trajectory: Trajectory) -> dict[str, Any]:
    """The native row of a trajectory. Empty optional fields are omitted; unknown fields come last, unchanged."""
    steps = [s.text if s.observation is None else {"text": s.text, "observation": s.observation} for s in trajectory.steps]
    row: dict[str, Any] = {"id": trajectory.id, "problem": trajectory.problem, "steps": steps}
    for name in ("final_answer", "gold_answer", "label"):
        if getattr(trajectory, name) is not None:
            row[name] = getattr(trajectory, name)
    if trajectory.step_labels is not None:
        row["step_labels"] = list(trajectory.step_labels)
    for name in ("images", "tools"):
        if getattr(trajectory, name):
            row[name] = list(getattr(trajectory, name))
    if trajectory.meta:
        row["meta"] = dict(trajectory.meta)
    return {**row, **trajectory.extra}


def content_id(problem: str, steps: tuple[Step, ...]) -> str:
    """Id for a trajectory without one: 16 hex digits derived from its content."""
    digest = hashlib.sha256(problem.encode("utf-8", "surrogatepass"))
    for step in steps:
        digest.update(b"\x00" + step.text.encode("utf-8", "surrogatepass"))
        digest.update(b"\x01" + (step.observation or "").encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]


_MARK = re.compile(r"[ \t]*+(?:\*\*|#++[ \t]*+)?(?:(?:step|Step|STEP)[ \t]++(\d++)[ \t]*+[:.)]|(\d++)[.)][ \t])")
_BLANK_LINE = re.compile(r"\n[ \t]*+\n")


def split_steps(text: str, start: int = 1) -> list[str]:
    """Split a solution into steps: at "Step k:" or "k." markers that count 1, 2, 3 at line starts, else at blank lines.

    Markers stay in the text. Markers that do not count up from 0 or 1 are treated as prose. For the continuation of a solution,
    `start` is the number of its first step, and a single marker is enough.
    """
    starts, expected = [], None
    first, needed = ((0, 1), 2) if start == 1 else ((start,), 1)
    for place in line_starts(text):
        if (mark := _MARK.match(text, place)) is None:
            continue
        number = int((mark.group(1) or mark.group(2))[:9])
        if number == expected or (expected is None and number in first):
            starts.append(mark.start())
            expected = number + 1
    if len(starts) >= needed:
        lead = text[: starts[0]].strip()
        parts = [text[a:b] for a, b in zip(starts, [*starts[1:], len(text)], strict=True)]
        if lead:
            parts.insert(0, lead)
    else:
        parts, end = [], 0
        for gap in _BLANK_LINE.finditer(text):
            if part := text[end : gap.start()].strip():  # text that is all newlines would give a million empty parts
                parts.append(part)
            end = gap.end()
        parts.append(text[end:])
    return [part.strip() for part in parts if part.strip()]


def line_starts(text: str) -> Iterator[int]:
    """Yield the offset of each line start. Lines are visited one by one because a single regex search through megabytes would
    hold the GIL, and so block all other threads, until it finishes."""
    yield 0
    place = text.find("\n") + 1
    while place:
        yield place
        place = text.find("\n", place) + 1


def _steps(value: Any, where: str) -> tuple[Step, ...]:
    if not isinstance(value, list):
        fix = 'it must be a list of strings or {"text", "observation"}' + "; --map steps=steps splits a text" * isinstance(
            value, str
        )
        raise InputError(where, f'"steps" is {_say(value)}', fix)
    if not value:
        raise InputError(where, '"steps" is empty', "a trajectory needs at least one step")
    return tuple(_step(item, index, where) for index, item in enumerate(value))


def _step(item: Any, index: int, where: str) -> Step:
    if isinstance(item, str):
        return Step(item)
    if isinstance(item, dict) and isinstance(item.get("text"), str):
        observation = item.get("observation")
        if observation is None or isinstance(observation, str):
            return Step(item["text"], observation)
    raise InputError(where, f"step {index} is {_say(item)}", 'a step is a string or {"text": ..., "observation": ...}')


def _step_labels(value: Any, steps: int, where: str) -> tuple[StepLabel, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != steps:
        raise InputError(where, f'"step_labels" is {_say(value)}', f"it needs one entry for each of the {steps} steps")
    return tuple(_step_label(item, index, where) for index, item in enumerate(value))


def _step_label(item: Any, index: int, where: str) -> StepLabel:
    if item is None or item in ("neutral", "corrected"):
        return item  # type: ignore[no-any-return]
    if isinstance(item, bool | int | float) and 0 <= item <= 1:
        return float(item)
    raise InputError(
        where,
        f"step label {index} is {_say(item)}",
        'it is P(correct) from 0 to 1, true, false, "neutral", "corrected" or null',
    )


def _text(row: Mapping[str, Any], name: str, where: str) -> str | None:
    value = row.get(name)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise InputError(where, f'"{name}" is {_say(value)}', "it must be text or left out")


def _list(row: Mapping[str, Any], name: str, kind: type, where: str) -> list[Any]:
    value = row.get(name) or []
    if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
        raise InputError(where, f'"{name}" is {_say(value)}', f"it must be a list of {'texts' if kind is str else 'objects'}")
    return value


def _object(row: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    value = row.get(name) or {}
    if not isinstance(value, dict):
        raise InputError(where, f'"{name}" is {_say(value)}', "it must be an object")
    return value


def _say(value: Any) -> str:
    """Short description of an invalid value, for an error message."""
    kinds = {type(None): "missing", bool: "the truth value", int: "the number", float: "the number", str: "the text"}
    if value is None:
        return kinds[type(None)]
    shown = repr(value)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return f"{kinds.get(type(value), 'a list' if isinstance(value, list) else 'an object')} {shown}"


def blind(trajectory: Trajectory) -> Trajectory:
    """What a critic may see of a solution: problem, steps, its own answer, images and tools, without gold data."""
    return Trajectory(
        id=trajectory.id,
        problem=trajectory.problem,
        steps=trajectory.steps,
        final_answer=trajectory.final_answer,
        images=trajectory.images,
        tools=trajectory.tools,
    )
