r"""Read sections "Step k: critique", each ending in a line such as `The step is \boxed{correct}`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from critic_prm.data.judgement import Verdict, VerdictValue
from critic_prm.providers.provider import TokenLogprob
from critic_prm.styles.quotes import DOUBTFUL, copied, introduced, occurs, own
from critic_prm.styles.reader import Expect, Reading, settle
from critic_prm.styles.readers._chances import CORRECT_INCORRECT, YES_NO, Tokens
from critic_prm.styles.readers._patterns import ANSWER, HEDGE, OPEN, TAIL, VERDICT, begin, ends, headings, plain, value_of

_BOX = re.compile(rf"{OPEN}(?P<word>[^{{}}\\\n]{{1,40}}+)\\?+[ ]?+{TAIL}(?:(?=\r?$)|(?=(?P<more>[^\n]{{1,80}})))", re.MULTILINE)
# A heading that follows a verdict on the same line, in replies without line breaks.
_JOINED = re.compile(r"\}[$.*]{0,4}+[ \t](?=[*#]{0,4}[ ]?(?:Step|Paragraph) \d{1,6}[:.)*])")

# "Step 7. that is all" continues a sentence; a heading is followed by a new one.
_GOES_ON = re.compile(r"\.\s{1,4}[a-z]")

_WRAP = r"[ \t$*_`(\[\\]{0,8}"
# Labels of a verdict at the start of its line.
_LABEL = re.compile(
    rf"""[ \t]{{0,8}} [-+•*\#]{{0,4}} {_WRAP} (?:(?:therefore|thus|so|hence|overall)[, ]{{1,2}})?
    (?:
      (?:(?:the|this|that|these)[ ])? (?:steps?|paragraphs?|action|line|it)[ ]?\d{{0,6}} [ ](?:is|are|as)
    | (?:(?:the|this|my|step|paragraph)[ ]){{0,2}}
      (?:verdict|judge?ment|decision|assessment|evaluation|status|result|conclusion)
      (?:[ ](?:for|of|on)[ ](?:the[ ]|this[ ])?(?:step|paragraph)[ ]?\d{{0,6}})?
    | (?:该|本|此|这|这一)?(?:步骤?|判断|判定|结论|评价)
    )
    {_WRAP} [ ]? (?:is|are|[:：=]|是|为)? [ ]? {_WRAP}""",
    re.IGNORECASE | re.VERBOSE,
)
_NOTHING = re.compile(rf"[ \t]{{0,8}}[-+•*#]{{0,4}}{_WRAP}")
_LOOSE = re.compile(
    r"(?:\b(?:step|paragraph|action|it|this|verdict|judge?ment)\b|步)[^\n.!?。]{0,30}"
    rf"(?:\bis|\bas|\bso|[:：]|是|为)[ ]?{_WRAP}\Z",
    re.IGNORECASE,
)
# A verdict on the whole solution is not a verdict on the last step.
_WHOLE = re.compile(r"\b(?:solution|overall|final|proof|trajectory|plan)\b|整体|总体|全部|解答", re.IGNORECASE)


@dataclass(slots=True)
class _VerdictBox:
    """A verdict found in the text from `start` to `end`; its word is at `word`. `value` is None if the word is not a verdict.

    It is `pure` if its line says nothing else, `labelled` if the text calls it a verdict, and an `aside` if it is in the middle
    of a line.
    """

    value: VerdictValue | None
    start: int
    end: int
    word: int
    pure: bool
    labelled: bool
    aside: bool = False
    doubtful: bool = False


@dataclass(slots=True)
class _Section:
    """The text under one heading: its steps (0-based, first to last), its start and end, and the verdicts in it."""

    first: int
    last: int
    start: int
    end: int
    boxes: list[_VerdictBox] = field(default_factory=list)
    asides: set[VerdictValue | None] = field(default_factory=set)


def read(text: str, expect: Expect, logprobs: tuple[TokenLogprob, ...] = ()) -> Reading:
    r"""Parse a reply of sections with boxed verdicts. Linear in the length of `text`.

    A verdict is a box at the end of a line that says nothing else ("The step is \boxed{correct}", "**Verdict:**
    $\boxed{\text{wrong}}$") or that ends in such a statement. If a section has no box, a line that consists only of a verdict
    word counts. The last verdict of a section is used. A box in running prose, in quotation marks, or copied from the
    trajectory does not count.
    """
    notes: list[str] = []
    tokens = Tokens(text, logprobs)
    if _JOINED.search(text):
        text = _JOINED.sub(lambda joined: joined.group()[:-1] + "\n", text)
    sections = list(_sections(text, expect))
    headed = [s for s in sections if s.first >= 0]
    verdicts: dict[int, Verdict] = {}
    replaced = set[int]()
    if expect.step is not None:
        span = _Section(expect.step, expect.step, 0, len(text), [box for section in sections for box in section.boxes])
        _take(text, span, expect, tokens, verdicts, notes)
    elif headed:
        for section in headed:
            before = verdicts.get(section.first)
            _take(text, section, expect, tokens, verdicts, notes)
            after = verdicts.get(section.first)
            if before is not None and after is not None and before.value != after.value:
                notes.append(f"step {section.first + expect.base}: a later verdict replaces an earlier one")
                replaced.add(section.first)
    else:
        _in_order(text, sections, expect, tokens, verdicts, notes)
    reading = settle(verdicts, expect, notes)
    if reading.status == "ok" or not replaced:
        return reading
    # In a reply that does not add up, the later of two verdicts may be quoted from the solution: neither is believed.
    return settle({step: verdict for step, verdict in verdicts.items() if step not in replaced}, expect, notes)


def write(verdicts: Sequence[Verdict], expect: Expect) -> str:
    """Write a reply with these verdicts, for `read`."""
    return "\n\n".join(
        f"Step {verdict.step + expect.base}: {verdict.critique.strip()}\nThe step is \\boxed{{{verdict.value}}}"
        for verdict in verdicts
    )


def _sections(text: str, expect: Expect) -> Iterator[_Section]:
    """Split the reply at its headings. Text before the first heading belongs to no step (first = -1)."""
    section = _Section(-1, -1, 0, len(text))
    judged: set[int] = set()
    events = sorted([*headings(text), *_BOX.finditer(text)], key=re.Match.start)
    for event in events:
        if event.re is not _BOX:
            first = int(event.group("first")) - expect.base
            last = int(event.group("last") or event.group("first")) - expect.base
            if last < first or not _opens(text, event, section, first, judged, expect):
                continue
            section.end = event.start()
            yield section
            section = _Section(first, last, event.end(), len(text))
            continue
        box = _box(text, event, section.start)
        if box is None or _is_copy(text, box, event, expect):
            continue
        if box.aside:
            section.asides.add(box.value)
            continue
        section.boxes.append(box)
        if section.first >= 0 and box.value is not None:
            judged.update(range(section.first, min(section.last, expect.steps) + 1))
    yield section


def _opens(text: str, heading: re.Match[str], section: _Section, first: int, judged: set[int], expect: Expect) -> bool:
    """Whether a heading begins a new section, rather than a line of a critique that begins by naming another step."""
    if section.first < 0 or any(box.value is not None and box.labelled for box in section.boxes):
        return True
    before = text[max(section.start, heading.start() - 200) : heading.start()]
    if not ends(before) or _GOES_ON.match(text, heading.end() - 1):
        return False
    if any(box.value is not None for box in section.boxes):
        return True
    if first in judged or first > section.last + 1:
        return False
    if not expect.quotable or not occurs(heading.group(), expect.quotable):
        return True
    return not introduced(text, heading.start()) and not copied(text, heading.start(), heading.end(), expect.quotable)


def _box(text: str, event: re.Match[str], floor: int) -> _VerdictBox | None:
    place = begin(text, event.start())
    if place is None:
        return None
    start = max(text.rfind("\n", 0, place) + 1, floor)
    lead = text[max(start, place - 400) : place]
    if lead.lstrip().startswith(">"):
        return None
    if _WHOLE.search(lead[-60:]) and "step" not in lead[-30:].casefold():
        return None
    word = event.group("word")
    value = value_of(word, ANSWER)
    label = _LABEL.fullmatch(lead)
    if label or _NOTHING.fullmatch(lead):
        # A number alone in a box is a quoted result, not an unreadable verdict.
        if value is None and (label is None or not any(c.isalpha() for c in word)):
            return None
        if event.group("more") and (label is None or not _remark(event)):
            return _VerdictBox(value, place, event.end(), event.start("word"), False, True, True) if label else None
        return _VerdictBox(value, start if label else place, event.end(), event.start("word"), True, label is not None)
    if value is not None and _LOOSE.search(lead[-60:]):
        return _VerdictBox(value, place, event.end(), event.start("word"), False, True, bool(event.group("more")))
    return None


def _remark(event: re.Match[str]) -> bool:
    """Whether the text after a verdict on its line only adds to it ("..., since 3 + 4 = 7") and does not revoke it."""
    more = event.group("more")
    return (more[0] in ",;:(–—" or bool(set(event.group("tail")) & set(".。!"))) and HEDGE.match(more) is None


def _is_copy(text: str, box: _VerdictBox, event: re.Match[str], expect: Expect) -> bool:
    if not expect.quotable or not occurs(text[event.start() : event.end("tail")], expect.quotable):
        return False
    return not box.pure or copied(text, box.start, box.end, expect.quotable)


def _take(text: str, section: _Section, expect: Expect, tokens: Tokens, verdicts: dict[int, Verdict], notes: list[str]) -> None:
    """Add the verdict of a section, if it has one, to `verdicts`."""
    best = _last(text, section, expect) or _word_line(text, section, expect)
    if best is None:
        return
    number = section.first + expect.base
    if best.doubtful:
        verdicts.pop(section.first, None)
        notes.append(f"step {number}: {DOUBTFUL}")
        return
    if best.value is None:
        verdicts.pop(section.first, None)
        notes.append(f"step {number}: {plain(text[best.word : best.end])[:40]!r} is not a verdict")
        return
    if section.last > section.first and best.value != "correct":
        notes.append(
            f"steps {number} to {section.last + expect.base} have one verdict together that does not say which is wrong"
        )
        return
    critique = text[section.start : best.start].strip()
    for step in range(section.first, min(section.last, expect.steps + 1) + 1):
        verdicts[step] = _verdict(step, best, critique, text, tokens, notes)


def _verdict(step: int, best: _VerdictBox, critique: str, text: str, tokens: Tokens, notes: list[str]) -> Verdict:
    value = best.value
    assert value is not None
    chance: float | None = None
    if tokens.logprobs:
        pair = YES_NO if value_of(text[best.word : best.end].split("}")[0], VERDICT) is None else CORRECT_INCORRECT
        chance, note = tokens.p_correct(best.word, pair)
        if note and note not in notes:
            notes.append(note)
    return Verdict(step, value, critique, chance, (best.start, best.end))


def _last(text: str, section: _Section, expect: Expect) -> _VerdictBox | None:
    """The judge's own last verdict in the section.

    A truncated reply may have been heading for another verdict. Text that also occurs in the trajectory may be the start of a
    quotation, and in the section that was being written a verdict must be labelled as one.
    """
    pure = [box for box in section.boxes if box.pure]
    if expect.cut:
        writing = section.end == len(text)
        pure = [box for box in pure if box.labelled or not writing]
        pure = [box for box in pure if text[box.end : box.end + 1] in ("", "\r", "\n")]
        pure = [box for box in pure if not occurs(text[box.start : box.end], expect.quotable)]
    if not pure and not expect.cut:
        # Verdicts within prose count if they end their line and nothing in the section contradicts them.
        values = {box.value for box in section.boxes} | section.asides
        pure = section.boxes if len(values) == 1 else []
    if not pure:
        return None
    last = own(text, [(box.start, box.end, box.value) for box in pure], expect.quotable)
    return pure[last] if last is not None else replace(pure[-1], doubtful=True)


def _word_line(text: str, section: _Section, expect: Expect) -> _VerdictBox | None:
    """A line that consists only of a verdict word; labelled ("Verdict: correct") is preferred over bare ("Wrong.")."""
    if expect.cut and section.end == len(text):
        return None
    bare: _VerdictBox | None = None
    end = section.end
    while end > section.start:
        start = max(text.rfind("\n", section.start, end) + 1, section.start)
        line = text[start:end]
        if 0 < len(line) <= 120 and not _WHOLE.search(line):
            label = _LABEL.match(line)
            word = start + (label.end() if label else 0)
            value = value_of(text[word:end], VERDICT)
            if not label and line.lstrip()[:1] in ('"', "“"):
                value = None
            if value is not None and not copied(text, start, end, expect.quotable):
                if label:
                    return _VerdictBox(value, start, end, word, True, True)
                bare = bare or _VerdictBox(value, start, end, _first_letter(text, word), True, False)
        end = start - 1
    return bare


def _first_letter(text: str, start: int) -> int:
    while start < len(text) and not text[start].isalnum():
        start += 1
    return start


def _in_order(
    text: str, sections: list[_Section], expect: Expect, tokens: Tokens, verdicts: dict[int, Verdict], notes: list[str]
) -> None:
    """Parse a reply without headings: its verdicts are assigned to the steps in order, unless there are more verdicts than
    steps."""
    boxes = [box for section in sections for box in section.boxes if box.pure]
    if not boxes or any(box.value is None for box in boxes) or len(boxes) > expect.steps:
        if len(boxes) > expect.steps:
            notes.append(f"{len(boxes)} verdicts without headings for {expect.steps} steps")
        return
    notes.append("no headings: verdicts are taken in order")
    start = 0
    for step, box in enumerate(boxes):
        verdicts[step] = _verdict(step, box, text[start : box.start].strip(), text, tokens, notes)
        start = box.end
