"""Generate trajectories with exact labels from a synthetic problem family.

By default half of the solutions are wrong, and the errors are spread evenly over the steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Protocol, cast

from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.errors import CriticPrmError, UsageError
from critic_prm.generate.options import parse_weights
from critic_prm.registry import load, names

LEVELS = (1, 5)
PULL = 0.15
"""How strongly the actual share of wrong solutions is pulled toward the requested one."""
PATIENCE = 2000
"""A family is exhausted after this many draws in a row that repeat a problem or fit no error."""


@dataclass(frozen=True, slots=True)
class Solution:
    """The steps of one solution and its answer."""

    steps: tuple[str, ...]
    answer: str


class FamilyTask(Protocol):
    """One problem with its correct solution and the errors that can be planted in it.

    `places` has one entry per step of the correct solution: the error kinds that fit there. `plant` returns a solution that
    makes this error at step `at` (0-based) and continues consistently from it; the steps before `at` are those of the correct
    solution. It returns None if the error is impossible there (it would change nothing, or give implausible numbers). `facts`
    go into the trajectory's meta.
    """

    @property
    def problem(self) -> str: ...
    @property
    def right(self) -> Solution: ...
    @property
    def places(self) -> tuple[Collection[str], ...]: ...
    @property
    def facts(self) -> Mapping[str, object]: ...
    def plant(self, at: int, kind: str, rng: Random) -> Solution | None: ...


class Family(Protocol):
    """A module in `families/`. `KINDS` maps the error kinds it can plant to their weights."""

    KINDS: Mapping[str, float]

    def draw(self, rng: Random, level: int) -> FamilyTask:
        """Draw a problem of difficulty `level`, 1 (easy) to 5."""
        ...


def open_family(name: str) -> Family:
    """Open a family by name. Raises UsageError, listing the available families, for an unknown name."""
    return cast(Family, load("family", name))


def family_names() -> list[str]:
    """Return the names of all families."""
    return names("family")


def generate_family(
    name: str,
    n: int,
    *,
    seed: int = 0,
    difficulty: tuple[int, int] = LEVELS,
    wrong: float = 0.5,
    kinds: Mapping[str, float] | None = None,
) -> Iterator[Trajectory]:
    """Yield `n` trajectories of a family with exact labels. The same arguments always give the same trajectories.

    Every problem occurs once. `difficulty` is the range of levels, each equally likely. `wrong` is the share of solutions with
    a planted error; among solutions of equal length, every step is the first error equally often. `kinds` (error kind to
    weight) replaces the family's defaults. A smaller `n` gives a prefix of a larger one.

    Raises UsageError for invalid arguments and CriticPrmError if the family has no more problems of this level.
    """
    family = open_family(name)
    weights = _weights(name, family.KINDS, kinds)
    low, high = difficulty
    if not LEVELS[0] <= low <= high <= LEVELS[1]:
        asked = f"{low}" if low == high else f"{low}-{high}"
        raise UsageError(f"difficulty is {asked}; it is a level from {LEVELS[0]} to {LEVELS[1]}, or two of them as in 2-4")
    if not 0 <= wrong <= 1:
        raise UsageError(f"the share of wrong solutions is {wrong}; it goes from 0 to 1")
    if n < 0:
        raise UsageError(f"the number of trajectories is {n}; it must be 0 or more")
    return _generate(name.replace("_", "-"), family, n, seed, (low, high), wrong, weights)


def parse_levels(text: str) -> tuple[int, int]:
    """Parse "3" as (3, 3) and "2-4" as (2, 4). Raises UsageError."""
    low, dash, high = text.partition("-")
    if not (low.isdecimal() and (high if dash else low).isdecimal()):
        raise UsageError(f"the difficulty is {text!r}; write a level from {LEVELS[0]} to {LEVELS[1]}, or two of them as in 2-4")
    return int(low), int(high or low)


def parse_kinds(texts: Collection[str]) -> dict[str, float] | None:
    """Parse error kinds such as "slip" and "slip=3" to weights; None if `texts` is empty. Raises UsageError."""
    return parse_weights(texts) or None


def _generate(
    name: str, family: Family, n: int, seed: int, levels: tuple[int, int], wrong: float, weights: Mapping[str, float]
) -> Iterator[Trajectory]:
    rng = Random(f"{name} {seed}")
    seen: set[str] = set()
    planted: Counter[tuple[int, int]] = Counter()
    for index in range(n):
        level = rng.randint(*levels)
        # without the pull, the share in a short file could be far from the requested one
        make_wrong = rng.random() < wrong + PULL * (wrong * index - planted.total())
        for _ in range(PATIENCE):
            task = family.draw(rng, level)
            # every problem must admit an error, even if its correct solution is used; else the type of problem would reveal the
            # label
            if task.problem not in seen and (error := _plant(task, rng, planted, weights)):
                break
        else:
            raise CriticPrmError(
                f"{name} finds no new problem of difficulty {level} after {index}; ask for a higher one, or more kinds of error"
            )
        seen.add(task.problem)
        at, kind, solution = error
        if make_wrong:
            planted[len(solution.steps), at] += 1
        else:
            at, solution = -1, task.right
        yield Trajectory(
            id=f"{name}-{seed}-{index:06d}",
            problem=task.problem,
            steps=tuple(Step(text) for text in solution.steps),
            final_answer=solution.answer,
            gold_answer=task.right.answer,
            label=at,
            meta={"family": name, "difficulty": level} | ({"error": kind} if make_wrong else {}) | dict(task.facts),
        )


def _plant(
    task: FamilyTask, rng: Random, planted: Counter[tuple[int, int]], weights: Mapping[str, float]
) -> tuple[int, str, Solution] | None:
    """Plant an error at a step that has had fewer errors so far than others among solutions of its length.

    An error may change the length of the solution; if its step is already overrepresented at the new length, try another one.
    """
    length = len(task.places)
    choices = {at: kinds for at, found in enumerate(task.places) if (kinds := [kind for kind in found if weights.get(kind)])}
    best, least = None, 0.0
    for at in sorted(choices, key=lambda at: (planted[length, at], rng.random())):
        found = _plant_at(task, at, choices[at], rng, weights)
        if found is None:
            continue
        steps = len(found[2].steps)
        crowding = planted[steps, at] - sum(planted[steps, other] for other in range(steps)) / steps
        if best is None or crowding < least:
            best, least = found, crowding
        if least <= 0:
            break
    return best


def _plant_at(
    task: FamilyTask, at: int, kinds: list[str], rng: Random, weights: Mapping[str, float]
) -> tuple[int, str, Solution] | None:
    """Plant an error of one of these kinds, drawn by weight."""
    while kinds:
        kind = rng.choices(kinds, [weights[k] for k in kinds])[0]
        if solution := task.plant(at, kind, rng):
            return at, kind, solution
        kinds.remove(kind)
    return None


def _weights(name: str, own: Mapping[str, float], asked: Mapping[str, float] | None) -> Mapping[str, float]:
    if asked is None:
        return own
    for kind, weight in asked.items():
        if kind not in own:
            raise UsageError(f"{name} has no kind of error called {kind!r}; available: {', '.join(own)}")
        if not 0 <= weight < float("inf"):
            raise UsageError(f"the weight of {kind} is {weight}; it must be 0 or more, and finite")
    if not any(asked.values()):
        raise UsageError("all kinds of error have the weight 0; give at least one of them more")
    return dict(asked)


@dataclass(frozen=True, slots=True)
class Finding:
    """A checker's result: the first wrong step (0-based), -1 for none, or None if undecided, with the reason in `note`."""

    first_error: int | None
    note: str = ""


