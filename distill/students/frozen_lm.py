"""Extract step features from a frozen language model: hidden states and token probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from distill.sequences import Encoded, Encoder
from distill.students.token_statistics import NAMES, Marks, StepFeatures, mark_tokens, summarize
from distill.types import Item

Floats = NDArray[np.float32]
CHUNK = 256
"""Tokens whose full-vocabulary logits are held in memory at once."""


@dataclass(frozen=True, slots=True)
class FrozenLM:
    """A frozen causal language model. `depth` is the number of layers after which hidden states are taken.

    Every batch is computed by one thread, so that results do not depend on the number of threads.
    """

    model: Any
    encoder: Encoder
    depth: int
    marks: Marks
    batch_tokens: int = 1024

    def read(self, items: Sequence[Item], progress: Callable[[int], None] = lambda tokens: None) -> list[StepFeatures]:
        """Return the features of every item, in order. `progress` receives the number of tokens of each finished batch."""
        heads = [head if len(head) else self._any() for head in self.encoder.heads([problem for problem, _ in items])]
        pieces = iter(self.encoder.pieces([step for _, steps in items for step in steps]))
        encoded = [
            self.encoder.assemble(head, [next(pieces) for _ in steps]) for head, (_, steps) in zip(heads, items, strict=True)
        ]
        starts = [len(head) for head in heads]
        views = [self._unread(len(steps)) for _, steps in items]
        order = [i for i in sorted(range(len(items)), key=lambda i: len(encoded[i].ids)) if len(encoded[i].ends)]
        batches = list(self._batches(order, encoded))
        threads = torch.get_num_threads()
        workers = threads if self.model.device.type == "cpu" else 1
        with ThreadPoolExecutor(workers, initializer=partial(torch.set_num_threads, threads // workers)) as pool:
            for batch, found in zip(batches, pool.map(lambda b: self._batch(b, encoded, starts), batches), strict=True):
                for i, (states, surprise) in zip(batch, found, strict=True):
                    views[i].states[: len(states)] = states
                    views[i].surprise[: len(surprise)] = surprise
                progress(sum(len(encoded[i].ids) for i in batch))
        torch.set_num_threads(threads)
        return views

    def _any(self) -> NDArray[np.int32]:
        """Return a start token for sequences that have no tokens before the first step."""
        return np.array([self.encoder.tokenizer.pad_token_id], dtype=np.int32)

    def _unread(self, steps: int) -> StepFeatures:
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

    def _batch(self, batch: Sequence[int], encoded: Sequence[Encoded], starts: Sequence[int]) -> list[tuple[Floats, Floats]]:
        length = max(len(encoded[i].ids) for i in batch)
        # Padding is on the right, where a causal model does not attend to it, so no mask is needed.
        ids = torch.zeros(len(batch), length, dtype=torch.long)
        for row, i in enumerate(batch):
            ids[row, : len(encoded[i].ids)] = torch.from_numpy(encoded[i].ids.astype(np.int64))
        with torch.inference_mode():
            ids = ids.to(self.model.device)
            out = self.model.base_model(input_ids=ids, use_cache=False, output_hidden_states=True)
            return [
                self._one(encoded[i], starts[i], ids[row], out.hidden_states[self.depth][row], out.last_hidden_state[row])
                for row, i in enumerate(batch)
            ]

    def _one(self, encoded: Encoded, start: int, ids: Tensor, states: Tensor, last: Tensor) -> tuple[Floats, Floats]:
        ends = encoded.ends.astype(np.int64)
        stop, counts = int(ends[-1]) + 1, np.diff(ends, prepend=start - 1)
        mean = torch.stack([part.float().mean(0) for part in states[start:stop].split(counts.tolist())])
        expected = self._tokens(last[start - 1 : stop - 1], ids[start:stop])
        surprise = summarize(expected, encoded.ids[start:stop].astype(np.int64), counts, self.marks)
        return torch.cat([states[torch.from_numpy(ends)].float(), mean], 1).cpu().numpy(), surprise

    def _tokens(self, before: Tensor, tokens: Tensor) -> NDArray[np.float64]:
        """Return per token its log probability, the prediction's entropy and the highest log probability."""
        head, found = self.model.get_output_embeddings(), []
        for begin in range(0, len(tokens), CHUNK):
            logp = torch.log_softmax(head(before[begin : begin + CHUNK]).float(), -1)
            own = logp.gather(1, tokens[begin : begin + CHUNK, None])[:, 0]
            found.append(torch.stack([own, -(logp.exp() * logp).sum(-1), logp.max(-1).values], 1))
        return torch.cat(found).double().cpu().numpy()


def make_reader(model: Any, encoder: Encoder, depth: float) -> FrozenLM:
    """Create a `FrozenLM` that takes hidden states after `depth` of the layers, a share from 0 to 1."""
    layers = int(model.config.num_hidden_layers)
    return FrozenLM(model.eval(), encoder, min(max(round(depth * layers), 1), layers), mark_tokens(encoder.tokenizer))
