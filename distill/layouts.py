"""Text layouts of a verifier's input: what surrounds the problem and steps, and where scores are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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


LAYOUTS: Mapping[str, Layout] = {
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
