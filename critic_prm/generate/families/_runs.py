"""Tasks defined by a procedure: its run gives the correct solution, a run with one error a wrong one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Protocol

from critic_prm.generate.family import Solution

TRIES = 10


class Procedure(Protocol):
    """One problem and the procedure that solves it. See `FamilyTask` for the members."""

    @property
    def problem(self) -> str: ...
    @property
    def facts(self) -> Mapping[str, object]: ...

    def places(self, steps: int) -> tuple[tuple[str, ...], ...]:
        """Return the error kinds that fit each step of a correct solution with this many steps."""
        ...

    def run(self, at: int, kind: str, rng: Random) -> Solution | None:
        """Solve the problem with the error at step `at` (-1 for none); None if this draw of the error is impossible."""
        ...


@dataclass(frozen=True)
class RunTask:
    """The `FamilyTask` of a procedure."""

    procedure: Procedure

    @property
    def problem(self) -> str:
        return self.procedure.problem

    @property
    def facts(self) -> Mapping[str, object]:
        return self.procedure.facts

    @cached_property
    def right(self) -> Solution:
        solution = self.procedure.run(-1, "", Random(0))
        assert solution is not None
        return solution

    @property
    def places(self) -> tuple[tuple[str, ...], ...]:
        return self.procedure.places(len(self.right.steps))

    def plant(self, at: int, kind: str, rng: Random) -> Solution | None:
        return next(filter(None, (self.procedure.run(at, kind, rng) for _ in range(TRIES))), None)
