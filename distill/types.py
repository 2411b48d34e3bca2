"""Define the student and scorer protocols that connect training, storage and scoring."""

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
"""An input to score: a problem and the steps of one solution."""


class Scorer(Protocol):
    """A trained student that returns raw, uncalibrated scores.

    `batch` is the preferred number of trajectories per call. `causal` is true if the score of a step depends only on the
    problem, the earlier steps and the step itself, so that scoring a prefix gives the same numbers as scoring the whole
    solution.
    """

    @property
    def batch(self) -> int: ...

    @property
    def causal(self) -> bool: ...

    def score(self, items: Sequence[Item]) -> list[NDArray[np.float64]]:
        """Return the raw P(correct) per step, one array of shape (steps,) per item."""
        ...

    def save(self, folder: Path) -> None:
        """Write everything `load` needs to an existing folder, as safetensors and JSON only.

        Nothing in it is executed on load.
        """
        ...


@dataclass(frozen=True, slots=True)
class Trained:
    """The result of training: the scorer and a summary for the verifier folder (counts, settings, seconds).

    `student` names the module of `students/` whose `load` opens the folder. In distributed training, `leads` is true in one
    process only; only that process writes the verifier.
    """

    scorer: Scorer
    base: str
    summary: Mapping[str, Any] = field(default_factory=dict)
    student: str = "linear"
    leads: bool = True


class Student(Protocol):
    """A trainable model: a module in `students/`, or an object defined there for students with settings."""

    def train(self, data: TrainingSet, *, seed: int, say: Callable[[str], None], work: Path | None = None) -> Trained:
        """Train on `data.train`; `data.dev` may be used for early stopping only. `say` receives progress lines.

        `work` is a folder for the state that lets an interrupted run resume. If it holds `training.jsonl` and `training.png`
        when training ends, both are stored with the verifier.
        """
        ...


class StudentModule(Protocol):
    """Interface of a module in `students/`."""

    def load(self, folder: Path, opening: LoadOptions = ...) -> Scorer:
        """Load what `Scorer.save` wrote.

        Raises OSError, ValueError or KeyError for a damaged folder, and UsageError for load options that this student does not
        support.
        """
        ...
