"""What the tests of students share: one thread each, since two on a busy machine mostly wait for one another; no model hub."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is imported, which is after this
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a name that is not a folder fails at once, without retries


@pytest.fixture(scope="session")
def training_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.distill.tiny import apples, folder_of

    return folder_of(tmp_path_factory.mktemp("data") / "sums", train=apples(300, 1), dev=apples(80, 2), test=apples(80, 3))


@pytest.fixture(scope="session")
def verifier_folder(training_set: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A linear verifier; tests that change it copy it."""
    from distill.run import distill

    return distill(training_set, tmp_path_factory.mktemp("out") / "v").folder
