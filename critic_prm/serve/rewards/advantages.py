"""Turn the rewarded responses to one prompt into an advantage per step, and steps into token positions."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Literal, get_args

from critic_prm.errors import UsageError
from critic_prm.serve.rewards import credit
from critic_prm.serve.rewards.reward import Reward, Rewarded

Form = Literal["grpo", "prime", "pure", "gae"]


def step_advantages(group: Sequence[Rewarded], form: Form, reward: Reward) -> list[list[float]]:
    """The advantages of the steps of each response to one prompt.

    - grpo: dense rewards normalised over the group, summed from each step on.
    - prime: dense rewards less the mean of the other responses, summed from each step on (RLOO).
    - pure: min-form credit of P(correct), less the others' mean per step, summed from each step on.
    - gae: generalised advantages with P(correct) as the value and the outcome as the last reward; needs gold answers.

    A response without a usable judgement gets zeros and has no part in the others' baseline, as does a step that was not
    judged. If fewer than two responses were judged, all advantages but those of gae are 0.
    """
    out = [[0.0] * len(one.p_correct) for one in group]
    places = [place for place, one in enumerate(group) if one.reward is not None and any(p is not None for p in one.p_correct)]
    if form == "gae":
        judged = [_generalised(group[place], reward) for place in places]
    elif len(places) < 2:
        return out
    else:
        judged = _FORMS[form]([group[place] for place in places], reward)
    for place, values in zip(places, judged, strict=True):
        remaining = iter(values)
        out[place] = [0.0 if p is None else next(remaining) for p in group[place].p_correct]
    return out


def check_form(form: str) -> None:
    """Raise UsageError unless `form` is a `Form`."""
    if form not in get_args(Form):
        raise UsageError(f"there is no form of advantages {form!r}; available: {', '.join(get_args(Form))}")


def _judged(row: Sequence[float | None]) -> list[float]:
    return [value for value in row if value is not None]


def _normalised(group: Sequence[Rewarded], reward: Reward) -> list[list[float]]:
    normalised = credit.group_normalised([_judged(one.steps) for one in group])
    return [credit.returns(_judged(row), reward.gamma) for row in normalised]


def _leave_one_out(group: Sequence[Rewarded], reward: Reward) -> list[list[float]]:
    return credit.process_advantages([_judged(one.steps) for one in group], gamma=reward.gamma)


def _min_form(group: Sequence[Rewarded], reward: Reward) -> list[list[float]]:
    rewards = [credit.signed(_judged(one.p_correct)) for one in group]
    return credit.min_form_advantages(rewards, temperature=reward.temperature)


_FORMS: Mapping[str, Callable[[Sequence[Rewarded], Reward], list[list[float]]]] = {
    "grpo": _normalised,
    "prime": _leave_one_out,
    "pure": _min_form,
}


def _generalised(one: Rewarded, reward: Reward) -> list[float]:
    values = _judged(one.p_correct)
    if one.right is None:
        raise UsageError("gae needs the outcome: set outcome above 0 in the reward, and give gold answers")
    return credit.advantages([*[0.0] * (len(values) - 1), float(one.right)], values, reward.start, gamma=reward.gamma)


def step_ends(decode: Callable[[Sequence[int]], str], tokens: Sequence[int], steps: Sequence[str]) -> list[int]:
    """The number of tokens up to the end of each step in a response, and for the last step all of them.

    `decode` gives the text of tokens. Steps are looked for in order; one that does not occur, because the tokenizer changed its
    text, ends where the one before it does. The text between two steps belongs to the second one.
    """
    text, ends, place = decode(tokens), [], 0
    for step in steps:
        at = text.find(step, place)
        place = at + len(step) if at >= 0 else place
        ends.append(bisect_left(range(len(tokens)), place, key=lambda count: len(decode(tokens[:count]))))
    return [*ends[:-1], len(tokens)] if ends else []


def on_all_tokens(values: Sequence[float], ends: Sequence[int], length: int) -> list[float]:
    """Give every token of a step the step's value; tokens after the last step get 0."""
    out = [0.0] * length
    for value, (start, end) in zip(values, pairwise([0, *ends]), strict=True):
        out[start:end] = [value] * (end - start)
    return out
