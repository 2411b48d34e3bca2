"""Trajectories of the families that several test files read, made once per session.

FAMILY_TRAJECTORIES=10000 makes as many of each family instead of 2,000; `python -m bench.families --confirm 10000` sets it.
"""

from __future__ import annotations

import os
import re
from functools import cache

from critic_prm.data.trajectory import Trajectory
from critic_prm.generate.family import generate_family

COUNT = int(os.environ.get("FAMILY_TRAJECTORIES", "2000"))


@cache
def trajectories_of(name: str) -> list[Trajectory]:
    """Make COUNT trajectories of a family."""
    return list(generate_family(name, COUNT, seed=1))


def unnumbered(text: str) -> str:
    """Remove the number of a step, in any of the families' styles."""
    return re.sub(r"^(\*\*Step \d+\.\*\*|Step \d+:|\d+\.|\(\d+\)) ", "", text)
