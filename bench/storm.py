"""Test the limiter with a server that accepts 20 requests a second and answers 429 beyond that.

Run: python bench/storm.py [--rate 20] [--seconds 40]

One run for every form of Retry-After (seconds, a date, milliseconds, nothing, nonsense), all at once, each with its own
server and 64 connections. Prints the share of the allowed requests that got through, and the share of requests
after the first 10 seconds that was refused.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench.runs import Server, command, environment, seen, write_input

FORMS = ("seconds", "date", "ms", "absent", "absurd")
LEAST_THROUGHPUT, MOST_REFUSED = 0.85, 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rate", type=float, default=20)
    parser.add_argument("--seconds", type=float, default=40)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        storm(Path(folder), given.rate, given.seconds)


def storm(folder: Path, rate: float, seconds: float) -> None:
    source = write_input(folder / "in.jsonl", int(rate * seconds))
    with ExitStack() as stack:
        servers = {
            form: stack.enter_context(Server("--latency", "0.05", "--rate", str(rate), "--retry-after", form)) for form in FORMS
        }
        runs = {
            form: subprocess.Popen(
                command(source, folder / f"{form}.jsonl", folder / f"{form}.db", server.url),
                env=environment(),
                stderr=subprocess.DEVNULL,
            )
            for form, server in servers.items()
        }
        for form, run in runs.items():
            code = run.wait()
            stats = seen(servers[form].url)
            late, answers = stats["late"], stats["answers"]
            through = answers["ok"] / stats["seconds"] / rate
            refused = late.get("429", 0) / max(sum(late.values()), 1)
            good = code == 0 and through >= LEAST_THROUGHPUT and refused <= MOST_REFUSED
            print(
                f"Retry-After {form:8} exit {code}, {through:.0%} of the limit, {answers.get('429', 0)} refused in all,"
                f" {refused:.1%} after 10 s (bars {LEAST_THROUGHPUT:.0%}, {MOST_REFUSED:.0%}){'' if good else '  MISSED'}",
                flush=True,
            )


if __name__ == "__main__":
    main()
