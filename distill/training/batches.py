"""Batch encoded solutions and their targets as tensors, grouping rows of similar length to reduce padding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from distill.data import Row
from distill.layouts import Encoded
from distill.losses.loss import Targets

Indices = NDArray[np.int64]
WINDOW = 32
"""Optimizer steps whose rows are sorted by length together: enough to waste little padding, few enough to stay shuffled."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of right-padded tokens.

    `ids` is (rows, length). `mask` has the same shape, or is None if padding has no effect (a causal model). `at` (n,) holds
    the step ends as positions in the flattened `ids`. `lengths` holds the number of tokens of each row without padding.
    """

    ids: Tensor
    mask: Tensor | None
    at: Tensor
    lengths: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """The number of tokens without padding."""
        return sum(self.lengths)

    def to(self, device: torch.device) -> Batch:
        mask = None if self.mask is None else self.mask.to(device, non_blocking=True)
        return replace(self, ids=self.ids.to(device, non_blocking=True), mask=mask, at=self.at.to(device, non_blocking=True))


def plan(lengths: NDArray[Any], tokens: int, generator: np.random.Generator) -> list[Indices]:
    """Plan one epoch: each row once, in random order, in optimizer steps of at most `tokens` tokens.

    A row that is longer is a step of its own.
    """
    order = generator.permutation(len(lengths))
    window = max(1, round(WINDOW * tokens / max(1.0, float(np.mean(lengths)))))
    steps: list[Indices] = []
    for start in range(0, len(order), window):
        rows = order[start : start + window]
        rows = rows[np.argsort(lengths[rows], kind="stable")]
        reach = np.cumsum(lengths[rows])
        # Cut into equal sizes: in a last step of a few tokens, each of them would have many times the weight.
        cuts = np.searchsorted(
            reach, np.arange(1, -(-reach[-1] // tokens)) * (reach[-1] / -(-reach[-1] // tokens)), side="left"
        )
        steps += [part for part in np.split(rows, np.unique(cuts)) if len(part)]
    return [steps[n] for n in generator.permutation(len(steps))]


def micro(rows: Indices, lengths: NDArray[Any], tokens: int) -> list[Indices]:
    """Group rows into batches of at most `tokens` positions, including padding.

    The longest come first, so that running out of memory shows at once.
    """
    rows = rows[np.argsort(-lengths[rows], kind="stable")]
    out: list[Indices] = []
    start = 0
    while start < len(rows):
        count = max(1, tokens // max(1, int(lengths[rows[start]])))
        out.append(rows[start : start + count])
        start += count
    return out


def collate(encoded: Sequence[Encoded], pad: int, *, causal: bool) -> Batch:
    """Build one batch from the encoded solutions, in their order."""
    lengths = np.array([len(e.ids) for e in encoded], dtype=np.int64)
    width = int(lengths.max())
    ids = np.full((len(encoded), width), pad, dtype=np.int64)
    for row, e in zip(ids, encoded, strict=True):
        row[: len(e.ids)] = e.ids
    at = np.concatenate([e.ends.astype(np.int64) + n * width for n, e in enumerate(encoded)])
    whole = causal or int(lengths.min()) == width
    mask = None if whole else torch.from_numpy((np.arange(width) < lengths[:, None]).astype(np.int64))
    return Batch(torch.from_numpy(ids), mask, torch.from_numpy(at), tuple(lengths.tolist()))


@dataclass(frozen=True, slots=True)
class Packed:
    """The rows of a batch end to end, without padding.

    `ids` and `positions` are (1, tokens), `at` (n,) is as in `Batch`, and `spans` holds the start and end of each row.
    """

    ids: Tensor
    positions: Tensor
    at: Tensor
    spans: tuple[tuple[int, int], ...]


def pack(batch: Batch, align: int = 1) -> Packed:
    """Remove the padding of a batch, except for alignment.

    Each row's length is rounded up to a multiple of `align`, and the total to a multiple of four times that. The fill is token
    0, after each row and as a span of its own at the end, where no other token attends to it.
    """
    rows, width = batch.ids.shape
    lengths = np.array(batch.lengths, dtype=np.int64)
    size = -(-lengths // align) * align
    begin = np.concatenate([[0], np.cumsum(size)])
    whole = 4 * align if align > 1 else 1
    total = -(-int(begin[-1]) // whole) * whole
    spans = [(int(a), int(b)) for a, b in pairwise(begin)]
    if total > begin[-1]:
        spans.append((int(begin[-1]), total))
    positions = np.concatenate([np.arange(b - a) for a, b in spans])
    row = np.repeat(np.arange(rows), lengths)
    inside = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    ids = torch.zeros(total, dtype=torch.int64, device=batch.ids.device)
    ids[_on(batch, begin[row] + inside)] = batch.ids.flatten()[_on(batch, row * width + inside)]
    at = _on(batch, begin[:-1])[batch.at // width] + batch.at % width
    return Packed(ids[None], _on(batch, positions)[None], at, tuple(spans))


def _on(batch: Batch, values: Indices) -> Tensor:
    return torch.from_numpy(values).to(batch.ids.device)


def make_targets(rows: Sequence[Row], kept: Sequence[int], domains: Mapping[str, int]) -> Targets:
    """Build the targets of all kept steps of all rows, in order: tensors of shape (sum of kept,)."""
    places = [(number, step) for number, count in enumerate(kept) for step in range(count)]
    columns: dict[str, list[float]] = {field.name: [] for field in fields(Targets)}
    for number, step in places:
        row = rows[number]
        label, (k, n) = row.labels[step], row.votes[step] if row.votes else (0, 0)
        for name, value in (
            ("p", np.nan if label is None else label),
            ("k", k),
            ("n", n),
            ("weight", row.weight),
            ("row", number),
            ("step", step),
            ("last", step == len(row.steps) - 1),
            ("outcome", np.nan if row.outcome is None else row.outcome),
            ("domain", domains.get(row.source, 0)),
        ):
            columns[name].append(value)
    kinds = {"row": torch.int64, "step": torch.int64, "domain": torch.int64, "last": torch.bool}
    return Targets(**{name: torch.tensor(values, dtype=kinds.get(name, torch.float32)) for name, values in columns.items()})


def select(targets: Targets, places: Tensor) -> Targets:
    """Select the targets of some of the step ends."""
    return Targets(**{field.name: getattr(targets, field.name)[places] for field in fields(Targets)})


def move(targets: Targets, device: torch.device) -> Targets:
    return Targets(**{field.name: getattr(targets, field.name).to(device, non_blocking=True) for field in fields(Targets)})


@dataclass(frozen=True, slots=True)
class Prepared:
    """A split ready for training.

    It holds the rows with their sequences, the targets of all their step ends, and the index of each row's first target.
    """

    rows: tuple[Row, ...]
    encoded: tuple[Encoded, ...]
    targets: Targets
    begin: Indices
    lengths: Indices
    pad: int
    causal: bool

    def batch(self, rows: Indices) -> tuple[Batch, Targets]:
        """Return the tensors of these rows."""
        places = np.concatenate([np.arange(self.begin[r], self.begin[r + 1]) for r in rows])
        batch = collate([self.encoded[r] for r in rows], self.pad, causal=self.causal)
        return batch, select(self.targets, torch.from_numpy(places))


def prepare(
    rows: Sequence[Row], encoded: Sequence[Encoded], pad: int, *, causal: bool, domains: Mapping[str, int] | None = None
) -> Prepared:
    """Combine rows with their sequences. Every row must have kept at least one step."""
    kept = [len(e.ends) for e in encoded]
    begin = np.concatenate([[0], np.cumsum(kept)]).astype(np.int64)
    lengths = np.array([len(e.ids) for e in encoded], dtype=np.int64)
    return Prepared(tuple(rows), tuple(encoded), make_targets(rows, kept, domains or {}), begin, lengths, pad, causal)


def in_order(data: Prepared, tokens: int) -> Iterator[tuple[Indices, Batch]]:
    """Iterate over batches of all rows once, for scoring, the longest first."""
    for rows in micro(np.arange(len(data.encoded)), data.lengths, tokens):
        yield rows, data.batch(rows)[0]
