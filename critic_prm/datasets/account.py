"""Count rows in, rows out and reasons for each dataset step, and write the report beside the output."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from critic_prm.datasets.rows import CLASSES
from critic_prm.errors import InputError

FORMAT = "critic-prm dataset step 1"


@dataclass(slots=True)
class DatasetStats:
    """Counts of one dataset step, updated while it runs: rows read and written by class, and rows left out by reason and
    class."""

    step: str
    rows_in: Counter[str] = field(default_factory=Counter)
    rows_out: Counter[str] = field(default_factory=Counter)
    dropped: dict[str, Counter[str]] = field(default_factory=dict)
    files: list[dict[str, Any]] = field(default_factory=list)

    def take(self, kind: str) -> None:
        """Count a row read."""
        self.rows_in[kind] += 1

    def keep(self, kind: str) -> None:
        """Count a row written."""
        self.rows_out[kind] += 1

    def drop(self, reason: str, kind: str) -> None:
        """Count a row left out for `reason`."""
        self.dropped.setdefault(reason, Counter())[kind] += 1

    def file(self, path: str | Path, rows: int) -> None:
        """Record an input file with its row count and SHA-256."""
        self.files.append({"name": Path(path).name, "rows": rows, "sha256": fingerprint(path)})

    def summary(self, options: Mapping[str, Any], more: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The report: the options of the step and its counts."""
        from importlib.metadata import version

        return {
            "format": FORMAT,
            "step": self.step,
            "version": version("critic-prm"),
            "options": dict(options),
            "inputs": self.files,
            "rows_in": self.rows_in.total(),
            "rows_out": self.rows_out.total(),
            "by_class": {
                kind: {"in": self.rows_in[kind], "out": self.rows_out[kind]}
                for kind in CLASSES
                if self.rows_in[kind] or self.rows_out[kind]
            },
            "left_out": {reason: dict(sorted(kinds.items())) for reason, kinds in sorted(self.dropped.items())},
            **(more or {}),
        }


def write_report(out: str | Path, report: Mapping[str, Any]) -> None:
    """Write the report to `<out>.report.json` with the SHA-256 of the output; no report for stdout. Raises InputError."""
    if str(out) == "-":
        return
    path = Path(f"{out}.report.json")
    whole = {**report, "output": {"name": Path(out).name, "sha256": fingerprint(out)}}
    try:
        path.write_bytes(orjson.dumps(whole, option=orjson.OPT_INDENT_2) + b"\n")
    except OSError as error:
        raise InputError(str(path), f"cannot be written: {error.strerror or error}", "choose another folder") from None


def lines(report: Mapping[str, Any], out: str | Path) -> Iterable[str]:
    """The report as text: one line with the rows read and written, one with the rows left out."""
    shown = ", ".join(f"{kind} {n['out']:,} of {n['in']:,}" for kind, n in report["by_class"].items())
    place = "stdout" if str(out) == "-" else str(out)
    yield f"{report['step']}: {report['rows_in']:,} rows in, {report['rows_out']:,} out to {place} ({shown or 'no rows'})"
    if left := report["left_out"]:
        ranked = sorted(left.items(), key=lambda item: -sum(item[1].values()))
        yield "left out: " + ", ".join(f"{sum(kinds.values()):,} {reason}{_of(kinds)}" for reason, kinds in ranked)


def _of(kinds: Mapping[str, int]) -> str:
    known = [f"{n:,} {kind}" for kind, n in kinds.items() if kind in ("erroneous", "correct")]
    return f" ({', '.join(known)})" if known else ""


def share(numbers: Mapping[str, float], name: str, among: Sequence[str] = ("erroneous", "correct")) -> float | None:
    """The fraction of one class among some classes; None if those have no rows."""
    total = sum(numbers.get(kind, 0) for kind in among)
    return numbers.get(name, 0) / total if total else None


def fingerprint(path: str | Path) -> str | None:
    """The SHA-256 of a file; None for anything else, such as standard input."""
    if not Path(path).is_file():
        return None
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
