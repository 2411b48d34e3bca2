"""Run a command of critic-prm within the test's process."""

from __future__ import annotations

from unittest.mock import patch

from typer.testing import CliRunner, Result

from critic_prm.cli import build


def invoke(*words: object, stdin: str | bytes | None = None, columns: int = 80, catch: bool = False) -> Result:
    """Run `critic-prm WORDS...` and return what typer's runner returns. Exceptions are raised unless `catch` is set."""
    texts = [str(word) for word in words]
    env = {"COLUMNS": str(columns), "TERM": "dumb"}
    with patch("typer.testing._get_command", lambda tree: tree):  # the runner takes an app; this is the tree made from one
        return CliRunner().invoke(build(), texts, input=stdin, env=env, catch_exceptions=catch)
