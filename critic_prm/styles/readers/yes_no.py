"""Read a critique of one step that ends in "Is the step correct? Yes", with P(correct) from the answer token."""

from __future__ import annotations

from collections.abc import Sequence

from critic_prm.data.judgement import Verdict
from critic_prm.providers.provider import TokenLogprob
from critic_prm.styles.reader import Expect, Reading
from critic_prm.styles.readers._chances import YES_NO
from critic_prm.styles.readers._patterns import ANSWER
from critic_prm.styles.readers.verdict_line import Shape, label, read_line

PER = "step"

_PREFIX = r"(?:(?:verification|verdict|answer|conclusion|judge?ment|decision)[ \t*_]{0,4}[:：][ \t*_]{0,4})?"
_SHAPE = Shape(
    label(
        _PREFIX + r"is (?:(?:the|this) )?(?:step|action|line|paragraph)(?: \d{1,6})? (?:correct|right|valid)"
        r"(?: ?\((?:yes|correct) ?(?:/|or) ?(?:no|incorrect)\)|[?:]? ?yes/no(?=:))?",
        r"(?:(?:the|my) )?(?:final )?(?:verdict|answer|judge?ment|decision|verification)(?= ?[*_]{0,3}[:：]| is\b)",
        r"(?:the|this) (?:step|action)(?= is\b)",
        r"(?:该|这一|这个|此|本)?步骤?是否正确|(?:该|这一|这个|此|本)?步骤?正确吗|(?:最终)?(?:答案|结论|判断)(?=[:：*是])",
    ),
    ANSWER,
    YES_NO,
)


def read(text: str, expect: Expect, logprobs: tuple[TokenLogprob, ...] = ()) -> Reading:
    """Parse the answer to "Is the step correct?". See `read_line` for the rules."""
    return read_line(text, expect, logprobs, _SHAPE)


def write(verdicts: Sequence[Verdict], expect: Expect) -> str:
    """Write a reply with this verdict, for `read`."""
    said = verdicts[0]
    answer = {"correct": "Yes", "incorrect": "No"}.get(said.value, said.value)
    return f"{said.critique.strip()}\n\nIs the step correct? {answer}".lstrip()
