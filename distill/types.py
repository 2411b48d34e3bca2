"""Define the student and scorer protocols that connect training, storage and scoring, and their options."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from critic_prm import registry
from critic_prm.errors import UsageError
from critic_prm.option import parse_options
from distill.data import Row, TrainingSet
from distill.settings import DEFAULT, DEFAULT_TRAINING, LoadOptions, TrainingSettings

if TYPE_CHECKING:
    from distill.layouts import Encoded


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
        """Score all steps of solutions with at least one step, in order. A score does not depend on the other solutions."""
        ...


Item: TypeAlias = tuple[str, Sequence[str]]
"""An input to score: a problem and the steps of one solution."""


class Scorer(Protocol):
    """A trained student that returns raw, uncalibrated scores. Implementations are subclasses and override the defaults.

    `batch` is the preferred number of trajectories per call. `causal` is true if the score of a step depends only on the
    problem, the earlier steps and the step itself, so that scoring a prefix gives the same numbers as scoring the whole
    solution.
    """

    @property
    def batch(self) -> int: ...

    @property
    def causal(self) -> bool: ...

    @property
    def heads(self) -> int:
        """The number of heads; with more than one, `score_and_spread` returns a spread."""
        return 1

    def score(self, items: Sequence[Item]) -> list[NDArray[np.float64]]:
        """Return the raw P(correct) per step, one array of shape (steps,) per item."""
        ...

    def score_and_spread(self, items: Sequence[Item]) -> list[tuple[Floats, Floats | None]]:
        """Return the scores, and the standard deviation of the heads' P(correct), None if there is one head."""
        return [(p, None) for p in self.score(items)]

    def with_prefix_cache(self) -> Scorer:
        """Return a scorer that caches prefixes, so that an appended step costs that step alone; itself if it cannot cache."""
        return self

    def save(self, folder: Path) -> None:
        """Write everything `load` needs to an existing folder, as safetensors and JSON only.

        Nothing in it is executed on load.
        """
        ...


@dataclass(frozen=True, slots=True)
class Trained:
    """The result of training."""

    scorer: Scorer
    student: str
    """Name of the student, whose module loads the verifier folder."""
    solutions: int
    """Number of solutions trained on."""
    steps: int
    """Number of labelled steps trained on."""
    base: str = "none"
    """The base model, a hub name or a folder; "none" if the student has none."""
    summary: Mapping[str, Any] = field(default_factory=dict)
    """Further facts about the training for the verifier folder, such as settings and seconds."""
    leads: bool = True
    """In distributed training, true in one process only, which writes the verifier."""
    left_out: Sequence[Floats] = ()
    """If groups were left out: the raw scores of each training row by a model trained without its group, of shape (steps,)."""


class Student(Protocol):
    """A model that can be trained: a base, if the student has one, with its settings. Implementations are subclasses."""

    @property
    def leaves_out_cheaply(self) -> bool:
        """Whether `train_leaving_out` with five groups takes at most three times as long as `train`."""
        return False

    def train(self, data: TrainingSet, *, seed: int, say: Callable[[str], None], work: Path | None = None) -> Trained:
        """Train on `data.train`; `data.dev` may be used for early stopping only. `say` receives progress lines.

        `work` is a folder for the state that lets an interrupted run resume. If it holds `training.jsonl` and `training.png`
        when training ends, both are stored with the verifier.
        """
        ...

    def train_leaving_out(
        self,
        data: TrainingSet,
        groups: NDArray[np.int64],
        *,
        seed: int,
        say: Callable[[str], None],
        work: Path | None = None,
    ) -> Trained:
        """Train on all of `data.train`, and once more without each group, to fill `Trained.left_out`.

        `groups` has the group of each row of `data.train`, 0 to k - 1, shape (rows,).
        """
        left_out: list[Floats] = [np.empty(0)] * len(data.train)
        for group in range(int(groups.max()) + 1):
            say(f"training without group {group + 1} of {int(groups.max()) + 1}")
            rest = replace(data, train=tuple(row for row, own in zip(data.train, groups, strict=True) if own != group))
            part = self.train(rest, seed=seed, say=say, work=None if work is None else work / f"without-{group}")
            held = np.flatnonzero(groups == group)
            for row, scores in zip(held, score_rows(part.scorer, [data.train[row] for row in held]), strict=True):
                left_out[row] = scores
        return replace(self.train(data, seed=seed, say=say, work=work), left_out=left_out)


