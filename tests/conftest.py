"""What several tests share: where the real data lies, when it is there."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real step-labelled data beside the checkout; the test is skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("no real data: the folder ../shared/data is not beside this checkout")
    return SHARED
