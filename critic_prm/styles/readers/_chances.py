"""Compute P(correct) from log-probabilities: a softmax over the two verdict words at the verdict token."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate

from critic_prm.providers.provider import TokenLogprob

Pair = tuple[tuple[str, ...], tuple[str, ...]]

CORRECT_INCORRECT: Pair = (("correct", "corrected", "正确"), ("incorrect", "不正确", "错误"))
YES_NO: Pair = (("yes", "是"), ("no", "否"))

# Below this total probability, the model was not choosing between the two verdicts.
_MASS = 0.5


class Tokens:
    """A reply's tokens aligned with its text, to find the token at a text position."""

    def __init__(self, text: str, logprobs: Sequence[TokenLogprob]) -> None:
        self.logprobs = logprobs
        self.ends = list(accumulate(len(t.token) for t in logprobs))
        # Tokens may begin before the visible text (a thinking block, a prefix), so the text is located in their
        # concatenation. Text that was blanked out at the start is still present in the tokens.
        said = text.strip()
        found = "".join(t.token for t in logprobs).rfind(said) if said and logprobs else -1
        self.shift = found - (len(text) - len(text.lstrip())) if found >= 0 else None

    def p_correct(self, start: int, pair: Pair) -> tuple[float | None, str]:
        """P(correct) of the verdict word that begins at `start`, and a note ("" if there is nothing to report).

        exp(a) / (exp(a) + exp(b)), where a and b are the log of the summed probability of all tokens that begin the first and
        the second word (" Yes", "yes" and "YES" are one word). A word that the server did not return gets the smallest returned
        log-probability, and the note says so. None if there are no log-probabilities at this position. (GenRM, arXiv
        2408.15240; the floor as in GenPRM.)
        """
        if self.shift is None:
            return None, "" if not self.logprobs else "the log-probabilities do not spell the reply's text"
        index = bisect_right(self.ends, self.shift + start)
        if index >= len(self.logprobs):
            return None, "the log-probabilities end before the verdict"
        token = self.logprobs[index]
        lead = self.shift + start - (self.ends[index] - len(token.token))
        return _softmax(token, lead, pair)


def _softmax(token: TokenLogprob, lead: int, pair: Pair) -> tuple[float | None, str]:
    returned: Mapping[str, float] = {token.token: token.logprob, **dict(token.top)}
    prefix = token.token[:lead]
    sums: list[list[float]] = [[], []]
    for text, logprob in returned.items():
        side = _side(text[lead:] if text.startswith(prefix) else text, pair)
        if side is not None and not math.isnan(logprob):
            sums[side].append(logprob)
    if not sums[0] and not sums[1]:
        return None, "neither verdict is among the log-probabilities at its place"
    note = ""
    if not sums[0] or not sums[1]:
        if not token.top:
            return None, "no alternatives were returned beside the verdict's token"
        floor = min(returned.values())
        sums[0 if not sums[0] else 1].append(floor)
        note = f"P(correct) floored: only one verdict is among the {len(returned)} log-probabilities returned"
    right, wrong = (_logsumexp(values) for values in sums)
    if not note and math.exp(right) + math.exp(wrong) < _MASS:
        note = f"the two verdicts hold only {math.exp(right) + math.exp(wrong):.0%} of the probability at the verdict's place"
    if right == wrong:
        return 0.5, note
    return 1.0 / (1.0 + math.exp(min(max(wrong - right, -700.0), 700.0))), note


def _side(token: str, pair: Pair) -> int | None:
    """Which of the two words a token begins: 0, 1, or None if neither or both."""
    word = token.strip().lstrip("{[(\"'*_`$: ").casefold().rstrip("}])\"'*_`$.,!。 ")
    if not word:
        return None
    begins = [any(w.startswith(word) for w in words) for words in pair]
    if begins[0] == begins[1]:
        return None
    return 0 if begins[0] else 1


def _logsumexp(values: Sequence[float]) -> float:
    top = max(values)
    if math.isinf(top):
        return top
    return top + math.log(math.fsum(math.exp(value - top) for value in values))
