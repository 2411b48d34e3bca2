"""What a judgement costs in function calls, and the short form of a benchmark; times belong to bench/engine.py."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.engine import engine
from bench.server import Behaviour, serving
from tests.effort import PATIENCE, calls

ENGINE = Path(__file__).resolve().parents[2] / "bench" / "engine.py"
ROWS = 200


@pytest.mark.parametrize("direct", [True, False])
def test_a_judgement_costs_some_thousand_calls_and_one_from_the_cache_fewer(tmp_path: Path, direct: bool) -> None:
    """The whole way from a trajectory to its label: about 1,350 calls through a provider, 810 from the cache."""

    def run(name: str) -> int:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        return calls(lambda: asyncio.run(engine(server.url, ROWS, 16, direct=direct, folder=folder))) // ROWS

    with serving(Behaviour(latency=0)) as server:
        run("imports")  # the first run imports what it needs
        assert run("fresh") < 3_000
        assert run("fresh") < 1_700
        assert server.seen.bodies.total() == 2 * ROWS


def test_a_warm_cache_and_many_rows() -> None:
    run = subprocess.run(
        [sys.executable, str(ENGINE), "cache", "million", "--short"],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    found = dict(re.findall(r"^(.+): ([\d.,]+) \(bar", run.stdout, re.MULTILINE))
    assert found.keys() == {"judgements a second from the cache", "300 MB / peak memory", "2 s / time to the first label"}
    assert float(found["300 MB / peak memory"]) > 1