def score_items(scorer: Scorer, items: Sequence[Item]) -> list[Floats]:
    """Return the raw scores of every item, computed in batches of the scorer's preferred size."""
    out: list[Floats] = []
    for start in range(0, len(items), scorer.batch):
        out.extend(scorer.score(items[start : start + scorer.batch]))
    return out


def score_rows(scorer: Scorer, rows: Sequence[Row]) -> list[Floats]:
    """Return the raw scores of every row; see `score_items`."""
    return score_items(scorer, [(row.problem, row.steps) for row in rows])


@dataclass(frozen=True, slots=True)
class StudentType:
    """What a module in `students/` declares as STUDENT. The student is called as its file.

    A module may also declare a dataclass `Options`: settings of its own, which `distill` takes as `--option KEY=VALUE`.
    """

    make: Callable[[str, TrainingSettings, Any], Student]
    """Create a student from a base ("" if it has none), settings and an object of the module's `Options` (or None)."""
    load: Callable[[Path, LoadOptions], Scorer]
    """Load what `Scorer.save` wrote. Raises OSError, ValueError or KeyError for a damaged folder."""
    needs_base: bool = True
    """Whether it is trained from a base model, written NAME:BASE."""
    takes_bare_base: bool = False
    """Whether a base without the name of a student means this student."""
    settings: Collection[str] = ()
    """The fields of TrainingSettings that it uses."""
    has_backends: bool = False
    """Whether its verifiers can be opened with other LoadOptions than the defaults."""


def open_student(name: str) -> StudentType:
    """Import the student called `name`. Raises UsageError with the available names."""
    return cast(StudentType, registry.load("student", name).STUDENT)


def choose_student(text: str, settings: TrainingSettings = DEFAULT_TRAINING, options: Sequence[str] = ()) -> Student:
    """Create the student that a command names: NAME, NAME:BASE, or a base alone (a hub name or a local folder).

    `options` are texts "key=value" for the student's own `Options`. Raises UsageError for settings and options that the student
    does not have, and for a missing base.
    """
    name, _, base = text.partition(":")
    names = registry.names("student")
    if name not in names and base and not Path(text).exists():
        raise UsageError(f"there is no student {name!r}; available: {', '.join(names)}")
    if name not in names:
        name, base = next(name for name in names if open_student(name).takes_bare_base), text
    student = open_student(name)
    if bool(base) != student.needs_base:
        problem = f"needs a base: --student {name}:BASE" if student.needs_base else f"has no base: --student {name}"
        raise UsageError(f"the student is {text!r}, but {name} {problem}")
    check_settings(name, settings)
    return student.make(base, settings, parse_options(registry.load("student", name), options, f"the {name} student"))


def check_settings(name: str, settings: TrainingSettings) -> None:
    """Raise UsageError for settings that the student called `name` does not have and that differ from their defaults."""
    changed = (f.name for f in fields(settings) if getattr(settings, f.name) != f.default)
    if unused := [f"--{field.replace('_', '-')}" for field in changed if field not in open_student(name).settings]:
        raise UsageError(f"the {name} student has no {', '.join(unused)}; leave it out, or name another --student")


def load_scorer(name: str, folder: Path, loading: LoadOptions) -> Scorer:
    """Load the scorer of a verifier folder. Raises UsageError for load options that the student does not support."""
    student = open_student(name)
    if loading != DEFAULT and not student.has_backends:
        raise UsageError(f"a {name} verifier has no --backend, --dtype, --device and --base-url; leave them out")
    return student.load(folder, loading)
