"""Detect benchmark problems in other data: same text, renamed, near duplicate, contained or shared passage."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from critic_prm.data.hashing import problem_key
from critic_prm.datasets.words import Hashes, masked, shingles, words

Sign = Literal["same text", "renamed", "near", "contained", "shared passage"]

SHINGLE = 3
PASSAGE = 10
"""Consecutive words that two unrelated problems do not share, unless they are a set phrase."""
LONG_ENOUGH = 15
"""Shorter problems (in masked words) occur within others by chance."""


@dataclass(frozen=True, slots=True)
class Match:
    """Why a problem matches the benchmark: the sign, the number of the benchmark's problem, and the similarity (0 to 1)."""

    sign: Sign
    number: int
    similarity: float


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Thresholds of the three approximate signs."""

    near: float = 0.5
    """Minimum weighted Jaccard similarity of masked word 3-grams."""
    contained: float = 0.8
    """Minimum weighted fraction of one problem's masked 3-grams found in the other."""
    passage: float = 0.5
    """Minimum fraction of the shorter problem's words covered by shared runs of 10 words."""


class Benchmark:
    """An index of the problems of one or more benchmarks, about 1 KB per problem.

    Numbers, names and single letters are masked before comparison, so that problems with changed names and numbers are found.
    Shingles are weighted by their rarity in the benchmark, so set phrases ("find the remainder when") count little. With
    `literal` nothing is masked: if all problems of a benchmark share one template, masking would match every problem of that
    template.
    """

    def __init__(self, problems: Iterable[str], thresholds: Thresholds | None = None, *, literal: bool = False) -> None:
        self._thresholds = thresholds or Thresholds()
        self._forms = words if literal else masked
        self._keys: dict[str, int] = {}
        self._masked: dict[str, int] = {}
        sets: list[Hashes] = []
        passages: list[Hashes] = []
        lengths: list[int] = []
        for problem in problems:
            key = problem_key(problem)
            if key in self._keys:
                continue
            number = self._keys[key] = len(sets)
            mask = self._forms(problem)
            for form in (mask, self._forms(problem.casefold())):
                self._masked.setdefault(" ".join(form), number)
            sets.append(shingles(mask, SHINGLE))
            plain = words(problem)
            passages.append(shingles(plain, PASSAGE) if len(plain) >= PASSAGE else np.empty(0, np.uint64))
            lengths.append(len(mask))
        self._near = _Postings(sets)
        self._passages = _Postings(passages)
        self._lengths = np.array(lengths, np.int64)
        self._long = np.array([len(passage) + PASSAGE - 1 for passage in passages], np.int64)
        self._weights = np.array([self._near.weight(own).sum() for own in sets])

    def __len__(self) -> int:
        return len(self._lengths)

    def match(self, problem: str) -> Match | None:
        """The problem of the benchmark that matches, or None. The most reliable sign is tried first."""
        if (number := self._keys.get(problem_key(problem))) is not None:
            return Match("same text", number, 1.0)
        mask = self._forms(problem)
        for form in (
            mask,
            self._forms(problem.casefold()),
        ):  # the second form handles case changes along with changed numbers
            if (number := self._masked.get(" ".join(form))) is not None:
                return Match("renamed", number, 1.0)
        if not len(self):
            return None
        return self._alike(mask) or self._passage(problem)

    def _alike(self, mask: list[str]) -> Match | None:
        own = shingles(mask, SHINGLE)
        weight = self._near.weight(own)
        shared, total = self._near.shared(own, weight), weight.sum()
        jaccard = shared / (total + self._weights - shared)
        best = int(jaccard.argmax())
        if jaccard[best] >= self._thresholds.near:
            return Match("near", best, round(float(jaccard[best]), 3))
        inner = np.where(self._lengths >= LONG_ENOUGH, shared / self._weights, 0.0)
        if len(mask) >= LONG_ENOUGH:
            inner = np.maximum(inner, shared / total)
        best = int(inner.argmax())
        return Match("contained", best, round(float(inner[best]), 3)) if inner[best] >= self._thresholds.contained else None

    def _passage(self, problem: str) -> Match | None:
        plain = words(problem)
        if len(plain) < PASSAGE:
            return None
        runs = shingles(plain, PASSAGE)
        found = self._passages.shared(runs, np.ones(len(runs)))
        # k consecutive runs cover k + 9 words; runs that occur in many problems of the benchmark are set phrases
        own = self._passages.shared(runs, self._passages.weight(runs) / (np.log(len(self) + 1.0) + 0.01))
        covered = own * (1 + np.where(found > 0, (PASSAGE - 1) / found.clip(1), 0)) / np.minimum(self._long, len(plain)).clip(1)
        best = int(covered.argmax())
        return (
            Match("shared passage", best, min(1.0, round(float(covered[best]), 3)))
            if covered[best] >= self._thresholds.passage
            else None
        )


class _Postings:
    """Inverted index from shingles to texts: sorted hashes, with the text numbers of each."""

    def __init__(self, sets: list[Hashes]) -> None:
        self._texts = len(sets)
        every = np.concatenate(sets) if sets else np.empty(0, np.uint64)
        owner = np.repeat(np.arange(len(sets)), [len(own) for own in sets])
        order = np.argsort(every, kind="stable")
        self._owner = owner[order]
        self._hashes, self._start, self._count = np.unique(every[order], return_index=True, return_counts=True)

    def weight(self, hashes: Hashes) -> npt.NDArray[np.float64]:
        """The rarity of each shingle in natural log units; an unknown shingle counts like one that occurs in a single text."""
        place, there = self._find(hashes)
        count = np.ones(len(hashes))
        count[there] = self._count[place[there]]
        return np.log((self._texts + 1.0) / count) + 0.01

    def shared(self, hashes: Hashes, weight: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """For every text, the total weight of the shingles it shares with `hashes`; shape (texts,)."""
        place, there = self._find(hashes)
        place = place[there]
        count = self._count[place]
        if not count.sum():
            return np.zeros(self._texts)
        # concatenated postings of all shingles
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        texts = self._owner[np.repeat(self._start[place], count) + within]
        return np.bincount(texts, np.repeat(weight[there], count), self._texts).astype(np.float64, copy=False)

    def _find(self, hashes: Hashes) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
        place = np.searchsorted(self._hashes, hashes)
        there = place < len(self._hashes)
        there[there] = self._hashes[place[there]] == hashes[there]
        return place, there
