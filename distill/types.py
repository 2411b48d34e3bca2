"""Define the student and scorer protocols that connect training, storage and scoring, and their options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from critic_prm import registry
from critic_prm.errors import UsageError
from distill.data import TrainingSet
from distill.settings import DEFAULT, LoadOptions

if TYPE_CHECKING:
    from distill.layouts import Encoded
    from distill.settings import TrainingSettings


Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StepScores:
    """The scores of one solution."""

    p: Floats
    """Raw P(correct) of each step that fits, shape (kept steps,)."""
    spread: Floats | None = None
    """Standard deviation over the heads of the network, of the same shape; None if there is one head."""


class Runner(Protocol):
    """Computes scores: one backend, opened on one verifier."""

    def run(self, encoded: Sequence[Encoded]) -> list[StepScores]:
        """Score all steps of all solutions, in order. A score does not depend on the other solutions of the call."""
        ...


def require_default(opening: LoadOptions, student: str) -> None:
    """Raise UsageError if load options are given for a student that supports only the default."""
    if opening != DEFAULT:
        raise UsageError(
            f"a {student} verifier is opened in one way only; leave --backend, --dtype, --device and --base-url out"
        )


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


def student_names() -> list[str]:
    """List the available students: the modules of `distill/students`."""
    return registry.names("student")


def open_student(name: str) -> StudentModule:
    """Import the student called `name`. Raises UsageError with the available names."""
    return cast(StudentModule, registry.load("student", name))


def choose_student(name: str, settings: TrainingSettings, sources: tuple[str, ...] = ()) -> Student:
    """Create the student that a command names.

    "linear" is the linear student; a base (a hub name or a local folder) is a transformer. "implicit:BASE" learns from outcomes
    only; "hybrid:BASE" is the linear student with features of a frozen base, which reads the sources that match `sources`, or
    all if there are none.

    Raises UsageError for settings that the student does not support.
    """
    if sources and not name.startswith("hybrid:"):
        raise UsageError("--sources says what a hybrid student reads; other students learn from all sources")
    if name in student_names() and hasattr(open_student(name), "train"):
        changed = changed_settings(settings)
        if changed:
            raise UsageError(
                f"the {name} student has no {', '.join(changed)}; name a base, such as --student FOLDER, to use them"
            )
        return cast(Student, open_student(name))
    if name.startswith("implicit:"):
        from distill.students.implicit import Implicit

        return Implicit(name.removeprefix("implicit:"), settings)
    if name.startswith("hybrid:"):
        from distill.students.hybrid import APPLY, Hybrid

        changed = [option for option in changed_settings(settings) if option not in APPLY]
        if changed:
            raise UsageError(f"the hybrid student has no {', '.join(changed)}: its base is read, not trained")
        return Hybrid(name.removeprefix("hybrid:"), settings, sources or ("*",))
    from distill.students.transformer import Transformer

    return Transformer(name, settings)


def changed_settings(settings: TrainingSettings) -> list[str]:
    """List the options that differ from their defaults, as written on the command line."""
    return [f"--{f.name.replace('_', '-')}" for f in fields(settings) if getattr(settings, f.name) != f.default]
