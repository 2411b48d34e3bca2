"""Define the settings of training and of loading verifiers, which are also the options of the commands."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal, get_args

from critic_prm.data.hashing import check_shares, parse_shares
from critic_prm.errors import UsageError
from critic_prm.option import Option, check_fields

SCHEDULES = ("cosine", "linear", "constant")
Dtype = Literal["auto", "fp32", "bf16"]
LayoutName = Literal["default", "trl", "qwen", "math-shepherd"]
Backend = Literal["torch", "onnx", "vllm"]


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

    layers: Annotated[int | None, Option(panel="A transformer's model")] = None
    """Keep the first N layers of the base."""
    freeze: Annotated[str, Option(metavar="WHAT")] = "none"
    """Weights to freeze: none, embeddings, all, or N for the embeddings and the first N layers."""
    lora: Annotated[str, Option(metavar="r=16")] = ""
    """Train LoRA adapters, such as r=16,alpha=32, and merge them at the end; the base is frozen."""
    heads: int = 1
    """Number of heads; the spread of their scores is the uncertainty."""
    loss: Annotated[str, Option(panel="What it learns", metavar="LOSS", plugins="loss")] = "soft"
    """Training loss."""
    domain_weights: Annotated[str, Option(metavar="SOURCE=W,...")] = ""
    """Weight of rows by source; 1 for other sources."""
    trusted: Annotated[str, Option(metavar="FILE|SOURCE")] = ""
    """Learn source weights from these rows, which are not trained on."""
    label_smoothing: float = 0.0
    """Amount of label smoothing, from 0 to below 1."""
    class_weights: Annotated[tuple[float, float] | None, Option(metavar="WRONG RIGHT")] = None
    """Loss weights of incorrect and correct steps."""
    layout: Annotated[LayoutName, Option(panel="What it reads")] = "default"
    """Text layout around the steps."""
    chat_template: bool = False
    """Put the problem into the base's chat template."""
    max_length: Annotated[int | None, Option(min=8)] = None
    """Maximum tokens per sequence; default: 2048, for chats 8192. The base's own limit applies if it is lower."""
    allow_dropped: float = 0.01
    """Share of the labels that may be lost because their steps do not fit into --max-length."""
    lr: Annotated[float | None, Option(panel="How it trains")] = None
    """Peak learning rate; default: 2e-5, with --lora 2e-4, for heads alone 1e-3."""
    weight_decay: float = 0.01
    """Weight decay of AdamW, applied to matrices only."""
    epochs: int = 3
    """Number of passes over the training rows."""
    batch_tokens: int = 8192
    """Tokens per optimizer step."""
    micro_tokens: int = 0
    """Maximum tokens per forward pass and process, with padding; 0: automatic."""
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    """Learning-rate schedule after the warmup."""
    warmup: float = 0.05
    """Share of all steps in which the learning rate rises linearly."""
    clip: float = 1.0
    """Maximum gradient norm; 0 disables clipping."""
    evaluations: int = 1
    """Evaluations on dev per epoch."""
    patience: int = 3
    """Stop after N evaluations without a better F1; 0: never."""
    dtype: Dtype = "auto"
    """Precision of the computation; auto: bf16 where the hardware computes faster in it."""
    device: str = "auto"
    """auto, cpu, cuda, or a device such as cuda:1."""
    checkpointing: bool = False
    """Recompute activations to save memory."""
    save_minutes: float = 5.0
    """Minutes between checkpoints."""

    def resolved(self, max_length: int = 2048) -> TrainingSettings:
        """Return the settings of a run: those that are not given have the default of the task."""
        return self if self.max_length else replace(self, max_length=max_length)

    def __post_init__(self) -> None:
        for name, fits, must in (
            ("layers", self.layers is None or self.layers >= 1, "1 or more"),
            ("freeze", self.freeze in ("none", "embeddings", "all") or self.freeze.isdecimal(),
             "none, embeddings, all, or the number of layers to freeze"),
            ("heads", 1 <= self.heads <= 256, "from 1 to 256"),
            ("label_smoothing", 0 <= self.label_smoothing < 1, "from 0 to below 1"),
            ("class_weights", self.class_weights is None or all(0 < w < math.inf for w in self.class_weights), "above 0, both"),
            ("layout", self.layout in get_args(LayoutName), f"one of {', '.join(get_args(LayoutName))}"),
            ("max_length", self.max_length is None or self.max_length >= 8, "8 or more"),
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
            ("dtype", self.dtype in get_args(Dtype), f"one of {', '.join(get_args(Dtype))}"),
            ("save_minutes", self.save_minutes >= 0, "0 or more"),
        ):  # fmt: skip
            if not fits:
                raise UsageError(f"{name.replace('_', '-')} is {getattr(self, name)!r}; it must be {must}")
        if self.lora:
            parse_lora(self.lora)
            if self.freeze != "none":
                raise UsageError("--lora and --freeze cannot be combined: with adapters, the base is already frozen")


DEFAULT_TRAINING = TrainingSettings()


