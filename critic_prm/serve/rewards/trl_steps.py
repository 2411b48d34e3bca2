"""TRL's GRPOTrainer with step rewards: each token gets the advantage of its step, besides that of the response."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from critic_prm.serve.rewards.advantages import Form, check_form, on_all_tokens, step_advantages, step_ends
from critic_prm.serve.rewards.reward import Reward, Rewarded, shared_reward
from critic_prm.serve.rewards.trl import RewardColumns


def step_trainer(
    reward: Reward | str,
    *,
    form: Form = "grpo",
    weight: float = 1.0,
    name: str = "steps",
    problem: str = "problem",
    gold: str = "gold_answer",
    base: type | None = None,
) -> Any:
    """Create a subclass of TRL's GRPOTrainer, or of `base`, that adds step advantages to those of its reward functions.

    `reward` is a Reward or the path of its TOML file; its `dense` rewards become advantages as `form` says (see
    `step_advantages`), times `weight`. The columns are those of `trl.reward_function`. `name` is used in the metrics. Needs TRL
    1.16 or newer. Raises UsageError for an unknown form.
    """
    from trl import GRPOTrainer

    check_form(form)
    columns = RewardColumns(shared_reward(reward), name, problem, gold)
    parent: Any = base or GRPOTrainer

    class StepGRPOTrainer(parent):  # type: ignore[misc]
        """Adds step advantages to each batch of completions."""

        _rewarded: Sequence[Rewarded] = ()

        def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
            rows: Mapping[str, list[Any]] = {key: [row.get(key) for row in inputs] for key in inputs[0]}
            solutions = columns.solutions(prompts, completions, rows)
            self._rewarded = columns.reward.of(solutions)
            self._steps = [columns.reward.steps_of(solution.text) for solution in solutions]
            return super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            output = super()._generate_and_score_completions(inputs)
            steps = self._step_advantages(output["completion_ids"], output["completion_mask"])
            output["advantages"] = output["advantages"].unsqueeze(1) + weight * steps.to(output["advantages"])
            mode = "train" if self.model.training else "eval"
            judged = [one.reward is not None for one in self._rewarded]
            self._metrics[mode][f"{name}/judged"].append(fmean(judged))
            self._metrics[mode][f"{name}/advantage"].append(float(steps.abs().mean()))
            return output

        def _step_advantages(self, tokens: Any, mask: Any) -> Any:
            """One advantage per token of the completions of this process, whose groups may be spread over processes."""
            import torch
            from accelerate.utils import gather_object

            group = self.num_generations if self.model.training else self.num_generations_eval
            everyone = gather_object(list(self._rewarded))
            advantages = [
                row
                for at in range(0, len(everyone), group)
                for row in step_advantages(everyone[at : at + group], form, columns.reward)
            ]
            first = self.accelerator.process_index * len(self._rewarded)
            out = torch.zeros(tokens.shape)
            for place, texts in enumerate(self._steps):
                ids = tokens[place][mask[place].bool()].tolist()
                ends = step_ends(self._text_of, ids, texts)
                out[place, : len(ids)] = torch.tensor(on_all_tokens(advantages[first + place], ends, len(ids)))
            return out

        def _text_of(self, ids: Sequence[int]) -> str:
            text: str = self.processing_class.decode(ids, skip_special_tokens=True)
            return text

    return StepGRPOTrainer
