"""The formats of a verifier's context as data: what stands around the problem and the steps, and where a score is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layout:
    """A sequence is: begin token, `before` problem `between`, and then for each step: step `tag` `gap`.

    The score of a step is read at the last token of its `tag`. `begin` says whether the tokenizer's begin token, where it has
    one, comes first. Steps, tags and gaps are turned into tokens each for itself, `before` problem `between` as one text.
    """

    before: str = ""
    between: str = ""
    tag: str = "\n"
    gap: str = ""
    begin: bool = True


LAYOUTS: Mapping[str, Layout] = {
    # A blank line is one token for most tokenizers, and steps seldom hold one.
    "default": Layout(between="\n\n", tag="\n\n"),
    # trl 1.13.0, trl.experimental.prm: nothing between problem and steps.
    "trl": Layout(tag="\n"),
    # Qwen2.5-Math-PRM: the Qwen chat, steps parted by a token of their own. Its tokenizer puts no begin token.
    "qwen": Layout(
        before="<|im_start|>system\nPlease reason step by step, and put your final answer within \\boxed{}.<|im_end|>\n"
        "<|im_start|>user\n",
        between="<|im_end|>\n<|im_start|>assistant\n",
        tag="<extra_0>",
        begin=False,
    ),
    # Math-Shepherd: the tag is a word of Cyrillic that no solution holds, a line end comes after it.
    "math-shepherd": Layout(between=" ", tag=" ки", gap="\n"),
}
