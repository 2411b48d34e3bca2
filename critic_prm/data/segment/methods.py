"""Split the text of a solution into steps: at lines, paragraphs, numbers and bullets, sentences, or turning points.

A step is a part of the text, unchanged; only the white space between steps is left out. Every method takes time linear in the
length of the text, also for megabytes of one character: patterns are possessive, and none can start within its own match.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise, takewhile

from critic_prm.data.segment.protected import BLOCKS, Span, outside, protected
from critic_prm.data.trajectory import line_starts

SHORTEST, LONGEST = 120, 1200
"""Length of a segment of a reasoning trace, in characters. The last segment and a block of code may be shorter or longer."""

TURNS, TRACE = 3, 1500
"""A text without <think> that has this many turning points and characters is a reasoning trace."""

WRAPPED = 0.4
"""Share of line breaks within sentences above which a text is wrapped prose, and its lines are not steps."""

LUMP = 5
"""Number of sentences in one of only two pieces from which on a division is too coarse."""

Piece = tuple[int, int]
"""Start and end of a part of a text, without the white space around it."""


def segment(text: str, method: str = "auto") -> tuple[list[str], str]:
    """The steps of a text and the method used: one of `METHODS`, "none" for one step, or "auto" to choose by what is there."""
    whole = Text(text)
    used = whole.best() if method == "auto" else method
    pieces = whole.pieces(()) if used == "none" else METHODS[used](whole)
    return [text[start:end] for start, end in pieces], used


def units(text: str) -> list[Piece]:
    """The smallest parts that a step may consist of: sentences and lines."""
    whole = Text(text)
    return whole.pieces(sorted({*whole.lines(), *whole.sentences()}))


class Text:
    """A text, and the places where it may be cut."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def spans(self) -> list[Span]:
        return protected(self.text)

    @cached_property
    def _blocks(self) -> Mapping[int, Span]:
        return {span.start: span for span in self.spans if span.kind in BLOCKS}

    @cached_property
    def _block_ends(self) -> frozenset[int]:
        return frozenset(span.end for span in self.spans if span.kind in BLOCKS)

    def lines(self) -> Iterator[int]:
        """The start of each line."""
        return line_starts(self.text)

    def paragraphs(self) -> Iterator[int]:
        """The start of each paragraph after the first."""
        return (gap.end() for gap in _BLANK_LINE.finditer(self.text))

    def sentences(self) -> Iterator[int]:
        """The start of each sentence, paragraph and list item after the first."""
        last = 0
        for mark in _SENTENCE_END.finditer(self.text):
            if mark["point"] is None or self._ends_sentence(mark, last):
                last = mark.end()
                yield last

    def _ends_sentence(self, mark: re.Match[str], start: int) -> bool:
        """Whether a sentence that began at `start` ends with this point, which white space follows."""
        if _SENTENCE_START.match(self.text, mark.end()) is None:
            return False
        if mark["point"] != ".":
            return True
        at = mark.start()
        if at - start <= 12 and _ITEM_NUMBER.fullmatch(self.text, start, at):
            return False
        return _ABBREVIATION.search(self.text, max(start, at - 10), at) is None

    def pieces(self, cuts: Iterable[int]) -> list[Piece]:
        """The parts of the text between cuts, without those inside of what is never cut."""
        places = [0, *(cut for cut in outside(cuts, self.spans) if cut), len(self.text)]
        parts = (self._stripped(start, end) for start, end in pairwise(places))
        return [(start, end) for start, end in parts if end > start]

    def _stripped(self, start: int, end: int) -> Piece:
        part = self.text[start:end].lstrip()
        return end - len(part), end - len(part) + len(part.rstrip())

    def joined(self, pieces: Iterable[Piece]) -> list[Piece]:
        """The pieces as steps: a heading, or text that ends with a colon, is joined to what follows; a displayed formula or a
        table to what precedes it."""
        steps: list[Piece] = []
        introduces = False
        for piece in pieces:
            if steps and (introduces or self._belongs(piece, steps[-1])):
                steps[-1] = steps[-1][0], piece[1]
            else:
                steps.append(piece)
            introduces = self.introduces(piece)
        return steps

    def _belongs(self, piece: Piece, before: Piece) -> bool:
        """Whether this piece belongs to the step before it."""
        start, end = piece
        if block := self._blocks.get(start):
            return block.kind != "code" or not _COMPLETE.search(self.text, max(before[0], before[1] - 8), before[1])
        if _EQUATION.match(self.text, start) or (before[1] in self._block_ends and _CONTINUES.match(self.text, start)):
            return True
        return end - start <= 80 and bool(
            _CLOSING_TAG.fullmatch(self.text, start, end) or not _WORD.search(self.text, start, end)
        )

    def introduces(self, piece: Piece) -> bool:
        """Whether this piece needs what follows it: a heading, an opening tag, an interjection, text that ends with a colon."""
        start, end = piece
        return end - start <= 200 and bool(self.text[end - 1] in ":：" or _HEADING.fullmatch(self.text, start, end))

    def best(self) -> str:
        """The method that fits the text."""
        if _THINK.search(self.text) or self._is_trace():
            return "thoughts"
        if _numbers(self):
            return "numbered"
        paragraphs, lines = _paragraphs(self), _lines(self)
        if _bullets(self):
            return "numbered"
        by_line = len(lines) > 1 and not self._is_wrapped()
        if len(paragraphs) > 1 and not (by_line and len(paragraphs) <= 3 and len(lines) >= 3 * len(paragraphs)):
            return "sentences" if self._is_coarse(paragraphs) else "paragraphs"
        return "lines" if by_line and not self._is_coarse(lines) else "sentences"

    def _is_trace(self) -> bool:
        if len(self.text) < TRACE:
            return False
        turns = sum(_TURN.match(self.text, place) is not None for place in {0, *self.lines(), *self.sentences()})
        return turns >= TURNS

    def _is_wrapped(self) -> bool:
        """Whether lines end within sentences, because they were filled up to a width."""
        breaks = wrapped = 0
        for place in outside(self.lines(), self.spans):
            line_end = self.text.rfind("\n", 0, place)
            near_block = place in self._blocks or line_end in self._block_ends
            if line_end > 0 and not near_block and not self.text[place : place + 1].isspace():
                breaks += 1
                wrapped += self.text[place : place + 1].islower() and self.text[line_end - 1] not in ".!?:;。！？："
        return wrapped > WRAPPED * breaks

    def _is_coarse(self, pieces: Sequence[Piece]) -> bool:
        """Whether one of only two pieces is a long text, so that its sentences are the steps."""
        if len(pieces) > 2:
            return False
        return any(len(_sentences(Text(self.text[start:end]))) >= LUMP for start, end in pieces)


