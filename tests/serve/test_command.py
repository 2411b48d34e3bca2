"""The serve command as a process: it says where it is, serves, stops when told, and refuses what is not safe."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
from collections.abc import Mapping

import pytest

from tests.effort import PATIENCE

COMMAND = (sys.executable, "-c", "from critic_prm.cli import main; main()", "serve", "rules", "--port", "0")


def begin(*more: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    clean = {name: value for name, value in os.environ.items() if name != "CRITIC_PRM_TOKEN"}
    return subprocess.Popen([*COMMAND, *more], stderr=subprocess.PIPE, text=True, env={**clean, **(environment or {})})


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_told_to_stop(number: signal.Signals) -> None:
    pytest.importorskip("uvicorn", reason="serving is an extra: pip install 'critic-prm[serve]'")
    pytest.importorskip("starlette", reason="serving is an extra: pip install 'critic-prm[serve]'")
    process = begin(environment={"CRITIC_PRM_TOKEN": "0123456789abcdef"})
    assert process.stderr is not None
    line = process.stderr.readline()
    assert "with a token" in line
    assert "0123456789abcdef" not in line
    address = line.split("http://")[1].split(",")[0]
    connection = http.client.HTTPConnection(address, timeout=PATIENCE)
    body = '{"trajectories": [{"problem": "p", "steps": ["2 + 2 = 5"]}]}'
    headers = {"content-type": "application/json", "authorization": "Bearer 0123456789abcdef"}
    connection.request("POST", "/v1/score", body, headers)
    assert b'"first_error":0' in connection.getresponse().read()
    connection.close()
    process.send_signal(number)
    rest = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 0, rest
    assert rest.strip() == "stopped"


def test_a_public_address_without_a_token_is_refused() -> None:
    process = begin("--host", "0.0.0.0")
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 4
    assert said.startswith("error: --host 0.0.0.0 can be reached from other machines")
