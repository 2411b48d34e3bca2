"""Verify the labels of generated trajectories with an independent solver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol, cast

from critic_prm.data.trajectory import Trajectory
from critic_prm.errors import CriticPrmError, UsageError
from critic_prm.registry import load, names


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
