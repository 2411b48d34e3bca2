"""OpenRLHF rewards, as a Python function file or as a remote HTTP endpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from critic_prm.errors import InputError
from critic_prm.serve.endpoints import problem_and_response
from critic_prm.serve.rewards.reward import Reward, Rewarded, Solution, shared_reward

Reply = dict[str, Any]


def reward_function(reward: Reward | str, *, missing: float | None = None) -> Callable[..., Reply]:
    """A `reward_func` for the function file given to `--reward.remote_url`. The file has one line:

        reward_func = reward_function("reward.toml")

    `queries` contain prompt and response with their special tokens, `labels` the gold answers. The trainer converts the results
    to tensors, so a missing judgement gets `missing`, by default the lowest reward, and "judged" 0.
    """
    opened = shared_reward(reward)

    def reward_func(queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any], **_: Any) -> Reply:
        return _reply(opened, opened.of(_solutions(queries, prompts, labels)), missing)

    return reward_func


async def answer(reward: Reward, body: Mapping[str, Any], *, missing: float | None = None) -> Reply:
    """The reply to a remote reward request, for use in a custom server; `critic-prm serve` offers it at /get_reward.

    Lists may be empty: with several addresses the trainer sends empty lists to all but the first. Raises InputError.
    """
    queries = body.get("query")
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        raise InputError("the request", f'"query" is {queries!r:.60}', "give a list of texts")
    prompts, labels = (body.get(name) or [] for name in ("prompts", "labels"))
    if any(not isinstance(part, list) or len(part) not in (0, len(queries)) for part in (prompts, labels)):
        raise InputError("the request", '"prompts" or "labels" has another length than "query"', "give one per query, or none")
    return _reply(reward, await reward.of_async(_solutions(queries, prompts, labels)), missing)


def _solutions(queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any]) -> list[Solution]:
    rows = zip_longest(queries, prompts, labels)
    return [Solution(*problem_and_response(query, prompt), gold) for query, prompt, gold in rows]


def _reply(reward: Reward, rewarded: Sequence[Rewarded], missing: float | None) -> Reply:
    """Build the reply. `scores`, which the trainer filters prompts by, are in [0, 1] whatever the range of the rewards."""
    if not rewarded:
        return {"rewards": [], "scores": [], "extra_logs": {}}
    rewards = [reward.or_missing(one, missing) for one in rewarded]
    low, high = reward.guards.low, reward.guards.high
    scores = [min(max((value - low) / (high - low), 0.0), 1.0) for value in rewards]
    logs = {name: [one.columns[name] for one in rewarded] for name in rewarded[0].columns}
    return {"rewards": rewards, "scores": scores, "extra_logs": logs}
