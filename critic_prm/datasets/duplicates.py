"""Remove duplicate rows; the removed rows are listed."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from critic_prm.data.hashing import problem_key
from critic_prm.data.records.reading import RecordWriter
from critic_prm.datasets.rows import DatasetStats, Row, spool
from critic_prm.option import Option, check_fields

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
        with RecordWriter(out) as writer, list_of(removed) as list_removed:
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


@contextmanager
def list_of(removed: str | Path | None) -> Iterator[Callable[[Any], None]]:
    """What adds a row to the list of removed rows, if there is to be one."""
    if removed is None:
        yield lambda row: None
    else:
        with RecordWriter(removed) as writer:
            yield writer.write