def _lines(whole: Text) -> list[Piece]:
    return whole.joined(whole.pieces(whole.lines()))


def _paragraphs(whole: Text) -> list[Piece]:
    return whole.joined(whole.pieces(whole.paragraphs()))


def _sentences(whole: Text) -> list[Piece]:
    return whole.joined(whole.pieces(whole.sentences()))


def _numbered(whole: Text) -> list[Piece]:
    """The items of a numbered list ("Step 1:", "1.", "(1)"), else of a list with bullets, else the whole text."""
    if not (marks := _numbers(whole)):
        return whole.joined(whole.pieces(_bullets(whole)))
    first, last = marks[0], marks[-1]
    items = whole.pieces(marks)
    lead = [piece for piece in items if piece[0] < first]
    if lead and whole.introduces(lead[0]):
        items[:2] = [(lead[0][0], items[1][1])]
    starts = set(marks)
    if not any(first < cut < last and cut not in starts for cut in whole.paragraphs()):
        # where every item is one paragraph, what follows the last one is no part of it
        tail = whole.pieces([last, *(cut for cut in whole.paragraphs() if cut > last)])
        items[-1:] = whole.joined(piece for piece in tail if piece[0] >= items[-1][0])
    return items


def _numbers(whole: Text) -> list[int]:
    """Where the items of a numbered list start: marks of one kind that count up from 0 or 1; none for fewer than two."""
    found: dict[str, list[re.Match[str]]] = {}
    for place in outside(whole.lines(), whole.spans):
        if mark := _NUMBER.match(whole.text, place):
            found.setdefault(next(name for name, value in mark.groupdict().items() if name != "indent" and value), []).append(
                mark
            )
    for kind, marks in found.items():
        if len(starts := _counting((mark.start(), _as_number(mark[kind])) for mark in _outermost(marks))) > 1 and (
            kind == "step" or _leads(whole, starts)
        ):
            return starts
    for pattern in _INLINE_NUMBERS:
        inline = ((mark.start(), int(mark[1])) for mark in pattern.finditer(whole.text))
        if len(starts := list(outside(_counting(inline), whole.spans))) > 1:
            return starts
    return []


def _outermost(marks: Sequence[re.Match[str]]) -> list[re.Match[str]]:
    """The marks that are not indented below others."""
    least = min((len(mark[1]) for mark in marks), default=0)
    return [mark for mark in marks if len(mark[1]) <= least + 1]


