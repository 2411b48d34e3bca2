"""Extract step features from a frozen language model: hidden states and statistics of the token probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from distill.layouts import Encoded, Encoder
from distill.types import Item

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
BATCH_TOKENS = {True: 1024, False: 16384}
"""Tokens of a batch on a CPU, where larger batches leave the cache, and on other devices."""
CHUNK = 256
"""Tokens whose full-vocabulary logits are held in memory at once."""


@dataclass(frozen=True, slots=True)
class FrozenLM:
    """A frozen causal language model. `depth` is the number of layers after which hidden states are taken.

    `vocabulary` (tokens,) holds the ids, ascending, over which predictions are normalized, with the actual token; None for all.
    The output layer is a quarter of a small model's work, and 2,000 ids serve as well as 49,000 (bench/RESULTS.md). If
    `surprise` is false, the output layer is not computed, and the features of surprise are NaN.
    Every batch is computed by one thread, so that results do not depend on the number of threads.
    """

    model: Any
    encoder: Encoder
    depth: int
    marks: Marks
    vocabulary: NDArray[np.int32] | None = None
    surprise: bool = True
    batch_tokens: int = 1024

    def read(self, items: Sequence[Item], progress: Callable[[int], None] = lambda tokens: None) -> list[StepFeatures]:
        """Return the features of every item, in order. `progress` receives the number of tokens of each finished batch."""
        import torch

        heads = [head if len(head) else self._start_token() for head in self.encoder.heads([problem for problem, _ in items])]
        pieces = iter(self.encoder.pieces([step for _, steps in items for step in steps]))
        encoded = [
            self.encoder.assemble(head, [next(pieces) for _ in steps]) for head, (_, steps) in zip(heads, items, strict=True)
        ]
        starts = [len(head) for head in heads]
        views = [self._empty_features(len(steps)) for _, steps in items]
        order = [i for i in sorted(range(len(items)), key=lambda i: len(encoded[i].ids)) if len(encoded[i].ends)]
        batches = list(self._batches(order, encoded))
        head = self._head() if self.surprise else None
        threads = torch.get_num_threads()
        workers = threads if self.model.device.type == "cpu" else 1
        with ThreadPoolExecutor(workers, initializer=partial(torch.set_num_threads, threads // workers)) as pool:
            for batch, features in zip(
                batches, pool.map(lambda b: self._batch(b, encoded, starts, head), batches), strict=True
            ):
                for i, (states, surprise) in zip(batch, features, strict=True):
                    views[i].states[: len(states)] = states
                    views[i].surprise[: len(surprise)] = surprise
                progress(sum(len(encoded[i].ids) for i in batch))
        torch.set_num_threads(threads)
        return views

    def _start_token(self) -> NDArray[np.int32]:
        """Return a start token for sequences that have no tokens before the first step."""
        return np.array([self.encoder.tokenizer.pad_token_id], dtype=np.int32)

    def _empty_features(self, steps: int) -> StepFeatures:
        size = self.model.config.hidden_size
        return StepFeatures(
            np.full((steps, 2 * size), np.nan, dtype=np.float32), np.full((steps, len(NAMES)), np.nan, dtype=np.float32)
        )

    def _batches(self, order: Sequence[int], encoded: Sequence[Encoded]) -> Iterator[list[int]]:
        batch: list[int] = []
        for i in order:
            if batch and (len(batch) + 1) * len(encoded[i].ids) > self.batch_tokens:
                yield batch
                batch = []
            batch.append(i)
        if batch:
            yield batch

    def _head(self) -> Head:
        """Return the output layer, restricted to the vocabulary."""
        import torch

        layer = self.model.get_output_embeddings()
        if self.vocabulary is None:
            return Head(layer, layer.weight, layer.bias, None)
        ids = torch.from_numpy(self.vocabulary.astype(np.int64)).to(layer.weight.device)
        column = torch.full((len(layer.weight),), -1, device=ids.device)
        column[ids] = torch.arange(len(ids), device=ids.device)
        return Head(layer, layer.weight[ids], None if layer.bias is None else layer.bias[ids], column)

    def _batch(
        self, batch: Sequence[int], encoded: Sequence[Encoded], starts: Sequence[int], head: Head | None
    ) -> list[tuple[Singles, Singles]]:
        import torch

        length = max(len(encoded[i].ids) for i in batch)
        # Padding is on the right, where a causal model does not attend to it, so no mask is needed.
        ids = torch.zeros(len(batch), length, dtype=torch.long)
        for row, i in enumerate(batch):
            ids[row, : len(encoded[i].ids)] = torch.from_numpy(encoded[i].ids.astype(np.int64))
        with torch.inference_mode():
            ids = ids.to(self.model.device)
            out = self.model.base_model(input_ids=ids, use_cache=False, output_hidden_states=True)
            return [
                self._features(
                    encoded[i], starts[i], ids[row], out.hidden_states[self.depth][row], out.last_hidden_state[row], head
                )
                for row, i in enumerate(batch)
            ]

    def _features(
        self, encoded: Encoded, start: int, ids: Tensor, states: Tensor, last: Tensor, head: Head | None
    ) -> tuple[Singles, Singles]:
        import torch

        ends = encoded.ends.astype(np.int64)
        stop, counts = int(ends[-1]) + 1, np.diff(ends, prepend=start - 1)
        mean = torch.stack([part.float().mean(0) for part in states[start:stop].split(counts.tolist())])
        found = torch.cat([states[torch.from_numpy(ends)].float(), mean], 1).cpu().numpy()
        if head is None:
            return found, np.full((len(ends), len(NAMES)), np.nan, dtype=np.float32)
        expected = head.token_statistics(last[start - 1 : stop - 1], ids[start:stop])
        return found, summarize(expected, encoded.ids[start:stop].astype(np.int64), counts, self.marks)


@dataclass(frozen=True, slots=True)
class Head:
    """The output layer of a model, restricted to some columns.

    `weight` (columns, d) and `bias` (columns,) belong to the columns, and `column` has each token's column or -1. None means no
    bias, and all tokens in order.
    """

    layer: Any
    weight: Tensor
    bias: Tensor | None
    column: Tensor | None

    def token_statistics(self, before: Tensor, tokens: Tensor) -> NDArray[np.float64]:
        """Return per token its log probability, the prediction's entropy and the highest log probability, shape (tokens, 3)."""
        import torch

        parts = [
            self._chunk(before[begin : begin + CHUNK], tokens[begin : begin + CHUNK]) for begin in range(0, len(tokens), CHUNK)
        ]
        return torch.cat(parts).double().cpu().numpy()

    def _chunk(self, before: Tensor, tokens: Tensor) -> Tensor:
        """Compute the statistics in one pass over the logits, with one exponential each."""
        import torch
        from torch.nn.functional import linear

        logits = linear(before, self.weight, self.bias).float()
        column = tokens if self.column is None else self.column[tokens]
        outside, own = column < 0, logits.gather(1, column.clamp(min=0)[:, None])[:, 0]
        if self.column is not None and outside.any():
            alone = (before.float() * self.layer.weight[tokens].float()).sum(1)
            own = torch.where(outside, alone if self.bias is None else alone + self.layer.bias[tokens].float(), own)
        highest = torch.maximum(logits.amax(1), own)
        own = own - highest
        logits -= highest[:, None]
        weights = logits.exp()
        total, weighted = weights.sum(1), weights.mul_(logits).sum(1)
        # A token outside the columns counts as one more column.
        total = total + torch.where(outside, own.exp(), 0.0)
        weighted = weighted + torch.where(outside, own.exp() * own, 0.0)
        return torch.stack([own - total.log(), total.log() - weighted / total, -total.log()], 1)


