"""The training task of a generative student: the loss on the assistant tokens of chats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from distill.sft.tokens import Tokens
from distill.training.batches import Indices, micro

if TYPE_CHECKING:
    from distill.training.causal import Policy
    from distill.training.loop import ProcessGroup

LOGITS = 1 << 29
"""Maximum logits of a forward pass if --micro-tokens is not given: 2 GiB in float32."""


@dataclass(frozen=True)
class ChatTask:
    """Chats to learn; see `loop.TrainingTask`. The loss is the mean negative log-likelihood of the assistant tokens."""

    policy: Policy
    chats: Sequence[Tokens]

    @property
    def model(self) -> Any:
        return self.policy.model

    @property
    def device(self) -> torch.device:
        return self.policy.device

    @cached_property
    def lengths(self) -> Indices:
        """The number of tokens of each chat."""
        return np.array([len(chat.ids) for chat in self.chats], dtype=np.int64)

    def weight(self, rows: Indices) -> float:
        """Return the number of learned tokens in these rows."""
        return float(sum(int(self.chats[row].learn.sum()) for row in rows))

    def loss(self, rows: Indices) -> Tensor:
        """Return the loss summed over the learned tokens of these rows: a float32 scalar with gradient."""
        ids, learn = _padded([self.chats[row] for row in rows])
        places = torch.from_numpy(np.flatnonzero(learn)).to(self.device)
        batch = torch.from_numpy(ids).to(self.device)
        # A token is predicted from the state before it, so the logits of an answer start at the last token of its prompt.
        self.policy.head.at = places - 1
        dtype = self.policy.dtype
        with torch.autocast(self.device.type, dtype=dtype, enabled=dtype != torch.float32):
            logits = self.model(input_ids=batch, use_cache=False).logits
        self.policy.head.at = None
        return F.cross_entropy(logits.float(), batch.flatten()[places], reduction="sum")


def mean_loss(task: ChatTask, tokens: int, team: ProcessGroup) -> float:
    """Return the loss per token over all chats of the task, computed in parallel by the processes."""
    sums = torch.zeros(2, device=task.device)
    with torch.no_grad():
        for number, rows in enumerate(micro(np.arange(len(task.chats)), task.lengths, tokens)):
            if number % team.size == team.rank:
                sums[0] += task.loss(rows)
                sums[1] += task.weight(rows)
    team.sum([sums])
    return float(sums[0] / sums[1])


def places_at_once(model: Any) -> int:
    """Return how many tokens may go through the model at once so that their logits fit in memory."""
    return max(512, LOGITS // int(model.config.vocab_size))


def _padded(chats: Sequence[Tokens]) -> tuple[Any, Any]:
    """Return right-padded ids and masks, (rows, longest); a causal model does not attend to what follows."""
    shape = len(chats), max(len(chat.ids) for chat in chats)
    ids, learn = np.zeros(shape, np.int64), np.zeros(shape, np.bool_)
    for row, chat in enumerate(chats):
        ids[row, : len(chat.ids)], learn[row, : len(chat.ids)] = chat.ids, chat.learn
    return ids, learn
