"""Features of what a step says and how confidently, and what it copies from the problem and earlier steps."""

from __future__ import annotations

from distill.features.scan import Scan

KINDS = {
    "doubt": (
        "wait mistake error wrong incorrect actually however but instead reconsider recheck correction oops sorry unfortunately"
    ),
    "hedge": (
        "approximately about roughly around maybe perhaps probably likely seems appears estimate might could assume "
        "assuming suppose"
    ),
    "sure": "clearly obviously must always never certainly exactly only definitely necessarily trivially",
    "therefore": "therefore thus hence so consequently implies conclude means",
    "because": "because since given due as",
    "follows": "then next now first second third finally lastly",
    "plan": "need let find determine want consider start begin try use using apply",
    "given": "given know known problem question states told according",
    "calculate": (
        "calculate compute multiply divide add subtract sum product difference times plus minus divided multiplied adding total"
    ),
    "algebra": (
        "equation equations substitute substituting simplify simplifying solve solving factor expand expanding rewrite "
        "rearrange variable"
    ),
    "count": "ways choose number possible arrangements combinations permutations cases case count counting choices",
    "geometry": (
        "triangle angle circle radius area side length perpendicular parallel point line segment square rectangle midpoint"
    ),
    "prove": "prove proof contradiction induction theorem lemma property inequality holds satisfies condition conditions",
    "extreme": "maximum minimum maximize minimize largest smallest greatest least most optimal bound",
    "chance": "probability random expected average mean ratio percent percentage rate fraction",
    "money": "dollars cost price pay money cents buy sell earn profit discount",
    "time": "hours minutes days week weeks year years day hour per speed distance",
    "negation": "not no cannot none neither without never impossible",
    "all": "all every each any both total entire whole",
    "if": "if when whether otherwise unless either or",
    "answer": "answer final boxed conclusion result",
    "check": "check verify verification confirm satisfy substituting indeed",
    "pattern": "pattern observe notice note recall similarly symmetry symmetric analyze recognize",
    "more": "more less than fewer remaining left rest extra after before",
    "we": "we us our let",
    "i": "i my me",
    "he": "he she they his her their him",
}
_KINDS = {word: index for index, words in reversed(list(enumerate(KINDS.values()))) for word in words.split()}

NAMES = (
    *(f"says_{kind}" for kind in KINDS), "copies_problem", "copies_previous", "copies_earlier", "new_words", "new_word_share",
    "nearest_earlier", "problem_covered", "long_words", "distinct_share", "doubt_before", "new_words_before",
)  # fmt: skip
RECENT = 8


class Wording:
    """Tracks the words of one solution; `step` returns NAMES for the next step."""

    def __init__(self, problem: Scan) -> None:
        self.problem = {w for w in problem.words if len(w) > 3}
        self.covered: set[str] = set()
        self.earlier: set[str] = set()
        self.recent: list[set[str]] = []
        self.doubt = self.fresh = 0

    def step(self, scan: Scan) -> tuple[float, ...]:
        counts = [0.0] * len(KINDS)
        for word in scan.words:
            kind = _KINDS.get(word)
            if kind is not None:
                counts[kind] += 1
        content = {w for w in scan.words if len(w) > 3}
        n = len(content) or 1
        fresh = content - self.earlier - self.problem
        self.covered |= content & self.problem
        nearest = max((len(content & old) / (len(content | old) or 1) for old in self.recent), default=0.0)
        row = (
            *counts, len(content & self.problem) / n, len(content & self.recent[-1]) / n if self.recent else -1.0,
            len(content & self.earlier) / n, float(len(fresh)), len(fresh) / n, nearest,
            len(self.covered) / (len(self.problem) or 1), sum(map(len, content)) / n, len(content) / (len(scan.words) or 1),
            float(self.doubt), float(self.fresh),
        )  # fmt: skip
        self.doubt += int(counts[0])
        self.fresh += len(fresh)
        self.earlier |= content
        self.recent = [*self.recent[1 - RECENT :], content]
        return row
