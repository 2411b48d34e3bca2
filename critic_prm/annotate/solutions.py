"""The solutions to annotate: read once into a temporary file, ordered, and read back one at a time."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from tempfile import TemporaryFile
from threading import Lock
from typing import Annotated as Described
from typing import Any, Literal

import orjson

from critic_prm.data.human import HUMAN, HumanAnswer, answer_from_json, answer_key, asked
from critic_prm.data.judgement import Judgement, Label
from critic_prm.data.label_rows import is_labelled, label_from_json
from critic_prm.data.records.reading import encode
from critic_prm.data.trajectory import Trajectory, trajectory_from_json, trajectory_to_json
from critic_prm.errors import InputError, UsageError
from critic_prm.option import Option

Order = Literal["file", "uncertain", "random"]

OTHERS = "annotations"
"""The field of a row with the answers of several people who disagree, see `critic_prm.annotate.agreement`."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which solutions are shown, and in which order."""

    order: Order = "file"
    """Order of the solutions: as in FILE, the least certain labels first, or random."""
    limit: Described[int | None, Option(min=1)] = None
    """Show only the first N solutions in this order."""
    seed: int = 0
    """Random seed of --order random."""


@dataclass(frozen=True, slots=True)
class Solution:
    """A solution to annotate."""

    key: str
    row: Mapping[str, Any]
    """The native row, without gold labels and labels of critics."""
    judges: list[dict[str, Any]]
    """What judges say: name, first error, status, P(correct) per step, and verdicts [step, verdict, P(correct), critique]."""
    people: list[dict[str, Any]]
    """What other people say, in the same form."""
    doubt: list[int]
    """The steps about which a cascade was in doubt."""


class Solutions:
    """The solutions of a file, by position in the chosen order. Solutions with equal content are shown once.

    Memory is about 150 bytes per solution; the texts are in a temporary file. `answers` are those already in the rows: an
    escalation file may have been filled in by hand.
    """

    def __init__(self, trajectories: Iterable[Trajectory], selection: Selection = Selection()) -> None:
        self._file, self._lock = TemporaryFile(), Lock()  # noqa: SIM115  (closed with the object)
        self._offsets, self.steps, keys = array("Q", [0]), array("L"), list[str]()
        self.answers: dict[str, HumanAnswer] = {}
        self.duplicates, self.judged = 0, False
        self.place: dict[str, int] = {}
        """Position by key."""
        unsure = array("d")
        try:
            for trajectory in trajectories:
                if (key := answer_key(trajectory)) in self.place:
                    self.duplicates += 1
                    continue
                self.place[key] = len(keys)
                keys.append(key)
                unsure.append(self._add(key, trajectory, selection))
            self._order = _ordered(unsure, selection)
        except BaseException:
            self.close()
            raise
        self.place = {keys[at]: place for place, at in enumerate(self._order)}

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, place: int) -> Solution:
        at = self._order[place]
        with self._lock:
            self._file.seek(self._offsets[at])
            row = orjson.loads(self._file.read(self._offsets[at + 1] - self._offsets[at]))
        return _solution(trajectory_from_json(row, f"solution {row['id']}"))

    def step_count(self, place: int) -> int:
        """The number of steps of a solution."""
        return self.steps[self._order[place]]

    def close(self) -> None:
        self._file.close()

    def _add(self, key: str, trajectory: Trajectory, selection: Selection) -> float:
        """Store a trajectory. Returns how uncertain its label is, if the order depends on it."""
        extra, steps = trajectory.extra, len(trajectory.steps)
        given = extra.get(HUMAN)
        if isinstance(given, dict) and given.get("first_error") is not None:
            self.answers[key] = answer_from_json(given, steps, trajectory.id)
        labelled, escalated = is_labelled(extra), isinstance(extra.get("escalated"), dict)
        self.judged = self.judged or labelled or escalated
        self._file.write(encode(trajectory_to_json(trajectory), trajectory.id))
        self._offsets.append(self._file.tell())
        self.steps.append(steps)
        if selection.order != "uncertain" or not labelled:
            return float(escalated)
        label = label_from_json({**extra, "judgements": ()}, steps, trajectory.id)
        return uncertainty(label, _spreads(extra.get("judgements")))


