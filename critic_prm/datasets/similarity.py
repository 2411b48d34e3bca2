"""Compare texts: shingles, MinHash signatures of near duplicates, and an index of benchmark problems."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from critic_prm.data.hashing import problem_key
from critic_prm.datasets.decontaminate import DecontaminateOptions
from critic_prm.datasets.words import masked, words

Hashes: TypeAlias = npt.NDArray[np.uint64]
"""64-bit hashes of shingles, sorted and unique."""
Sign = Literal["same text", "renamed", "near", "contained", "shared passage"]

SHINGLE = 3
"""Words per shingle."""
PASSAGE = 10
"""Consecutive words that two unrelated problems do not share, unless they are a set phrase."""
LONG_ENOUGH = 15
"""Shorter problems (in masked words) occur within others by chance."""


def shingles(tokens: Sequence[str], size: int) -> Hashes:
    """Sorted unique hashes of all runs of `size` words; a shorter text is one run. Shape (up to len(tokens),)."""
    hashed = np.fromiter(map(_hash, tokens), np.uint64, len(tokens))
    return np.unique(_runs(hashed, size))


def _runs(hashed: Hashes, size: int) -> Hashes:
    size = max(1, min(size, len(hashed)))
    count = max(0, len(hashed) - size + 1)
    runs = np.zeros(count, np.uint64)
    for start in range(size):
        runs = runs * np.uint64(0x9E3779B97F4A7C15) + hashed[start : start + count]
    # the splitmix64 finalizer: without it the low bits of neighbouring runs are correlated
    runs = (runs ^ (runs >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    runs = (runs ^ (runs >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return runs ^ (runs >> np.uint64(31))


@lru_cache(maxsize=1 << 18)
def _hash(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


SIZE = 128
"""Hashes per signature. The similarity estimate has a standard error of at most 0.045, and 0.027 at 0.9."""


def signature(hashes: Hashes) -> npt.NDArray[np.uint32]:
    """The MinHash signature of a text's shingles, shape (128,); all ones bits for a text without shingles."""
    if not len(hashes):
        return np.full(SIZE, 2**32 - 1, np.uint32)
    factors, offsets = _family()
    lowest = np.full((SIZE, 1), 2**64 - 1, np.uint64)
    for start in range(0, len(hashes), 256):  # a block at a time stays in the CPU cache
        lowest = np.minimum(lowest, (hashes[start : start + 256] * factors + offsets).min(axis=1, keepdims=True))
    return (lowest[:, 0] >> np.uint64(32)).astype(np.uint32)


@cache
def _family() -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """The multipliers (odd) and offsets of the hash functions, from a fixed seed; shape (128, 1) each."""
    rng = np.random.Generator(np.random.PCG64(20240229))
    factors = rng.integers(0, 2**63, (SIZE, 1), dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    return factors, rng.integers(0, 2**64, (SIZE, 1), dtype=np.uint64)


def similarity(one: npt.NDArray[np.uint32], other: npt.NDArray[np.uint32]) -> float:
    """The estimated Jaccard similarity of two texts: the fraction of equal hashes in their signatures, from 0 to 1."""
    return float((one == other).mean())


def bands(threshold: float) -> tuple[int, int]:
    """(bands, rows per band): the most rows per band at which a pair with similarity `threshold` is found with 99%
    probability."""
    fitting = [(SIZE // rows, rows) for rows in range(1, 17) if 1 - (1 - threshold**rows) ** (SIZE // rows) >= 0.99]
    return fitting[-1] if fitting else (SIZE, 1)


@dataclass(slots=True)
class Signatures:
    """The signatures of all rows, in order; 512 bytes per row."""

    _all: array[int] = field(default_factory=lambda: array("I"))

    def add(self, hashes: Hashes) -> None:
        """Append the signature of a row's shingles."""
        self._all.frombytes(signature(hashes).tobytes())

    def table(self) -> npt.NDArray[np.uint32]:
        """The signatures as an array of shape (rows, 128)."""
        return np.frombuffer(self._all, np.uint32).reshape(-1, SIZE)


def neighbours(table: npt.NDArray[np.uint32], threshold: float) -> Iterator[tuple[int, list[int]]]:
    """For each row that shares a band with earlier rows, yield its number and theirs, in order. `table` has
    shape (rows, 128)."""
    count, size = bands(threshold)
    shared = np.zeros((len(table), count), np.int32)  # the bucket of each row in each band, 0 if no other row shares it
    used = 1
    for band in range(count):
        keys = np.ascontiguousarray(table[:, band * size : (band + 1) * size]).view(f"V{4 * size}").ravel()
        _, place, inverse, sizes = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        numbers = np.where(sizes > 1, np.arange(len(place)) + used, 0)
        shared[:, band] = numbers[inverse]
        used += len(place)
    buckets: dict[int, list[int]] = {}
    for row in np.flatnonzero(shared.any(axis=1)).tolist():
        near: set[int] = set()
        for bucket in shared[row].tolist():
            if bucket:
                members = buckets.setdefault(bucket, [])
                near.update(members)
                # the first 64 members of a bucket are enough to recognize further near duplicates
                if len(members) < 64:
                    members.append(row)
        if near:
            yield row, sorted(near)


@dataclass(frozen=True, slots=True)
class Match:
    """Why a problem matches the benchmark: the sign, the number of the benchmark's problem, and the similarity (0 to 1)."""

    sign: Sign
    number: int
    similarity: float


class Benchmark:
    """An index of the problems of one or more benchmarks, about 1 KB per problem.

    Numbers, names and single letters are masked before comparison, so that problems with changed names and numbers are found.
    Shingles are weighted by their rarity in the benchmark, so set phrases ("find the remainder when") count little. With the
    option `literal` nothing is masked: if all problems of a benchmark share one template, masking would match every problem of
    that template.
    """

    def __init__(self, problems: Iterable[str], options: DecontaminateOptions | None = None) -> None:
        self._options = options or DecontaminateOptions()
        self._forms = words if self._options.literal else masked
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
        if jaccard[best] >= self._options.near:
            return Match("near", best, round(float(jaccard[best]), 3))
        inner = np.where(self._lengths >= LONG_ENOUGH, shared / self._weights, 0.0)
        if len(mask) >= LONG_ENOUGH:
            inner = np.maximum(inner, shared / total)
        best = int(inner.argmax())
        return Match("contained", best, round(float(inner[best]), 3)) if inner[best] >= self._options.contained else None

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
            if covered[best] >= self._options.passage
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
