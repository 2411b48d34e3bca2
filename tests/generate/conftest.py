"""What the tests of the families share: ten thousand trajectories of each, made once."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache

import pytest

from critic_prm.generate.family import generate_family
from critic_prm.trajectory import Trajectory

Made = Callable[[str], tuple[list[Trajectory], float]]


@pytest.fixture(scope="session")
def ten_thousand() -> Made:
    """From a family's name to 10,000 trajectories of it and the seconds of processor time they took."""

    @cache
    def make(name: str) -> tuple[list[Trajectory], float]:
        start = time.process_time()
        return list(generate_family(name, 10_000, seed=1)), time.process_time() - start

    return make
