"""Merge token sequences into a tree that stores shared prefixes once, and group sequences into packs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]
Places = NDArray[np.int64]

SHARED = 16
"""Minimum length of a shared prefix in tokens: below it, an additional segment costs more than computing the tokens again."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of tokens that belongs to one or several sequences: `start` to `stop` among the tokens of the tree.

    Its first token is at position `offset` of its sequences; `parent` is the index of the preceding segment, -1 for none.
    """

    start: int
    stop: int
    offset: int
    parent: int


@dataclass(frozen=True, slots=True)
class TokenTree:
    """A prefix tree of token sequences.

    `ids` and `positions` (tokens,) hold all segments one after another, each after its parent. `places[n]` holds the indices of
    the tokens of sequence n among them.
    """

    ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    segments: tuple[Segment, ...]
    places: tuple[Places, ...]

    def line(self, number: int) -> list[Segment]:
        """Return the ancestors of segment `number`, from the root on."""
        line: list[Segment] = []
        parent = self.segments[number].parent
        while parent >= 0:
            line.append(self.segments[parent])
            parent = self.segments[parent].parent
        return line[::-1]


def grow(sequences: Sequence[Ids], *, offset: int = 0, least: int = SHARED) -> TokenTree:
    """Build the tree of `sequences`, whose first tokens are at position `offset`.

    Prefixes shorter than `least` are not shared.
    """
    order = sort(sequences)
    common = shared([sequences[n] for n in order])
    segments: list[Segment] = []
    parts: list[Ids] = []
    places: list[Places] = [np.empty(0, dtype=np.int64)] * len(sequences)
    size = 0
    # (first, last + 1, depth, parent, places so far): ranges of the sorted sequences that agree up to `depth`.
    waiting: list[tuple[int, int, int, int, Places]] = [(0, len(order), 0, -1, np.empty(0, dtype=np.int64))] if order else []
    while waiting:
        first, end, depth, parent, before = waiting.pop()
        ids = sequences[order[first]]
        alone = end - first == 1
        reach = len(ids) if alone else int(min(common[first + 1 : end]))
        if reach > depth and (alone or reach - depth >= least):
            segments.append(Segment(size, size + reach - depth, offset + depth, parent))
            parts.append(ids[depth:reach])
            before = np.concatenate([before, np.arange(size, size + reach - depth)])
            size, depth, parent = size + reach - depth, reach, len(segments) - 1
        if alone:
            places[order[first]] = before
            continue
        cuts = [first, *(n for n in range(first + 1, end) if common[n] == reach), end]
        waiting += [(a, b, depth, parent, before) for a, b in zip(cuts[-2::-1], cuts[:0:-1], strict=True)]
    positions = [np.arange(s.offset, s.offset + s.stop - s.start) for s in segments]
    return TokenTree(_joined(parts), _joined(positions), tuple(segments), tuple(places))


def sort(sequences: Sequence[Ids]) -> list[int]:
    """Return the indices of the sequences in lexicographic order of their tokens, so that shared prefixes are adjacent."""
    keys = [ids.astype(">u4").tobytes() for ids in sequences]
    return sorted(range(len(keys)), key=keys.__getitem__)


def shared(sequences: Sequence[Ids]) -> list[int]:
    """Return the length of the prefix that each sequence shares with the previous one; 0 for the first."""
    return [0, *(overlap(a, b) for a, b in pairwise(sequences))] if sequences else []


def overlap(a: Ids, b: Ids) -> int:
    """Return the length of the common prefix of two sequences."""
    least = min(len(a), len(b))
    differ = a[:least] != b[:least]
    return int(differ.argmax()) if differ.any() else least


def packs(sequences: Sequence[Ids], tokens: int, least: int = SHARED) -> list[list[int]]:
    """Group the indices of the sequences so that the tree of each group has about `tokens` tokens, or one sequence.

    If at least half of a sequence is shared, its group may grow to four times that size, since splitting it would compute the
    shared part twice.
    """
    order = sort(sequences)
    groups: list[list[int]] = []
    size = 0
    for number, common in zip(order, shared([sequences[n] for n in order]), strict=True):
        length = len(sequences[number])
        common = common if common >= least else 0
        room = tokens * 4 if 2 * common >= length else tokens
        if groups and size + length - common <= room:
            groups[-1].append(number)
            size += length - common
        else:
            groups.append([number])
            size = length
    return groups


def _joined(parts: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    return np.concatenate(parts).astype(np.int64) if parts else np.empty(0, dtype=np.int64)
