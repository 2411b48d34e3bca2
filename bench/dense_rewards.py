"""Train a policy with TRL on the outcome alone and with step rewards: python -m bench.dense_rewards [--steps 60] [--seeds 5]

Needs TRL and torch. The policy is a tiny Qwen2 with random weights that writes four words; a solution is right if all four
are "right", which is one in 28,561 at first. The critic judges each word. Printed for each way to use it: the optimiser step
after which half of all solutions are right (the mean of five steps), for every seed, and the share right at the end. Fails
unless every dense form needs fewer steps than the outcome, by a 95% interval over paired seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from bench.simulated import SimulatedCritic

WORDS = ["<pad>", "<eos>", "<unk>", "say", "right", *(f"word{i}" for i in range(8))]
LENGTH = 4
FORMS = ("outcome", "grpo", "prime", "pure")
T95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
"""Quantiles of Student's t for a two-sided 95% interval, by the number of seeds."""


def policy(seed: int) -> tuple[Any, Any]:
    """A model of two layers with random weights, and its tokenizer of one token per word."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )
    config = Qwen2Config(
        vocab_size=len(WORDS), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, eos_token_id=1, bos_token_id=None,
    )  # fmt: skip
    return Qwen2ForCausalLM(config), tokenizer


def trainer_of(form: str, reward: Any, steps: int, seed: int, out: Path, watch: Callable[[Any], None] | None = None) -> Any:
    """TRL's trainer with the outcome as its reward function and, unless `form` is "outcome", with step advantages."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from critic_prm.serve.rewards.trl_steps import step_trainer

    model, tokenizer = policy(seed)
    kind: Any = GRPOTrainer if form == "outcome" else step_trainer(reward, form=form)  # type: ignore[arg-type]
    config = GRPOConfig(
        output_dir=str(out), max_steps=steps, per_device_train_batch_size=64, num_generations=16,
        max_completion_length=LENGTH, learning_rate=1e-2, lr_scheduler_type="constant", beta=0.0, use_cpu=True, bf16=False,
        gradient_checkpointing=False, logging_steps=1, save_strategy="no", report_to="none", disable_tqdm=True, seed=seed,
    )  # fmt: skip
    rows = [{"prompt": "say"}] * 64
    trainer = kind(
        model=model, reward_funcs=[outcome], args=config, train_dataset=Dataset.from_list(rows), processing_class=tokenizer
    )
    if watch is not None:
        whole = trainer._generate_and_score_completions

        def watched(inputs: Any) -> Any:
            made = whole(inputs)
            watch({name: value.clone() for name, value in made.items() if hasattr(value, "clone")})
            return made

        trainer._generate_and_score_completions = watched
    return trainer


def outcome(*, completions: Sequence[str], **_: Any) -> list[float]:
    """1 for a completion that is right throughout."""
    return [float(text.split() == ["right"] * LENGTH) for text in completions]


def reached(curve: Sequence[float], window: int = 5) -> int:
    """The step after which the mean of `window` steps is one half or more; one more than there are if it never is."""
    ends = range(window, len(curve) + 1)
    return next((end for end in ends if fmean(curve[end - window : end]) >= 0.5), len(curve) + 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=5, choices=sorted(T95))
    parser.add_argument("--out", type=Path, help="write the curves here as JSON")
    given = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from critic_prm.serve.rewards.guards import Guards
    from critic_prm.serve.rewards.reward import Reward

    curves: dict[str, list[list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for form in FORMS:
            for seed in range(given.seeds):
                reward = Reward(SimulatedCritic(), dense="p_correct", separator=" ", guards=Guards(repeats=None))
                trainer = trainer_of(form, reward, given.steps, seed, Path(folder))
                trainer.train()
                reward.close()
                curves.setdefault(form, []).append([row["reward"] for row in trainer.state.log_history if "reward" in row])
            needed = [reached(curve) for curve in curves[form]]
            last = [fmean(curve[-5:]) for curve in curves[form]]
            print(
                f"{form:8} steps to half right: {needed}, mean {fmean(needed):.1f}; right at the end: {fmean(last):.2f}",
                flush=True,
            )
    if given.out is not None:
        given.out.write_text(json.dumps(curves), "utf-8")
    failed = []
    for form in FORMS[1:]:
        gains = [reached(a) - reached(b) for a, b in zip(curves["outcome"], curves[form], strict=True)]
        half = T95[given.seeds] * stdev(gains) / given.seeds**0.5
        low, high = fmean(gains) - half, fmean(gains) + half
        print(f"{form:8} needs {fmean(gains):.1f} [{low:.1f}, {high:.1f}] fewer steps than the outcome")
        failed += [form] * (fmean(gains) - half <= 0)
    if failed:
        raise SystemExit(f"not faster: {', '.join(failed)}")


if __name__ == "__main__":
    main()
