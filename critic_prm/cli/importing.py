"""Apply human answers from an escalation file to a label file."""

from __future__ import annotations

import sys


def run_import(source: str, out: str, answers: str) -> int:
    """Write the label file with the human answers applied, and report their number. Returns the exit code."""
    from critic_prm.critics.escalation import read_answers, with_answers
    from critic_prm.data.label_rows import is_labelled
    from critic_prm.data.records.reading import RecordWriter, read_records
    from critic_prm.errors import InputError

    found = read_answers(answers)
    with RecordWriter(out) as sink:
        for record in read_records(source):
            if not isinstance(record.data, dict) or not is_labelled(record.data):
                raise InputError(record.where, "this is no row of a label file", "label the trajectories first, then import")
            for row in with_answers([(record.data, record.where)], found):
                sink.write(row)
    missing = len(found.found) - len(found.used)
    said = [f"{len(found.used):,} answered by a person", f"{found.open:,} not answered yet"]
    if missing:
        said.append(f"{missing:,} answered but not in {source}")
    print(f"{sink.rows:,} rows: " + ", ".join(said), file=sys.stderr)
    return 0
