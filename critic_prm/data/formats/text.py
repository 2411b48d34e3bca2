"""Plain text, or records with a problem and a solution text, which is split into steps (--segment)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from critic_prm.data.formats.common import Format, Source, about
from critic_prm.data.records.containers import PARQUET, chunks, delimiter_of, name_of, open_input, peek
from critic_prm.data.records.reading import HUB, Complain, OnError, Record, read_records, records_in
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.errors import InputError

_PROBLEM = ("problem", "question", "prompt", "query", "instruction", "input")
_SOLUTION = ("solution", "response", "completion", "output", "model_output")
_GSM8K = re.compile(r"\n?#### *([^\n]*)\s*$")
_HEADING = re.compile(
    r"^[ \t#*]*(?:solution|answer|response)[ \t*]*:[ \t*]*|^#+[ \t]*(?:solution|answer|response)[ \t]*$", re.I | re.M
)
_TITLE = re.compile(r"^[ \t#*]*(?:problem|question|task)[ \t*]*(?::[ \t*]*|\n)", re.I)
_SLOT = re.compile(r"(?<![\\\w^{}$])\{[a-z][a-z_]{2,}\}(?!\})")
_JSON = (b"{", b"[{", b"[\n", b"[ ")


def is_plain(path: str | Path) -> bool:
    """Whether the file name says text and the content is not JSON."""
    return str(path).endswith((".txt", ".md", ".markdown")) and not peek(path).lstrip(b"\xef\xbb\xbf \r\n\t").startswith(_JSON)


def records(path: str | Path, *, on_error: OnError, complain: Complain) -> Iterator[Record]:
    """The records of a file of problem-solution pairs, or a whole plain text as one record."""
    if name_of(path).startswith(HUB) or delimiter_of(str(path)) or peek(path).startswith(PARQUET):
        yield from read_records(path, on_error=on_error, complain=complain)
        return
    with open_input(path) as stream:
        source = chunks(stream, name_of(path))
        first = next(source, b"")
        if first.lstrip().startswith(_JSON):
            yield from records_in(chain((first,), source), name_of(path), on_error, complain)
            return
        try:
            text = b"".join((first, *source)).decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(name_of(path), f"invalid UTF-8 at byte {error.start + 1}", "save the file as UTF-8") from None
        yield Record(1, name_of(path), {"text": text.replace("\r\n", "\n")})


def score(row: Mapping[str, Any]) -> int:
    """A row is a text, or has a problem and a solution text."""
    return 1 if _pair(row) or set(row) == {"text"} else 0


def read(source: Source) -> Iterable[Trajectory]:
    """Read one trajectory without labels, whose solution is one step. The text after a GSM8K answer's "####" is its answer."""
    gold = None
    if pair := _pair(source.row):
        problem, solution = (str(source.get(key)) for key in pair)
        answer = source.answer("answer") if pair[1] != "answer" else None
        gold = source.answer("gold_answer") or answer
    else:
        problem, solution = _divide(str(source.get("text") or ""), source.where)
    final = None
    if mark := _GSM8K.search(solution):
        final, solution = mark.group(1).strip(), solution[: mark.start()]
    if not problem.strip() or not solution.strip():
        raise InputError(source.where, "the problem or the solution is empty", "both must be text")
    yield source.trajectory(problem.strip(), [Step(solution.strip())], final_answer=final, gold_answer=gold)


def _pair(row: Mapping[str, Any]) -> tuple[str, str] | None:
    """The names of the problem field and the solution field."""
    problem = next((key for key in _PROBLEM if isinstance(row.get(key), str)), None)
    solution = next((key for key in _SOLUTION if isinstance(row.get(key), str)), None)
    if solution is None and isinstance(row.get("answer"), str) and _GSM8K.search(row["answer"]):
        solution = "answer"
    return (problem, solution) if problem and solution else None


def _divide(text: str, where: str) -> tuple[str, str]:
    """Split a plain text into problem and solution, at a "Solution:" heading or after the first paragraph.
    Raises InputError."""
    if slot := _SLOT.search(text):
        raise InputError(
            where, f"this is a prompt template with the open slot {slot.group()}", "give a problem and its solution"
        )
    heading = _HEADING.search(text)
    if heading and text[: heading.start()].strip():
        problem, solution = text[: heading.start()], text[heading.end() :]
    else:
        problem, _, solution = text.strip().partition("\n\n")
    if not solution.strip():
        fix = "write the problem, a blank line, then the solution; or put Solution: before it"
        raise InputError(where, "this text has a problem but no solution", fix)
    return _TITLE.sub("", problem.strip()).strip(), solution


FORMATS = {
    "text": Format(read=read, score=score, **about("text")),
}
