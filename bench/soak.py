"""Run the test suite repeatedly on a busy machine: python bench/soak.py [--times 5] [--load 8] [-- PYTEST ARGUMENT ...]

Keeps `--load` processes busy and prints, for each run, how long it took and which tests failed. Exits with 1 if any did.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUITE = ["-n", "2", "--dist", "worksteal"]


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes that compute without end, while the block runs."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def once(arguments: list[str]) -> tuple[int, str, list[str]]:
    """Pytest's exit code, its last line, and the tests that failed."""
    line = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rfE", *arguments]
    done = subprocess.run(line, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    lines = done.stdout.rstrip().splitlines()
    return done.returncode, lines[-1] if lines else "", re.findall(r"^(?:FAILED|ERROR) (.*)$", done.stdout, re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--load", type=int, default=8, help="processes that keep the machine busy")
    parser.add_argument("arguments", nargs="*", help="for pytest; the whole suite with two workers otherwise")
    given = parser.parse_args()
    bad = 0
    with busy(given.load):
        for number in range(1, given.times + 1):
            began = time.monotonic()
            code, last, failed = once(given.arguments or SUITE)
            bad += code != 0
            print(f"run {number}: exit {code} after {time.monotonic() - began:.0f} s: {last}", flush=True)
            for test in failed:
                print(f"    {test}", flush=True)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
