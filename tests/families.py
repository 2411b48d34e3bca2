"""Trajectories of the families that several test files read, made once per session.

FAMILY_TRAJECTORIES=10000 makes as many of each family instead of 2,000; `python -m bench.families --confirm 10000` sets it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from itertools import islice

from critic_prm.data.trajectory import Trajectory
from critic_prm.generate.family import generate_family

COUNT = int(os.environ.get("FAMILY_TRAJECTORIES", "2000"))


@cache
def _made(name: str) -> tuple[list[Trajectory], Iterator[Trajectory]]:
    """The trajectories made so far, and the rest."""
    return [], iter(generate_family(name, COUNT, seed=1))


def trajectories_of(name: str, count: int = COUNT) -> list[Trajectory]:
    """Make COUNT trajectories of a family, or the first `count` of them only."""
    made, rest = _made(name)
    made += islice(rest, max(count - len(made), 0))
    return made[:count]


def unnumbered(text: str) -> str:
    """Remove the number of a step, in any of the families' styles."""
    return re.sub(r"^(\*\*Step \d+\.\*\*|Step \d+:|\d+\.|\(\d+\)) ", "", text)
