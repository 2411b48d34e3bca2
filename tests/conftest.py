"""What several tests share: one thread for each process, and where the real data lies, when it is there."""

from __future__ import annotations

import asyncio
import inspect
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "data"

# OpenMP and the linear algebra libraries read these when they are first loaded, here and in every process that a test starts.
# Their default is a thread for each core. In several test processes at once these threads wait for one another, which also
# costs processor time: small fits take ten times as long. A test of what threads change sets their number itself.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# The cache of the user who runs the tests is not theirs to touch, so its folder is a temporary one, a new one for each test.
os.environ["XDG_DATA_HOME"] = USER_DATA = tempfile.mkdtemp(prefix="critic-prm-tests-")
os.environ.pop("CRITIC_PRM_DB", None)

with suppress(ImportError):  # a machine that runs the tests of one extra may lack it
    from hypothesis import settings

    # How long an example takes says more of what else the machine does than of the code.
    settings.register_profile("critic_prm", deadline=None)
    settings.load_profile("critic_prm")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real step-labelled data beside the checkout; the test is skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("no real data: the folder ../shared/data is not beside this checkout")
    return SHARED


_numbers = count()


@pytest.fixture(autouse=True)
def user_data() -> Path:
    """The folder in which this test's cache is, if the test names none; it does not exist yet."""
    folder = Path(USER_DATA, str(next(_numbers)))
    os.environ["XDG_DATA_HOME"] = str(folder)
    return folder


@pytest.fixture(scope="session", autouse=True)
def _user_data_is_removed() -> Iterator[None]:
    yield
    shutil.rmtree(USER_DATA, ignore_errors=True)


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine test on a loop of its own: asyncio.run is all that needs a plugin for."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True
