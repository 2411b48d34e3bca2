"""Assign problems to train, dev and test, such that small held-out splits hold erroneous and correct solutions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from critic_prm.data.hashing import SPLITS, split_of, unit

CLASSES = ("erroneous", "correct")
ENOUGH = 5
"""Problems of a class in a held-out split from which on chance alone is relied on."""


@dataclass(slots=True)
class Splits:
    """Collects the problems and the classes of their solutions, then assigns each problem to a split.

    A problem's split follows from a hash of its text and the seed (`split_of`), so rows added later move no problem. On small
    data, this can leave a split without a class. Then problems are moved, in an order that depends only on the seed and their
    texts, until train has a problem of each class, and dev and test have their share of each, rounded, but at least one and at
    most `ENOUGH`. With some hundred problems nothing is ever moved.
    """

    shares: Sequence[float]
    seed: int
    moved: dict[bytes, str] = field(default_factory=dict)
    """The problems that are not in the split of their hash, with their split."""
    _classes: dict[bytes, int] = field(default_factory=dict)

    def note(self, key: str, kind: str) -> None:
        """Add a solution of the problem with this key."""
        own = bytes.fromhex(key)
        self._classes[own] = self._classes.get(own, 0) | (1 << CLASSES.index(kind) if kind in CLASSES else 0)

    def of(self, key: str) -> str:
        """The split of a problem; final after `settle`."""
        return self.moved.get(bytes.fromhex(key)) or split_of(key, self.shares, self.seed)

    def settle(self) -> None:
        """Move problems where a split has too few of a class."""
        splits = [split for split, share in zip(SPLITS, self.shares, strict=True) if share]
        have = Counter((self.of(key.hex()), kind) for key, bits in self._classes.items() for kind in _names(bits))
        total = {kind: sum(have[split, kind] for split in SPLITS) for kind in CLASSES}
        need = {
            (split, kind): 1 if split == "train" else min(ENOUGH, max(1, round(share * total[kind])))
            for split, share in zip(SPLITS, self.shares, strict=True)
            for kind in CLASSES
            if share
        }
        if not all(total.values()) or all(have[place] >= wanted for place, wanted in need.items()):
            return
        parts: dict[str, dict[bytes, int]] = {split: {} for split in SPLITS}
        for key, bits in self._classes.items():
            parts[self.of(key.hex())][key] = bits
        for (target, kind), wanted in need.items():
            while have[target, kind] < wanted:
                move = self._move(parts, have, need, target, kind, splits)
                if move is None:
                    break
                giver, key = move
                bits = parts[target][key] = parts[giver].pop(key)
                for name in _names(bits):
                    have[giver, name] -= 1
                    have[target, name] += 1
                self.moved[key] = target

    def _move(
        self,
        parts: Mapping[str, Mapping[bytes, int]],
        have: Mapping[tuple[str, str], int],
        need: Mapping[tuple[str, str], int],
        target: str,
        kind: str,
        splits: Sequence[str],
    ) -> tuple[str, bytes] | None:
        """A problem of this class that another split can spare, with that split. The first splits are served first."""
        for floor in ("need", "none"):
            for giver in splits:
                if giver == target or (floor == "none" and (have[target, kind] or splits.index(giver) < splits.index(target))):
                    continue
                spare = {name: have[giver, name] > (need[giver, name] if floor == "need" else 0) for name in CLASSES}
                classes = ((key, _names(bits)) for key, bits in parts[giver].items())
                free = [key for key, names in classes if kind in names and all(spare[name] for name in names)]
                if free:
                    return giver, min(free, key=lambda key: unit("class", self.seed, key.hex()))
        return None


def _names(bits: int) -> tuple[str, ...]:
    return tuple(name for place, name in enumerate(CLASSES) if bits >> place & 1)