def parse_lora(text: str) -> Lora:
    """Parse "r=16", "r=8,alpha=32" or "r=8,targets=q_proj+v_proj". Raises UsageError."""
    values: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if not equals or name not in {f.name for f in fields(Lora)}:
            raise UsageError(f"lora is {text!r}; write r=16, r=16,alpha=32 or r=16,targets=q_proj+v_proj")
        try:
            values[name] = tuple(value.split("+")) if name == "targets" else int(value)
        except ValueError:
            raise UsageError(f"lora: {name} is {value!r}; it must be a whole number") from None
    lora = Lora(**{"alpha": 2 * values.get("r", 16), **values}) if values else Lora()
    if lora.r < 1 or lora.alpha < 1:
        raise UsageError(f"lora is {text!r}; r and alpha must be above 0")
    return lora


def default_lr(settings: TrainingSettings) -> float:
    """Return the learning rate: 2e-5 for full fine-tuning, 2e-4 for adapters, 1e-3 for heads alone, unless `lr` is set."""
    return settings.lr or (2e-4 if settings.lora else 1e-3 if settings.freeze == "all" else 2e-5)


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How to open a verifier. Raises UsageError for an invalid value or combination."""

    backend: Annotated[Backend, Option(panel="How a transformer verifier is computed")] = "torch"
    """Backend of a transformer verifier: torch, onnx (after `export`), or vllm (by server or in this process)."""
    dtype: Dtype = "auto"
    """Precision of the computation; auto: bf16 on a GPU that supports it, else fp32."""
    device: str = "auto"
    """auto, cpu, cuda, or a device such as cuda:1."""
    base_url: str | None = None
    """URL of a vLLM server that serves the verifier folder; default: a vLLM engine in this process."""

    def __post_init__(self) -> None:
        for name, choices in (("backend", get_args(Backend)), ("dtype", get_args(Dtype))):
            if getattr(self, name) not in choices:
                raise UsageError(f"{name} is {getattr(self, name)!r}; it is one of {', '.join(choices)}")
        if self.base_url and self.backend != "vllm":
            raise UsageError(f"--base-url needs --backend vllm, and the backend is {self.backend}")
        if self.backend != "torch" and (self.dtype, self.device) != ("auto", "auto"):
            raise UsageError(f"--dtype and --device need --backend torch, and the backend is {self.backend}")


DEFAULT = LoadOptions()


@dataclass(frozen=True, slots=True)
class CalibrationSettings:
    """How a profile is computed. Raises UsageError for an invalid value."""

    error_rate: Annotated[str | None, Option(metavar="SHARE[-SHARE]")] = None
    """Share of solutions to flag as erroneous, or a range, such as 0.3-0.7, whose middle is used; default: the share that was
    best on kinds of data left out of training, corrected by labels if there are any."""
    seed: int = 0
    """Random seed of the bootstrap."""
    resamples: Annotated[int, Option(min=100)] = 1000
    """Number of bootstrap resamples for the interval of the threshold."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.error_rate is not None:
            self.shares()

    def shares(self) -> tuple[float, float]:
        """Return both ends of the error rate. Raises UsageError."""
        try:
            low, _, high = (self.error_rate or "").partition("-")
            ends = float(low), float(high or low)
        except ValueError:
            ends = (-1.0, -1.0)
        if not 0 < ends[0] <= ends[1] < 1:
            raise UsageError(f"--error-rate is {self.error_rate!r}; give a share between 0 and 1, or a range such as 0.3-0.7")
        return ends


@dataclass(frozen=True, slots=True)
class ChainOptions:
    """Which judgements are worth learning. Raises UsageError for an invalid value."""

    against: Literal["auto", "gold", "votes"] = "auto"
    """Labels that a critique must match: gold, votes (of its row), or auto (gold if known)."""
    min_agreement: Annotated[float, Option(min=0, max=1)] = 0.5
    """Use votes only if this share of the judgements agrees on the first error."""
    critiques: Literal["off", "error", "all"] = "all"
    """Reject empty, short, copied or looping critiques: off, error (of the wrong step) or all."""
    min_words: int = 3
    """A critique with fewer words is short."""
    max_tokens: Annotated[int, Option(min=1)] = 4096
    """Maximum tokens per answer."""

    def __post_init__(self) -> None:
        for name, valid, must in (
            ("against", self.against in ("auto", "gold", "votes"), "auto, gold or votes"),
            ("min_agreement", 0 <= self.min_agreement <= 1, "a share from 0 to 1"),
            ("critiques", self.critiques in ("off", "error", "all"), "off, error or all"),
            ("min_words", self.min_words >= 0, "0 or more"),
            ("max_tokens", self.max_tokens >= 1, "1 or more"),
        ):
            if not valid:
                raise UsageError(f"{name.replace('_', '-')} is {getattr(self, name)!r}; it must be {must}")


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """How to convert judgements to chats. Raises UsageError for an invalid value."""

    style: str | None = None
    """Style in which the student will be asked; default: the judge's style."""
    chain: ChainOptions = ChainOptions()
    """Which judgements to keep."""
    chains: Annotated[int, Option(min=0)] = 1
    """Keep at most N judgements per solution; 0: all."""
    balance: bool = True
    """Balance train: as many answers with an error as without."""
    split: Annotated[tuple[float, float, float], Option(parse=parse_shares, metavar="SHARES")] = (0.9, 0.05, 0.05)
    """Shares of problems in train, dev and test; default: 0.9,0.05,0.05."""
    seed: Annotated[int, Option(envvar="CRITIC_PRM_SEED")] = 0
    """Random seed of the split and of balancing."""

    def __post_init__(self) -> None:
        check_shares(self.split)
        if self.chains < 0:
            raise UsageError(f"chains is {self.chains}; it must be at least 1, or 0 for all")
