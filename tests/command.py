"""Run a command of critic-prm within the test's process, or on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from unittest.mock import patch

from typer.testing import CliRunner, Result

from critic_prm.cli import build


def invoke(*words: object, stdin: str | bytes | None = None, columns: int = 80, catch: bool = False) -> Result:
    """Run `critic-prm WORDS...` and return what typer's runner returns. Exceptions are raised unless `catch` is set."""
    texts = [str(word) for word in words]
    env = {"COLUMNS": str(columns), "TERM": "dumb"}
    with patch("typer.testing._get_command", lambda tree: tree):  # the runner takes an app; this is the tree made from one
        return CliRunner().invoke(build(), texts, input=stdin, env=env, catch_exceptions=catch)


def on_a_terminal(*words: object) -> tuple[int, str]:
    """Run `critic-prm WORDS...` with stdout and stderr on a pseudo-terminal; return its exit code and what it wrote there."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "critic_prm", *map(str, words)]
    with subprocess.Popen(command, stdout=follower, stderr=follower, stdin=follower) as run:
        os.close(follower)
        parts = []
        while True:
            try:
                part = os.read(leader, 65536)
            except OSError:
                break
            if not part:
                break
            parts.append(part)
        os.close(leader)
    return run.returncode, b"".join(parts).decode("utf-8", "replace").replace("\r\n", "\n")
