"""Runs command lines in forked children that send themselves a signal at their n-th import, opened file or piece of bytecode.

    python tests/cli/interrupting.py < jobs.json > outcomes.json

A job is {"line": [...], "signal": 2, "at": 1, "within": true}: the events are counted from where the command's own function
begins, or with "within" false from the start of `main`. An outcome is {"code": ..., "said": stderr, "sent": whether the signal
was sent}. Children begin with the command tree imported: a job costs what its command does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from typing import Any

import typer.core

from critic_prm.cli import build, main

EVENTS = ("import", "open", "exec")


def child(job: dict[str, Any], folder: str) -> None:
    """Does not return."""
    with open(os.path.join(folder, "said"), "wb") as said, open(os.devnull, "r+b") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
        os.dup2(said.fileno(), 2)
    if job.get("ignored"):
        signal.signal(job["signal"], signal.SIG_IGN)
    left, counting = job["at"], not job["within"]

    def hook(event: str, arguments: object) -> None:
        nonlocal left
        if counting and event in EVENTS:
            left -= 1
            if left == 0:
                with open(os.path.join(folder, "sent"), "wb"):
                    os.kill(os.getpid(), job["signal"])

    invoke = typer.core.TyperCommand.invoke

    def begin(self: Any, context: Any) -> Any:
        nonlocal counting
        counting = True
        return invoke(self, context)

    typer.core.TyperCommand.invoke = begin  # type: ignore[method-assign, assignment]
    sys.addaudithook(hook)
    sys.argv = ["critic-prm", *job["line"]]
    code = 1
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


def import_commands(command: Any) -> None:
    """Import the modules of all commands, and build their options."""
    for child in getattr(command, "commands", {}).values():
        import_commands(child)
    assert command.params is not None


def run(job: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        pid = os.fork()
        if not pid:
            child(job, folder)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with open(os.path.join(folder, "said"), encoding="utf-8", errors="replace") as said:
            return {"code": code, "said": said.read(), "sent": os.path.exists(os.path.join(folder, "sent"))}


if __name__ == "__main__":
    import_commands(build())
    json.dump([run(job) for job in json.load(sys.stdin)], sys.stdout)
