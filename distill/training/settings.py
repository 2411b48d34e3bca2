"""How a transformer is trained: every choice with its default, checked before anything is loaded."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from critic_prm.errors import UsageError

SCHEDULES = ("cosine", "linear", "constant")
DTYPES = ("auto", "fp32", "bf16")


@dataclass(frozen=True, slots=True)
class Lora:
    """Rank and scale of the adapters; `targets` are names of linear layers, none of them meaning all but the head."""

    r: int = 16
    alpha: int = 32
    targets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """Everything about a training run but its data, its base and its seed. Raises UsageError for what cannot be.

    The student: `layers` keeps the first so many layers of the base; `freeze` leaves "none", "embeddings", the embeddings and
    the first so many layers ("6"), or "all" of the base as it is; `lora` trains adapters instead ("r=16,alpha=32"); `heads`
    is the number of heads whose spread is the uncertainty.

    The goal: `loss` is a module of `losses/`; `label_smoothing` in [0, 1); `class_weights` weigh wrong and right steps;
    `domain_weights` ("source=1.5,...") weigh the rows of a source, and `trusted`, a source or a file of rows, is what the
    weights are learned against.

    The text: `layout` is one of `layouts.LAYOUTS`; `chat_template` puts the problem into the tokenizer's chat template;
    `max_length` is in tokens, and the base's own limit holds where it is lower; `allow_dropped` is the share of labels that may
    be lost because their steps do not fit.

    The run: `lr` None is `default_lr`; a step of the optimizer takes `batch_tokens` tokens, at most `micro_tokens` of them at
    once in each process (0: what suits the device); `warmup` is a share of all steps; `clip` bounds the norm of the gradient
    (0: no bound); dev is scored `evaluations` times an epoch, and after `patience` times without a better F1 (0: never)
    training stops; a checkpoint is written every `save_minutes`.
    """

    layers: int | None = None
    freeze: str = "none"
    lora: str = ""
    heads: int = 1
    loss: str = "soft"
    domain_weights: str = ""
    trusted: str = ""
    label_smoothing: float = 0.0
    class_weights: tuple[float, float] | None = None
    layout: str = "default"
    chat_template: bool = False
    max_length: int = 2048
    allow_dropped: float = 0.01
    lr: float | None = None
    weight_decay: float = 0.01
    epochs: int = 3
    batch_tokens: int = 8192
    micro_tokens: int = 0
    schedule: str = "cosine"
    warmup: float = 0.05
    clip: float = 1.0
    evaluations: int = 1
    patience: int = 3
    dtype: str = "auto"
    device: str = "auto"
    checkpointing: bool = False
    save_minutes: float = 5.0

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
    """Read "r=16", "r=8,alpha=32" or "r=8,targets=q_proj+v_proj". Raises UsageError."""
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
    """What suits what is trained: 2e-5 for a whole base, 2e-4 for adapters, 1e-3 for heads alone."""
    return settings.lr or (2e-4 if settings.lora else 1e-3 if settings.freeze == "all" else 2e-5)
