"""Open a benchmark by name and stream its solutions with gold labels, by subset. The benchmarks are in benchmarks.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from heapq import heappush, heappushpop
from pathlib import Path
from typing import Literal

from critic_prm.data.formats.common import Options
from critic_prm.data.formats.mistaken import mistaken
from critic_prm.data.hashing import unit
from critic_prm.data.records.reading import HUB
from critic_prm.data.trajectory import Trajectory
from critic_prm.errors import InputError, UsageError

Headline = Literal["f1", "prm_score"]

PLAIN = Options()
SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".gz", ".zst", ".parquet")


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Definition of a benchmark, a table in benchmarks.toml; see there for the fields."""

    name: str
    source: str
    headline: Headline = "f1"
    sizes: Mapping[str, int] = field(default_factory=dict)
    prefixes: Sequence[str] = ()
    neutral: Literal["keep", "good", "bad"] = "keep"
    group: str | None = None

    def subset(self, path: Path) -> str | None:
        """The subset that a file holds according to its name; None if it is not a file of this benchmark."""
        stem = path.name.partition(".")[0]
        if not self.sizes:
            return stem
        return next((name for name in self.sizes if stem in (name, *(prefix + name for prefix in self.prefixes))), None)


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a benchmark, which holds `subset`."""

    benchmark: Benchmark
    path: Path
    subset: str

    def read(self, given: Options = PLAIN) -> Iterator[tuple[str, Trajectory]]:
        """Stream (subset, solution with gold labels); step labels after the first error are kept. Raises InputError.

        The names of fields and the number of the first step are as `given`.
        """
        from critic_prm.data.formats.convert import read_trajectories

        options = replace(given, neutral=self.benchmark.neutral, after_error="keep")
        for trajectory in read_trajectories(self.path, options=options):
            group = trajectory.meta.get(self.benchmark.group or "")
            yield group if isinstance(group, str) and group else self.subset, trajectory


@cache
def benchmarks() -> Mapping[str, Benchmark]:
    """The benchmarks by name."""
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    return {name: Benchmark(name, **table) for name, table in tables.items()}


def open_benchmark(spec: str) -> list[Part]:
    """Find the files of "name:path" or "path", where path is a file, a folder or a data set of the Hugging Face Hub
    ("hf:owner/name", whose splits are the subsets), in the order of the benchmark's subsets.

    A path without a name is any file with gold labels ("labelled"). Raises UsageError for an unknown name, InputError for a
    missing path or a folder without files of the benchmark.
    """
    name, colon, rest = spec.partition(":")
    if not colon or spec.startswith(HUB) or Path(spec).exists():
        name, rest = "labelled", spec
    benchmark, path = benchmarks().get(name.replace("-", "_")), Path(rest)
    if benchmark is None:
        raise UsageError(f"there is no benchmark {name!r}; available: {', '.join(sorted(benchmarks()))}")
    if rest.startswith(HUB):
        return _in_order(benchmark, _hub_parts(benchmark, rest))
    if not path.exists():
        raise _absent(rest, benchmark)
    if wrong := mistaken(path, "benchmark") if path.is_dir() else None:
        raise wrong
    if path.is_file():
        return [Part(benchmark, path, benchmark.subset(path) or path.name.partition(".")[0])]
    files = [file for file in sorted(path.iterdir()) if file.is_file() and file.name.endswith(SUFFIXES)]
    parts = [Part(benchmark, file, subset) for file in files if (subset := benchmark.subset(file)) is not None]
    if not parts:
        wanted = f"; its files are called {', '.join(benchmark.sizes)}" if benchmark.sizes else ""
        raise InputError(str(path), f"the folder has no file of {benchmark.name}{wanted}", f"get it from {benchmark.source}")
    return _in_order(benchmark, parts)


def _absent(path: str, benchmark: Benchmark) -> InputError:
    """The error for a path that does not exist, or for the name of a benchmark without one."""
    if named := benchmarks().get(path.replace("-", "_")) or (benchmark if not path else None):
        fix = f"write {named.name}:DIR; get them from {named.source}"
        return InputError(path or named.name, "this is the name of a benchmark without its files", fix)
    if benchmark.name == "labelled":
        known = ", ".join(sorted(benchmarks().keys() - {"labelled"}))
        return InputError(path, "there is no such file or folder", f"check the path, or write NAME:DIR with one of {known}")
    return InputError(path, "there is no such file or folder", f"get the files from {benchmark.source}")


def _hub_parts(benchmark: Benchmark, name: str) -> list[Part]:
    """The splits of a data set that are subsets of the benchmark, or all of them if none is one."""
    from critic_prm.data.records.hub import splits_of

    splits = [(one, one.rpartition("@")[2]) for one in splits_of(name)]
    known = [Part(benchmark, Path(one), subset) for one, split in splits if (subset := benchmark.subset(Path(split)))]
    return known or [Part(benchmark, Path(one), split) for one, split in splits]


def _in_order(benchmark: Benchmark, parts: Sequence[Part]) -> list[Part]:
    order = list(benchmark.sizes)
    return sorted(parts, key=lambda part: order.index(part.subset) if part.subset in order else len(order))


def read_benchmarks(
    parts: Sequence[Part], limit: int | None = None, given: Options = PLAIN
) -> Iterator[tuple[str, Trajectory]]:
    """Stream (subset, solution) of all parts, whose fields and step numbers are as `given`.

    `limit` selects a fixed sample of at most that many solutions per subset; files are often sorted, and their first rows may
    all be erroneous. With several benchmarks a subset is called "benchmark/subset". Raises UsageError if two files are the same
    subset.
    """
    seen: dict[str, Path] = {}
    for part in parts:
        sampled: dict[str, list[tuple[float, int, Trajectory]]] = {}
        for place, (subset, trajectory) in enumerate(part.read(given)):
            name = subset_name(part, subset, parts)
            if limit is None:
                yield name, trajectory
            else:
                heap = sampled.setdefault(name, [])
                key = (-unit("sample", trajectory.problem, *trajectory.texts), place, trajectory)
                heappush(heap, key) if len(heap) < limit else heappushpop(heap, key)
            if seen.setdefault(name, part.path) != part.path:
                raise UsageError(f"{seen[name]} and {part.path} are both the subset {name!r}; evaluate one at a time")
        for name, heap in sampled.items():
            for _, _, trajectory in sorted(heap, key=lambda row: row[1]):
                yield name, trajectory


def subset_name(part: Part, subset: str, parts: Iterable[Part]) -> str:
    """The name of a subset, with the benchmark's name if there are several benchmarks."""
    several = len({other.benchmark.name for other in parts}) > 1
    return f"{part.benchmark.name}/{subset}" if several and part.benchmark.name != "labelled" else subset


def sizes_of(parts: Sequence[Part]) -> dict[str, int]:
    """The expected number of solutions per subset, where the benchmark defines it."""
    known = {subset_name(part, part.subset, parts): part.benchmark.sizes.get(part.subset, 0) for part in parts}
    return {name: size for name, size in known.items() if size}


def headline_of(parts: Sequence[Part]) -> Headline:
    """The main metric: PRMScore if every part is scored by it, otherwise first-error F1."""
    return "prm_score" if all(part.benchmark.headline == "prm_score" for part in parts) else "f1"
