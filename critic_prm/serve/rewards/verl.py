"""Reward function for verl (compute_score): a dict with the score of one solution."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from critic_prm.errors import UsageError
from critic_prm.serve.rewards.reward import Reward, Rewarded, Solution, shared_reward


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    recipe: str | Reward,
    problem: str = "question",
    missing: float | None = None,
    **_: Any,
) -> dict[str, float]:
    """Reward function for `reward.custom_reward_function.path`. `recipe`, a Reward or its TOML file, comes from its
    `reward_kwargs`.

    The problem is `extra_info[problem]`, because verl does not pass the prompt. verl needs a number for every sample: a missing
    judgement gets `missing`, by default the lowest reward, and "judged" 0. Requests to a judge are limited by the recipe's
    `concurrent` and by `rpm` and `tpm` of its judging options. Other arguments that verl passes are ignored. Raises UsageError.
    """
    reward = shared_reward(recipe)
    [rewarded] = await reward.of_async([_solution(solution_str, ground_truth, extra_info, problem)])
    return _row(reward, rewarded, missing)


def compute_score_sync(*arguments: Any, recipe: str | Reward, **options: Any) -> dict[str, float]:
    """The same, with the same arguments, for versions of verl that call reward functions in threads."""
    reward = shared_reward(recipe)
    return reward.loop.submit(compute_score(*arguments, recipe=reward, **options)).result()


def score_function(
    reward: Reward | str, *, problem: str = "question", missing: float | None = None
) -> Callable[..., Awaitable[dict[str, float]]]:
    """A compute_score for a Reward created in Python. verl recognizes a partial coroutine function as one."""
    return partial(compute_score, recipe=shared_reward(reward), problem=problem, missing=missing)


def _solution(text: str, gold: Any, extra: Mapping[str, Any] | None, problem: str) -> Solution:
    asked = (extra or {}).get(problem)
    if not isinstance(asked, str):
        present = ", ".join(sorted(extra or {})) or "nothing"
        raise UsageError(
            f"extra_info has no text under {problem!r} (keys: {present}); put the problem there, or set `problem` to its key"
        )
    return Solution(asked, text, gold)


def _row(reward: Reward, rewarded: Rewarded, missing: float | None) -> dict[str, float]:
    """Floats only: verl averages every column, and takes the set of columns from the first sample. Every row has the same
    keys."""
    row = {"score": reward.or_missing(rewarded, missing), **rewarded.columns}
    return row | ({"acc": float(bool(rewarded.right))} if reward.outcome else {})
