"""Lay out a problem and its steps as token ids, with the position at which each step's score is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from critic_prm.errors import UsageError
from distill.settings import LayoutName
from distill.types import Item


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a sequence: begin token, `before` problem `between`, and then for each step: step `tag` `gap`.

    The score of a step is read at the last token of its `tag`. If `begin` is true, the sequence starts with the tokenizer's
    begin token, if it has one. Steps, tags and gaps are each tokenized separately; `before` problem `between` is tokenized as
    one text.
    """

    before: str = ""
    between: str = ""
    tag: str = "\n"
    gap: str = ""
    begin: bool = True


LAYOUTS: Mapping[LayoutName, Layout] = {
    # A blank line is one token in most tokenizers, and steps seldom contain one.
    "default": Layout(between="\n\n", tag="\n\n"),
    # trl 1.13.0, trl.experimental.prm: nothing between problem and steps.
    "trl": Layout(tag="\n"),
    # Qwen2.5-Math-PRM: the Qwen chat format, steps separated by a special token. Its tokenizer adds no begin token.
    "qwen": Layout(
        before="<|im_start|>system\nPlease reason step by step, and put your final answer within \\boxed{}.<|im_end|>\n"
        "<|im_start|>user\n",
        between="<|im_end|>\n<|im_start|>assistant\n",
        tag="<extra_0>",
        begin=False,
    ),
    # Math-Shepherd: the tag is a Cyrillic word that no solution contains, followed by a newline.
    "math-shepherd": Layout(between=" ", tag=" ки", gap="\n"),
}


Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Encoded:
    """One tokenized solution. `ids` (length,) int32. `ends` (kept steps,) int32: where in `ids` each step's score is read.

    `dropped` is the number of steps at the end that did not fit.
    """

    ids: Ints
    ends: Ints
    dropped: int = 0

    def cut(self, steps: int) -> Encoded:
        """Truncate the sequence at the score position of step `steps` - 1.

        A causal model needs no more for these steps.
        """
        return Encoded(self.ids[: self.ends[steps - 1] + 1], self.ends[:steps], self.dropped + len(self.ends) - steps)


@dataclass(frozen=True, slots=True)
class Encoder:
    """Tokenizes solutions in the same way for training and scoring. Created by `make_encoder`.

    `start` holds the ids before the problem text, `close` those after the last step (an encoder model's end token), `tag` and
    `gap` those after each step. `max_length` counts all of them. Sequences are assembled from ids, never by joining text.
    """

    tokenizer: Any
    before: str
    between: str
    start: Ints
    tag: Ints
    gap: Ints
    close: Ints
    max_length: int
    chat: bool = False
    lead: str = field(default="", repr=False)

    def encode(self, problem: str, steps: Sequence[str]) -> Encoded:
        """Encode one solution. Steps that do not fit into `max_length` are dropped whole, from the end."""
        return self.encode_many([(problem, steps)])[0]

    def encode_many(self, items: Sequence[Item]) -> list[Encoded]:
        """Encode many solutions at once, which is several times faster in the tokenizer."""
        heads = self.heads([problem for problem, _ in items])
        pieces = iter(self.pieces([step for _, steps in items for step in steps]))
        return [self.assemble(head, [next(pieces) for _ in steps]) for head, (_, steps) in zip(heads, items, strict=True)]

    def heads(self, problems: Sequence[str]) -> list[Ints]:
        """Return the tokens before the first step, per problem."""
        if self.chat:
            texts = [
                self.tokenizer.apply_chat_template(
                    [{"role": "user", "content": problem}], tokenize=False, add_generation_prompt=True
                )
                for problem in problems
            ]
            return self._ids(texts)
        return [np.concatenate([self.start, ids]) for ids in self._ids([self.before + p + self.between for p in problems])]

    def pieces(self, steps: Sequence[str]) -> list[Ints]:
        """Return the tokens of each step, with its tag and without the gap."""
        return [np.concatenate([ids, self.tag]) for ids in self._ids([self.lead + step for step in steps], len(self.lead))]

    def assemble(self, head: Ints, pieces: Sequence[Ints]) -> Encoded:
        """Assemble a sequence from the head and the steps, with a gap between steps."""
        room = self.max_length - len(head) - len(self.close)
        lengths = np.array([len(piece) + len(self.gap) for piece in pieces], dtype=np.int64)
        reach = np.cumsum(lengths) - len(self.gap)
        kept = int(np.searchsorted(reach, room, side="right"))
        parts = [head]
        for number, piece in enumerate(pieces[:kept]):
            parts += [self.gap, piece] if number else [piece]
        ends = len(head) + reach[:kept] - 1
        return Encoded(np.concatenate([*parts, self.close]), ends.astype(np.int32), len(pieces) - kept)

    def _ids(self, texts: Sequence[str], lead: int = 0) -> list[Ints]:
        if not texts:
            return []
        skip = len(self.tokenizer(self.lead, add_special_tokens=False)["input_ids"]) if lead else 0
        tokens = self.tokenizer(list(texts), add_special_tokens=False, return_attention_mask=False)["input_ids"]
        return [np.array(ids[skip:], dtype=np.int32) for ids in tokens]


def make_encoder(
    tokenizer: Any, layout: LayoutName, max_length: int, *, chat_template: bool = False, causal: bool = True
) -> Encoder:
    """Create the encoder of a tokenizer and a layout. Raises UsageError if they are incompatible."""
    spec = LAYOUTS[layout]
    if chat_template and not tokenizer.chat_template:
        raise UsageError("the base's tokenizer has no chat template; leave --chat-template out")
    # SentencePiece adds a space before a text. A piece within a sequence must not get one, so it is tokenized after a newline.
    probe = tokenizer.convert_ids_to_tokens(tokenizer("a", add_special_tokens=False)["input_ids"])
    lead = "\n" if probe and probe[0].startswith("▁") else ""
    skip = len(tokenizer(lead, add_special_tokens=False)["input_ids"]) if lead else 0

    def ids_of_piece(text: str) -> Ints:
        ids = tokenizer(lead + text, add_special_tokens=False)["input_ids"] if text else []
        return np.array(ids[skip:] if text else [], dtype=np.int32)

    tag = ids_of_piece(spec.tag)
    if not len(tag):
        raise UsageError(f"the base's tokenizer has no tokens for {spec.tag!r}; choose another --layout")
    begin = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.cls_token_id
    end = None if causal else tokenizer.sep_token_id
    ids_of = [np.array([] if token is None else [token], dtype=np.int32) for token in (begin if spec.begin else None, end)]
    return Encoder(
        tokenizer, spec.before, spec.between, ids_of[0], tag, ids_of_piece(spec.gap), ids_of[1], max_length, chat_template, lead
    )
