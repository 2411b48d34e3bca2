"""Parse a reply into verdicts: handle refusals, thinking and truncation, then call the reader of the style.

Each reply shape has its own module in `readers/`.
"""

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
    """What a reply should contain."""

    steps: int
    """Number of steps of the trajectory."""
    base: int = 1
    """The number the prompt gave to the first step, 0 or 1."""
    stops: bool = False
    """Whether the style ends at the first error."""
    step: int | None = None
    """The 0-based step the question is about; None for all steps."""
    quotable: tuple[str, ...] = ()
    """All texts of the trajectory shown to the judge. What a reply copies from them is a quotation, never a verdict."""
    cut: bool = False
    """Whether the reply was truncated, so that its last line may be incomplete."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of a reader: verdicts in step order, and notes on the deviations it tolerated."""

    status: Status
    verdicts: tuple[Verdict, ...] = ()
    notes: tuple[str, ...] = ()


class Reader(Protocol):
    """The `read` function of a module in `readers/`. The module may also have `schema(expect)`, the JSON schema to request,
    and `write(verdicts, expect)`, which returns a reply with these verdicts."""

    def __call__(self, text: str, expect: Expect, logprobs: tuple[TokenLogprob, ...] = ()) -> Reading: ...


Schema = Mapping[str, Any]

LONGEST = 1_000_000
"""Maximum length of a reply in characters. A judgement of 100,000 tokens has about 400,000. The readers take seconds per
million characters, and much longer for adversarial input."""


def read_reply(style: Style, expect: Expect, reply: Reply) -> Reading:
    """Parse one reply to a prompt of `style`.

    This function handles what is common to all reply shapes: a refusal is `refused`, unclosed thinking is `truncated`, and a
    truncated reply is `ok` only if all its verdicts are present. Spans index into `reply.text`.
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
    if reading.status == "unparseable" and _REFUSAL.search(text.lstrip()[:_HEAD]):
        return Reading("refused", notes=(*notes, "the reply declines to judge"))
    return replace(reading, notes=notes)


def settle(by_step: Mapping[int, Verdict], expect: Expect, notes: Sequence[str] = ()) -> Reading:
    """The reading for `by_step`, a mapping from 0-based step to verdict.

    The status is `ok` if every step that was to be judged has a verdict: all steps, the one asked about, or those up to the
    first error if the style stops there. Verdicts for nonexistent steps are dropped with a note.
    """
    notes = list(notes)
    expected = range(expect.steps) if expect.step is None else range(expect.step, expect.step + 1)
    verdicts = [by_step[step] for step in sorted(by_step) if step in expected]
    unexpected = [step for step in sorted(by_step) if step not in expected]
    if unexpected:
        notes.append(f"dropped verdicts for steps that were not asked about: {_numbers(unexpected, expect)}")
    if not verdicts:
        return Reading("unparseable", (), (*notes, "no verdict was found"))
    if expect.stops:
        first = next((v.step for v in verdicts if v.value == "incorrect"), None)
        if first is not None:
            if verdicts[-1].step > first:
                notes.append("verdicts after the first incorrect step are left out")
            verdicts = [v for v in verdicts if v.step <= first]
            expected = range(expected.start, first + 1)
    missing = sorted(set(expected) - {v.step for v in verdicts})
    if missing:
        notes.append(f"no verdict for {len(missing)} of {len(expected)} steps: {_numbers(missing, expect)}")
        return Reading("count_mismatch", tuple(verdicts), tuple(notes))
    if not any(v.critique for v in verdicts):
        notes.append("verdicts without a critique")
    return Reading("ok", tuple(verdicts), tuple(notes))


def _numbers(steps: Sequence[int], expect: Expect) -> str:
    """Steps by their numbers in the prompt."""
    shown = ", ".join(str(step + expect.base) for step in steps[:10])
    return shown + (", ..." if len(steps) > 10 else "")


def write_reply(style: Style, expect: Expect, verdicts: Sequence[Verdict]) -> str | None:
    """Write a reply to a prompt of `style` with the given verdicts and critiques; None if its reader cannot write. Some
    critique texts prevent the reply from being parsed back; check with `read_reply`."""
    from critic_prm.registry import load

    write = getattr(load("reader", style.reader), "write", None)
    return None if write is None else str(write(verdicts, expect))


def without_thinking(text: str, quotable: tuple[str, ...] = ()) -> tuple[str, bool]:
    """Blank out a thinking block at the start of `text`, keeping its length. Also returns whether the block was
    never closed."""
    opened = _OPENING.match(text)
    if opened is None and "</" not in text:
        return text, False
    from critic_prm.styles.quotes import copied, occurs

    if opened is None:
        # Some chat templates open the block in the prompt, so the reply has only the closing tag. It counts only if no step
        # contains it.
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
    """Whether the text ends in at least eight repetitions, over at least 200 characters, of a piece of up to 250 characters."""
    tail = text.rstrip()[-4096:]
    backwards = tail[::-1]
    # If the text is periodic, its last 12 characters occur again one period earlier.
    period = backwards.find(backwards[:12], 1)
    while 0 < period <= 250:
        repeated = max(200, 8 * period)
        if len(backwards) > repeated and backwards[period : repeated + period] == backwards[:repeated]:
            return True
        period = backwards.find(backwards[:12], period + 1)
    return False


_OPENING = re.compile(r"\s{0,200}<(think|thinking|thought|reasoning)>", re.IGNORECASE)
_CLOSING = re.compile(r"</(think|thinking|thought|reasoning)>", re.IGNORECASE)
_HEAD = 240
"""A reply that declines says so within this many characters."""

_REFUSAL = re.compile(
    r"""\bI(?:['’]?m|\sam)?\s(?:cannot|can\snot|can['’]?t|won['’]?t|will\snot|(?:not\sable|unable)\sto)\s
        (?:help|assist|comply|participate|engage|support|satisfy|fulfil+|discuss|do\s(?:that|this)
        |provide\s(?:(?:that|this|such|any)\s)?(?:information|content|assistance|help|support|kind|type)
        |(?:continue\swith|proceed\swith|process|respond\sto)\s(?:that|this|such|your)\b)
    |\bI\s(?:must|have\sto|need\sto|will\shave\sto|respectfully)\s(?:\w+\s)?decline
    |\bagainst\smy\s(?:\w+\s)?(?:guidelines|policy|policies|programming|principles)
    |我(?:无法|不能|不会)(?:为您|向您|给您)?(?:回答|提供|协助|帮助|满足|处理|完成|继续|参与)""",
    re.IGNORECASE | re.VERBOSE,
)
"""The reply declines the request. "I am not able to decide" and "I cannot verify step 3" are judgements without a verdict: a
follow-up question may still get one."""


def _blank(text: str, end: int) -> str:
    return " " * end + text[end:]


@cache
def _reader(name: str) -> Reader:
    from critic_prm.registry import load

    read: Reader = load("reader", name).read
    return read
