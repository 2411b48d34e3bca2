r"""Read critiques followed by the index of the first error, or -1, in \boxed{}."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from critic_prm.data.judgement import Verdict
from critic_prm.providers.provider import TokenLogprob
from critic_prm.styles.quotes import DOUBTFUL, copied, introduced, occurs, own
from critic_prm.styles.reader import Expect, Reading, settle
from critic_prm.styles.readers._patterns import OPEN, TAIL, begin, ends, last_heading, parts, plain

_NUMBER = r"(?:paragraph|step|index)?[ \t_\\#:]{0,4}(?P<number>[-−–－]?[ ]?\d{1,6})"
NONE = frozenset({"none", "no error", "no errors", "n/a", "无", "没有", "没有错误", "无错误", "無"})
"""Phrases that say there is no error."""

_BOX = re.compile(rf"{OPEN}(?P<word>[^{{}}\n]{{1,40}}+(?:\}}[ ]?[-−]?\d{{1,6}}+)?+){TAIL}")
_INDEX = re.compile(_NUMBER + r"[ \t.$\\]*", re.IGNORECASE)
_WRAP = r"[ \t$*_`(\[\\#>-]{0,10}"
# Phrases that identify the number as the requested index rather than a result of the problem.
_CUE = re.compile(
    r"\b(?:index|earliest|first (?:error|mistake|incorrect|wrong|erroneous|flaw\w*|faulty)|first \w+ (?:error|mistake)"
    r"|no (?:error|mistake|paragraph|step)s?|erroneous|errors?\b.{0,20}\b(?:in|at|is) (?:paragraph|step))|错误|索引|有误|无误",
    re.IGNORECASE,
)
# Phrases required before a box in a truncated reply, where the box may be an intermediate result.
_CONCLUDES = re.compile(
    r"\b(?:index|earliest|first (?:error|mistake|incorrect|wrong|erroneous|flaw\w*|faulty))\b[^\n]*\s*[^\n]*\Z", re.IGNORECASE
)
_ANSWER = re.compile(
    rf"{_WRAP}(?:(?:therefore|thus|so|hence)[, ]{{1,2}})?(?:(?:the|my|final) ){{0,2}}"
    rf"(?:answer|conclusion|result|verdict|output){_WRAP}(?:is|[:：=]|是|为)?{_WRAP}|{_WRAP}(?:最终)?(?:答案|结论)(?:是|为)?[:：]?{_WRAP}",
    re.IGNORECASE,
)
_NOTHING = re.compile(_WRAP)
_LAST_LINE = re.compile(
    rf"(?P<lead>.{{0,160}}?(?:\bis|\bin|\bat|[:：=]|是|为))[ \t$*_`(\[#]{{0,10}}{_NUMBER}[ \t$*_`.。)\]]*", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class _IndexBox:
    """An index found in the text; `index` is None for a box whose content is not an index."""

    index: int | None
    start: int
    end: int
    word: str


def read(text: str, expect: Expect, logprobs: tuple[TokenLogprob, ...] = ()) -> Reading:
    r"""Parse the index of the first error, counted from `expect.base`; -1 means no error. Linear in the length of `text`.

    The index is the last box that is alone on its line or whose line says that it is the index, with no further section after
    it; or, without a box, a last line such as "Index: 2". A box in a critique (a quoted result) or copied from the trajectory
    does not count. By definition of the index, the steps before the error are correct. Log-probabilities are not used: they
    belong to a number, not to a step.
    """
    boxed = _boxed(text, expect)
    # A box that names no step is a result from the problem; only the last box is kept even if it names no step.
    boxed = [box for box in boxed[:-1] if _names(box.index, expect)] + boxed[-1:]
    if boxed and not text[boxed[-1].end :].strip() and not introduced(text, boxed[-1].start):
        # The conclusion was requested at the end of the reply; earlier boxes may hold results.
        boxed = boxed[-1:]
    last = own(text, [(box.start, box.end, box.index) for box in boxed], expect.quotable)
    if last is None:
        return Reading("unparseable", (), (DOUBTFUL,))
    answer = boxed[last] if boxed else _last_line(text, expect)
    if answer is None:
        return Reading("unparseable", (), ("no index was found",))
    if answer.index is None:
        return Reading("unparseable", (), (f"{plain(answer.word)[:40]!r} is not an index",))
    error = -1 if answer.index == -1 else answer.index - expect.base
    if not _names(answer.index, expect):
        numbers = f"{expect.base} to {expect.base + expect.steps - 1}"
        return Reading("unparseable", (), (f"the index {answer.index} names no step; they are {numbers}",))
    critiques = parts(text, answer.start, expect.base)
    if not critiques and error >= 0:
        critiques = {error: text[: answer.start].strip()}
    span = (answer.start, answer.end)
    upto = expect.steps if error < 0 else error + 1
    verdicts = {
        step: Verdict(step, "incorrect" if step == error else "correct", critiques.get(step, ""), None, span)
        for step in range(upto)
        if expect.step in (None, step)
    }
    # The index implies that judging ended at the error, whether or not the style asks for that.
    if error >= 0 and not expect.stops and expect.step is None:
        expect = Expect(expect.steps, expect.base, True, None, expect.quotable, expect.cut)
    return settle(verdicts, expect)


def write(verdicts: Sequence[Verdict], expect: Expect) -> str:
    """Write a reply with these verdicts, for `read`. The index determines the verdict of steps without a critique."""
    sections = [f"Paragraph {v.step + expect.base}: {v.critique.strip()}" for v in verdicts if v.critique.strip()]
    first = next((verdict.step + expect.base for verdict in verdicts if verdict.value == "incorrect"), -1)
    return "\n\n".join([*sections, f"\\boxed{{{first}}}"])


def _names(index: int | None, expect: Expect) -> bool:
    """Whether an index names a step, or is -1 (no error)."""
    return index is not None and (index == -1 or 0 <= index - expect.base < expect.steps)


def _boxed(text: str, expect: Expect) -> list[_IndexBox]:
    """The boxes that may be conclusions, up to 64, in order."""
    boxes = list(_BOX.finditer(text))
    kept: list[_IndexBox] = []
    if not boxes:
        return kept
    ending = last_heading(text)
    closing = _start_of_last_lines(text)
    for place in range(len(boxes) - 1, max(-1, len(boxes) - 65), -1):
        box = boxes[place]
        opening = begin(text, box.start())
        if opening is None:
            continue
        start = text.rfind("\n", 0, opening) + 1
        lead = text[max(start, opening - 200) : opening]
        stop = text.find("\n", box.end())
        after = text[box.end() : len(text) if stop < 0 else stop]
        cue = _CUE.search(lead) is not None
        alone = (_NOTHING.fullmatch(lead) or _ANSWER.fullmatch(lead)) is not None and not after.strip()
        index = _index(box.group("word"))
        answered = start >= closing and (not after.strip() or _ANSWER.fullmatch(lead) is not None)
        if not (alone or cue or answered) or _in_quotes(lead):
            continue
        if index is None and not (alone and start >= closing):
            continue
        if box.end() <= ending and not cue:
            break
        before = text[max(0, start - 200) : start]
        if expect.cut and not (alone and ends(before) and _CONCLUDES.search(before + lead)):
            continue
        if _is_copy(text, box, start if alone else opening, alone, start >= closing, expect):
            continue
        kept.insert(0, _IndexBox(index, start if alone else opening, box.end(), box.group("word")))
    return kept


def _is_copy(text: str, box: re.Match[str], start: int, alone: bool, closing: bool, expect: Expect) -> bool:
    if not expect.quotable or not occurs(box.group(), expect.quotable):
        return False
    if expect.cut:
        return True
    if not closing and (not alone or introduced(text, start)):
        return True
    return copied(text, start, box.end(), expect.quotable)


def _last_line(text: str, expect: Expect) -> _IndexBox | None:
    """An index without a box, in the last line: "The index of the earliest error is 2"."""
    if expect.cut:
        return None
    body = text.rstrip()
    start = body.rfind("\n") + 1
    line = body[start:]
    if len(line) > 300:
        return None
    match = _LAST_LINE.fullmatch(line)
    if match is None or not (_CUE.search(match.group("lead")) or _ANSWER.fullmatch(match.group("lead"))):
        return None
    if copied(body, start, len(body), expect.quotable) or occurs(line, expect.quotable):
        return None
    return _IndexBox(_index(match.group("number")), start, len(body), match.group("number"))


def _index(word: str) -> int | None:
    match = _INDEX.fullmatch(word.replace("}", "").strip())
    if match:
        digits = match.group("number").replace(" ", "")
        return int(digits) if digits[0].isdigit() else -int(digits[1:])
    return -1 if plain(word) in NONE else None


def _in_quotes(lead: str) -> bool:
    return lead.count('"') % 2 == 1 or lead.count("“") > lead.count("”") or lead.lstrip().startswith(">")


def _start_of_last_lines(text: str) -> int:
    """The start of the last two non-blank lines."""
    end = len(text.rstrip())
    for _ in range(2):
        end = len(text[:end].rstrip()) if end < 4096 else end
        end = text.rfind("\n", 0, end)
        if end < 0:
            return 0
    return end + 1
