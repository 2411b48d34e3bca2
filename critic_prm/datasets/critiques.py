"""Find critiques that are unsuitable for training: empty, short, copied from the step, or looping."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from critic_prm.datasets.words import words

COPIED = 0.8
"""A critique with at least this fraction of its word 3-grams in the step adds nothing of its own."""
LOOPING = 0.5
"""A critique with at least this fraction of repeated word 4-grams is looping."""

_SENTENCE = re.compile(r"[.!?\n]+\s*")


def fault(critique: str, step: str, shortest: int) -> str:
    """What is wrong with the critique of a step; "" if nothing. `shortest` is the minimum number of words."""
    said = words(critique) if critique.strip() else []
    if not said:
        return "empty critique"
    if len(said) < shortest:
        return "short critique"
    if loops(critique, said):
        return "looping critique"
    return "copied critique" if _copied(said, words(step)) else ""


def loops(critique: str, said: Sequence[str] | None = None) -> bool:
    """Whether a text repeats itself: half of its 4-grams are repeats (from 40 words on), or a sentence occurs four times."""
    said = words(critique) if said is None else said
    grams = _grams(said, 4)
    if len(said) >= 40 and 1 - len(set(grams)) / len(grams) >= LOOPING:
        return True
    sentences = Counter(part for part in (_plain(s) for s in _SENTENCE.split(critique)) if part.count(" ") >= 4)
    return bool(sentences) and sentences.most_common(1)[0][1] >= 4


def _copied(said: Sequence[str], step: Sequence[str]) -> bool:
    size = min(3, len(said))
    own, there = _grams(said, size), set(_grams(step, size))
    return sum(gram in there for gram in own) / len(own) >= COPIED


def _grams(tokens: Sequence[str], size: int) -> list[tuple[str, ...]]:
    return list(zip(*(tokens[start:] for start in range(size)), strict=False))


def _plain(sentence: str) -> str:
    return " ".join(sentence.casefold().split())
