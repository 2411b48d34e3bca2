"""Hash byte and word n-grams of texts into sparse count matrices, over whole batches in numpy."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

_WORD = re.compile(r"[a-z]+|\\[a-z]+|\d+(?:\.\d+)?|[^\sa-z\d]")
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def char_grams(texts: Sequence[str], orders: Sequence[int], bits: int, salt: int) -> Any:
    """Count byte n-grams of each order in `orders`, hashed into 2**bits columns: a CSR matrix (len(texts), 2**bits)."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    codes = np.frombuffer(b"".join(encoded), dtype=np.uint8).astype(np.uint64)
    return _rolled(codes, [len(e) for e in encoded], orders, bits, salt)


def word_grams(texts: Sequence[Sequence[int]], orders: Sequence[int], bits: int, salt: int) -> Any:
    """Count n-grams of word codes (see `words`) in the same way as `char_grams`."""
    lengths = [len(t) for t in texts]
    codes = np.fromiter((code for text in texts for code in text), dtype=np.uint64, count=sum(lengths))
    return _rolled(codes, lengths, orders, bits, salt)


def words(text: str) -> list[int]:
    """Split a text into words as stable codes.

    Words are lower-cased, all numbers of the same length share a code, and symbols stand on their own.
    """
    return [_code(word) for word in _WORD.findall(text.lower())]


@lru_cache(maxsize=65536)
def _code(word: str) -> int:
    if word[0].isdigit():
        word = "0" * min(len(word), 4)
    return zlib.crc32(word.encode("utf-8", "surrogatepass"))


def _rolled(codes: NDArray[np.uint64], lengths: Sequence[int], orders: Sequence[int], bits: int, salt: int) -> Any:
    from scipy.sparse import csr_matrix

    lens = np.asarray(lengths, dtype=np.int64)
    ends = np.cumsum(lens)
    owner = np.repeat(np.arange(len(lens)), lens)
    shift = np.uint64(64 - bits)
    columns, rows = [], []
    rolling = np.full(len(codes), salt + 1, dtype=np.uint64)
    position = np.arange(len(codes))
    with np.errstate(over="ignore"):
        for order in range(1, max(orders) + 1):
            # rolling[i] hashes codes[i : i + order]; positions whose n-gram would cross the end of their text are dropped.
            reach = position + order - 1
            alive = reach < (ends[owner] if len(owner) else 0)
            position, owner, rolling, reach = position[alive], owner[alive], rolling[alive], reach[alive]
            rolling = (rolling ^ (codes[reach] + np.uint64(order))) * _MULTIPLIER
            rolling ^= rolling >> np.uint64(29)
            if order in orders:
                columns.append(((rolling * _MULTIPLIER) >> shift).astype(np.int32))
                rows.append(owner.astype(np.int32))
    column, row = np.concatenate(columns), np.concatenate(rows)
    matrix = csr_matrix((np.ones(len(column), dtype=np.float32), (row, column)), shape=(len(lens), 1 << bits))
    matrix.sum_duplicates()
    return matrix