def make_reader(model: Any, encoder: Encoder, depth: float) -> FrozenLM:
    """Create a `FrozenLM` that takes hidden states after `depth` of the layers, a share from 0 to 1."""
    layers = int(model.config.num_hidden_layers)
    after = min(max(round(depth * layers), 1), layers)
    batch_tokens = BATCH_TOKENS[model.device.type == "cpu"]
    return FrozenLM(model.eval(), encoder, after, mark_tokens(encoder.tokenizer), batch_tokens=batch_tokens)


RESULT = 3
"""Number of tokens after an equals sign that count as its result."""

STEP = (
    "mean", "largest", "three_largest", "eight_largest", "median", "spread", "sum", "entropy", "entropy_largest", "excess",
    "excess_three_largest", "lost", "lost_largest", "not_first", "rare", "digits", "digits_largest", "digits_excess",
    "digits_excess_largest", "digits_lost", "digits_lost_largest", "result", "result_largest", "result_lost",
    "result_lost_largest", "words", "words_largest", "end", "end_entropy", "first", "first_five", "last_five", "share_digits",
    "tokens",
)  # fmt: skip
"""Features of a step, one number each.

Surprise is -log P (nats). Excess is surprise minus the entropy of the prediction. Lost is the difference between the log
probability of the most likely token and that of the actual token.
"""

