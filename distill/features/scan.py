"""Tokenize a text once for all feature trackers."""

from __future__ import annotations

import re
from dataclasses import dataclass

_MARK = re.compile(r"^\s*(?:\*\*|#+\s*)?(?:step\s*\d+\s*[:.)]*|\d+[.)](?!\d))(?:\*\*)?\s*", re.IGNORECASE)
_TOKEN = re.compile(r"\\[a-zA-Z]+|\\[()\[\]{}!,;: %$|]|[a-zA-Z]+|\d+(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+|<=|>=|_|[^\s\w]")
_SPOKEN = {
    "one": 1.0, "two": 2.0, "three": 3.0, "four": 4.0, "five": 5.0, "six": 6.0, "seven": 7.0, "eight": 8.0, "nine": 9.0,
    "ten": 10.0, "eleven": 11.0, "twelve": 12.0, "twenty": 20.0, "thirty": 30.0, "forty": 40.0, "fifty": 50.0,
    "hundred": 100.0, "thousand": 1000.0, "half": 0.5, "twice": 2.0, "double": 2.0, "triple": 3.0, "third": 3.0,
    "quarter": 0.25, "dozen": 12.0, "both": 2.0, "pair": 2.0, "week": 7.0, "hour": 60.0, "minute": 60.0, "year": 12.0,
    "day": 24.0,
}  # fmt: skip
LONGEST, LARGEST = 4000, 1e15
"""Maximum characters of a text that are read, and the largest number. Steps are untrusted input; genuine ones are shorter."""


@dataclass(frozen=True, slots=True)
class Scan:
    """`text` without its step mark, `tokens` in order with their case, `words` in lower case, `numbers` as (token, value)."""

    text: str
    marked: bool
    tokens: list[str]
    words: list[str]
    numbers: list[tuple[str, float]]


def scan(text: str, *, spoken: bool = False) -> Scan:
    """Scan a text. With `spoken`, number words also count as numbers (for problems, since a solution may use them)."""
    mark = _MARK.match(text)
    body = text[mark.end() if mark else 0 :][:LONGEST]
    tokens = _TOKEN.findall(body)
    words, numbers = [], []
    for token in tokens:
        first = token[0]
        if first.isalpha():
            if len(token) > 1 or token in "aI":
                words.append(token.lower())
        elif first.isdecimal() or (first == "." and len(token) > 1):
            numbers.append((token, min(float(token.replace(",", "")), LARGEST)))
    if spoken:
        numbers.extend((word, _SPOKEN[word]) for word in words if word in _SPOKEN)
    return Scan(body, mark is not None, tokens, words, numbers)
