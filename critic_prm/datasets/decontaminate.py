"""Remove rows whose problem occurs in a benchmark, and list the removed rows with their matches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from critic_prm.data.hashing import problem_key
from critic_prm.data.records.reading import RecordWriter, read_records
from critic_prm.datasets.account import DatasetStats, write_report
from critic_prm.datasets.overlap import Benchmark, Match, Thresholds
from critic_prm.datasets.rows import read_rows
from critic_prm.errors import InputError, UsageError

DEFAULT = Thresholds()
_PROBLEM = ("problem", "question", "prompt", "query")


def decontaminate(
    source: str | Path,
    against: Sequence[str | Path],
    out: str | Path,
    thresholds: Thresholds = DEFAULT,
    removed: str | Path | None = None,
    *,
    literal: bool = False,
) -> dict[str, Any]:
    """Write the rows of `source` whose problem is not in `against` to `out`, list the others in `removed`, and return the
    report.

    Benchmarks are held in memory (about 1 KB per problem). Rows are streamed, and each distinct problem is compared once. With
    `literal`, neither names nor numbers are masked (see Benchmark). Raises InputError for unreadable files and UsageError for
    thresholds out of range.
    """
    for name, value in asdict(thresholds).items():
        if not 0 < value <= 1:
            raise UsageError(f"--{name} is {value:g}; it is above 0 and at most 1")
    account = DatasetStats("decontaminate")
    problems: list[tuple[str, str, str]] = []
    benchmarks = []
    for path in against:
        rows = list(_problems(path))
        problems += [(Path(path).name, identity, text) for identity, text in rows]
        benchmarks.append({"name": Path(path).name, "rows": len(rows)})
    distinct: dict[str, tuple[str, str, str]] = {}
    for entry in problems:
        distinct.setdefault(problem_key(entry[2]), entry)
    named = list(distinct.values())
    benchmark = Benchmark((text for _, _, text in named), thresholds, literal=literal)
    found: dict[bytes, Match | None] = {}
    rows_read = 0
    with ExitStack() as stack:
        writer = stack.enter_context(RecordWriter(out))
        listing = None if removed is None else stack.enter_context(RecordWriter(removed))
        for row in read_rows(source):
            rows_read += 1
            account.take(row.kind)
            key = bytes.fromhex(problem_key(row.trajectory.problem))
            if key not in found:
                found[key] = benchmark.match(row.trajectory.problem)
            if (match := found[key]) is None:
                account.keep(row.kind)
                writer.write(row.data)
                continue
            account.drop(match.sign, row.kind)
            if listing is not None:
                file, identity, text = named[match.number]
                listing.write(
                    {
                        "id": row.id,
                        "row": rows_read,
                        "problem": row.trajectory.problem,
                        "sign": match.sign,
                        "similarity": match.similarity,
                        "benchmark": file,
                        "match_id": identity,
                        "match": text,
                    }
                )
    account.file(source, rows_read)
    more = {
        "benchmarks": benchmarks,
        "benchmark_problems": len(benchmark),
        "problems": {"distinct": len(found), "removed": sum(match is not None for match in found.values())},
        "removed_list": None if removed is None else Path(removed).name,
    }
    report = account.summary({**asdict(thresholds), "literal": literal}, more)
    write_report(out, report)
    return report


def _problems(path: str | Path) -> Iterator[tuple[str, str]]:
    """Yield (id, problem) for every row of a benchmark, which holds trajectories or records with only a problem text."""
    first = next(read_records(path), None)
    if first is None:
        return
    if isinstance(first.data, dict) and ("steps" not in first.data and "completions" not in first.data):
        name = next((name for name in _PROBLEM if isinstance(first.data.get(name), str)), None)
        if name is not None:
            for record in read_records(path):
                if not isinstance(record.data, dict) or not isinstance(text := record.data.get(name), str):
                    raise InputError(record.where, f'"{name}" is missing', "every row of a benchmark needs its problem")
                yield str(record.data.get("id", record.line)), text
            return
    for row in read_rows(path):
        yield row.id, row.trajectory.problem
