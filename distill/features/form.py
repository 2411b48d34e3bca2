"""Features of how a step is written: length, layout, LaTeX, symbols and letters, also relative to earlier steps."""

from __future__ import annotations

from collections import Counter
from math import log

from distill.features.scan import Scan

SYMBOLS = {
    "equals": ("=",), "compares": ("<", ">", "\\leq", "\\geq", "\\le", "\\ge", "\\neq", "\\lt", "\\gt", "≤", "≥", "≠"),
    "about": ("≈", "\\approx", "~", "\\sim"), "adds": ("+",), "subtracts": ("-", "−", "–"),
    "multiplies": ("*", "×", "\\times", "\\cdot", "·"), "divides": ("/", "÷", "\\div", "\\frac", "\\dfrac", "\\tfrac"),
    "powers": ("^", "²", "³"), "roots": ("\\sqrt", "√"), "sums": ("\\sum", "\\int", "\\prod", "\\lim", "∑", "∫"),
    "modular": ("\\pmod", "\\equiv", "\\mod", "≡", "\\mid"), "dots": ("\\cdots", "\\dots", "\\ldots", "…"),
    "shapes": ("\\angle", "\\triangle", "\\overline", "\\circ", "\\perp", "\\parallel", "°", "∠", "△"),
    "trig": ("\\sin", "\\cos", "\\tan", "\\log", "\\ln", "\\theta", "\\pi", "π"),
    "binomial": ("\\binom", "\\choose", "!"), "sets": ("\\in", "\\cup", "\\cap", "\\mathbb", "\\subset", "\\{", "|"),
    "implies": ("\\implies", "\\Rightarrow", "\\rightarrow", "\\to", "⇒", "→"), "percent": ("%", "\\%"), "money": ("\\$",),
    "dollar": ("$",), "inline": ("\\(",), "display": ("\\[",), "aligned": ("&",), "text": ("\\text", "\\mathrm", "\\textbf"),
    "boxed": ("\\boxed",), "asks": ("?",), "emphasis": ("*",), "colon": (":",), "quotes": ('"',), "commas": (",",),
    "brackets": ("(",),
}  # fmt: skip
_SYMBOLS = {symbol: index for index, symbols in reversed(list(enumerate(SYMBOLS.values()))) for symbol in symbols}

NAMES = (
    *(f"has_{name}" for name in SYMBOLS), "chars", "words", "lines", "sentences", "tokens", "latex_share", "symbol_share",
    "digit_share", "word_length", "capital_share", "letters", "new_letters", "marked", "ends_colon", "ends_dot", "ends_math",
    "bullets", "index", "chars_before", "mean_before", "against_mean", "previous_chars", "previous_equals", "equals_before",
    "equals_rate_before", "shortest_before", "longest_before", "letters_before", "math_before", "boxed_before",
    "problem_chars", "problem_words", "problem_latex", "problem_sentences", "problem_letters", "problem_choices",
    "problem_asks", "problem_math",
)  # fmt: skip


class Form:
    """Tracks the form of one solution; `step` returns NAMES for the next step."""

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
        counts = [0.0] * len(SYMBOLS)
        for token, times in Counter(tokens).items():
            at = _SYMBOLS.get(token)
            if at is not None:
                counts[at] += times
        n, size = len(tokens) or 1, len(text) or 1
        latex = sum(t[0] == "\\" for t in tokens)
        letters = {t for t in tokens if len(t) == 1 and t.isalpha() and t not in "aI"}
        new = letters - self.letters
        plain = text.rstrip()
        end = plain[-1:] if plain else ""
        mean = self.chars / self.index if self.index else 0.0
        row = (
            *counts, log(size), float(len(scan.words)), float(text.count("\n")), float(text.count(". ") + text.count(".\n")),
            float(len(tokens)), latex / n, 1 - (len(scan.words) + len(scan.numbers)) / n,
            sum(len(t) for t, _ in scan.numbers) / size, sum(map(len, scan.words)) / (len(scan.words) or 1),
            sum(map(str.isupper, text[:400])) / min(size, 400), float(len(letters)), float(len(new)), float(scan.marked),
            float(end == ":"), float(end == "."), float(end in ")]$}"), float(text.count("\n-") + text.count("\n*")),
            float(self.index), log(1 + self.chars), mean, log(size / mean) if mean else 0.0, float(self.previous),
            float(self.previous_equals), float(self.equals), self.equals / (self.index or 1),
            float(self.shortest if self.index else 0), float(self.longest), float(len(self.letters)),
            self.math / (self.index or 1), float(self.boxed), *self.problem,
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
