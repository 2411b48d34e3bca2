"""Remove duplicate rows, and rows whose problem occurs in a benchmark; the removed rows are listed."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from critic_prm.data.hashing import problem_key
from critic_prm.data.records.reading import RecordWriter, read_records
from critic_prm.datasets.rows import DatasetStats, Row, read_rows, spool
from critic_prm.errors import InputError, UsageError
from critic_prm.option import Option, check_fields

if TYPE_CHECKING:
    from critic_prm.datasets.similarity import Match


@dataclass(frozen=True, slots=True)
class DecontaminateOptions:
    """What counts as a problem of a benchmark: the thresholds of the three approximate signs, above 0 and at most 1."""

    near: float = 0.5
    """Minimum similarity of a match, with names and numbers masked (weighted Jaccard similarity of word 3-grams)."""
    contained: float = 0.8
    """Minimum share of one problem that the other contains (weighted word 3-grams)."""
    passage: float = 0.5
    """Minimum share of the shorter problem in shared runs of 10 words."""
    literal: bool = False
    """Do not mask names and numbers; for benchmarks made from one template."""

    def __post_init__(self) -> None:
        for name in ("near", "contained", "passage"):
            if not 0 < (value := getattr(self, name)) <= 1:
                raise UsageError(f"--{name} is {value:g}; it must be above 0 and at most 1")


_PROBLEM = ("problem", "question", "prompt", "query")


def decontaminate(
    source: str | Path,
    against: Sequence[str | Path],
    out: str | Path,
    options: DecontaminateOptions = DecontaminateOptions(),
    removed: str | Path | None = None,
) -> dict[str, Any]:
    """Write the rows of `source` whose problem is not in `against` to `out`, list the others in `removed`, and return the
    report.

    Benchmarks are held in memory (about 1 KB per problem). Rows are streamed, and each distinct problem is compared once.
    Raises InputError for unreadable files.
    """
    from critic_prm.datasets.similarity import Benchmark

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
    benchmark = Benchmark((text for _, _, text in named), options)
    found: dict[bytes, Match | None] = {}
    with RecordWriter(out) as writer, _listing(removed) as list_removed:
        for number, row in enumerate(account.read(source), 1):
            key = bytes.fromhex(problem_key(row.trajectory.problem))
            if key not in found:
                found[key] = benchmark.match(row.trajectory.problem)
            if (match := found[key]) is None:
                account.keep(row.kind)
                writer.write(row.data)
                continue
            account.drop(match.sign, row.kind)
            file, identity, text = named[match.number]
            listed = {"id": row.id, "row": number, "problem": row.trajectory.problem, "sign": match.sign}
            found_in = {"similarity": match.similarity, "benchmark": file, "match_id": identity, "match": text}
            list_removed(listed | found_in)
    more = {
        "benchmarks": benchmarks,
        "benchmark_problems": len(benchmark),
        "problems": {"distinct": len(found), "removed": sum(match is not None for match in found.values())},
        "removed_list": None if removed is None else Path(removed).name,
    }
    return account.report(out, asdict(options), more)


@contextmanager
def _listing(removed: str | Path | None) -> Iterator[Callable[[Any], None]]:
    """What adds a row to the list of removed rows, if there is to be one."""
    if removed is None:
        yield lambda row: None
    else:
        with RecordWriter(removed) as writer:
            yield writer.write


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


By = Literal["solution", "problem"]


@dataclass(frozen=True, slots=True)
class DedupeOptions:
    """What counts as a duplicate."""

    by: By = "solution"
    """Compare by solution, or by problem (keeps one row per problem)."""
    near: Annotated[float | None, Option(min=0.3, max=1)] = 0.9
    """Minimum Jaccard similarity of word 3-grams of near duplicates."""
    across_labels: bool = False
    """Remove near duplicates even if their first errors differ. They are kept by default: a solution and the same one with an
    inserted error differ in one word, and that difference is worth learning."""

    def __post_init__(self) -> None:
        check_fields(self)


def dedupe(
    source: str | Path,
    out: str | Path,
    options: DedupeOptions = DedupeOptions(),
    removed: str | Path | None = None,
) -> dict[str, Any]:
    """Write the rows of `source` without duplicates to `out`, the duplicates to `removed`, and return the report.

    Exact duplicates are texts that differ only in white space, case and Unicode form. Near duplicates are found by MinHash: the
    similarity is estimated from 128 hashes, with a standard error of 0.027 at 0.9. About 700 bytes per row are held in memory;
    rows are spooled to disk.
    """
    from critic_prm.datasets.similarity import SHINGLE, Signatures, neighbours, shingles, similarity
    from critic_prm.datasets.words import words

    account = DatasetStats("dedupe")
    seen: dict[bytes, int] = {}
    ids: list[str] = []
    firsts: list[int | None] = []
    gone: dict[int, tuple[int, str, float]] = {}
    signatures = Signatures()
    with spool(out) as rows:
        for number, row in enumerate(account.read(source)):
            rows.write([row.kind, row.data])
            ids.append(row.id)
            firsts.append(row.first_error)
            key = _key(row, options.by)
            if (earlier := seen.setdefault(key, number)) != number:
                same = options.by == "problem" or firsts[earlier] == row.first_error
                gone[number] = (earlier, "exact copy" if same else "exact copy with another first error", 1.0)
            if options.near is not None:
                texts = [row.trajectory.problem, *(row.trajectory.texts if options.by == "solution" else ())]
                signatures.add(shingles(words("\n".join(texts)), SHINGLE))
        kept_apart = 0
        if options.near is not None and ids:
            table = signatures.table()
            free = options.across_labels or options.by == "problem"
            for number, near in neighbours(table, options.near):
                if number in gone:
                    continue
                close = [(similarity(table[number], table[other]), other) for other in near if other not in gone]
                close = [(value, other) for value, other in close if value >= options.near]
                matches = [pair for pair in close if free or firsts[number] == firsts[pair[1]]]
                kept_apart += bool(close) and not matches
                if matches:
                    value, other = max(matches, key=lambda pair: (pair[0], -pair[1]))
                    gone[number] = (other, "near copy", round(value, 3))
        with RecordWriter(out) as writer, _listing(removed) as list_removed:
            for number, (kind, data) in enumerate(rows.rows()):
                if number not in gone:
                    account.keep(kind)
                    writer.write(data)
                    continue
                other, reason, value = gone[number]
                account.drop(reason, kind)
                entry = {"id": ids[number], "row": number + 1, "reason": reason, "similarity": value}
                list_removed({**entry, "copy_of": ids[other], "copy_of_row": other + 1})
    more = {
        "near_copies_with_another_first_error_kept": kept_apart,
        "removed_list": None if removed is None else Path(removed).name,
    }
    return account.report(out, asdict(options), more)


def _key(row: Row, by: By) -> bytes:
    if by == "problem":
        return bytes.fromhex(problem_key(row.trajectory.problem))
    texts = [row.trajectory.problem]
    for step in row.trajectory.steps:
        texts += [step.text, step.observation or ""]
    plain = "\x00".join(" ".join(unicodedata.normalize("NFKC", text).casefold().split()) for text in texts)
    return hashlib.blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=12).digest()
