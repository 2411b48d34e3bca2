"""Read a critique of one step that ends in a line "Verdict: correct", "incorrect", "corrected" or "neutral"."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from critic_prm.data.judgement import Verdict
from critic_prm.providers.provider import TokenLogprob
from critic_prm.styles.quotes import DOUBTFUL, copied, occurs, own
from critic_prm.styles.reader import Expect, Reading, settle
from critic_prm.styles.readers._chances import CORRECT_INCORRECT, Pair, Tokens
from critic_prm.styles.readers._patterns import HEDGE, VERDICT, Words, ends, plain, value_of

PER = "step"

_LEAD = r"^[ \t]{0,8}+(?:[-+•*#]{1,6}+[ \t]{0,4}+)?+(?:\d{1,3}+[.)][ \t]{0,4}+)?+[ \t*_`$(\[]{0,8}+"
_BOX = re.compile(r"\$?\\{0,2}boxed[ ]?\{[ ]?(?:\\[a-z]{2,8}[ ]?\{)?", re.IGNORECASE)
_WORD = re.compile(r"[^\n.,;:!()。，；：！（—–{}\[\]<]{1,40}")
_ASKED = re.compile(r"[:：?？]")
_NEXT_LINE = re.compile(r"\s{1,8}+(?:[-+•*]{1,2}[ \t])?+[ \t*_`$\[(]{0,8}+")
# Up to this many words may be an answer that is not a verdict ("mostly correct"); more are prose or the repeated prompt.
_ANSWER_WORDS = 3


@dataclass(frozen=True, slots=True)
class Shape:
    """A verdict line: the `label` it begins with, the table of `words` that may follow, and the word `pair` for P(correct)."""

    label: re.Pattern[str]
    words: Words
    pair: Pair


@dataclass(frozen=True, slots=True)
class Line:
    """A verdict line found in the text, from `start` to `end`; its word begins at `word` and reads `said`."""

    start: int
    end: int
    word: int
    said: str


def label(*names: str) -> re.Pattern[str]:
    """Pattern for a line that begins with one of `names` (regular expressions), ignoring decoration."""
    return re.compile(
        rf"{_LEAD}(?:{'|'.join(names)})[ \t*_`]{{0,6}}+(?:[:：=?？]|\b(?:is|are)\b|是)?[ \t*_`$\[(\"'“]{{0,8}}+",
        re.IGNORECASE | re.MULTILINE,
    )


def read_line(text: str, expect: Expect, logprobs: tuple[TokenLogprob, ...], shape: Shape) -> Reading:
    """Parse the last verdict line, or else a last line that consists only of a verdict word. Linear in the length of `text`.

    A word that is not in the table, or that is qualified in the same line ("Yes, but ..."), is not a verdict. In a truncated
    reply the line must be complete and labelled.
    """
    step = expect.step if expect.step is not None else 0
    if expect.step is None and expect.steps != 1:
        return Reading("unparseable", (), (f"one verdict line cannot judge {expect.steps} steps",))
    lines = own_lines(text, expect, shape)
    last = own(text, [(line.start, line.end, value_of(line.said, shape.words)) for line in lines], expect.quotable)
    if last is None:
        return Reading("unparseable", (), (DOUBTFUL,))
    line = lines[last] if lines else _bare(text, expect, shape)
    if line is None:
        return settle({}, expect)
    value = value_of(line.said, shape.words)
    if value is None:
        return Reading("unparseable", (), (f"{plain(line.said)[:40]!r} is not a verdict",))
    notes: list[str] = []
    chance = None
    if logprobs:
        chance, note = Tokens(text, logprobs).p_correct(line.word, shape.pair)
        notes += [note] if note else []
    verdict = Verdict(step, value, text[: line.start].strip(), chance, (line.start, line.end))
    return settle({step: verdict}, expect, notes)


def own_lines(text: str, expect: Expect, shape: Shape) -> list[Line]:
    """The last labelled verdict lines, up to eight, that are not copied from the trajectory."""
    kept: list[Line] = []
    for line in _labelled(text, expect, shape):
        if not expect.quotable or not _copy(text, line, expect):
            kept.append(line)
            del kept[:-8]
    return kept


def _labelled(text: str, expect: Expect, shape: Shape) -> Iterator[Line]:
    for match in shape.label.finditer(text):
        start, place = match.start(), match.end()
        if place < len(text) and text[place] in "\r\n":
            # The word may be alone on the next line.
            lead = _NEXT_LINE.match(text, place)
            place = lead.end() if lead else place
            if not _alone(text, place, shape):
                continue
        box = _BOX.match(text, place)
        word = box.end() if box else place
        said = _WORD.match(text, word)
        if said is None:
            continue
        # "The step is clear that ..." is prose; "Verdict: clear" is an unreadable answer.
        if value_of(said.group(), shape.words) is None and (
            not _ASKED.search(text, start, place) or len(said.group().split()) > _ANSWER_WORDS
        ):
            continue
        stop = text.find("\n", said.end())
        rest = text[said.end() : len(text) if stop < 0 else stop]
        if expect.cut and ((stop < 0 and not box) or not ends(text[max(0, start - 200) : start])):
            continue
        if HEDGE.match(rest):
            continue
        yield Line(start, said.end() + (len(rest) if not rest.strip(' \t\r*_`$.。}!)]"”') else 0), word, said.group())


def _copy(text: str, line: Line, expect: Expect) -> bool:
    span = text[line.start : line.end]
    # In a truncated reply, a quotation cannot be distinguished from the verdict.
    if expect.cut:
        return occurs(span, expect.quotable)
    return copied(text, line.start, line.end, expect.quotable)


def _alone(text: str, place: int, shape: Shape) -> bool:
    stop = text.find("\n", place)
    line = text[place : len(text) if stop < 0 else stop]
    return len(line) <= 60 and value_of(line, shape.words) is not None


def _bare(text: str, expect: Expect, shape: Shape) -> Line | None:
    """The last line, if it consists only of a verdict word."""
    if expect.cut:
        return None
    end = len(text.rstrip())
    start = text.rfind("\n", 0, end) + 1
    box = _BOX.search(text, start, end)
    said = text[box.end() if box and not text[start : box.start()].strip(" \t$*_") else start : end].rstrip("}$ .")
    if len(said) > 60 or said.lstrip()[:1] in ('"', "“") or value_of(said, shape.words) is None:
        return None
    if copied(text, start, end, expect.quotable):
        return None
    word = text.index(said, start)
    while not text[word].isalnum() and word < end - 1:
        word += 1
    return Line(start, end, word, said)


_SHAPE = Shape(
    label(
        r"(?:(?:the|my) )?(?:(?:final|overall) )?(?:verdict|judge?ment|decision|label)(?= ?[*_]{0,3}[:：]| is\b)",
        r"<verdict>",
        r"(?:the|this) (?:step|action)(?= is\b)",
        r"(?:最终)?(?:结论|判断|判定)(?=[:：*是])",
    ),
    VERDICT,
    CORRECT_INCORRECT,
)


def read(text: str, expect: Expect, logprobs: tuple[TokenLogprob, ...] = ()) -> Reading:
    """Parse a verdict line. See `read_line` for the rules."""
    return read_line(text, expect, logprobs, _SHAPE)


def write(verdicts: Sequence[Verdict], expect: Expect) -> str:
    """Write a reply with this verdict, for `read`."""
    return f"{verdicts[0].critique.strip()}\n\nVerdict: {verdicts[0].value}".lstrip()
