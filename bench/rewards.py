"""Train a policy with TRL's GRPOTrainer on rewards from a critic: python bench/rewards.py [--steps 20] [--out DIR]

Needs trl 1.16 and torch (in a separate environment) beside the base dependencies. The policy is a tiny Qwen2 that starts
from random weights and answers sums, "2 + 5 =", with one word; the critic is shown the whole equation. Four runs: with the
reward that is known to be 1 for true equations and 0 for false ones (the critic `rules`), as a function and as a coroutine
function; with a verifier distilled on the spot that saw what such a policy writes; and with one that saw numbers alone, which
the policy cheats by writing none. Printed for each: the mean reward and the share of true sums, in the first and in the last
quarter of the steps. Fails unless both rise; with the last, unless the reward does and true sums do not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

SUMS = [(a, b) for a in range(1, 5) for b in range(1, 5)]
CHEATED = "verifier of numbers alone"
WORDS = ["<pad>", "<eos>", "<unk>", "+", "=", *map(str, range(20))]


def policy() -> tuple[Any, Any]:
    """A model of two layers with random weights, and its tokenizer of one token a word."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )
    config = Qwen2Config(
        vocab_size=len(WORDS),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    return Qwen2ForCausalLM(config), tokenizer


def distilled(folder: Path, wrong: Sequence[str]) -> Path:
    """A verifier that learned from 4,000 sums, half of them with one of the words `wrong` for the right number."""
    from distill.run import distill

    rng = random.Random(0)
    data = folder / "dataset"
    data.mkdir(parents=True)
    for split, count in (("train", 4000), ("dev", 800)):
        rows = []
        for place in range(count):
            a, b = rng.randrange(1, 10), rng.randrange(1, 10)
            right = rng.random() < 0.5
            said = str(a + b) if right else rng.choice([word for word in wrong if word != str(a + b)])
            row = {"prompt": f"What is {a} + {b}?", "completions": [f"{a} + {b} = {said}"], "labels": [float(right)]}
            rows.append(row | {"id": f"{split}-{place}"})
        (data / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    distill(data, folder / "verifier")
    return folder / "verifier"


def train(reward_function: Callable[..., Any], steps: int, out: Path) -> list[dict[str, float]]:
    """One GRPO run; the trainer's log, a row a step."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    model, tokenizer = policy()
    rows = [{"prompt": f"{a} + {b} =", "problem": f"What is {a} + {b}?", "sum": a + b} for a, b in SUMS]
    config = GRPOConfig(
        output_dir=str(out),
        max_steps=steps,
        per_device_train_batch_size=256,
        num_generations=16,
        max_completion_length=1,
        learning_rate=2e-2,
        lr_scheduler_type="constant",
        beta=0.0,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=0,
    )
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=[reward_function],
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
    )
    trainer.train()
    return [row for row in trainer.state.log_history if "reward" in row]


def shown_whole(function: Callable[..., Any], wait: bool) -> Callable[..., Any]:
    """The reward function, with the equation as the completion; and a metric that no critic has a part in."""

    def whole(prompts: Sequence[str], completions: Sequence[str], columns: dict[str, Any]) -> list[str]:
        pairs = list(zip(completions, columns["sum"], strict=True))
        columns["log_metric"]("true_sums", sum(said.strip() == str(want) for said, want in pairs) / len(pairs))
        return [f"{prompt} {said}" for prompt, said in zip(prompts, completions, strict=True)]

    def critic_prm(*, prompts: Sequence[str], completions: Sequence[str], **columns: Any) -> list[float | None]:
        told: list[float | None] = function(prompts=prompts, completions=whole(prompts, completions, columns), **columns)
        return told

    async def critic_prm_async(*, prompts: Sequence[str], completions: Sequence[str], **columns: Any) -> list[float | None]:
        coming: Awaitable[list[float | None]] = function(
            prompts=prompts, completions=whole(prompts, completions, columns), **columns
        )
        return await coming

    return critic_prm_async if wait else critic_prm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=Path, help="write the trainer's logs here as JSON")
    options = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from critic_prm.serve.rewards.reward import Reward
    from critic_prm.serve.rewards.trl import async_reward_function, reward_function

    logs: dict[str, list[dict[str, float]]] = {}
    failed = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs = {
            "rules": (Reward("rules"), False),
            "rules, async": (Reward("rules"), True),
            "verifier": (Reward(str(distilled(folder / "seen", ["", *WORDS[2:]]))), False),
            CHEATED: (Reward(str(distilled(folder / "numbers", WORDS[5:]))), False),
        }
        for run, (reward, wait) in runs.items():
            function = async_reward_function(reward) if wait else reward_function(reward)
            began = time.perf_counter()
            log = logs[run] = train(shown_whole(function, wait), options.steps, folder / run)
            seconds = time.perf_counter() - began
            reward.close()
            quarter = max(1, len(log) // 4)
            parts = []
            for metric in ("reward", "true_sums"):
                first, last = (sum(row[metric] for row in rows) / quarter for rows in (log[:quarter], log[-quarter:]))
                parts.append(f"{metric} {first:.3f} -> {last:.3f}")
                if (last > first) == (run == CHEATED and metric == "true_sums"):
                    failed.append(f"{run}: {metric}")
            print(f"{run}: {len(log)} steps in {seconds:.0f} s, {', '.join(parts)}", flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps(logs), "utf-8")
    if failed:
        raise SystemExit(f"not as it should be: {', '.join(failed)}")


if __name__ == "__main__":
    main()
