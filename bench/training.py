"""The training loop against TRL's PRMTrainer: the same small model, the same real rows, each in processes of their own.

    OMP_NUM_THREADS=1 python -m bench.training --data ../shared/data/open --peer /path/to/python

--peer is the python of an environment with trl==1.13.0, torch and transformers of the versions in constraints.txt. The model is
a Qwen2 of 4 layers, 256 wide, with random weights and a tokenizer made from the rows; the rows are those of --data with step
labels, cut after the first error, of at most 1,000 tokens. Printed are ratios of tokens/s (tokens that are no padding, per
second of CPU, so that other work on the machine counts little; the clock's beside it) and of peak memory from runs that take
turns, and the largest difference of the losses of the first steps when order, learning rates, decay and clipping are the same.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BATCH = 8
MAX_TOKENS = 1000
WARM = 3
ALIKE_STEPS = 20
ALIKE_LR, ALIKE_WARMUP, ALIKE_CLIP = 1e-3, 4, 0.5
BARS = {"defaults": 1.5, "fp32": 1.1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of <source>.jsonl with step labels")
    parser.add_argument("--peer", help="the python of TRL's environment")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ours", choices=["defaults", "fp32", "alike"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.ours:
        print(json.dumps(train(args.folder, args.ours, args.steps)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        counts = prepare(args.data, folder, max(args.steps, ALIKE_STEPS) * BATCH)
        print(f"{len(counts)} rows, {sum(counts)} tokens, median {statistics.median(counts):.0f}, longest {max(counts)}; "
              f"{BATCH} rows a step, {sum(counts) / len(counts) * BATCH:.0f} tokens on average")  # fmt: skip
        alike = run(args, folder, "alike", ours=True), run(args, folder, "alike", ours=False)
        gap = max(abs(a - b) for a, b in zip(alike[0]["losses"], alike[1]["losses"], strict=True))
        print(f"largest difference of the first {ALIKE_STEPS} losses: {gap:.1e} (bar 1e-4)", flush=True)
        for mode, bar in BARS.items():
            pairs = [(run(args, folder, mode, ours=True), run(args, folder, mode, ours=False)) for _ in range(args.repeats)]
            told(mode, bar, pairs)


def told(mode: str, bar: float, pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    for key, what in (("per_cpu_s", "tokens/s of CPU"), ("per_s", "tokens/s of the clock")):
        ours, theirs = ([run[key] for run in runs] for runs in zip(*pairs, strict=True))
        ratios = sorted(a / b for a, b in zip(ours, theirs, strict=True))
        middle = statistics.median(ours), statistics.median(theirs)
        print(f"{mode:9} {what:22} ours {middle[0]:7.0f}  TRL {middle[1]:7.0f}  ratio {middle[0] / middle[1]:.2f} "
              f"({ratios[0]:.2f} to {ratios[-1]:.2f}), bar {bar}")  # fmt: skip
    ours, theirs = ([run["peak_mb"] for run in runs] for runs in zip(*pairs, strict=True))
    print(f"{mode:9} {'peak memory, MB':22} ours {max(ours):7.0f}  TRL {max(theirs):7.0f}  {max(ours) / max(theirs):.2f}, "
          "bar 1", flush=True)  # fmt: skip


def run(args: argparse.Namespace, folder: Path, mode: str, *, ours: bool) -> dict[str, Any]:
    steps = ALIKE_STEPS if mode == "alike" else args.steps
    if ours:
        command = [sys.executable, "-m", "bench.training", "--ours", mode, "--folder", str(folder), "--steps", str(steps)]
    else:
        peer = [args.peer, str(ROOT / "bench" / "training_peer.py"), str(folder)]
        command = [*peer, "--mode", mode, "--steps", str(steps), "--batch", str(BATCH), "--warm", str(WARM)]
    threads = os.environ.get("OMP_NUM_THREADS", "1")
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def prepare(data: Path, folder: Path, count: int) -> list[int]:
    """Model and rows for both, in `folder`. Returns the tokens of each row."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForTokenClassification

    from bench.sources import first_error, matching, read

    records = [t for path in matching(data, but=["processbench_*"]) for t in read(path)]
    random.Random(0).shuffle(records)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=4096, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([text for t in records[:1000] for text in (t.problem, *t.texts)], trainer)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|endoftext|>", pad_token="<|endoftext|>", model_max_length=2048
    ).save_pretrained(folder / "model")
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=4096, hidden_size=256, intermediate_size=704, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=2048, pad_token_id=0, eos_token_id=0, bos_token_id=None,
    )  # fmt: skip
    Qwen2ForTokenClassification(config).save_pretrained(folder / "model")
    counts: list[int] = []
    with (folder / "rows.jsonl").open("w") as out:
        for t in records:
            label = first_error(t)
            steps = t.texts if label < 0 else t.texts[: label + 1]
            tokens = len(tokenizer.encode("\n".join([t.problem, *steps])).ids) + 1
            if tokens <= MAX_TOKENS and len(counts) < count:
                labels = [number != label for number in range(len(steps))]
                out.write(json.dumps({"prompt": t.problem, "completions": steps, "labels": labels}) + "\n")
                counts.append(tokens)
    return counts


