"""Define the settings of transformer training with their defaults, validated before anything is loaded."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from critic_prm.errors import UsageError

SCHEDULES = ("cosine", "linear", "constant")
DTYPES = ("auto", "fp32", "bf16")


@dataclass(frozen=True, slots=True)
class Lora:
    """LoRA adapter settings."""

    r: int = 16
    """Rank of the adapters."""
    alpha: int = 32
    """Scale of the adapters."""
    targets: tuple[str, ...] = ()
    """Names of the linear layers that get adapters; empty means all except the head."""


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """Settings of a training run, apart from its data, base and seed. Raises UsageError for an invalid value or combination."""

    layers: int | None = None
    """Number of layers to keep, from the first; None keeps all."""
    freeze: str = "none"
    """Part of the base to freeze: "none", "embeddings", "all", or N for the embeddings and the first N layers."""
    lora: str = ""
    """LoRA settings such as "r=16,alpha=32"; if set, adapters are trained and the base is frozen."""
    heads: int = 1
    """Number of heads; the spread of their scores is the uncertainty."""
    loss: str = "soft"
    """Name of a module in `losses/`."""
    domain_weights: str = ""
    """Weights per source of the training rows, such as "gsm8k=1.5,math=0.5"."""
    trusted: str = ""
    """Trusted set from which the weights per source are learned: one of the sources, or a file of training rows."""
    label_smoothing: float = 0.0
    """Label smoothing in [0, 1)."""
    class_weights: tuple[float, float] | None = None
    """Loss weights of incorrect and correct steps."""
    layout: str = "default"
    """Name of a text layout in `layouts.LAYOUTS`."""
    chat_template: bool = False
    """Put the problem into the tokenizer's chat template."""
    max_length: int = 2048
    """Maximum sequence length in tokens; the base's own limit applies if it is lower."""
    allow_dropped: float = 0.01
    """Share of the labels that may be lost because their steps do not fit."""
    lr: float | None = None
    """Peak learning rate; None for `default_lr`."""
    weight_decay: float = 0.01
    """Weight decay of AdamW, applied to matrices only."""
    epochs: int = 3
    """Number of passes over the training rows."""
    batch_tokens: int = 8192
    """Tokens per optimizer step."""
    micro_tokens: int = 0
    """Maximum tokens per forward pass in each process; 0 chooses by device."""
    schedule: str = "cosine"
    """Learning-rate schedule after warmup: "cosine", "linear" or "constant"."""
    warmup: float = 0.05
    """Share of all steps in which the learning rate rises linearly."""
    clip: float = 1.0
    """Maximum gradient norm; 0 disables clipping."""
    evaluations: int = 1
    """Dev evaluations per epoch."""
    patience: int = 3
    """Stop after this many dev evaluations without a better F1; 0 disables early stopping."""
    dtype: str = "auto"
    """Data type of the computation: "auto", "fp32" or "bf16"."""
    device: str = "auto"
    """Device such as "auto", "cpu", "cuda" or "cuda:1"."""
    checkpointing: bool = False
    """Use gradient checkpointing, which saves memory and costs time."""
    save_minutes: float = 5.0
    """Minutes between checkpoints."""

    def __post_init__(self) -> None:
        from distill.layouts import LAYOUTS

        for name, fits, must in (
            ("layers", self.layers is None or self.layers >= 1, "1 or more"),
            ("freeze", self.freeze in ("none", "embeddings", "all") or self.freeze.isdecimal(),
             "none, embeddings, all, or the number of layers to freeze"),
            ("heads", 1 <= self.heads <= 256, "from 1 to 256"),
            ("label_smoothing", 0 <= self.label_smoothing < 1, "from 0 to below 1"),
            ("class_weights", self.class_weights is None or all(0 < w < math.inf for w in self.class_weights), "above 0, both"),
            ("layout", self.layout in LAYOUTS, f"one of {', '.join(LAYOUTS)}"),
            ("max_length", self.max_length >= 8, "8 or more"),
            ("allow_dropped", 0 <= self.allow_dropped <= 1, "a share from 0 to 1"),
            ("lr", self.lr is None or 0 < self.lr < math.inf, "above 0"),
            ("weight_decay", 0 <= self.weight_decay < math.inf, "0 or more"),
            ("epochs", self.epochs >= 1, "1 or more"),
            ("batch_tokens", self.batch_tokens >= 1, "1 or more"),
            ("micro_tokens", self.micro_tokens >= 0, "0 or more"),
            ("schedule", self.schedule in SCHEDULES, f"one of {', '.join(SCHEDULES)}"),
            ("warmup", 0 <= self.warmup < 1, "a share from 0 to below 1"),
            ("clip", 0 <= self.clip < math.inf, "0 or more"),
            ("evaluations", self.evaluations >= 1, "1 or more"),
            ("patience", self.patience >= 0, "0 or more"),
            ("dtype", self.dtype in DTYPES, f"one of {', '.join(DTYPES)}"),
            ("save_minutes", self.save_minutes >= 0, "0 or more"),
        ):  # fmt: skip
            if not fits:
                raise UsageError(f"{name.replace('_', '-')} is {getattr(self, name)!r}; it must be {must}")
        if self.lora:
            parse_lora(self.lora)
            if self.freeze != "none":
                raise UsageError("lora and freeze exclude each other: with adapters, the base is frozen already")


def parse_lora(text: str) -> Lora:
    """Parse "r=16", "r=8,alpha=32" or "r=8,targets=q_proj+v_proj". Raises UsageError."""
    found: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if not equals or name not in {f.name for f in fields(Lora)}:
            raise UsageError(f"lora is {text!r}; write r=16, r=16,alpha=32 or r=16,targets=q_proj+v_proj")
        try:
            found[name] = tuple(value.split("+")) if name == "targets" else int(value)
        except ValueError:
            raise UsageError(f"lora: {name} is {value!r}; it must be a whole number") from None
    lora = Lora(**{"alpha": 2 * found.get("r", 16), **found}) if found else Lora()
    if lora.r < 1 or lora.alpha < 1:
        raise UsageError(f"lora is {text!r}; r and alpha must be above 0")
    return lora


def default_lr(settings: TrainingSettings) -> float:
    """Return the learning rate: 2e-5 for full fine-tuning, 2e-4 for adapters, 1e-3 for heads alone, unless `lr` is set."""
    return settings.lr or (2e-4 if settings.lora else 1e-3 if settings.freeze == "all" else 2e-5)
