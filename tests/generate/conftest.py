"""What the tests of the families share: two thousand trajectories of each, made once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from critic_prm.data.trajectory import Trajectory
from critic_prm.generate.family import generate_family

Made = Callable[[str], list[Trajectory]]


@pytest.fixture(scope="session")
def two_thousand() -> Made:
    """From a family's name to 10,000 trajectories of it."""

    @cache
    def make(name: str) -> list[Trajectory]:
        return list(generate_family(name, 10_000, seed=1))

    return make
