"""The generative student: its loss on chats, its greedy answers to a style's questions, and how often they are right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from critic_prm.data import Reply, Trajectory
from critic_prm.data.hashing import unit
from critic_prm.styles.prompt import Style, questions
from critic_prm.styles.reader import Reading, read_reply
from distill.sft.tokens import Tokens, ending_of, prompt_ids
from distill.training.batches import Indices, micro
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


def mean_loss(task: ChatTask, tokens: int, processes: ProcessGroup) -> float:
    """Return the loss per token over all chats of the task, computed in parallel by the processes."""
    sums = torch.zeros(2, device=task.device)
    with torch.no_grad():
        for number, rows in enumerate(micro(np.arange(len(task.chats)), task.lengths, tokens)):
            if number % processes.size == processes.rank:
                sums[0] += task.loss(rows)
                sums[1] += task.weight(rows)
    processes.sum([sums])
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


PLACES = 8192
"""Maximum positions per generation batch, including padding and the answers."""


@dataclass(frozen=True, slots=True)
class Answerer:
    """A causal model with its tokenizer. An answer is cut after `limit` tokens."""

    model: Any
    tokenizer: Any
    limit: int

    def answers(self, prompts: Sequence[Sequence[int]]) -> list[Reply]:
        """Return greedy answers to prompts (token ids), in order. A truncated answer has the finish reason "length"."""
        from transformers import GenerationConfig

        stops = stop_ids(self.tokenizer)
        config = GenerationConfig(
            do_sample=False, max_new_tokens=self.limit, eos_token_id=stops, pad_token_id=stops[0], use_cache=True
        )
        lengths = np.array([len(prompt) for prompt in prompts])
        replies: dict[int, Reply] = {}
        for part in micro(np.arange(len(prompts)), lengths + self.limit, PLACES):
            width = int(lengths[part].max())
            ids, mask = np.full((len(part), width), stops[0], np.int64), np.zeros((len(part), width), np.int64)
            for row, number in enumerate(part):
                size = int(lengths[number])
                ids[row, width - size :], mask[row, width - size :] = prompts[number], 1
            device = self.model.device
            generated = self.model.generate(
                torch.from_numpy(ids).to(device), attention_mask=torch.from_numpy(mask).to(device), generation_config=config
            )
            for number, row in zip(part, generated[:, width:].tolist(), strict=True):
                replies[int(number)] = self._reply(row, stops)
        return [replies[number] for number in range(len(prompts))]

    def _reply(self, ids: list[int], stops: Sequence[int]) -> Reply:
        end = next((place for place, token in enumerate(ids) if token in stops), None)
        text = self.tokenizer.decode(ids[:end], skip_special_tokens=True)
        return Reply(text, "length" if end is None else "stop", {})

    def readings(self, style: Style, trajectories: Sequence[Trajectory]) -> list[list[Reading]]:
        """Return the parsed answers to all questions of the style, per solution."""
        asked = [
            (number, question) for number, trajectory in enumerate(trajectories) for question in questions(style, trajectory)
        ]
        prompts = []
        for _, question in asked:
            messages = [{"role": m.role, "content": m.content} for m in question.messages]
            prompts.append(prompt_ids(self.tokenizer, messages))
        out: list[list[Reading]] = [[] for _ in trajectories]
        for (number, question), reply in zip(asked, self.answers(prompts), strict=True):
            out[number].append(read_reply(style, question.expect, reply))
        return out


def stop_ids(tokenizer: Any) -> list[int]:
    """Return the tokens that end an answer: the one that ends the assistant's turn in the chat template, and eos."""
    return sorted({ending_of(tokenizer).id, int(tokenizer.eos_token_id)})


def first_error_named(readings: Sequence[Reading]) -> int | None:
    """Return the first error that the answers name, -1 for none, None if an answer before it could not be parsed."""
    for reading in readings:
        if reading.status != "ok":
            return None
        for verdict in reading.verdicts:
            if verdict.value == "incorrect":
                return verdict.step
    return -1


def measure(answerer: Answerer, style: Style, trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    """Measure the student's judgements of solutions with a known first error, by greedy decoding.

    `read` is the share of the solutions whose answers could be parsed. The official first-error metrics cover all solutions, an
    unparseable answer counting as wrong; they are None without solutions.
    """
    predicted = [first_error_named(readings) for readings in answerer.readings(style, trajectories)]
    gold = [trajectory.first_error() for trajectory in trajectories]
    hits = {kind: [f == g for f, g in zip(predicted, gold, strict=True) if g is not None and (g < 0) == right]
            for kind, right in (("erroneous", False), ("correct", True))}  # fmt: skip
    shares = {kind: sum(some) / len(some) if some else None for kind, some in hits.items()}
    a, c = shares["erroneous"], shares["correct"]
    every = [hit for some in hits.values() for hit in some]
    return {
        "solutions": len(every),
        "read": sum(f is not None for f in predicted) / len(predicted) if predicted else None,
        "accuracy": sum(every) / len(every) if every else None,
        **shares,
        "f1": None if a is None or c is None else 2 * a * c / (a + c) if a + c else 0.0,
    }


def sample_solutions(trajectories: Sequence[Trajectory], count: int, seed: int) -> list[Trajectory]:
    """Draw up to `count` solutions to measure on, balanced between erroneous and correct ones as far as possible."""
    shuffled = sorted(trajectories, key=lambda trajectory: unit("measure", seed, trajectory.problem, *trajectory.texts))
    wrong = [
        trajectory for trajectory in shuffled if (trajectory.first_error() or 0) >= 0 and trajectory.first_error() is not None
    ]
    right = [trajectory for trajectory in shuffled if trajectory.first_error() == -1]
    pairs = min(len(wrong), len(right), count // 2)
    rest = [trajectory for pair in (wrong[pairs:], right[pairs:]) for trajectory in pair]
    return [*wrong[:pairs], *right[:pairs], *rest][:count]
