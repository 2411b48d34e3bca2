"""Count why rows got no label, and turn the most frequent reason of each status into advice, from reasons.toml."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from textwrap import shorten, wrap
from typing import Any

from critic_prm.data.judgement import Judgement, Label

WIDTH = 80
MOST_STATUSES = 3
MOST_REASONS = 100
"""Reasons that are counted apart. Further ones count as "other reasons", so that memory is bounded."""

LONGEST = 150
"""Characters of a reason that are shown."""

_STEP = re.compile(r"^step \d+: ")
_NUMBER = re.compile(r"\d+(?:[.,] ?\d+)*")


@dataclass(slots=True)
class Reason:
    """One reason: how many rows have it, the text and the advice for it, and the first such row."""

    status: str
    text: str
    advice: str
    id: str
    key: str
    """Cache key of the row's last reply; "" if there is none."""
    rows: int = 0


@dataclass
class Reasons:
    """The reasons of the rows without a label. Reasons that differ in their numbers only are one."""

    counted: dict[tuple[str, str], Reason] = field(default_factory=dict)

    def add(self, id: str, label: Label) -> None:
        """Count a row whose label is not `ok`."""
        judgement = next(_failed(label.judgements, label.status), None)
        text, advice = explained(label.status, judgement.notes if judgement else ())
        kind = label.status, _NUMBER.sub("N", text)
        if kind not in self.counted and len(self.counted) >= MOST_REASONS:
            kind, text = (label.status, ""), "other reasons"
        if kind not in self.counted:
            key = judgement.keys[-1] if judgement and judgement.keys and label.status != "provider_error" else ""
            self.counted[kind] = Reason(label.status, text, advice, id, key)
        self.counted[kind].rows += 1

    def report(self) -> list[dict[str, Any]]:
        """The reasons for run.json, most frequent first."""
        rows = sorted(self.counted.values(), key=lambda reason: -reason.rows)
        return [{"status": one.status, "reason": one.text, "rows": one.rows, "first": one.id} for one in rows]

    def lines(self, out: str) -> list[str]:
        """The most frequent reason of each status with its advice, and the command that shows the first such row of `out`."""
        by_status: dict[str, list[Reason]] = {}
        for reason in sorted(self.counted.values(), key=lambda reason: -reason.rows):
            by_status.setdefault(reason.status, []).append(reason)
        lines: list[str] = []
        for status, reasons in list(by_status.items())[:MOST_STATUSES]:
            first, rows = reasons[0], sum(reason.rows for reason in reasons)
            more = f"{len(reasons) - 1} other reason" + "s" * (len(reasons) > 2)
            others = "" if len(reasons) == 1 else f" ({first.rows:,} rows; {more})"
            lines += _wrapped(f"{status} {rows:,}: {shorten(first.text, LONGEST)}{others}")
            lines += _wrapped(f"  what to do: {first.advice}")
            if out != "-":
                lines.append(f"  see one: critic-prm explain {shlex.quote(out)} {shlex.quote(first.id)}")
            elif first.key:
                lines.append(f"  see one: critic-prm cache show {first.key[:12]}")
        return lines


def explained(status: str, notes: Sequence[str]) -> tuple[str, str]:
    """Return the reason in a judgement's notes, and the advice for it."""
    plain = [_STEP.sub("", note) for note in notes]
    for entry in _table().get(status, ()):
        found = next((note for note in reversed(plain) if re.search(entry.get("match", ""), note)), None)
        if found is not None or "match" not in entry:
            default = plain[-1] if plain else "no reason is recorded"
            return entry.get("reason") or found or default, entry["advice"]
    return plain[-1] if plain else "no reason is recorded", ""


def _failed(judgements: Sequence[Judgement], status: str) -> Iterator[Judgement]:
    """The judgements with this status that say why; those of single judges before the one that combines them."""
    for judgement in judgements:
        yield from _failed(judgement.parts, status)
        if judgement.status == status:
            yield judgement


def _wrapped(text: str) -> list[str]:
    return wrap(text, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


@cache
def _table() -> Mapping[str, list[dict[str, str]]]:
    return tomllib.loads(Path(__file__).with_name("reasons.toml").read_text("utf-8"))
