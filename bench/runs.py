"""Helpers for tests and benchmarks of complete runs: an input file, and `critic-prm label` as a separate process."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from critic_prm.data.trajectory import Step, Trajectory, trajectory_to_json

SERVER = Path(__file__).resolve().with_name("server.py")

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["openai", "anthropic", "critic_prm.cli.label", "critic_prm.label.batch_job", "critic_prm.critics.llm"]
)


def trajectories(count: int) -> Iterator[Trajectory]:
    """Solutions of six steps that are all different; a prompt of `stepwise` about one has 4 kB."""
    for i in range(count):
        steps = [
            f"In week {k} the shop sells {i % 97 + k} more boxes than before, {12 * k + i % 89} in all." for k in range(1, 7)
        ]
        problem = f"Order {i}: a shop sells {i % 97} boxes more each week. How many has it sold after six weeks?"
        yield Trajectory(f"order-{i}", problem, tuple(Step(text) for text in steps))


def write_input(path: Path, count: int) -> Path:
    with path.open("wb") as stream:
        for trajectory in trajectories(count):
            stream.write(orjson.dumps(trajectory_to_json(trajectory)) + b"\n")
    return path


def command(source: Path, out: Path, db: Path, url: str, *options: str, judge: str = "openai/bench") -> list[str]:
    """The command line that labels `source` with the judge at `url`."""
    here = [sys.executable, "-m", "critic_prm", "label", str(source), "-o", str(out), "--db", str(db)]
    return [*here, "--judge", judge, "--base-url", url, *options]


def environment(**more: str) -> dict[str, str]:
    """This process's environment without what would change a run."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "ANTHROPIC_", "CRITIC_PRM_"))}
    return {**kept, "OPENAI_API_KEY": "sk-test-key-000000", **more}


class Forked:
    """A command line in a process of its own that starts at once, forked from one that has imported what `label` needs.

    `line` is what `command` returns. What the process says on stderr is in the file `said`. `file_size` limits its files.
    """

    def __init__(self, line: Sequence[str], said: Path, *, file_size: int | None = None) -> None:
        self.said, self._heard = said, 0
        said.write_bytes(b"")
        words = line[line.index("critic_prm") + 1 :]
        self._process = FORKS.Process(target=_carry_out, args=(words, str(said), file_size))
        self._process.start()

    def says(self, text: str) -> bool:
        """Whether it has said `text`, after what it was found to say before."""
        said = self.said.read_text()
        place = said.find(text, self._heard)
        if place >= 0:
            self._heard = place + len(text)
        return place >= 0

    def poll(self) -> int | None:
        """Its exit code, -9 after SIGKILL; None while it runs."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its exit code. Raises TimeoutError, and kills it, after `timeout` seconds."""
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            self._process.kill()
            raise TimeoutError(self.said.read_text())
        return code


def _carry_out(words: Sequence[str], said: str, file_size: int | None) -> None:
    with open(said, "a") as stream:
        os.dup2(stream.fileno(), 2)
        sys.stderr = stream
        kept = environment()
        os.environ.clear()
        os.environ.update(kept)
        if file_size is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        from critic_prm.cli import main

        sys.argv = ["critic-prm", *words]
        main()


def seen(url: str, what: str = "stats") -> dict[str, Any]:
    """What the server at `url` has seen: "stats", or "bodies", how often it was asked each request."""
    with urllib.request.urlopen(f"{url.removesuffix('/v1')}/{what}") as answer:
        found: dict[str, Any] = json.load(answer)
    return found


class Server:
    """bench/server.py as a process of its own, on core `core` where that is given."""

    def __init__(self, *options: str, core: int | None = None) -> None:
        self._process = subprocess.Popen([sys.executable, str(SERVER), *options], stdout=subprocess.PIPE, text=True)
        if core is not None:
            pin(core, self._process.pid)
        assert self._process.stdout
        self.url: str = json.loads(self._process.stdout.readline())["url"]

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdout
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


def pin(core: int, pid: int = 0) -> None:
    """Keep a process on the `core`-th of the cores it may use; with fewer cores they share."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(pid, {cores[core % len(cores)]})
