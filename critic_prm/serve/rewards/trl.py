"""Reward functions for TRL (GRPOTrainer, RLOOTrainer): one number or None per completion."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from critic_prm.errors import UsageError
from critic_prm.serve.rewards.guards import length_correlation
from critic_prm.serve.rewards.reward import Reward, Rewarded, Solution, shared_reward

Rewards = list[float | None]


def reward_function(
    reward: Reward | str, *, name: str = "critic_prm", problem: str = "problem", gold: str = "gold_answer"
) -> Callable[..., Rewards]:
    """Create a reward function for `reward_funcs=` from a Reward or the path of its TOML file.

    `name` is used in the trainer's metrics. The problem is the data set column `problem` if there is one, otherwise the prompt
    (for a conversation, its last user message). The gold answer is the column `gold`. A completion without a usable judgement
    gets None, and TRL leaves it out.
    """
    adapter = RewardColumns(shared_reward(reward), name, problem, gold)

    def critic_prm(*, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> Rewards:
        rewarded = adapter.reward.of(adapter.solutions(prompts, completions, columns))
        return adapter.logged(rewarded, prompts, **columns)

    critic_prm.__name__ = name
    return critic_prm


def async_reward_function(
    reward: Reward | str, *, name: str = "critic_prm", problem: str = "problem", gold: str = "gold_answer"
) -> Callable[..., Awaitable[Rewards]]:
    """The same as a coroutine function. TRL runs these concurrently, without blocking the thread of the training process."""
    adapter = RewardColumns(shared_reward(reward), name, problem, gold)

    async def critic_prm(*, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> Rewards:
        rewarded = await adapter.reward.of_async(adapter.solutions(prompts, completions, columns))
        return adapter.logged(rewarded, prompts, **columns)

    critic_prm.__name__ = name
    return critic_prm


@dataclass(frozen=True, slots=True)
class RewardColumns:
    """A reward, the name under which its metrics are logged, and the columns of the problem and the gold answer."""

    reward: Reward
    name: str
    problem: str
    gold: str

    def solutions(self, prompts: Sequence[Any], completions: Sequence[Any], columns: Mapping[str, Any]) -> list[Solution]:
        """Raises UsageError if the outcome is rewarded and no column has the gold answer."""
        if self.reward.outcome and self.gold not in columns:
            present = ", ".join(sorted(columns.keys() - {"log_metric", "log_extra"})) or "none"
            raise UsageError(
                f"the outcome is rewarded, but the data has no column {self.gold!r} with the gold answer; columns: {present}"
            )
        problems = columns.get(self.problem) or [text_of(prompt, "user") for prompt in prompts]
        texts = [text_of(completion, "assistant") for completion in completions]
        answers = columns.get(self.gold, [None] * len(prompts))
        return [Solution(str(asked), text, gold) for asked, text, gold in zip(problems, texts, answers, strict=True)]

    def logged(
        self,
        rewarded: Sequence[Rewarded],
        prompts: Sequence[Any],
        log_metric: Callable[[str, float], None] | None = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        **_: Any,
    ) -> Rewards:
        """The rewards, after logging how they came about."""
        if log_metric is not None and rewarded:
            pairs = zip(rewarded, map(str, prompts), strict=True)
            judged = [(one, one.reward, prompt) for one, prompt in pairs if one.reward is not None]
            lengths = [len(one.p_correct) for one, _, _ in judged]
            correlation = length_correlation([reward for _, reward, _ in judged], lengths, [prompt for _, _, prompt in judged])
            if correlation is not None:
                log_metric(f"{self.name}/length_correlation", correlation)
            log_metric(f"{self.name}/missing", 1 - len(judged) / len(rewarded))
            if judged:
                log_metric(f"{self.name}/steps", fmean(lengths))
                log_metric(f"{self.name}/without_error", fmean(one.without_error for one, _, _ in judged))
                log_metric(f"{self.name}/guarded", fmean(one.kept < 1 for one, _, _ in judged))
        if log_extra is not None:
            log_extra(f"{self.name}/first_error", [one.first_error for one in rewarded])
            log_extra(f"{self.name}/status", [one.status for one in rewarded])
        return [one.reward for one in rewarded]


def text_of(content: Any, role: str) -> str:
    """The text itself if it is a string; for a conversation, the last user message or all assistant messages."""
    if isinstance(content, str):
        return content
    texts = [_content(message["content"]) for message in content if message["role"] == role]
    return "\n\n".join(texts) if role == "assistant" else texts[-1] if texts else ""


def _content(content: Any) -> str:
    """The text of a message; for a message with parts, its text parts."""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content or () if part.get("type") == "text")