def train(folder: Path, mode: str, steps: int) -> dict[str, Any]:
    """Our side of it, in this process."""
    import numpy as np
    import torch

    from distill.data import Row
    from distill.losses.loss import open_loss
    from distill.settings import TrainingSettings
    from distill.students.transformer import encoder_for, prepare_rows
    from distill.training.loop import ProcessGroup, Run, StepTask, fit, halves, make_optimizer, micro_tokens, one_step
    from distill.training.network import open_network, open_tokenizer, trainable

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    with (folder / "rows.jsonl").open(encoding="utf-8") as lines:
        found = [json.loads(line) for line in lines]
    rows = [
        Row(str(number), row["prompt"], tuple(row["completions"]), tuple(map(float, row["labels"])))
        for number, row in enumerate(found)
    ]
    settings = TrainingSettings(
        loss="ce", layout="trl", lr=ALIKE_LR if mode == "alike" else None, clip=ALIKE_CLIP if mode == "alike" else 1.0,
        dtype="auto" if mode == "defaults" else "fp32", device="cpu", epochs=1, patience=0,
    )  # fmt: skip
    network = open_network(str(folder / "model"), settings, seed=0)
    encoder = encoder_for(open_tokenizer(folder / "model"), network.model.config, network.causal, settings)
    data = prepare_rows(
        rows, "rows", encoder=encoder, settings=settings, causal=network.causal, say=lambda line: None, whole=False
    )
    losses: list[float] = []
    marks: list[tuple[float, float, int]] = []
    if mode == "alike":
        task = StepTask(network, data, open_loss("ce"), halves(len(rows), 1, 0), settings)
        optimizer = make_optimizer(trainable(task.model), settings)
        network.model.train()
        for step in range(steps):
            batch = np.arange(step * BATCH, (step + 1) * BATCH)
            lr = ALIKE_LR * trl_rate(step, steps)
            losses.append(
                one_step(task, batch, optimizer, lr, micro_tokens(settings, task.device), settings, ProcessGroup())[0]
            )
        return {"losses": losses}
    # As many tokens a step as BATCH rows have on average; which rows they are is the loop's business.
    settings = replace(settings, batch_tokens=int(data.lengths.mean() * BATCH))

    def watch(record: dict[str, Any]) -> None:
        if "tokens" in record:
            marks.append((time.process_time(), time.perf_counter(), record["tokens"]))

    fit(network, data, lambda: {"f1": 0.0, "loss": 0.0}, settings, Run(watch=watch))
    cpu, clock, tokens = (last - first for last, first in zip(marks[-1], marks[WARM - 1], strict=True))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"losses": [], "tokens": tokens, "per_cpu_s": tokens / cpu, "per_s": tokens / clock, "peak_mb": peak}


def trl_rate(step: int, steps: int) -> float:
    """The share of the learning rate that transformers' cosine schedule gives at a step: its first one is 0."""
    if step < ALIKE_WARMUP:
        return step / ALIKE_WARMUP
    return max(0.0, 0.5 * (1 + math.cos(math.pi * (step - ALIKE_WARMUP) / (steps - ALIKE_WARMUP))))


if __name__ == "__main__":
    main()
