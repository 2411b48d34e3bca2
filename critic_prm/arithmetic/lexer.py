"""Tokenize arithmetic in text, including LaTeX, currency and Unicode notation."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

Value: TypeAlias = int | Fraction | float

SPOKEN = 1
"""The `value` of an operator or relation that was written as a word."""
MAX_DIGITS = 60
"""Maximum number of digits; longer strings are not treated as numbers."""


class Token(NamedTuple):
    """One token. `kind` is a letter:

    n number, o operator, r relation, w word, v letter (a variable), f function (frac, sqrt, binom), ( and ) brackets, b
    boundary between clauses, l end of a line, x anything that makes its surroundings unreadable.
    """

    kind: str
    text: str
    start: int
    end: int
    tight: bool
    """Whether nothing, not even a space, precedes the token."""
    value: Value = 0
    places: int = 0
    """Decimal places as written; -1 for a Unicode fraction such as ½."""


WORDS: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))


def words(name: str) -> frozenset[str]:
    """Return one of the word lists of words.toml."""
    return frozenset(WORDS["words"][name].split())


def _symbols(section: str) -> dict[str, str]:
    """Map every spelling of a section of words.toml to its symbol."""
    return {spelling: symbol for symbol, spellings in WORDS[section].items() for spelling in spellings.split()}


_RELATIONS, _OPERATORS, _FUNCTIONS = _symbols("relations"), _symbols("operators"), _symbols("functions")
_COMMANDS = {name: frozenset(listing.split()) for name, listing in WORDS["commands"].items()}
_SILENT, _HUGGING, _ARROWS = _COMMANDS["silent"] | {"\\ "}, _COMMANDS["hugging"], _COMMANDS["arrows"]
_LETTERS = _COMMANDS["letters"]
_SUPERSCRIPT = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
_OPEN, _CLOSE = {"(": "(", "[": "(", "{": "(", "\\{": "(", "（": "("}, {")", "]", "}", "\\}", "）"}

_TOKEN = re.compile(
    r"""[ \t\u00a0\u2009\u202f~]*(?:
   (?P<ordinal>\d+(?:st|nd|rd|th)\b)
  |(?P<clock>\d+(?::\d+)+|\d+(?:\.\d+)?(?:[ ]:[ ]|:)(?=\d)|\d+\s?(?:[ap]\.?m\b\.?|o'clock)|\d+(?:\.\d+){2,})
  |(?P<choose>\d{1,3}C\d{1,3}\b)
  |(?P<root>sqrt(?=[ ]?\())
  |(?P<number>(?:\d{1,3}(?:(?:,|\{,\}|\\,|,\\!)\d{3})+(?![\d])|\d+)(?:\.\d+)?(?:[eE][+-]?\d{1,4}(?!\w))?|\.\d+)
  |(?P<vulgar>[½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞])
  |(?P<superscript>[⁰¹²³⁴⁵⁶⁷⁸⁹]+)
  |(?P<degree>\^\s*\{?\s*\\circ\s*\}?|°|\\degree|\\circ)
  |(?P<label>\\(?:text|mathrm|mbox|textbf|textit|operatorname|textrm)\s*\{[^{}]{0,80}\}(?:\^\{?[23]\}?)?)
  |(?P<dots>\.\.\.+|…|\\[lcv]?dots[bc]?|\\overline|\\bar)
  |(?P<line>\n|\$\$|\\[\[\]]|\\\\(?:\[[^\]\n]{0,9}\])?)
  |(?P<arrow>[=-]+>|<[=-]+>|<-|→|⇒|⟹|⇔|∴|↔|\|\||&&)
  |(?P<calculator><<[^<>]{0,120}>>)
  |(?P<odd>[+\-*/]=|<<+|>>+|\\[pm]{2}|±|[=<>]/|≡|∝|\\equiv|\\cong|\\sim|\\pmod|\\bmod|\\mod|\\propto|={3,})
  |(?P<relation>==|:=|&=|!=|<=|>=|[=<>≤≥≠≈≃≅])
  |(?P<stars>\*\*+)
  |(?P<equals>(?<!or[ ])(?:is[ ]|are[ ])?equals?(?:[ ]to)?\b(?!-))
  |(?P<pi>π)
  |(?P<function>(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?|log|ln|exp|gcd|GCD|lcm|LCM|max|min|floor|ceil|mod|MOD|abs|det|round|nCr|nPr)(?![^\W\d_])
  |(?P<word>[^\W\d_π]\w*(?:(?<=_)\{[^{}\s]{1,12}\})?(?:[-'’][^\W\d_]\w*)*)
  |(?P<command>\\[A-Za-z]+|\\.)
  |(?P<money>[$€£¥₹])
  |(?P<sign>[-+−–*×·∗⋅•✕✖/÷∕⁄^%!√])
  |(?P<bracket>[()\[\]{}（）])
  |(?P<hash>\#+)
  |(?P<stop>[.,;?"“”`]|[:：，。；])
  |(?P<amp>&)
  |(?P<other>.))""",
    re.VERBOSE | re.DOTALL,
)


def lex(text: str) -> list[Token]:
    """Return all tokens of `text`, in order. Runs in linear time; spaces, `$` and LaTeX spacing produce no token.

    The content of calculator annotations (`<<3*4=12>>`) comes last, as separate clauses, so that the text around them stays
    intact.
    """
    tokens: list[Token] = []
    marks: list[tuple[int, str]] = []
    push, tight, closed, length = tokens.append, False, -1, len(text)
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        assert kind is not None
        start, end = match.span(kind)
        word = text[start:end]
        if start != match.start():
            tight = False
        if kind == "number":
            if end - start > MAX_DIGITS:
                push(Token("x", word, start, end, tight))
            else:
                value, places = _number(word)
                push(Token("n", word, start, end, tight, value, places))
        elif kind == "word":
            push(Token("v" if len(word) == 1 or not word.replace("-", "").isalpha() else "w", word, start, end, tight))
        elif kind == "sign":
            if word == "√":
                push(Token("f", "sqrt", start, end, tight))
            else:
                push(Token("o", _OPERATORS[word], start, end, tight))
        elif kind == "relation":
            if word == "!=" and tight and tokens and tokens[-1].kind in "n)":
                push(
                    Token("o", "!", start, start + 1, True)
                )  # 5!=120; `compare` considers whether 5!=6 was meant as "not equal"
                word = "="
            push(Token("r", _RELATIONS[word], start, end, tight))
        elif kind == "bracket":
            push(Token("(" if word in _OPEN else ")", word, start, end, tight))
        elif kind == "money":
            # Two dollar signs separated only by whitespace close one formula and open the next.
            if word == "$" and closed >= 0 and not text[closed:start].strip() and closed != start:
                push(Token("b", word, start, end, tight))
            closed, tight = end, False
            continue
        elif kind == "stop":
            if word == "," and tokens and start and end < length and text[start - 1].isdigit() and text[end].isdigit():
                push(Token("x", word, start, end, tight))
            else:
                push(Token("b", word, start, end, tight))
        elif kind == "command":
            if word == "\\)":
                closed = end
            elif word == "\\(" and closed >= 0 and not text[closed:start].strip():
                push(Token("b", word, start, end, tight))
            elif word == "\\(" and tokens and tokens[-1].text == "-" and closed == tokens[-1].start - 1:
                tokens[-1] = tokens[-1]._replace(kind="b")  # "\\(a\\) - \\(b\\)": a dash between list items
            _command(word, start, end, tight, push)
            if word in _SILENT:
                tight = tight and word in _HUGGING
                continue
        elif kind == "line":
            push(Token("l", "\n", start, end, tight))
        elif kind == "calculator":
            marks.append((start + 2, word[2:-2]))
            continue
        elif kind == "vulgar":
            push(Token("n", word, start, end, tight, Fraction(*WORDS["fractions"][word]), -1))
        elif kind == "superscript":
            push(Token("o", "^", start, start, True))
            push(Token("n", word, start, end, True, int(word.translate(_SUPERSCRIPT)[:9]), 0))
        elif kind == "root":
            push(Token("f", "sqrt", start, end, tight))
        elif kind == "choose":
            n, _, k = word.partition("C")
            push(Token("n", word, start, end, tight, math.comb(int(n), int(k))))
        elif kind == "dots" and tight and tokens and tokens[-1].kind == "n" and tokens[-1].places > 0:
            continue  # 0.333... is 0.333
        elif kind == "equals":
            push(Token("r" if word != "equal" else "w", "=", start, end, tight, SPOKEN))
        elif kind == "pi":
            push(Token("v", word, start, end, tight))
        elif kind in ("degree", "label", "ordinal"):
            push(Token("w", word, start, end, tight))
        elif kind == "arrow":
            push(Token("b", word, start, end, tight))
        elif kind == "stars":
            if (
                tokens
                and end < length
                and tight
                and not text[end].isspace()
                and tokens[-1].kind in "n)v"
                and text[end] in "0123456789(-"
            ):
                push(Token("o", "^", start, end, tight))
        elif kind == "hash":
            push(Token("b", word, start, end, tight))
        elif kind == "amp":
            tight = False
            continue
        else:
            push(Token("x", word, start, end, tight))
        tight = True
    for offset, inside in marks:
        push(Token("b", "<<", offset - 2, offset, False))
        tokens += [t._replace(start=t.start + offset, end=t.end + offset) for t in lex(inside)]
    return tokens


def _command(word: str, start: int, end: int, tight: bool, emit: Callable[[Token], None]) -> None:
    if word in _SILENT:
        return
    if word in _OPERATORS:
        emit(Token("o", _OPERATORS[word], start, end, tight))
    elif word in _RELATIONS:
        emit(Token("r", _RELATIONS[word], start, end, tight))
    elif word in _FUNCTIONS:
        emit(Token("f", _FUNCTIONS[word], start, end, tight))
    elif word in _OPEN or word in _CLOSE:
        emit(Token("(" if word in _OPEN else ")", word, start, end, tight))
    elif word in _ARROWS:
        emit(Token("b", word, start, end, tight))
    else:
        emit(Token("v" if word in _LETTERS else "x", word, start, end, tight))


def _number(word: str) -> tuple[Value, int]:
    """Return the value and the number of decimal places written."""
    digits = word
    if not word.isdigit():
        digits = re.sub(r"[,{}\\!]", "", word)
    if digits.isdigit():
        return int(digits), 0
    mantissa, _, exponent = digits.lower().partition("e")
    whole, _, part = mantissa.partition(".")
    shift = int(exponent or 0) - len(part)
    if abs(shift) > 300:
        return float("inf"), 0
    number = int(whole + part)
    return (
        Fraction(number, 10**-shift) if number % 10**-shift else number // 10**-shift
    ) if shift < 0 else number * 10**shift, max(0, -shift)
