"""A problem's text in, its split out: from the text alone, so the same problem is always on the same side."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence

from critic_prm.errors import UsageError

SPLITS = ("train", "dev", "test")

_LATEX = re.compile(r"\\[\[\]()]|\\(?:left|right|text|mathrm|mathbf)")


def problem_key(problem: str) -> str:
    """What two spellings of one problem share: 32 hex digits over its letters, digits and brackets, without case.

    Sources copy each other's problems with other spaces, quotes, dollar signs and LaTeX delimiters; all of that is dropped.
    Angle, square and round brackets stay, because there are problems made of nothing else. Two problems that fall together here
    only end up on the same side of a split, which harms nothing; one problem on both sides would inflate every figure.
    """
    text = _LATEX.sub("", unicodedata.normalize("NFKC", problem).casefold())
    kept = "".join(c for c in text if c.isalnum() or c in "<>[]()")
    return hashlib.sha256((kept or text).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def unit(*parts: object) -> float:
    """A number in [0, 1) that depends on `parts` alone: the one source of chance in a training set."""
    digest = hashlib.sha256("\x00".join(map(str, parts)).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def split_of(key: str, shares: Sequence[float], seed: int) -> str:
    """The split of the problem with this key: "train", "dev" or "test", with probability `shares`, which sum to 1."""
    u, edge = unit("split", seed, key), 0.0
    for name, share in zip(SPLITS, shares, strict=True):
        edge += share
        if u < edge:
            return name
    return max(zip(shares, SPLITS, strict=True))[1]  # the shares' rounding error left u just above their sum


def check_shares(shares: Sequence[float]) -> None:
    """Raises UsageError unless these are three shares that sum to 1, with something to train on."""
    if len(shares) != 3 or any(not 0 <= s <= 1 for s in shares) or abs(sum(shares) - 1) > 1e-9 or not shares[0]:
        shown = ",".join(f"{s:g}" for s in shares)
        raise UsageError(
            f"the split is {shown}; it needs three shares for train, dev and test that sum to 1, such as 0.9,0.05,0.05"
        )


def parse_shares(text: str) -> tuple[float, float, float]:
    """Read "0.9,0.05,0.05". Raises UsageError for anything that is not three shares that sum to 1."""
    try:
        shares = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"the split is {text!r}; it needs three numbers, such as 0.9,0.05,0.05") from None
    check_shares(shares)
    train, dev, test = shares
    return train, dev, test
