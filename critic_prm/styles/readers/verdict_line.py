"""A critique, then a last line "Verdict: correct" (or incorrect, or neutral) -> the verdict of one step."""

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
    """Read a verdict line. See `read_line` for what counts."""
    return read_line(text, expect, logprobs, _SHAPE)


def write(verdicts: Sequence[Verdict], expect: Expect) -> str:
    """The reply that says this one verdict, for `read`."""
    return f"{verdicts[0].critique.strip()}\n\nVerdict: {verdicts[0].value}".lstrip()