def _solution(trajectory: Trajectory) -> Solution:
    """A stored row as it is shown. Raises InputError if its label is damaged."""
    extra, steps, where = trajectory.extra, len(trajectory.steps), trajectory.id
    judges: list[dict[str, Any]] = []
    if is_labelled(extra):
        card = extra.get("critic")
        judges = opinions(label_from_json(extra, steps, where), card if isinstance(card, Mapping) else {})
    elif isinstance(facts := extra.get("escalated"), dict):
        judges = escalated(facts, steps)
    row = trajectory_to_json(asked(trajectory))
    row.pop(HUMAN, None)
    facts = extra.get("escalated")
    doubt = facts.get("steps") if isinstance(facts, dict) else None
    in_doubt = [step for step in _list(doubt) if isinstance(step, int)]
    return Solution(answer_key(trajectory), row, judges, others(row.pop(OTHERS, None), steps, where), in_doubt)


def _ordered(unsure: array[float], selection: Selection) -> array[int]:
    """The places of the solutions to show, in their order. Raises UsageError if no label is uncertain."""
    order = list(range(len(unsure)))
    if selection.order == "uncertain":
        if not any(value > 0 for value in unsure):
            raise UsageError(
                "--order uncertain: no label is uncertain; judge with --samples 4 or --logprobs for P(correct) between 0 and 1"
            )
        order.sort(key=lambda at: -unsure[at])  # stable: equally uncertain ones stay in the order of the file
    elif selection.order == "random":
        random.Random(selection.seed).shuffle(order)
    return array("L", order[: selection.limit])


def uncertainty(label: Label, spreads: Iterable[tuple[int, float]] = ()) -> float:
    """How uncertain a label is, 0 to 1: of the steps up to the first error, the largest of 1 - |2 P(correct) - 1| and twice the
    standard deviation of an ensemble's scores, which `spreads` holds as (step, deviation). 1 if there is no usable label."""
    if label.status != "ok":
        return 1.0
    last = len(label.p_correct) if label.first_error is None or label.first_error < 0 else label.first_error + 1
    doubts = [1 - abs(2 * p - 1) for p in label.p_correct[:last] if p is not None]
    return max([*doubts, *(min(1.0, 2 * spread) for step, spread in spreads if step < last)], default=1.0)


def _spreads(judgements: Any) -> Iterator[tuple[int, float]]:
    """The deviations in the judgements of a row, without parsing them: there may be hundreds of verdicts."""
    for one in _list(judgements):
        for verdict in _list(one.get("verdicts")) if isinstance(one, dict) else ():
            step, spread = (verdict.get(name) if isinstance(verdict, dict) else None for name in ("step", "spread"))
            if isinstance(step, int) and isinstance(spread, float):
                yield step, spread


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def opinions(label: Label, card: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the judgements behind a label say, each for itself."""
    name = "/".join(str(card[part]) for part in ("provider", "model") if card.get(part)) or "judge"
    leaves = list(_leaves(label.judgements))
    said = [
        {
            "name": (one.judge or name) + (f", sample {one.sample + 1}" if len(leaves) > 1 else ""),
            "status": one.status,
            "first_error": one.first_error,
            "verdicts": [[v.step, v.value, v.p_correct, v.critique] for v in one.verdicts],
        }
        for one in leaves
    ]
    return said or [{"name": name, "status": label.status, "first_error": label.first_error, "p": list(label.p_correct)}]


def _leaves(judgements: Iterable[Judgement]) -> Iterator[Judgement]:
    for judgement in judgements:
        if judgement.parts:
            yield from _leaves(judgement.parts)
        else:
            yield judgement


def escalated(facts: Mapping[str, Any], steps: int) -> list[dict[str, Any]]:
    """What the critics of a cascade said before a solution was escalated."""
    p = facts.get("p_correct")
    scores = p if isinstance(p, list) and len(p) == steps else []
    first = {"name": "first critic", "status": "ok", "first_error": facts.get("first_critic"), "p": scores}
    judges = facts.get("judges")
    known = [one for one in judges if isinstance(one, dict)] if isinstance(judges, list) else []
    names = ("status", "first_error")
    return [first, *({"name": str(one.get("judge")), **{name: one.get(name) for name in names}} for one in known)]


def others(rows: Any, steps: int, where: str) -> list[dict[str, Any]]:
    """What other people said, from the field "annotations" of a row. Raises InputError."""
    if rows is None:
        return []
    if not isinstance(rows, list):
        raise InputError(where, f'"{OTHERS}" is {rows!r:.40}', "it is a list of answers")
    said = []
    for row in rows:
        answer = answer_from_json(row, steps, where)
        verdicts = [[v.step, v.value, None, v.critique] for v in answer.said(steps)]
        verdicts += [[step, None, None, text] for step, text in answer.comments.items()]
        said.append({"name": answer.by, "first_error": answer.first_error, "verdicts": verdicts, "note": answer.note})
    return said
