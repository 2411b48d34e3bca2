"""Features of how a step is written: its tokens, layout and words, and what it copies from the problem and earlier steps."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import log
from pathlib import Path
from typing import Any

WORDS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))
_MARK = re.compile(r"^\s*(?:\*\*|#+\s*)?(?:step\s*\d+\s*[:.)]*|\d+[.)](?!\d))(?:\*\*)?\s*", re.IGNORECASE)
_TOKEN = re.compile(r"\\[a-zA-Z]+|\\[()\[\]{}!,;: %$|]|[a-zA-Z]+|\d+(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+|<=|>=|_|[^\s\w]")
LONGEST, LARGEST = 4000, 1e15
"""Maximum characters of a text that are read, and the largest number. Steps are untrusted input; genuine ones are shorter."""


@dataclass(frozen=True, slots=True)
class Scan:
    """`text` without its step mark, `tokens` in order with their case and their `counts`, `words` in lower case, `numbers` as
    (token, value).
    """

    text: str
    marked: bool
    tokens: list[str]
    counts: Counter[str]
    words: list[str]
    numbers: list[tuple[str, float]]


def scan(text: str, *, spoken: bool = False) -> Scan:
    """Scan a text. With `spoken`, number words also count as numbers (for problems, since a solution may use them)."""
    mark = _MARK.match(text)
    body = text[mark.end() if mark else 0 :][:LONGEST]
    tokens = _TOKEN.findall(body)
    words = [token.lower() for token in tokens if token.isalpha() and (len(token) > 1 or token in "aI")]
    # The tokens that end in a digit are the numbers.
    numbers = [(token, min(float(token.replace(",", "")), LARGEST)) for token in tokens if token[-1].isdecimal()]
    if spoken:
        numbers.extend((word, float(WORDS["numbers"][word])) for word in words if word in WORDS["numbers"])
    return Scan(body, mark is not None, tokens, Counter(tokens), words, numbers)


def _columns(lists: Iterable[Iterable[str]]) -> dict[str, int]:
    """Map each entry to the number of the first list that holds it."""
    return {entry: index for index, entries in reversed(list(enumerate(lists))) for entry in entries}


_SYMBOLS = _columns(WORDS["symbols"].values())
_KINDS = _columns(words.split() for words in WORDS["words"].values())


def _sums(counts: Counter[str], columns: dict[str, int], size: int) -> list[float]:
    sums = [0.0] * size
    for entry in counts.keys() & columns.keys():
        sums[columns[entry]] += counts[entry]
    return sums


class Form:
    """Tracks the form of one solution: length, layout, LaTeX, symbols and letters."""

    NAMES = (
        *(f"has_{name}" for name in WORDS["symbols"]), "chars", "words", "lines", "sentences", "tokens", "latex_share",
        "symbol_share", "digit_share", "word_length", "capital_share", "letters", "new_letters", "marked", "ends_colon",
        "ends_dot", "ends_math", "bullets", "index", "chars_before", "mean_before", "against_mean", "previous_chars",
        "previous_equals", "equals_before", "equals_rate_before", "shortest_before", "longest_before", "letters_before",
        "math_before", "boxed_before", "problem_chars", "problem_words", "problem_latex", "problem_sentences",
        "problem_letters", "problem_choices", "problem_asks", "problem_math",
    )  # fmt: skip

    def __init__(self, problem: Scan) -> None:
        tokens = problem.tokens
        latex = sum(t[0] == "\\" for t in tokens)
        self.letters = {t for t in tokens if len(t) == 1 and t.isalpha() and t not in "aIA"}
        self.problem = (
            log(1 + len(problem.text)), float(len(problem.words)), latex / (len(tokens) or 1), float(problem.text.count(". ")),
            float(len(self.letters)), float("B:" in problem.text or "(B)" in problem.text or "B)" in problem.text),
            float("?" in problem.text), sum(not t.isalpha() for t in tokens) / (len(tokens) or 1),
        )  # fmt: skip
        self.index = self.chars = self.equals = self.previous = self.previous_equals = self.longest = self.math = self.boxed = 0
        self.shortest = 10_000

    def step(self, scan: Scan) -> tuple[float, ...]:
        tokens, text = scan.tokens, scan.text
        counts = _sums(scan.counts, _SYMBOLS, len(WORDS["symbols"]))
        n, size = len(tokens) or 1, len(text) or 1
        latex = sum([times for t, times in scan.counts.items() if t[0] == "\\"])
        letters = {t for t in scan.counts if len(t) == 1 and t.isalpha() and t not in "aI"}
        end = text.rstrip()[-1:]
        mean = self.chars / self.index if self.index else 0.0
        row = (
            *counts, log(size), float(len(scan.words)), float(text.count("\n")), float(text.count(". ") + text.count(".\n")),
            float(len(tokens)), latex / n, 1 - (len(scan.words) + len(scan.numbers)) / n,
            sum([len(t) for t, _ in scan.numbers]) / size, sum(map(len, scan.words)) / (len(scan.words) or 1),
            sum(map(str.isupper, text[:400])) / min(size, 400), float(len(letters)), float(len(letters - self.letters)),
            float(scan.marked), float(end == ":"), float(end == "."), float(end in ")]$}"),
            float(text.count("\n-") + text.count("\n*")), float(self.index), log(1 + self.chars), mean,
            log(size / mean) if mean else 0.0, float(self.previous), float(self.previous_equals), float(self.equals),
            self.equals / (self.index or 1), float(self.shortest if self.index else 0), float(self.longest),
            float(len(self.letters)), self.math / (self.index or 1), float(self.boxed), *self.problem,
        )  # fmt: skip
        self.index += 1
        self.chars += size
        self.equals += int(counts[0])
        self.previous, self.previous_equals = size, int(counts[0])
        self.longest, self.shortest = max(self.longest, size), min(self.shortest, size)
        self.math += counts[0] > 0
        self.boxed += counts[_SYMBOLS["\\boxed"]] > 0
        self.letters |= letters
        return row


RECENT = 8
"""Number of earlier steps that a step is compared with."""


class Wording:
    """Tracks the words of one solution: what a step says and how confidently, and what it copies."""

    NAMES = (
        *(f"says_{kind}" for kind in WORDS["words"]), "copies_problem", "copies_previous", "copies_earlier", "new_words",
        "new_word_share", "nearest_earlier", "problem_covered", "long_words", "distinct_share", "doubt_before",
        "new_words_before",
    )  # fmt: skip

    def __init__(self, problem: Scan) -> None:
        self.problem = {w for w in problem.words if len(w) > 3}
        self.covered: set[str] = set()
        self.earlier: set[str] = set()
        self.recent: list[set[str]] = []
        self.doubt = self.fresh = 0

    def step(self, scan: Scan) -> tuple[float, ...]:
        words = Counter(scan.words)
        counts = _sums(words, _KINDS, len(WORDS["words"]))
        content = {w for w in words if len(w) > 3}
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


class Novelty:
    """Tracks what one solution has stated: how much of a step is new, by token pairs that are not in the earlier text."""

    NAMES = (
        "new_pairs", "new_pair_share", "new_math_pairs", "new_math_share", "new_symbols", "math_tokens", "new_against_mean",
        "new_pairs_before", "most_new_before", "mean_new_before", "new_math_before", "problem_pairs",
    )  # fmt: skip

    def __init__(self, problem: Scan) -> None:
        self.symbols = set(problem.tokens)
        self.pairs = set(pairwise(problem.tokens))
        self.problem = len(self.pairs)
        self.new = self.most = self.steps = self.math = 0

    def step(self, scan: Scan) -> tuple[float, ...]:
        counts = scan.counts
        pairs = set(pairwise(scan.tokens))
        fresh = pairs - self.pairs
        plain = {t for t in counts if len(t) > 1 and t.isalpha()}
        prose = {pair for pair in pairs if pair[0] in plain and pair[1] in plain}
        symbols = counts.keys() - plain
        new, math, fresh_math = len(fresh), len(pairs) - len(prose), len(fresh - prose)
        mean = self.new / self.steps if self.steps else 0.0
        row = (
            log(1 + new), new / (len(pairs) or 1), float(fresh_math), fresh_math / (math or 1),
            float(len(symbols - self.symbols)), float(len(scan.tokens) - sum([counts[t] for t in plain])),
            log((1 + new) / mean) if mean else 0.0, log(1 + self.new), float(self.most), mean,
            float(self.math), float(self.problem),
        )  # fmt: skip
        self.pairs |= pairs
        self.symbols |= symbols
        self.new += new
        self.most = max(self.most, new)
        self.steps += 1
        self.math += fresh_math
        return row
