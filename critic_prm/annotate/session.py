"""One person's annotation of a file: what the page asks for and what it changes, without HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any, Literal, get_args

from critic_prm.annotate.answers import AnswerFile
from critic_prm.annotate.solutions import Solutions
from critic_prm.data.human import HumanAnswer, answer_from_json, answer_to_json, first_error_in
from critic_prm.data.records.containers import name_of
from critic_prm.errors import InputError

UNDECIDED, BEGUN, DECIDED, SKIPPED = range(4)
"""State of a solution."""

Show = Literal["all", "undecided", "decided", "skipped", "noted"]
SHOWS: tuple[Show, ...] = get_args(Show)
WINDOW, EXCERPT, LONGEST = 50, 120, 20_000
"""Solutions per window of the list, characters of a problem in it, and characters of a comment."""

Hideable = Literal["judge", "reference"]


class Conflict(Exception):
    """A change that is based on an older answer than the saved one. `current` is the solution as it is now."""

    def __init__(self, current: dict[str, Any]) -> None:
        super().__init__("the answer was changed in another tab")
        self.current = current


class Session:
    """The solutions of a file and the answers of one person. Safe for use by several threads. Positions count from 0.

    By default, a solution is decided at its first error; with `all_steps`, once every step has a verdict.
    """

    def __init__(self, source: str | Path, solutions: Solutions, answers: AnswerFile, *, all_steps: bool = False) -> None:
        self.source, self.solutions, self.answers, self.all_steps = name_of(source), solutions, answers, all_steps
        self._lock = Lock()
        for key, answer in solutions.answers.items():
            if key not in answers.answers and key in solutions.place:
                answers.write(key, solutions[solutions.place[key]].row, answer)
        self._states = bytearray(len(solutions))
        for key, place in solutions.place.items():
            self._states[place] = self._state(answers.answers.get(key), solutions.step_count(place))

    def idle(self) -> Lock:
        """A lock: nothing is saved while it is held."""
        return self._lock

    def overview(self) -> dict[str, Any]:
        """What the page shows around the solutions."""
        return {
            "source": Path(self.source).name,
            "out": self.answers.path.name,
            "by": self.answers.by,
            "total": len(self.solutions),
            "window": WINDOW,
            "all_steps": self.all_steps,
            "judged": self.solutions.judged,
            "counts": self.counts(),
            "first": self.after(-1),
        }

    def counts(self) -> list[int]:
        """Number of solutions by state: undecided, begun, decided, skipped."""
        return [self._states.count(state) for state in range(4)]

    def window(self, start: int, show: Show = "all") -> dict[str, Any]:
        """The WINDOW solutions of the list from number `start` on, of those with a state: [position, id, excerpt, state, first
        error, steps]."""
        places = self._shown(show)
        start = max(0, min(start, len(places) - 1))
        start -= start % WINDOW
        return {
            "start": start,
            "total": len(places),
            "rows": [self._entry(place) for place in places[start : start + WINDOW]],
        }

    def solution(self, place: int) -> dict[str, Any]:
        """A solution with its answer, without what is hidden."""
        one = self.solutions[place]
        row = one.row
        return {
            "at": place,
            "id": row["id"],
            "problem": row["problem"],
            "steps": [step if isinstance(step, str) else [step["text"], step.get("observation")] for step in row["steps"]],
            "final_answer": row.get("final_answer"),
            "images": [image for image in row.get("images", ()) if image.startswith("data:image/")],
            "people": one.people,
            "hidden": [name for name, there in (("judge", one.judges), ("reference", row.get("gold_answer"))) if there],
            "doubt": one.doubt,
            **self._answer(one.key, place),
        }

    def after(self, place: int) -> int | None:
        """The next solution that is not decided, from the one after `place` on and then from the start; None without one."""
        states, open_ = self._states, (UNDECIDED, BEGUN)
        around = (*range(place + 1, len(states)), *range(max(place, 0)))
        return next((at for at in around if states[at] in open_), None)

    def mark(self, place: int, revision: int, human: Mapping[str, Any]) -> dict[str, Any]:
        """Save an answer: `verdicts`, `note` and `skipped` as in an answer's row. Returns it as saved.

        Raises Conflict if the saved answer has another revision, and InputError if the answer is not valid.
        """
        steps = self.solutions.step_count(place)
        given = {name: human.get(name) for name in ("verdicts", "note", "skipped")}
        answer = answer_from_json({**given, "by": self.answers.by}, steps, "answer")
        comments = (answer.note, *answer.comments.values(), *(verdict.critique for verdict in answer.verdicts))
        if any(len(text) > LONGEST for text in comments):
            raise InputError("answer", f"a comment has more than {LONGEST:,} characters", "shorten it")
        with self._lock:
            return self._save(place, revision, answer)

    def reveal(self, place: int, revision: int, what: Hideable) -> dict[str, Any]:
        """Show what is hidden. That the person saw it is saved first."""
        one = self.solutions[place]
        with self._lock:
            before = self.answers.answers.get(one.key, HumanAnswer(None))
            saved = self._answer(one.key, place)
            if what not in before.looked:
                saved = self._save(place, revision, replace(before, looked=(*before.looked, what)))
        return {**saved, "shown": one.judges if what == "judge" else one.row.get("gold_answer")}

    def _save(self, place: int, revision: int, answer: HumanAnswer) -> dict[str, Any]:
        one = self.solutions[place]
        if revision != self.answers.revisions.get(one.key, 0):
            raise Conflict(self.solution(place))
        before = self.answers.answers.get(one.key, HumanAnswer(None))
        looked = tuple(dict.fromkeys((*before.looked, *answer.looked, *(["people"] if one.people else []))))
        changed = [(v.step, v.value) for v in answer.verdicts] != [(v.step, v.value) for v in before.verdicts]
        steps = self.solutions.step_count(place)
        first = None if answer.skipped else first_error_in({v.step: v.value for v in answer.verdicts}, steps)
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        seen = looked if changed else before.seen
        answer = replace(answer, first_error=first, seen=seen, looked=looked, by=self.answers.by, at=now)
        self.answers.write(one.key, one.row, answer)
        self._states[place] = self._state(answer, steps)
        return self._answer(one.key, place)

    def _answer(self, key: str, place: int) -> dict[str, Any]:
        answer = self.answers.answers.get(key)
        return {
            "revision": self.answers.revisions.get(key, 0),
            "human": None if answer is None else self._full(answer, place),
            "state": self._states[place],
            "counts": self.counts(),
        }

    def _full(self, answer: HumanAnswer, place: int) -> dict[str, Any]:
        """An answer with the verdicts that a first error implies."""
        return answer_to_json(replace(answer, verdicts=answer.said(self.solutions.step_count(place))))

    def _state(self, answer: HumanAnswer | None, steps: int) -> int:
        if answer is None:
            return UNDECIDED
        if answer.skipped:
            return SKIPPED
        if answer.first_error is not None and (not self.all_steps or len(answer.said(steps)) == steps):
            return DECIDED
        return BEGUN if answer.verdicts or answer.note or answer.comments else UNDECIDED

    def _shown(self, show: Show) -> range | list[int]:
        if show == "all":
            return range(len(self.solutions))
        if show == "noted":
            answers = ((self.solutions.place.get(key), answer) for key, answer in self.answers.answers.items())
            return sorted(place for place, answer in answers if place is not None and _noted(answer))
        states = {"undecided": (UNDECIDED, BEGUN), "decided": (DECIDED,), "skipped": (SKIPPED,)}[show]
        return [place for place, state in enumerate(self._states) if state in states]

    def _entry(self, place: int) -> list[Any]:
        one = self.solutions[place]
        answer = self.answers.answers.get(one.key)
        excerpt = " ".join(one.row["problem"][: 4 * EXCERPT].split())[:EXCERPT]
        first = None if answer is None else answer.first_error
        return [place, one.row["id"], excerpt, self._states[place], first, self.solutions.step_count(place)]


def _noted(answer: HumanAnswer) -> bool:
    return bool(answer.note or answer.comments or any(verdict.critique for verdict in answer.verdicts))
