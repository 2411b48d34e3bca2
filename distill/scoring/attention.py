"""Compute attention over a packed batch of token trees, where each token attends to its own path of the tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from distill.scoring.tree import TokenTree

NAME = "critic_prm_tree"
"""The name under which `attend` is registered with transformers."""

Layers = dict[int, tuple[Tensor, Tensor]]
"""Keys and values of some tokens, each (1, heads, tokens, size), by layer index."""


@dataclass(frozen=True, slots=True)
class Part:
    """A segment as attention sees it.

    `own` is its range in the pack, `before` holds the ranges of its ancestors in the pack. `past` holds what was computed
    before the pack, as (keys and values, number of tokens to use), starting at the first position. `offset` is the number of
    tokens before the segment.
    """

    own: slice
    before: tuple[slice, ...]
    past: tuple[tuple[Layers, int], ...]
    offset: int


@dataclass(slots=True)
class Pack:
    """The batch structure that `attend` needs. If `kept` is given, it collects the keys and values for later use."""

    parts: Sequence[Part]
    kept: Layers | None = None
    _masks: dict[tuple[int, int | None], Tensor | None] = field(default_factory=dict)

    def mask(self, number: int, window: int | None, like: Tensor) -> Tensor | None:
        """Return the additive mask of a part: -inf for later tokens and for those before the sliding window.

        Returns None if no mask is needed beyond the kernel's own causal mask.
        """
        key = (number, window)
        if key not in self._masks:
            part = self.parts[number]
            count = part.own.stop - part.own.start
            length = part.offset + count
            inside = window is None or length <= window
            if inside and (part.offset == 0 or count == 1):
                self._masks[key] = None
            else:
                at = torch.arange(part.offset, length, device=like.device)[:, None]
                seen = torch.arange(length, device=like.device)[None, :]
                hidden = (seen > at) if inside else (seen > at) | (seen <= at - (window or 0))
                self._masks[key] = torch.zeros(count, length, dtype=like.dtype, device=like.device).masked_fill_(
                    hidden, float("-inf")
                )
        return self._masks[key]


def pack_of(tree: TokenTree, past: Sequence[tuple[tuple[Layers, int], ...]] = (), kept: Layers | None = None) -> Pack:
    """Build the pack of a tree. `past` holds, per segment, the earlier results that its path continues, if there are any."""
    parts = []
    for number, segment in enumerate(tree.segments):
        before = _merged([slice(s.start, s.stop) for s in tree.line(number)])
        parts.append(Part(slice(segment.start, segment.stop), before, past[number] if past else (), segment.offset))
    return Pack(parts, kept)


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    pack: Pack | None = None,
    sliding_window: int | None = None,
    **unused: Any,
) -> tuple[Tensor, None]:
    """Attention function for transformers in which every segment attends to its own path only.

    Sequences in a pack do not see each other, there is no padding, and masked scores are computed only within a segment.
    """
    assert pack is not None, f"{NAME} is for packs only"
    layer = module.layer_idx
    if pack.kept is not None:
        pack.kept[layer] = (key, value)
    out = query.new_empty(1, query.shape[2], query.shape[1], value.shape[3])
    for number, part in enumerate(pack.parts):
        q, k, v = query[:, :, part.own], key[:, :, part.own], value[:, :, part.own]
        if part.before or part.past:
            older = [(ks[:, :, :n], vs[:, :, :n]) for layers, n in part.past for ks, vs in (layers[layer],)]
            older += [(key[:, :, s], value[:, :, s]) for s in part.before]
            k, v = torch.cat([*(o[0] for o in older), k], dim=2), torch.cat([*(o[1] for o in older), v], dim=2)
        mask = pack.mask(number, sliding_window, query)
        causal = mask is None and q.shape[2] > 1
        found = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=causal, scale=scaling, enable_gqa=q.shape[1] != k.shape[1]
        )
        out[:, part.own] = found.transpose(1, 2)
    return out, None


@contextmanager
def packing(model: Any) -> Iterator[None]:
    """Make `model` attend in packs within this context."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, attend)
    usual = model.config._attn_implementation
    model.set_attn_implementation(NAME)
    try:
        yield
    finally:
        model.set_attn_implementation(usual)


def _merged(slices: Sequence[slice]) -> tuple[slice, ...]:
    """Merge adjacent slices."""
    out: list[slice] = []
    for one in slices:
        if out and out[-1].stop == one.start:
            out[-1] = slice(out[-1].start, one.stop)
        else:
            out.append(one)
    return tuple(out)
