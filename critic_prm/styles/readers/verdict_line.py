"""Read a critique of one step that ends in a line "Verdict: correct", "incorrect" or "neutral"."""

from __future__ import annotations

from collections.abc import Sequence

from critic_prm.data.judgement import Verdict
from critic_prm.providers.provider import TokenLogprob
from critic_prm.styles.reader import Expect, Reading
from critic_prm.styles.readers._chances import CORRECT_INCORRECT
from critic_prm.styles.readers._lines import Shape, label, read_line
from critic_prm.styles.readers._words import VERDICT

PER = "step"

_SHAPE = Shape(
    label(
        r"(?:(?:the|my) )?(?:(?:final|overall) )?(?:verdict|judge?ment|decision|label)(?= ?[*_]{0,3}[:：]| is\b)",
        r"<verdict>",
        r"(?:the|this) (?:step|action)(?= is\b)",
        r"(?:最终)?(?:结论|判断|判定)(?=[:：*是])",
    ),
    VERDICT,
    CORRECT_INCORRECT,
)


def read(text: str, expect: Expect, logprobs: tuple[TokenLogprob, ...] = ()) -> Reading:
    """Parse a verdict line. See `read_line` for the rules."""
    return read_line(text, expect, logprobs, _SHAPE)


def write(verdicts: Sequence[Verdict], expect: Expect) -> str:
    """Write a reply with this verdict, for `read`."""
    return f"{verdicts[0].critique.strip()}\n\nVerdict: {verdicts[0].value}".lstrip()
