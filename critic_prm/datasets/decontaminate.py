"""Leave out rows whose problem occurs in a benchmark: `dataset decontaminate` and `--exclude`, by the same rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from critic_prm.data.hashing import problem_key
from critic_prm.data.records.reading import RecordWriter, read_records
from critic_prm.datasets.duplicates import list_of
from critic_prm.datasets.rows import DatasetStats, read_rows
from critic_prm.errors import InputError, UsageError
from critic_prm.option import Option

if TYPE_CHECKING:
    from critic_prm.datasets.similarity import Benchmark, Match


@dataclass(frozen=True, slots=True)
class DecontaminateOptions:
    """What counts as a problem of a benchmark: the thresholds of the three approximate signs, above 0 and at most 1."""

    near: Annotated[float, Option(panel="What counts as a problem of the benchmark")] = 0.5
    """Minimum similarity of a match, with names and numbers masked (weighted Jaccard similarity of word 3-grams)."""
    contained: float = 0.8
    """Minimum share of one problem that the other contains (weighted word 3-grams)."""
    passage: float = 0.5
    """Minimum share of the shorter problem in shared runs of 10 words."""
    literal: bool = False
    """Do not mask names and numbers: the same story with other numbers is another problem. For benchmarks made from one
    template."""

    def __post_init__(self) -> None:
        for name in ("near", "contained", "passage"):
            if not 0 < (value := getattr(self, name)) <= 1:
                raise UsageError(f"--{name} is {value:g}; it must be above 0 and at most 1")


BY_DEFAULT = DecontaminateOptions()


@dataclass(slots=True)
class Benchmarks:
    """The problems of one or more benchmark files, in memory (about 1 KB each). Each distinct problem is compared once."""

    files: list[dict[str, Any]]
    """Name and number of rows of each file."""
    problems: list[tuple[str, str, str]]
    """File, id and text of each distinct problem."""
    options: DecontaminateOptions
    _index: Benchmark
    _matches: dict[bytes, Match | None] = field(default_factory=dict)

    def match(self, problem: str) -> Match | None:
        """The problem of the benchmarks that is the same as this one, and by which sign; None if there is none."""
        key = bytes.fromhex(problem_key(problem))
        if key not in self._matches:
            self._matches[key] = self._index.match(problem)
        return self._matches[key]

    def listed(self, match: Match) -> dict[str, Any]:
        """The match as an entry of the list of removed rows."""
        file, identity, text = self.problems[match.number]
        return {
            "sign": match.sign,
            "similarity": match.similarity,
            "benchmark": file,
            "match_id": identity,
            "match": text,
        }

    def report(self) -> dict[str, Any]:
        """The benchmarks, and how many of the distinct problems compared so far are among theirs, by sign."""
        removed = [match.sign for match in self._matches.values() if match is not None]
        return {
            "benchmarks": self.files,
            "benchmark_problems": len(self._index),
            "problems": {"distinct": len(self._matches), "removed": len(removed)},
            "problems_by_sign": dict(Counter(removed)),
            "rule": asdict(self.options),
        }


def read_benchmarks(paths: Sequence[str | Path], options: DecontaminateOptions = BY_DEFAULT) -> Benchmarks:
    """Read benchmark files: trajectories in any format, label files, training rows, or records with only a problem text.

    Raises InputError for unreadable files.
    """
    from critic_prm.datasets.similarity import Benchmark

    files = []
    distinct: dict[str, tuple[str, str, str]] = {}
    for path in paths:
        rows = 0
        for identity, text in _problems(path):
            rows += 1
            distinct.setdefault(problem_key(text), (Path(path).name, identity, text))
        files.append({"name": Path(path).name, "rows": rows})
    return Benchmarks(files, list(distinct.values()), options, Benchmark((text for _, _, text in distinct.values()), options))


def excluded(paths: Sequence[str | Path], options: DecontaminateOptions = BY_DEFAULT) -> Benchmarks | None:
    """The benchmarks that `--exclude` names, None without any. Raises UsageError for options that then have no effect."""
    if paths:
        return read_benchmarks(paths, options)
    if options != BY_DEFAULT:
        given = [f"--{name}" for name, value in asdict(options).items() if value != asdict(BY_DEFAULT)[name]]
        raise UsageError(f"{', '.join(given)} has no effect without --exclude; name a benchmark with --exclude FILE")
    return None


RULES = {
    False: "the same or nearly the same text with names and numbers masked; --literal compares those, too",
    True: "the same or nearly the same text, its names and numbers included",
}
"""What counts as the same problem, without and with `literal`."""


def contamination_line(report: Mapping[str, Any]) -> str:
    """How many of how many problems were left out, because of which benchmarks, and by which rule."""
    problems, names = report["problems"], ", ".join(one["name"] for one in report["benchmarks"])
    signs = sorted(report["problems_by_sign"].items(), key=lambda item: -item[1])
    shown = f" ({', '.join(f'{count:,} {sign}' for sign, count in signs)})" if signs else ""
    among = f"are among the {report['benchmark_problems']:,} of {names}{shown}"
    return f"{problems['removed']:,} of {problems['distinct']:,} problems {among}; rule: {RULES[report['rule']['literal']]}"


def decontaminate(
    source: str | Path,
    against: Sequence[str | Path],
    out: str | Path,
    options: DecontaminateOptions = BY_DEFAULT,
    removed: str | Path | None = None,
) -> dict[str, Any]:
    """Write the rows of `source` whose problem is not in `against` to `out`, list the others in `removed`, and return the
    report.

    Rows are streamed. Raises InputError for unreadable files.
    """
    account = DatasetStats("decontaminate")
    benchmarks = read_benchmarks(against, options)
    with RecordWriter(out) as writer, list_of(removed) as list_removed:
        for number, row in enumerate(account.read(source), 1):
            if (match := benchmarks.match(row.trajectory.problem)) is None:
                account.keep(row.kind)
                writer.write(row.data)
                continue
            account.drop(match.sign, row.kind)
            list_removed({"id": row.id, "row": number, "problem": row.trajectory.problem, **benchmarks.listed(match)})
    more = {**benchmarks.report(), "removed_list": None if removed is None else Path(removed).name}
    return account.report(out, asdict(options), more)


_PROBLEM = ("problem", "question", "prompt", "query")


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
