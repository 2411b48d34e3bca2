"""The engine's benchmarks run in their short form; only figures far from any bar fail here, for machines that are busy."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ENGINE = Path(__file__).resolve().parents[2] / "bench" / "engine.py"


def figures(*parts: str) -> dict[str, float]:
    """The ratios that a short run prints, by what they are of."""
    run = subprocess.run(
        [sys.executable, str(ENGINE), *parts, "--short"], capture_output=True, text=True, check=True, timeout=120
    )
    found = re.findall(r"^(.+): ([\d.,]+) \(bar", run.stdout, re.MULTILINE)
    return {what: float(figure.replace(",", "")) for what, figure in found}


def test_the_engine_is_no_slower_than_half_the_bars() -> None:
    found = figures("throughput")
    assert len(found) == 4
    assert found["engine through the SDK / SDK client.post"] > 0.4
    assert found["engine through the SDK / SDK default"] > 1.25
    assert found["engine directly / bare aiohttp"] > 0.3


def test_a_warm_cache_and_many_rows() -> None:
    found = figures("cache", "million")
    assert found["judgements a second from the cache"] > 1000
    assert found["300 MB / peak memory"] > 1
    assert found["2 s / time to the first label"] > 0.3
