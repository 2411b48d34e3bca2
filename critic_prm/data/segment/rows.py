"""Split the steps of trajectories, and count what was done."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.errors import InputError

Segment = Literal["auto", "lines", "paragraphs", "numbered", "sentences", "thoughts", "llm", "none"]

MANY = 100
"""Number of steps above which a solution is probably split too finely."""

TOO_MANY_WHOLE, FEW = 0.2, 3
"""Share of solutions with one step above which the text probably has marks that the method does not see, and the number of
solutions below which that says nothing."""

SHORT, _MARK = 40, re.compile(r"[\n.!?。！？;:>]")
"""A text of fewer characters and without these has one step. This saves loading the methods for files of given steps."""

PLACES = {
    "lines": "lines",
    "paragraphs": "paragraphs",
    "numbered": "numbers and bullets",
    "sentences": "sentences",
    "thoughts": "turning points",
    "llm": "the judge's marks",
}
"""Where the methods split, for the report."""

_LABELS = ("p_correct", "votes", "judgements", "first_error", "status")
"""Fields of a label file: the steps of its rows were judged, so they stay."""


@dataclass(slots=True)
class StepCounts:
    """What segmenting did: the number of solutions by number of steps, and of those that a method split."""

    sizes: Counter[int] = field(default_factory=Counter)
    split: Counter[str] = field(default_factory=Counter)
    whole: int = 0
    """Solutions without labels that have one step."""
    fine: int = 0
    """Solutions that a method split into more than `MANY` steps."""
    fallbacks: int = 0
    """Solutions that were split by rules because the judge's reply could not be used."""

    def add(self, trajectory: Trajectory, method: str = "") -> None:
        """Count a solution and the method that split it, if any."""
        steps = len(trajectory.steps)
        self.sizes[steps] += 1
        self.whole += steps == 1 and not is_labelled(trajectory)
        if method and steps > 1:
            self.split[method] += 1
            self.fine += steps > MANY

    @property
    def solutions(self) -> int:
        return self.sizes.total()

    def lines(self) -> list[str]:
        """What was done, if anything was split, and warnings."""
        lines = []
        if self.split:
            ways = self.split.most_common()
            how = ", ".join(PLACES[name] + (f" ({n:,})" if len(ways) > 1 or n < self.solutions else "") for name, n in ways)
            least, most = min(self.sizes), max(self.sizes)
            steps = f"{least} to {most:,} steps, median {self._median()}" if least < most else f"{most:,} steps each"
            lines.append(f"{_solutions(self.solutions)}, {steps}, split at {how}")
        if self.fallbacks:
            lines.append(f"split by rules instead, because the judge's marks could not be used: {_solutions(self.fallbacks)}")
        if self.whole > TOO_MANY_WHOLE * self.solutions and self.solutions >= FEW:
            lines.append(
                f"warning: {self.whole:,} of {self.solutions:,} solutions have one step; if they have more, say where to split:"
                " --segment lines, paragraphs, numbered, sentences, thoughts or llm (none: leave them whole)"
            )
        if self.fine:
            lines.append(
                f"warning: {_solutions(self.fine)} with more than {MANY} steps, up to {max(self.sizes):,};"
                " a coarser split may suit them: --segment paragraphs or thoughts"
            )
        return lines

    def report(self) -> dict[str, object]:
        """The counts as JSON."""
        return {"steps": {str(steps): n for steps, n in sorted(self.sizes.items())}, "split": dict(self.split)}

    def _median(self) -> int:
        left = (self.solutions + 1) // 2
        for steps, n in sorted(self.sizes.items()):
            left -= n
            if left <= 0:
                return steps
        return 0


def _solutions(number: int) -> str:
    return f"{number:,} solution{'' if number == 1 else 's'}"


def is_labelled(trajectory: Trajectory) -> bool:
    """Whether the steps have labels or judgements, which would be lost if the steps changed."""
    labelled = trajectory.label is not None or any(label is not None for label in trajectory.step_labels or ())
    return labelled or any(name in trajectory.extra for name in _LABELS)


def segmented(trajectory: Trajectory, method: Segment, counts: StepCounts, where: str = "") -> Trajectory:
    """The trajectory with its steps split by `method`.

    "auto" splits a trajectory that has exactly one step, without labels and observations, and leaves others as they are.
    Another method splits all steps again: the text between two observations is one text. "none" and "llm" change nothing here.
    Raises InputError for a method other than auto if the steps have labels.
    """
    steps = trajectory.steps
    if method in ("none", "llm"):
        return trajectory
    if method == "auto" and not is_one_text(trajectory):
        counts.add(trajectory)
        return trajectory
    if is_labelled(trajectory):
        problem = f"the steps of {trajectory.id or 'this row'} have labels, so --segment {method} cannot split them again"
        raise InputError(where or trajectory.id, problem, "leave out --segment, or remove the labels")
    if all(len(step.text) < SHORT and not _MARK.search(step.text) for step in steps):
        counts.add(trajectory)
        return trajectory
    from critic_prm.data.segment.methods import segment

    used = Counter[str]()

    def split(text: str) -> Sequence[str]:
        parts, how = segment(text, method)
        used[how] += len(parts)
        return parts

    made = resplit(trajectory, split)
    counts.add(made, used.most_common(1)[0][0] if made.steps != steps and used else "")
    return made


def is_one_text(trajectory: Trajectory) -> bool:
    """Whether the solution is one unlabelled text that "auto" may split."""
    return len(trajectory.steps) == 1 and trajectory.steps[0].observation is None and not is_labelled(trajectory)


def resplit(trajectory: Trajectory, split: Callable[[str], Sequence[str]]) -> Trajectory:
    """The trajectory with the steps that `split` makes of its text. An observation stays with the last step before it."""
    steps: list[Step] = []
    texts: list[str] = []
    for place, step in enumerate(trajectory.steps, 1):
        texts.append(step.text)
        if step.observation is None and place < len(trajectory.steps):
            continue
        text = "\n\n".join(texts)
        parts = list(split(text)) or [text]
        steps += [*map(Step, parts[:-1]), Step(parts[-1], step.observation)]
        texts = []
    return replace(trajectory, steps=tuple(steps), step_labels=None)
