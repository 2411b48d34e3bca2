"""Remove exact and near duplicates: the first of each group is kept, each removed row listed with its original."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from critic_prm.data.hashing import problem_key
from critic_prm.data.records.reading import RecordWriter
from critic_prm.datasets.account import DatasetStats, write_report
from critic_prm.datasets.rows import Row, read_rows, spool
from critic_prm.errors import UsageError

By = Literal["solution", "problem"]
SHINGLE = 3
"""Words per shingle."""


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
    from critic_prm.datasets.near import Signatures, neighbours, similarity
    from critic_prm.datasets.words import shingles, words

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
