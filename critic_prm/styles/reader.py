"""From a reply's text to verdicts: the words every reader shares. One reply shape a file in `readers/`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from critic_prm.data.judgement import Status, Verdict
from critic_prm.providers.provider import Reply, TokenLogprob

if TYPE_CHECKING:
    from critic_prm.styles.prompt import Style


@dataclass(frozen=True, slots=True)
class Expect:
    """What a reply should contain.

    `steps` is how many the trajectory has; `base` the number the prompt gave its first step (0 or 1); `stops` whether the
    style ends at the first error; `step` (0-based) which single step was asked about, None for all of them. `quotable` is all
    text that the trajectory put in front of the judge: what a reply copies from it is a quotation, never a verdict. `cut`
    says that the reply ended because it ran out of tokens, so that its last line may be half a line.
    """

    steps: int
    base: int = 1
    stops: bool = False
    step: int | None = None
    quotable: tuple[str, ...] = ()
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reader found: verdicts in step order, and notes on what it forgave."""

    status: Status
    verdicts: tuple[Verdict, ...] = ()
    notes: tuple[str, ...] = ()


class Reader(Protocol):
    """A module in `readers/` has `read` of this shape, and may have `schema(expect)`, the JSON schema to ask for, and
    `write(verdicts, expect)`, the reply that says these verdicts."""

    def __call__(self, text: str, expect: Expect, logprobs: tuple[TokenLogprob, ...] = ()) -> Reading: ...


Schema = Mapping[str, Any]

LONGEST = 1_000_000
"""Characters of a reply that are read. A judgement of a hundred thousand tokens has 400,000; the readers take seconds for each
million, and much longer for one that is made to be slow."""


def read_reply(style: Style, expect: Expect, reply: Reply) -> Reading:
    """Read one reply to a prompt of `style`.

    What holds for every shape of reply is done here: a refusal is `refused`, thinking that never ended is `truncated`, a
    reply that was cut is `ok` only when all its verdicts are there. Spans count in `reply.text`.
    """
    if reply.finish in ("refusal", "filter"):
        return Reading("refused", notes=(f"finish reason: {reply.finish}",))
    cut = reply.finish == "length"
    if len(reply.text) > LONGEST:
        said = f"the reply has {len(reply.text):,} characters, and no judgement is longer than {LONGEST:,}"
        return Reading("truncated" if cut else "unparseable", notes=(said,))
    text, open_thought = without_thinking(reply.text, expect.quotable)
    if open_thought:
        return Reading("truncated", notes=("the thinking block was never closed",))
    if not text.strip():
        return Reading("truncated" if cut else "unparseable", notes=("the reply is empty",))
    reading = _reader(style.reader)(text, replace(expect, cut=True) if cut else expect, reply.logprobs)
    if reading.status == "ok":
        return replace(reading, notes=(*reading.notes, "cut off after its last verdict")) if cut else reading
    notes = reading.notes
    if loops(text):
        notes = (*notes, "the reply repeats itself until it ends")
    if cut:
        return Reading("truncated", reading.verdicts, notes)
    if reading.status == "unparseable" and _REFUSAL.match(text):
        return Reading("refused", notes=(*notes, "the reply declines to judge"))
    return replace(reading, notes=notes)


def write_reply(style: Style, expect: Expect, verdicts: Sequence[Verdict]) -> str | None:
    """The reply to a prompt of `style` that says `verdicts` with their critiques, as the style asks for it; None where its
    reader only reads. What a critique contains may keep it from being read back: see for yourself with `read_reply`."""
    from critic_prm.registry import load

    write = getattr(load("reader", style.reader), "write", None)
    return None if write is None else str(write(verdicts, expect))


def without_thinking(text: str, quotable: tuple[str, ...] = ()) -> tuple[str, bool]:
    """`text` with a thinking block at its start blanked out, its length unchanged, and whether one never ended."""
    opened = _OPENING.match(text)
    if opened is None and "</" not in text:
        return text, False
    from critic_prm.styles.quotes import copied, occurs

    if opened is None:
        # Some chat templates open the block in the prompt; only a closing tag that no step can have supplied shows that.
        closing = _CLOSING.search(text)
        if closing is None or occurs(closing.group(), quotable):
            return text, False
        return _blank(text, closing.end()), False
    name = opened.group(1).casefold()
    for closing in _CLOSING.finditer(text, opened.end()):
        name_fits = closing.group(1).casefold() == name
        if name_fits and not copied(text, closing.start(), closing.end(), quotable):
            return _blank(text, closing.end()), False
    return text, True


def loops(text: str) -> bool:
    """Whether the text ends in at least eight repetitions, over at least 200 characters, of a piece of up to 250."""
    tail = text.rstrip()[-4096:]
    backwards = tail[::-1]
    # The last 12 characters come again after one period, if there is one.
    period = backwards.find(backwards[:12], 1)
    while 0 < period <= 250:
        repeated = max(200, 8 * period)
        if len(backwards) > repeated and backwards[period : repeated + period] == backwards[:repeated]:
            return True
        period = backwards.find(backwards[:12], period + 1)
    return False


_OPENING = re.compile(r"\s{0,200}<(think|thinking|thought|reasoning)>", re.IGNORECASE)
_CLOSING = re.compile(r"</(think|thinking|thought|reasoning)>", re.IGNORECASE)
_REFUSAL = re.compile(
    r"\s{0,200}(?:(?:I['’]?m|I am) (?:sorry|unable|not able)|sorry\b|I (?:cannot|can['’]t|won['’]t)\b|抱歉|对不起|我无法)",
    re.IGNORECASE,
)


def _blank(text: str, end: int) -> str:
    return " " * end + text[end:]


@cache
def _reader(name: str) -> Reader:
    from critic_prm.registry import load

    read: Reader = load("reader", name).read
    return read
