"""Compute causal attention over several sequences packed end to end, without padding, on a CPU.

Torch's own attention computes in float32 on a CPU and needs sequences of one length. This one cuts each sequence into blocks of
queries, which attend to the keys up to the end of their block, with plain matrix products in the inputs' type. On sequences of
a few hundred tokens, it is two to three times as fast in bf16, and also faster in float32. The attention weights are recomputed
in the backward pass, so memory grows linearly with the length, not quadratically.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

NAME = "critic_prm_packed"
BLOCK = 128
Spans: TypeAlias = Sequence[tuple[int, int]]
"""Start and end of each sequence among the tokens."""


class PackedAttention(torch.autograd.Function):
    """Compute softmax(q k^T scale) v within each span, with a causal mask.

    `q` (heads, tokens, d); `k` and `v` (groups, tokens, d), where heads is a multiple of groups: the queries of a group are
    multiplied in one product. Returns (heads, tokens, d).
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: float, spans: Spans) -> Tensor:
        heads, tokens, size = q.shape
        out = torch.empty((tokens, heads, size), dtype=q.dtype, device=q.device).transpose(0, 1)
        for begin, start, end in _blocks(spans):
            p = _weights(q[:, start:end], k[:, begin:end], scale)
            out[:, start:end] = torch.bmm(p, v[:, begin:end]).view(heads, end - start, size)
        ctx.save_for_backward(q, k, v, out)
        ctx.scale, ctx.spans = scale, spans
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        q, k, v, out = ctx.saved_tensors
        (grad,), scale = grads, ctx.scale
        heads, _, size = q.shape
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        # The gradient through a softmax is p (g - sum p g), and sum p g is the gradient of the output times the output.
        shift = (grad * out).sum(-1, keepdim=True)
        for begin, start, end in _blocks(ctx.spans):
            own, seen = slice(start, end), slice(begin, end)
            queries, g = _grouped(q[:, own], k), _grouped(grad[:, own], k)
            p = _weights(q[:, own], k[:, seen], scale)
            dv[:, seen].baddbmm_(p.transpose(1, 2), g)
            ds = torch.bmm(g, v[:, seen].transpose(1, 2)).sub_(_grouped(shift[:, own], k)).mul_(p)
            dq[:, own] = torch.bmm(ds, k[:, seen]).mul_(scale).view(heads, end - start, size)
            dk[:, seen].baddbmm_(ds.transpose(1, 2), queries, alpha=scale)
        return dq, dk, dv, None, None


def packed_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    spans: Spans | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention function that transformers calls under the name `NAME`.

    `query` is (1, heads, tokens, d); `spans` is an argument of the model's forward. Without spans, it is torch's causal
    attention over rows without left padding. Returns (1, tokens, heads, d).
    """
    if spans is None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    # Queries and keys after rotary embedding are float32 under autocast, since the cosines are.
    kind = value.dtype
    out: Tensor = PackedAttention.apply(query[0].to(kind), key[0].to(kind), value[0], scale, spans)  # type: ignore[no-untyped-call]
    return out.transpose(0, 1).unsqueeze(0), None


def register() -> None:
    """Register the attention function with transformers. It needs no mask, so none is registered."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, packed_attention)


def _blocks(spans: Spans) -> Iterator[tuple[int, int, int]]:
    """Iterate over blocks of queries of similar size: start of the span, start and end of the block."""
    for begin, end in spans:
        size = -(-(end - begin) // -(-(end - begin) // BLOCK))
        for start in range(begin, end, size):
            yield begin, start, min(end, start + size)


def _grouped(x: Tensor, k: Tensor) -> Tensor:
    """Reshape (heads, n, d) to (groups, heads / groups * n, d)."""
    return x.reshape(k.shape[0], -1, x.shape[-1])


def _weights(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """Return the weights of a block of n queries over m keys: (groups, heads / groups * n, m).

    The last n keys are those of the queries themselves.
    """
    n, m = q.shape[1], k.shape[1]
    scores = torch.bmm(_grouped(q, k), k.transpose(1, 2)).mul_(scale)
    ahead = torch.full((n, n), -torch.inf, dtype=q.dtype, device=q.device).triu_(1)
    scores.view(k.shape[0], -1, n, m)[..., m - n :].add_(ahead)
    return torch.softmax(scores, dim=-1)