def _leads(whole: Text, starts: Sequence[int]) -> bool:
    """Whether a list is what the text consists of, rather than a part of one of its steps: few lines precede it."""
    before = sum(
        _FLUSH.match(whole.text, place) is not None for place in takewhile(lambda place: place < starts[0], whole.lines())
    )
    return before <= len(starts)


def _counting(marks: Iterable[tuple[int, int]]) -> list[int]:
    """The places whose numbers count up from 0 or 1. A list that starts again at 1 is a further list."""
    starts: list[int] = []
    expected: int | None = None
    for place, number in marks:
        if number == expected or (expected is None and number in (0, 1)) or (number == 1 and expected and expected > 2):
            starts.append(place)
            expected = number + 1
    return starts


def _as_number(text: str) -> int:
    """The value of an Arabic, Chinese (up to 99) or circled number."""
    if text.isdecimal():
        return int(text)
    if "①" <= text <= "⑳":
        return ord(text) - ord("①") + 1
    tens, ten, ones = text.rpartition("十")
    return (10 * (_CHINESE.find(tens) if tens else 1) if ten else 0) + max(_CHINESE.find(ones), 0) if ones else 10


def _bullets(whole: Text) -> list[int]:
    """Where list items and the paragraphs around them start; none for fewer than two items, or fewer than other lines."""
    places = [place for place in outside(whole.lines(), whole.spans) if _FLUSH.match(whole.text, place)]
    marks = [mark for place in places if (mark := _BULLET.match(whole.text, place))]
    items = [mark.start() for mark in _outermost(marks)]
    if len(items) < max(2, len(places) - len(marks)):
        return []
    unindented = (cut for cut in whole.paragraphs() if whole.text[cut - 1] == "\n")
    return sorted({*items, *unindented})


def _thoughts(whole: Text) -> list[Piece]:
    """The thoughts, each from one turning point to the next, then the steps of the answer after </think>."""
    text = whole.text
    if not text.strip():
        return []
    opened, closed = _THINK.search(text), text.rfind("</think")
    start = opened.end() if opened and not opened[1] else 0
    end = closed if closed >= start else len(text)
    after = text.find(">", end) + 1 if end < len(text) else end
    begin = opened.start() if opened and not opened[1] else 0
    pieces = [(a + start, b + start) for a, b in _segments(Text(text[start:end]))] or [(start, end)]
    pieces[0] = (begin if start else pieces[0][0]), pieces[0][1]
    pieces[-1] = pieces[-1][0], max(after, pieces[-1][1])
    before = Text(text[:begin]).pieces(())
    answer = Text(text[after:])
    used = answer.best()
    steps = METHODS["sentences" if used == "thoughts" else used](answer)
    return [*before, *pieces, *((a + after, b + after) for a, b in steps)]


def _segments(whole: Text) -> list[Piece]:
    """The parts between turning points, of `SHORTEST` to `LONGEST` characters where paragraphs and sentences allow that."""
    paragraphs = set(whole.paragraphs())
    cuts, start, paragraph, sentence = list[int](), 0, 0, 0
    for place in [*outside(sorted({*whole.lines(), *whole.sentences()}), whole.spans), len(whole.text)]:
        while place - start > LONGEST and (best := paragraph if paragraph - start >= SHORTEST else sentence) > start:
            cuts.append(best)
            start = best
        if place - start >= SHORTEST and _TURN.match(whole.text, place):
            cuts.append(place)
            start = place
        sentence, paragraph = place, place if place in paragraphs else paragraph
    return whole.pieces(cuts)


METHODS: Mapping[str, Callable[[Text], list[Piece]]] = {
    "lines": _lines,
    "paragraphs": _paragraphs,
    "numbered": _numbered,
    "sentences": _sentences,
    "thoughts": _thoughts,
}
"""The methods by name."""

_WORD = re.compile(r"\w")
_BLANK_LINE = re.compile(r"\n[ \t\r]*+\n\s*+")
_HEADING = re.compile(
    r"#{1,6}[ \t]++[^\W\d][^\n]*+|\*\*[^\n*]++\*\*|<[A-Za-z]\w*+>"
    r"|(?:(?:all )?right|ok(?:ay)?|yes|sure|correct|great|good|exactly|alright|perfect|that's (?:right|correct|true))[.!]",
    re.IGNORECASE,
)
_CLOSING_TAG = re.compile(r"</\w++>")
_COMPLETE = re.compile(r"[.!?。！？][\"')\]*_”’]*\Z")
_CONTINUES = re.compile(r"[a-z,;.)，；。]")
_EQUATION = re.compile(r"[=≈≤≥](?!=*>)")
_THINK = re.compile(r"<(/?)think(?:ing)?>")

