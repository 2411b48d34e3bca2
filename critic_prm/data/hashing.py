"""Hash problem texts for deduplication, and assign problems to train, dev and test splits."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence

from critic_prm.errors import UsageError

SPLITS = ("train", "dev", "test")

_LATEX = re.compile(r"\\[\[\]()]|\\(?:left|right|text|mathrm|mathbf)")
_DROPPED = re.compile(r"[^\w<>\[\]()]|_")


def problem_key(problem: str) -> str:
    """Key shared by spelling variants of one problem: 32 hex digits over its letters, digits and brackets, ignoring case.

    Sources copy each other's problems with different spaces, quotes, dollar signs and LaTeX delimiters; all of these are
    dropped. Angle, square and round brackets are kept because some problems consist of nothing else. If two different problems
    share a key, they only end up in the same split, which is harmless; one problem in two splits would inflate every metric.
    """
    text = _LATEX.sub("", unicodedata.normalize("NFKC", problem).casefold())
    kept = _DROPPED.sub("", text)
    return hashlib.sha256((kept or text).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def unit(*parts: object) -> float:
    """Pseudorandom number in [0, 1) that depends only on `parts`. All randomness in a training set comes from here."""
    digest = hashlib.sha256("\x00".join(map(str, parts)).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def split_of(key: str, shares: Sequence[float], seed: int) -> str:
    """The split ("train", "dev" or "test") of the problem with this key, with probabilities `shares` that sum to 1. The split
    depends only on the key and the seed, so equal problems are always in the same split."""
    u, edge = unit("split", seed, key), 0.0
    for name, share in zip(SPLITS, shares, strict=True):
        edge += share
        if u < edge:
            return name
    return max(zip(shares, SPLITS, strict=True))[1]  # rounding of the shares left u just above their sum


def check_shares(shares: Sequence[float]) -> None:
    """Check that `shares` are three shares that sum to 1, with a train share above 0. Raises UsageError otherwise."""
    if len(shares) != 3 or any(not 0 <= s <= 1 for s in shares) or abs(sum(shares) - 1) > 1e-9 or not shares[0]:
        shown = ",".join(f"{s:g}" for s in shares)
        raise UsageError(
            f"the split is {shown}; it needs three shares for train, dev and test that sum to 1, such as 0.9,0.05,0.05"
        )


def parse_shares(text: str) -> tuple[float, float, float]:
    """Parse "0.9,0.05,0.05". Raises UsageError unless the text holds three shares that sum to 1."""
    try:
        shares = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"the split is {text!r}; it needs three numbers, such as 0.9,0.05,0.05") from None
    check_shares(shares)
    train, dev, test = shares
    return train, dev, test
