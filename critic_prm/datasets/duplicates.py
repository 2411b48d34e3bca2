"""Remove duplicate rows, and rows whose problem occurs in a benchmark; the removed rows are listed."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from critic_prm.data.hashing import problem_key
from critic_prm.data.records.reading import RecordWriter, read_records
from critic_prm.datasets.rows import DatasetStats, Row, read_rows, spool, write_report
from critic_prm.datasets.similarity import Hashes, masked, shingles, words
from critic_prm.errors import InputError, UsageError

Sign = Literal["same text", "renamed", "near", "contained", "shared passage"]

SHINGLE = 3
"""Words per shingle."""
PASSAGE = 10
"""Consecutive words that two unrelated problems do not share, unless they are a set phrase."""
LONG_ENOUGH = 15
"""Shorter problems (in masked words) occur within others by chance."""


@dataclass(frozen=True, slots=True)
class Match:
    """Why a problem matches the benchmark: the sign, the number of the benchmark's problem, and the similarity (0 to 1)."""

    sign: Sign
    number: int
    similarity: float


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Thresholds of the three approximate signs."""

    near: float = 0.5
    """Minimum weighted Jaccard similarity of masked word 3-grams."""
    contained: float = 0.8
    """Minimum weighted fraction of one problem's masked 3-grams found in the other."""
    passage: float = 0.5
    """Minimum fraction of the shorter problem's words covered by shared runs of 10 words."""


class Benchmark:
    """An index of the problems of one or more benchmarks, about 1 KB per problem.

    Numbers, names and single letters are masked before comparison, so that problems with changed names and numbers are found.
    Shingles are weighted by their rarity in the benchmark, so set phrases ("find the remainder when") count little. With
    `literal` nothing is masked: if all problems of a benchmark share one template, masking would match every problem of that
    template.
    """

    def __init__(self, problems: Iterable[str], thresholds: Thresholds | None = None, *, literal: bool = False) -> None:
        self._thresholds = thresholds or Thresholds()
        self._forms = words if literal else masked
        self._keys: dict[str, int] = {}
        self._masked: dict[str, int] = {}
        sets: list[Hashes] = []
        passages: list[Hashes] = []
        lengths: list[int] = []
        for problem in problems:
            key = problem_key(problem)
            if key in self._keys:
                continue
            number = self._keys[key] = len(sets)
            mask = self._forms(problem)
            for form in (mask, self._forms(problem.casefold())):
                self._masked.setdefault(" ".join(form), number)
            sets.append(shingles(mask, SHINGLE))
            plain = words(problem)
            passages.append(shingles(plain, PASSAGE) if len(plain) >= PASSAGE else np.empty(0, np.uint64))
            lengths.append(len(mask))
        self._near = _Postings(sets)
        self._passages = _Postings(passages)
        self._lengths = np.array(lengths, np.int64)
        self._long = np.array([len(passage) + PASSAGE - 1 for passage in passages], np.int64)
        self._weights = np.array([self._near.weight(own).sum() for own in sets])

    def __len__(self) -> int:
        return len(self._lengths)

    def match(self, problem: str) -> Match | None:
        """The problem of the benchmark that matches, or None. The most reliable sign is tried first."""
        if (number := self._keys.get(problem_key(problem))) is not None:
            return Match("same text", number, 1.0)
        mask = self._forms(problem)
        for form in (
            mask,
            self._forms(problem.casefold()),
        ):  # the second form handles case changes along with changed numbers
            if (number := self._masked.get(" ".join(form))) is not None:
                return Match("renamed", number, 1.0)
        if not len(self):
            return None
        return self._alike(mask) or self._passage(problem)

    def _alike(self, mask: list[str]) -> Match | None:
        own = shingles(mask, SHINGLE)
        weight = self._near.weight(own)
        shared, total = self._near.shared(own, weight), weight.sum()
        jaccard = shared / (total + self._weights - shared)
        best = int(jaccard.argmax())
        if jaccard[best] >= self._thresholds.near:
            return Match("near", best, round(float(jaccard[best]), 3))
        inner = np.where(self._lengths >= LONG_ENOUGH, shared / self._weights, 0.0)
        if len(mask) >= LONG_ENOUGH:
            inner = np.maximum(inner, shared / total)
        best = int(inner.argmax())
        return Match("contained", best, round(float(inner[best]), 3)) if inner[best] >= self._thresholds.contained else None

    def _passage(self, problem: str) -> Match | None:
        plain = words(problem)
        if len(plain) < PASSAGE:
            return None
        runs = shingles(plain, PASSAGE)
        found = self._passages.shared(runs, np.ones(len(runs)))
        # k consecutive runs cover k + 9 words; runs that occur in many problems of the benchmark are set phrases
        own = self._passages.shared(runs, self._passages.weight(runs) / (np.log(len(self) + 1.0) + 0.01))
        covered = own * (1 + np.where(found > 0, (PASSAGE - 1) / found.clip(1), 0)) / np.minimum(self._long, len(plain)).clip(1)
        best = int(covered.argmax())
        return (
            Match("shared passage", best, min(1.0, round(float(covered[best]), 3)))
            if covered[best] >= self._thresholds.passage
            else None
        )