AGAINST_MEAN = (
    "mean", "largest", "three_largest", "entropy", "excess", "lost", "not_first", "digits", "digits_largest", "digits_lost",
    "digits_lost_largest",
)  # fmt: skip
AGAINST_LARGEST = ("mean", "largest", "three_largest", "lost_largest", "digits_largest", "digits_lost_largest")
NAMES = (*STEP, *(f"{n}-mean_before" for n in AGAINST_MEAN), *(f"{n}-largest_before" for n in AGAINST_LARGEST))


@dataclass(frozen=True, slots=True)
class StepFeatures:
    """A frozen model's features of one solution. Steps that do not fit into the context are rows of NaN."""

    states: NDArray[np.float32]
    """Hidden state at each step's end and the mean over the step's tokens, shape (steps, 2 d)."""
    surprise: NDArray[np.float32]
    """Statistics of the token probabilities, shape (steps, summaries)."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Which tokens of a vocabulary contain a digit and which an equals sign; shape (tokens,) each."""

    digit: NDArray[np.bool_]
    equals: NDArray[np.bool_]


def mark_tokens(tokenizer: Any) -> Marks:
    texts = [tokenizer.decode([token]) for token in range(len(tokenizer))]
    return Marks(np.array([any(c.isdigit() for c in t) for t in texts]), np.array(["=" in t for t in texts]))


def summarize(expected: Floats, ids: NDArray[np.int64], counts: NDArray[np.int64], marks: Marks) -> NDArray[np.float32]:
    """Compute the features of the steps of one solution: shape (steps, len(NAMES)), NaN where a step lacks the tokens.

    `expected` (tokens, 3) holds, for the tokens of all steps, the log probability, the entropy and the highest log probability.
    `counts` (steps,) is the number of tokens of each step, including the last one of its tag. A row depends only on its own and
    earlier steps.
    """
    bounds = np.concatenate([[0], np.cumsum(counts)])
    own = np.array([_step(expected[a:b], ids[a:b], marks) for a, b in pairwise(bounds)])
    mean_at, largest_at = ([STEP.index(name) for name in names] for names in (AGAINST_MEAN, AGAINST_LARGEST))
    valid = ~np.isnan(own)
    seen = np.cumsum(valid, axis=0) - valid
    total = np.cumsum(np.where(valid, own, 0.0), axis=0) - np.where(valid, own, 0.0)
    mean = np.divide(total, seen, out=np.full_like(own, np.nan), where=seen > 0)
    running = np.maximum.accumulate(np.where(valid, own, -np.inf), axis=0)
    largest = np.vstack([np.full((1, own.shape[1]), np.nan), np.where(np.isinf(running), np.nan, running)[:-1]])
    against = [own[:, mean_at] - mean[:, mean_at], own[:, largest_at] - largest[:, largest_at]]
    return np.concatenate([own, *against], axis=1).astype(np.float32)


def _step(expected: Floats, ids: NDArray[np.int64], marks: Marks) -> list[float]:
    body, names = (expected[:-1], ids[:-1]) if len(expected) > 1 else (expected, ids)
    surprise, entropy, lost = -body[:, 0], body[:, 1], body[:, 2] - body[:, 0]
    excess, falling = surprise - entropy, np.sort(surprise)[::-1]
    digit, at = marks.digit[names], np.flatnonzero(marks.equals[names])
    result = np.zeros(len(names), dtype=bool)
    for offset in range(1, RESULT + 1):
        result[(at + offset)[at + offset < len(names)]] = True
    result &= digit
    return [
        surprise.mean(), falling[0], falling[:3].mean(), falling[:8].mean(), float(np.median(surprise)), surprise.std(),
        surprise.sum(), entropy.mean(), entropy.max(), excess.mean(), np.sort(excess)[::-1][:3].mean(), lost.mean(), lost.max(),
        float((lost > 0).mean()), float((surprise > 3).mean()),
        *_mean_and_max(surprise, digit), *_mean_and_max(excess, digit), *_mean_and_max(lost, digit),
        *_mean_and_max(surprise, result), *_mean_and_max(lost, result), *_mean_and_max(surprise, ~digit),
        -expected[-1, 0], expected[-1, 1], surprise[0], surprise[:5].mean(), surprise[-5:].mean(),
        float(digit.mean()), float(len(names)),
    ]  # fmt: skip


def _mean_and_max(values: Floats, selected: NDArray[np.bool_]) -> tuple[float, float]:
    """Return the mean and the maximum of the selected values, NaN if there are none."""
    return (float(values[selected].mean()), float(values[selected].max())) if selected.any() else (np.nan, np.nan)
