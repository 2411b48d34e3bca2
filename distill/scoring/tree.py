"""Token sequences in, a tree of segments out in which what sequences begin with stands once; cut into packs of tokens."""

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
"""Tokens that sequences must have in common before these are computed once: a segment more costs more than a few tokens do."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of tokens of one or several sequences: places `start` to `stop` of the tree's tokens. Its first token is at
    position `offset` of its sequences; `parent` is the number of the segment before it, -1 for none."""

    start: int
    stop: int
    offset: int
    parent: int


@dataclass(frozen=True, slots=True)
class TokenTree:
    """`ids` and `positions` (tokens,): all segments one after another, each after its parent. `places[n]`: where among them the
    tokens of sequence number n are."""

    ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    segments: tuple[Segment, ...]
    places: tuple[Places, ...]

    def line(self, number: int) -> list[Segment]:
        """The segments before segment `number`, from the first on."""
        line: list[Segment] = []
        parent = self.segments[number].parent
        while parent >= 0:
            line.append(self.segments[parent])
            parent = self.segments[parent].parent
        return line[::-1]


def grow(sequences: Sequence[Ids], *, offset: int = 0, least: int = SHARED) -> TokenTree:
    """The tree of `sequences`, whose first tokens are at position `offset`. Beginnings shorter than `least` are not shared."""
    order = sort(sequences)
    common = shared([sequences[n] for n in order])
    segments: list[Segment] = []
    parts: list[Ids] = []
    places: list[Places] = [np.empty(0, dtype=np.int64)] * len(sequences)
    size = 0
    # (first, last + 1, depth, parent, places so far): groups of sequences, in sorted order, that agree up to `depth`.
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
    """The sequences' numbers in the order of their tokens, so that those which begin alike are neighbours."""
    keys = [ids.astype(">u4").tobytes() for ids in sequences]
    return sorted(range(len(keys)), key=keys.__getitem__)


def shared(sequences: Sequence[Ids]) -> list[int]:
    """How many tokens each sequence begins with that the one before begins with too; 0 for the first."""
    return [0, *(overlap(a, b) for a, b in pairwise(sequences))] if sequences else []


def overlap(a: Ids, b: Ids) -> int:
    """How many tokens two sequences have in common at their beginning."""
    least = min(len(a), len(b))
    differ = a[:least] != b[:least]
    return int(differ.argmax()) if differ.any() else least


def packs(sequences: Sequence[Ids], tokens: int, least: int = SHARED) -> list[list[int]]:
    """The sequences' numbers in groups whose trees have about `tokens` tokens, or one sequence.

    Sequences of which half or more is shared stay together up to four times as many: to part them is to compute it twice.
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