class Checker(Protocol):
    """A module in `checks/`. It reads the problem and the steps, never the label."""

    def examine(self, trajectory: Trajectory) -> Finding: ...


def checked_families() -> list[str]:
    """Return the families whose labels a solver can verify."""
    return names("check")


def confirm(family: str, trajectories: Iterable[Trajectory]) -> Iterator[Trajectory]:
    """Yield the trajectories of a family after verifying their labels.

    If the solver cannot decide, or the premises contradict each other, the label becomes None: undecided is not wrong.

    Raises UsageError for a family without a checker, ConfigError if the extra `formal` is not installed, and CriticPrmError for
    a label that the solver contradicts.
    """
    if family.replace("_", "-") not in checked_families():
        raise UsageError(f"no solver checks the family {family!r}; those it can check are: {', '.join(checked_families())}")
    checker = cast(Checker, load("check", family))
    return _confirm(checker, trajectories)


def _confirm(checker: Checker, trajectories: Iterable[Trajectory]) -> Iterator[Trajectory]:
    for trajectory in trajectories:
        found = checker.examine(trajectory)
        if found.first_error is None:
            yield replace(trajectory, label=None, meta={**trajectory.meta, "undecided": found.note})
        elif found.first_error == trajectory.label:
            yield trajectory
        else:
            raise CriticPrmError(
                f"{trajectory.id} has the label {trajectory.label}, the solver says {found.first_error}: a fault of the family "
                "or of its checker; make it without --check to look at it, and report it"
            )
