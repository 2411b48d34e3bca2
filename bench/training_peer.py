"""TRL's PRMTrainer on a model folder and a file of rows, in an environment of its own; losses, tokens/s and memory out.

Run by bench/training.py with the python of that environment; it imports nothing of this project.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", help="holds model/ and rows.jsonl")
    parser.add_argument("--mode", choices=["defaults", "fp32", "alike"], required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--warm", type=int, default=3, help="steps that are not timed")
    args = parser.parse_args()
    print(json.dumps(train(args.folder, args.mode, args.steps, args.batch, args.warm)))


def train(folder: str, mode: str, steps: int, batch: int, warm: int) -> dict[str, Any]:
    import torch
    import transformers
    from datasets import Dataset
    from trl.experimental.prm import PRMConfig, PRMTrainer

    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    tokenizer = transformers.AutoTokenizer.from_pretrained(f"{folder}/model", trust_remote_code=False)
    model = transformers.AutoModelForTokenClassification.from_pretrained(
        f"{folder}/model", num_labels=2, dtype=torch.float32, trust_remote_code=False, use_safetensors=True
    )
    with open(f"{folder}/rows.jsonl", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    data = Dataset.from_list([{name: row[name] for name in ("prompt", "completions", "labels")} for row in rows])
    losses: list[float] = []
    marks: list[tuple[float, float, int]] = []
    seen = 0

    class Watched(PRMTrainer):  # type: ignore[misc]
        """The trainer as it is; what it computes is written down as it passes."""

        def compute_loss(self, model: Any, inputs: Any, **more: Any) -> Any:
            nonlocal seen
            seen += int(inputs["attention_mask"].sum())
            found = super().compute_loss(model, inputs, **more)
            if mode == "alike":
                losses.append((found[0] if isinstance(found, tuple) else found).item())
            return found

    class Clock(transformers.TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            marks.append((time.process_time(), time.perf_counter(), seen))

    choices: dict[str, dict[str, Any]] = {
        "defaults": {},
        "fp32": {"bf16": False, "gradient_checkpointing": False},
        "alike": {
            "bf16": False,
            "gradient_checkpointing": False,
            "train_sampling_strategy": "sequential",
            "learning_rate": 1e-3,
            "lr_scheduler_type": "cosine",
            "warmup_steps": 4,
            "weight_decay": 0.01,
            "max_grad_norm": 0.5,
        },
    }
    with tempfile.TemporaryDirectory() as scratch:
        config = PRMConfig(
            output_dir=scratch, per_device_train_batch_size=batch, max_steps=steps, report_to=[], save_strategy="no",
            use_cpu=True, disable_tqdm=True, dataloader_drop_last=True, **choices[mode],
        )  # fmt: skip
        Watched(model=model, args=config, train_dataset=data, processing_class=tokenizer, callbacks=[Clock()]).train()
    cpu, clock, tokens = (last - first for last, first in zip(marks[-1], marks[warm - 1], strict=True))
    return {
        "losses": losses,
        "tokens": tokens,
        "per_cpu_s": tokens / cpu,
        "per_s": tokens / clock,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


if __name__ == "__main__":
    main()
