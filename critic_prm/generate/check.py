"""From generated trajectories to the same with every label confirmed by a solver that knows nothing of how they were made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol, cast

from critic_prm.data.trajectory import Trajectory
from critic_prm.errors import CriticPrmError, UsageError
from critic_prm.registry import load, names


@dataclass(frozen=True, slots=True)
class Finding:
    """The first wrong step from 0, -1 when all are right, None when the solver does not say; then `note` says why."""

    first_error: int | None
    note: str = ""


class Checker(Protocol):
    """A module in `checks/`: it reads problem and steps, never the label."""

    def examine(self, trajectory: Trajectory) -> Finding: ...


def checked_families() -> list[str]:
    """The families whose labels a solver can confirm."""
    return names("check")


def confirm(family: str, trajectories: Iterable[Trajectory]) -> Iterator[Trajectory]:
    """Yield the trajectories of a family; a label that the solver could not decide, or whose premises contradict each other,
    becomes None, for what is not known is not wrong.

    Raises UsageError for a family without a checker, ConfigError where the extra `formal` is not installed, and CriticPrmError
    for a label that the solver contradicts.
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
