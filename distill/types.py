"""The Student: what learns from a training set, and the Scorer it becomes; one student a file in `students/`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from distill.data import TrainingSet

if TYPE_CHECKING:
    from distill.scoring.load import LoadOptions

Item: TypeAlias = tuple[str, Sequence[str]]
"""What is scored: a problem and the steps of one solution."""


class Scorer(Protocol):
    """A trained student: raw scores, not yet calibrated.

    `batch` is how many trajectories it likes at once. `causal` says whether a step's score depends on the problem, earlier
    steps and the step alone, so that scoring a prefix gives the same numbers as scoring the whole.
    """

    @property
    def batch(self) -> int: ...

    @property
    def causal(self) -> bool: ...

    def score(self, items: Sequence[Item]) -> list[NDArray[np.float64]]:
        """Raw P(correct) per step, one array of shape (steps,) per item."""
        ...

    def save(self, folder: Path) -> None:
        """Write everything `load` needs into an existing folder: safetensors and JSON, nothing that runs when read."""
        ...


@dataclass(frozen=True, slots=True)
class Trained:
    """What training gives: the scorer, and a summary for the verifier's folder (counts, settings, seconds).

    `student` names the module of `students/` whose `load` opens the folder. `leads` is false in all but one of several
    processes that trained together: only that one writes.
    """

    scorer: Scorer
    base: str
    summary: Mapping[str, Any] = field(default_factory=dict)
    student: str = "linear"
    leads: bool = True


class Student(Protocol):
    """What trains: a module in `students/`, or an object that one of them defines for students with settings."""

    def train(self, data: TrainingSet, *, seed: int, say: Callable[[str], None], work: Path | None = None) -> Trained:
        """Learn from `data.train` (`data.dev` is for early stopping at most). `say` takes lines of progress.

        `work` is a folder for what lets an interrupted run go on; what it holds as `training.jsonl` and `training.png` when
        training ends is kept with the verifier.
        """
        ...


class StudentModule(Protocol):
    """A module in `students/`."""

    def load(self, folder: Path, opening: LoadOptions = ...) -> Scorer:
        """The inverse of `Scorer.save`. Raises OSError, ValueError or KeyError for a folder that is damaged, UsageError for a
        way of opening that it has not."""
        ...
