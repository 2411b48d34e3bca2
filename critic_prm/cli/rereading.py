"""Parse the cached replies of a label file again, and report on stderr what changed."""

from __future__ import annotations

import sys
from itertools import islice

from critic_prm.data.label_rows import is_labelled, label_row, read_labels
from critic_prm.data.records.reading import RecordWriter, read_records
from critic_prm.engine.cache import Cache
from critic_prm.engine.options import JudgeOptions
from critic_prm.label.reread import Changes, reread


def is_label_file(source: str) -> bool:
    """Return whether the first row of a file is a label row. Stdin cannot be inspected and counts as a label file."""
    if source == "-":
        return True
    first = next(iter(read_records(source)), None)
    return first is not None and isinstance(first.data, dict) and is_labelled(first.data)


def run_rereading(source: str, out: str, judging: JudgeOptions, limit: int | None) -> int:
    """Rewrite the label file and report what changed. Returns the exit code: 0, or 3 if labels are still unusable."""
    changes, failed = Changes(), 0
    cache = Cache(judging.db, readonly=True)
    try:
        with RecordWriter(out) as sink:
            rows = islice(read_labels(source), limit)
            for trajectory, label, card in reread(rows, cache, changes, judging.style):
                sink.write(label_row(trajectory, label, card))
                failed += label.status != "ok"
    finally:
        cache.close()
    for line in changes.lines():
        print(line, file=sys.stderr)
    return 3 if failed else 0