class _Postings:
    """Inverted index from shingles to texts: sorted hashes, with the text numbers of each."""

    def __init__(self, sets: list[Hashes]) -> None:
        self._texts = len(sets)
        every = np.concatenate(sets) if sets else np.empty(0, np.uint64)
        owner = np.repeat(np.arange(len(sets)), [len(own) for own in sets])
        order = np.argsort(every, kind="stable")
        self._owner = owner[order]
        self._hashes, self._start, self._count = np.unique(every[order], return_index=True, return_counts=True)

    def weight(self, hashes: Hashes) -> npt.NDArray[np.float64]:
        """The rarity of each shingle in natural log units; an unknown shingle counts like one that occurs in a single text."""
        place, there = self._find(hashes)
        count = np.ones(len(hashes))
        count[there] = self._count[place[there]]
        return np.log((self._texts + 1.0) / count) + 0.01

    def shared(self, hashes: Hashes, weight: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """For every text, the total weight of the shingles it shares with `hashes`; shape (texts,)."""
        place, there = self._find(hashes)
        place = place[there]
        count = self._count[place]
        if not count.sum():
            return np.zeros(self._texts)
        # concatenated postings of all shingles
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        texts = self._owner[np.repeat(self._start[place], count) + within]
        return np.bincount(texts, np.repeat(weight[there], count), self._texts).astype(np.float64, copy=False)

    def _find(self, hashes: Hashes) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
        place = np.searchsorted(self._hashes, hashes)
        there = place < len(self._hashes)
        there[there] = self._hashes[place[there]] == hashes[there]
        return place, there


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


By = Literal["solution", "problem"]


@dataclass(frozen=True, slots=True)
class DedupeOptions:
    """What counts as a duplicate."""

    by: By = "solution"
    """ "solution" compares problem and steps; "problem" keeps one row per problem."""
    near: float | None = 0.9
    """Rows with at least this Jaccard similarity of word 3-grams (0.3 to 1) are near duplicates. None: exact
    duplicates only."""
    across_labels: bool = False
    """Also drop near duplicates with a different first error. They are kept by default: a solution and the same one with an
    inserted error differ in one word, and that difference is worth learning."""

    def check(self) -> None:
        """Raises UsageError for an invalid value."""
        if self.by not in get_args(By):
            raise UsageError(f"--by is {self.by!r}; it is one of {', '.join(get_args(By))}")
        if self.near is not None and not 0.3 <= self.near <= 1:
            raise UsageError(f"near copies are asked for at a similarity of {self.near:g}; it is from 0.3 to 1")


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
    from critic_prm.datasets.similarity import Signatures, neighbours, shingles, similarity, words

    options.check()
    account = DatasetStats("dedupe")
    seen: dict[bytes, int] = {}
    ids: list[str] = []
    firsts: list[int | None] = []
    gone: dict[int, tuple[int, str, float]] = {}
    signatures = Signatures()
    with spool(out) as rows:
        for number, row in enumerate(read_rows(source)):
            account.take(row.kind)
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
        account.file(source, len(ids))
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
        _write(rows.rows(), out, removed, ids, gone, account)
    more = {
        "near_copies_with_another_first_error_kept": kept_apart,
        "removed_list": None if removed is None else Path(removed).name,
    }
    report = account.summary(asdict(options), more)
    write_report(out, report)
    return report


def _write(
    rows: Iterable[Any],
    out: str | Path,
    removed: str | Path | None,
    ids: list[str],
    gone: dict[int, tuple[int, str, float]],
    account: DatasetStats,
) -> None:
    with ExitStack() as stack:
        writer = stack.enter_context(RecordWriter(out))
        listing = None if removed is None else stack.enter_context(RecordWriter(removed))
        for number, (kind, data) in enumerate(rows):
            if number not in gone:
                account.keep(kind)
                writer.write(data)
                continue
            other, reason, value = gone[number]
            account.drop(reason, kind)
            if listing is None:
                continue
            entry = {"id": ids[number], "row": number + 1, "reason": reason, "similarity": value}
            listing.write({**entry, "copy_of": ids[other], "copy_of_row": other + 1})


def _key(row: Row, by: By) -> bytes:
    if by == "problem":
        return bytes.fromhex(problem_key(row.trajectory.problem))
    texts = [row.trajectory.problem]
    for step in row.trajectory.steps:
        texts += [step.text, step.observation or ""]
    plain = "\x00".join(" ".join(unicodedata.normalize("NFKC", text).casefold().split()) for text in texts)
    return hashlib.blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=12).digest()