_CHINESE = "零一二三四五六七八九"
_NUMBER = re.compile(
    r"(?P<indent>[ \t]*+)(?:>[ \t])?(?:#{1,6}[ \t]*+)?(?:\*\*|__)?(?:"
    r"(?:[Ss]tep|STEP|步骤|步驟|ステップ|단계|Schritt|[ÉEée]tape|Paso|Passo|Шаг)[ \t]*+"
    r"(?P<step>\d{1,9}+|[一二三四五六七八九十]{1,3}+)"
    r"(?=[ \t]*+(?:[:.)*_：、．–—-]|\r?\n|\Z))"
    r"|第[ \t]?(?P<nth>\d{1,9}+|[一二三四五六七八九十]{1,3}+)[ \t]?步"
    r"|(?P<point>\d{1,9}+)(?:\.[ \t\r\n*]|[、．])"
    r"|(?P<bracket>\d{1,9}+)\)[ \t]"
    r"|[(（](?P<brackets>\d{1,9}+)[)）]"
    r"|(?P<circled>[①-⑳])"
    r")"
)
_INLINE_NUMBERS = (re.compile(r"(?<!\S)[Ss]tep (\d{1,3}):"), re.compile(r"(?<!\S)(?<![=+*/<>-] )(\d{1,2})[.)] (?=\S)"))
_FLUSH = re.compile(r"[ \t]{0,3}[^ \t\r\n]")
_BULLET = re.compile(r"([ \t]*+)(?:>[ \t])?[-*•▪●○◦‣·–—][ \t]")

# Words that begin a sentence even where the one before it has no full stop: "so it is 2*60 = 120 Then he ..."
_FIRST_WORDS = (
    "So|Therefore|Thus|Hence|Then|Now|Next|Finally|Since|Because|The|This|That|These|There|He|She|They|We|It|If|In|On|For|To|From|By"
    "|After|Each|Let|Let's|When|However|Also|And|But|Using|Adding|Subtracting|Multiplying|Dividing|Substituting"
)
_SENTENCE_END = re.compile(
    r"(?P<blank>\n[ \t\r]*+\n\s*+)"
    r"|\n(?=[ \t]{0,20}(?:[-*•–][ \t]|\(?\d{1,3}[.)][ \t]|#{1,6}[ \t]))"
    r"|(?<![.!?])(?P<point>[.!?]++)(?:['\")\]}*_’”»$]|\\[)\]])*+\s++"
    r"|[。！？]++[”’」』）)》\"]*+\s*+"
    rf"|(?<=[\w)\]}}$%>])\s++(?=(?:{_FIRST_WORDS})[ ,]|####|A: )"
    r"|(?<=[\d)\]}$%>])\s++(?=[A-Z][a-z'’]+[ ,]|[AI] )"
)
_SENTENCE_START = re.compile(r"[\"'“‘(\[*_]*+(?:[^\Wa-z_]|[$\\<√π∠△-]|#|[a-z][ \t]?[=<>^(]|[a-z]\))")
_ITEM_NUMBER = re.compile(r"\s*+(?:[(*#]*+)(?:\d{1,3}|[A-Za-z]|[Ss]tep \d{1,3})")
_ABBREVIATION = re.compile(
    r"(?<!\w)(?:e\.g|i\.e|vs|cf|approx|resp|w\.r\.t|Mrs?|Ms|Dr|Prof|St|Figs?|Eqs?|Sec|Ch|Thm|Lem|Prop|Def)\Z"
)

_TURN = re.compile(
    r"[ \t]{0,20}+(?:(?:oh|hmm+|but|so|and|ok|okay|no|well|ah)[,.]?\s)?(?:"
    r"(?:wait|hmm+|hold on|alternatively|actually|on second thought|another (?:way|approach|method|idea|thought)"
    r"|(?:let me|let's|let us|i'll|i should|we should|to) (?:just )?"
    r"(?:double[- ]?check|check|verify|re\w+|think|try|confirm|test|see)"
    r"|is (?:that|this|it) (?:right|correct)|maybe (?:i|we|there)|no,|that (?:can't|cannot|doesn't|isn't))\b"
    r"|等等|等一下|不对|或者|另外|让我|换个|再检查|再看)",
    re.IGNORECASE,
)
