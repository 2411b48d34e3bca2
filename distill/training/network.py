"""Build a token-classification network with two logits per head, read only at step ends."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from critic_prm.errors import ConfigError, InputError, UsageError
from distill.layouts import Encoded
from distill.losses.loss import Outputs
from distill.scoring.attention import use_attention
from distill.settings import TrainingSettings, parse_lora
from distill.training.batches import Batch, collate, pack

LABELS = {0: "incorrect", 1: "correct"}
HEADS = "heads.safetensors"
ALIGN = 32
"""Multiple to which lengths are rounded up for bf16 on a CPU.

oneDNN compiles and caches code for every shape, which takes 40 MB more with every step of a small model. Rounding leaves few
shapes, and is faster.
"""


class StepHead(nn.Module):
    """Linear heads that are read at step ends only, in float32: `weight` (2 H + E, d), for H heads and E extra outputs.

    It replaces the base's own classifier, so whatever the base does before its classifier still applies. `at` holds the
    positions to read (see `Batch.at`); `hidden` holds the states read last.
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)
        self.at: Tensor | None = None
        self.hidden: Tensor | None = None

    def forward(self, states: Tensor) -> Tensor:
        flat = states.flatten(0, -2)
        self.hidden = (flat if self.at is None else flat[self.at]).float()
        with torch.autocast(states.device.type, enabled=False):
            return F.linear(self.hidden, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class Network:
    """A model with its `StepHead` in place.

    `causal`: tokens do not depend on later tokens. `packs`: it accepts rows packed end to end, without padding.
    """

    model: Any
    head: StepHead
    heads: int
    causal: bool
    dtype: torch.dtype
    packs: bool = False

    @property
    def device(self) -> torch.device:
        return self.head.weight.device

    def __call__(self, batch: Batch) -> list[Outputs]:
        """Return the outputs of each head at the step ends of the batch."""
        inputs, self.head.at = self._inputs(batch)
        with torch.autocast(batch.ids.device.type, dtype=self.dtype, enabled=self.dtype != torch.float32):
            outputs = self.model(**inputs).logits
        hidden, self.head.hidden = self.head.hidden, None
        assert hidden is not None
        logits, extra = outputs[:, : 2 * self.heads], outputs[:, 2 * self.heads :]
        return [Outputs(logits[:, 2 * h : 2 * h + 2], hidden, extra) for h in range(self.heads)]

    def _inputs(self, batch: Batch) -> tuple[dict[str, Any], Tensor]:
        if not self.causal:
            return {"input_ids": batch.ids, "attention_mask": batch.mask}, batch.at
        if not self.packs:
            return {"input_ids": batch.ids, "attention_mask": batch.mask, "use_cache": False}, batch.at
        rows = pack(batch, ALIGN if self.dtype == torch.bfloat16 else 1)
        return {"input_ids": rows.ids, "position_ids": rows.positions, "spans": rows.spans, "use_cache": False}, rows.at


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the weights that are not frozen, by name."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def open_tokenizer(base: str | Path) -> Any:
    """Open the base's tokenizer. If it has no padding token, the end token is used, since padding is never attended to."""
    from transformers import AutoTokenizer

    if re.match(r"[./~]", str(base)) and not Path(base).expanduser().is_dir():
        raise InputError(str(base), "there is no such folder", FIX)
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(base), trust_remote_code=False)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise InputError(str(base), f"its tokenizer cannot be opened: {first_line(error)}", FIX) from None
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = next(
            (t for t in (tokenizer.eos_token, tokenizer.unk_token, tokenizer.bos_token) if t is not None),
            tokenizer.convert_ids_to_tokens(0),
        )
    return tokenizer


def ensure_padding_token(tokenizer: Any, model: Any) -> None:
    """Make sure that the padding token is in the model's embedding table.

    Some tokenizers add a padding token that the model was not trained with.
    """
    if tokenizer.pad_token_id >= model.get_input_embeddings().num_embeddings:
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(0)
    model.config.pad_token_id = tokenizer.pad_token_id


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the progress bars and reports of transformers; this package reports what matters itself."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


FIX = "name a folder that has config.json, weights and a tokenizer, or a model of the hub that can be reached"


def open_network(
    base: str,
    settings: TrainingSettings,
    *,
    extra: tuple[float, ...] = (),
    seed: int = 0,
    say: Callable[[str], None] = lambda line: None,
) -> Network:
    """Load a base and add heads to it. `extra` holds the initial biases of a loss's extra outputs.

    Raises InputError for a base that cannot be opened or is another kind of reward model, UsageError for settings that do not
    fit it, and ConfigError for a missing device.
    """
    model, trained_head = _load(base, say)
    causal = is_causal(model.config)
    keep_layers(model, settings.layers)
    model.config.id2label, model.config.label2id = dict(LABELS), {name: n for n, name in LABELS.items()}
    model.config.problem_type = "single_label_classification"
    place, name = find_head(model)
    head = _make_head(getattr(place, name), settings.heads, extra, seed, trained_head)
    setattr(place, name, head)
    model = adapt(model, settings)
    head.requires_grad_(True)
    device = pick_device(settings.device)
    model = model.to(device)
    packs = causal and device.type == "cpu" and use_packed_attention(model)
    return Network(model, head, settings.heads, causal, pick_dtype(settings.dtype, device), packs)


def use_packed_attention(model: Any) -> bool:
    """Switch a causal model to attention without padding. Returns False, with the model unchanged, if it does not support that.

    Support is tested by running it: models with special attention (windows, soft caps, sinks) give different results or fail.
    """
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    kinds = set(getattr(inner.config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"} or getattr(inner.config, "_attn_implementation", None) != "sdpa":
        return False
    head, was = getattr(*find_head(model)), model.training
    lengths = (3, 7)
    ids = torch.arange(14, device=model.device).view(2, 7) % inner.config.vocab_size
    batch = collate(
        [Encoded(row.cpu().numpy()[:n], np.array([n - 1])) for row, n in zip(ids, lengths, strict=True)], 0, causal=True
    )
    rows = pack(batch)
    model.eval()
    try:
        with torch.no_grad():
            head.at = batch.at
            plain = model(input_ids=batch.ids, use_cache=False).logits
            use_attention(inner)
            head.at = rows.at
            packed = model(input_ids=rows.ids, position_ids=rows.positions, spans=rows.spans, use_cache=False).logits
        if torch.allclose(plain, packed, rtol=1e-3, atol=1e-4):
            return True
    except (TypeError, ValueError, RuntimeError, AttributeError):
        pass
    finally:
        model.train(was)
    inner.set_attn_implementation("sdpa")
    return False


def plain_model(network: Network) -> tuple[Any, dict[str, Tensor]]:
    """Convert the network to a plain AutoModelForTokenClassification with adapters merged.

    The plain classifier is the mean of the heads. Also returns the tensors that it cannot hold: the single heads ("weight" (H,
    2, d), "bias" (H, 2)) if there are several, and "extra.weight" (E, d), "extra.bias" (E,). The network must not be used
    afterwards.
    """
    model = network.model.merge_and_unload() if hasattr(network.model, "merge_and_unload") else network.model
    if network.packs:
        model.set_attn_implementation("sdpa")
    weight, bias = network.head.weight.detach(), network.head.bias.detach()
    count = 2 * network.heads
    single, single_bias = weight[:count].unflatten(0, (network.heads, 2)), bias[:count].unflatten(0, (network.heads, 2))
    plain = nn.Linear(weight.shape[1], 2, device=weight.device)
    with torch.no_grad():
        plain.weight.copy_(single.mean(0))
        plain.bias.copy_(single_bias.mean(0))
    setattr(*find_head(model), plain)
    model.config.num_labels = 2
    more: dict[str, Tensor] = {}
    if network.heads > 1:
        more |= {"weight": single.clone(), "bias": single_bias.clone()}
    if len(weight) > count:
        more |= {"extra.weight": weight[count:].clone(), "extra.bias": bias[count:].clone()}
    return model, more


def is_causal(config: Any) -> bool:
    """Return whether a model with this configuration reads from left to right only."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_FOR_MASKED_LM_MAPPING_NAMES

    kind = config.model_type
    return kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and kind not in MODEL_FOR_MASKED_LM_MAPPING_NAMES


def find_head(model: Any) -> tuple[Any, str]:
    """Return the module that holds the classifier, and its name there: "score" in causal models, "classifier" in encoders."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    return inner, next(name for name in ("score", "classifier") if hasattr(inner, name))


def find_layers(model: Any) -> tuple[nn.Module, str, nn.ModuleList]:
    """Return the module that holds the list of layers, the name of the list in it, and the list."""
    count = model.config.num_hidden_layers
    for parent in model.modules():
        for name, child in parent.named_children():
            if isinstance(child, nn.ModuleList) and len(child) == count:
                return parent, name, child
    raise UsageError(f"the layers of a {model.config.model_type} base were not found; leave --layers and --freeze out")


def pick_device(wanted: str) -> torch.device:
    """Resolve a device name; "auto" is this process's GPU if there is one. Raises ConfigError for a missing device."""
    from accelerate import PartialState

    own = torch.device(PartialState().device)
    if wanted in ("auto", own.type):
        return own
    try:
        device = torch.device(wanted)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, ValueError) as error:
        raise ConfigError(f"the device {wanted!r} cannot be used here: {first_line(error)}; leave --device out") from None
    return device


def pick_dtype(wanted: str, device: torch.device) -> torch.dtype:
    """Resolve the data type of the computation; "auto" is bf16 where the hardware computes faster in it than in fp32."""
    if wanted == "auto":
        return torch.bfloat16 if _has_bf16(device) else torch.float32
    return torch.bfloat16 if wanted == "bf16" else torch.float32


def _has_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        has_amx: Callable[[], bool] = torch.cpu._is_amx_tile_supported
        has_avx512_bf16: Callable[[], bool] = torch.cpu._is_avx512_bf16_supported
        return has_amx() or has_avx512_bf16()
    return False


def _load(base: str, say: Callable[[str], None]) -> tuple[Any, bool]:
    """Load the base with two classes, and return whether its head was already trained for them."""
    from transformers import AutoConfig, AutoModelForTokenClassification

    try:
        config = AutoConfig.from_pretrained(base, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(base, f"it cannot be opened as a model: {first_line(error)}", FIX) from None
    architecture = (getattr(config, "architectures", None) or [""])[0]
    has_head = architecture.endswith("ForTokenClassification")
    problem = ""
    if has_head and config.num_labels != 2:
        problem = f"it classifies tokens into {config.num_labels} classes, but a verifier has 2"
    elif architecture.endswith(("ForProcessRewardModel", "ForRewardModel")):
        problem = f"it is a process reward model of another kind ({architecture}), whose head does not fit"
    if problem:
        raise InputError(base, problem, "name the model that it was trained from")
    if has_head:
        say(f"{base} is already a process reward model: training continues from its head")
    options = {"num_labels": 2, "ignore_mismatched_sizes": not has_head}
    model, missing = load_base(AutoModelForTokenClassification, base, "for token classification", **options)
    absent = [name for name in missing if name.startswith(model.base_model_prefix + ".")]
    if absent or (has_head and missing):
        raise InputError(base, f"its weights lack {', '.join(missing[:3])}", "copy or download it again")
    return model, has_head


def load_base(loader: Any, base: str, what: str, **options: Any) -> tuple[Any, list[str]]:
    """Load a base in float32 and without dropout; return it with the names of the weights that it lacks.

    `loader` is a class of transformers. Raises InputError, which says that the base cannot be opened `what`.
    """
    try:
        with quiet():
            model, report = loader.from_pretrained(
                base, dtype=torch.float32, output_loading_info=True, trust_remote_code=False, use_safetensors=True, **options
            )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise InputError(base, f"it cannot be opened {what}: {first_line(error)}", FIX) from None
    remove_dropout(model)
    return model, sorted(report["missing_keys"])


def save_model(model: Any, folder: Path) -> None:
    """Write a model in the format of transformers. Raises OSError."""
    from safetensors import SafetensorError

    try:
        with quiet():
            model.save_pretrained(folder)
    except SafetensorError as error:  # how the library reports a full disk
        raise OSError(str(error)) from None


def _make_head(old: Any, heads: int, extra: tuple[float, ...], seed: int, trained_head: bool) -> StepHead:
    generator = torch.Generator().manual_seed(seed)
    size = old.in_features
    weight = torch.zeros(2 * heads + len(extra), size)
    bias = torch.zeros(len(weight))
    # Several heads must start different, or they would stay identical and agree about everything.
    weight[: 2 * heads].normal_(0.0, 0.02, generator=generator)
    if trained_head:
        weight[: 2 * heads] = old.weight.detach().repeat(heads, 1) + (heads > 1) * weight[: 2 * heads]
        bias[: 2 * heads] = old.bias.detach().repeat(heads) if old.bias is not None else 0.0
    bias[2 * heads :] = torch.tensor(extra)
    return StepHead(weight, bias)


def remove_dropout(model: Any) -> None:
    """Disable dropout, so that training computes the same numbers as scoring.

    On data of this size, dropout adds nothing to weight decay.
    """
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        elif isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0


def keep_layers(model: Any, count: int | None) -> None:
    """Remove all layers but the first `count`; None keeps them all."""
    if count is None:
        return
    parent, name, layers = find_layers(model)
    if count > len(layers):
        raise UsageError(f"--layers is {count}, but the base has {len(layers)} layers")
    setattr(parent, name, layers[:count])
    model.config.num_hidden_layers = count
    if getattr(model.config, "layer_types", None):
        model.config.layer_types = model.config.layer_types[:count]


def adapt(model: Any, settings: TrainingSettings) -> Any:
    """Return the model with adapters or with frozen weights, and with checkpointing of activations, as the settings say."""
    if settings.lora:
        model = add_adapters(model, settings.lora)
    else:
        freeze_base(model, settings.freeze)
    if settings.checkpointing:
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable({"use_reentrant": False})
    return model


def freeze_base(model: Any, what: str) -> None:
    if what == "none":
        return
    if what == "all":
        model.requires_grad_(False)
        return
    model.get_input_embeddings().requires_grad_(False)
    if what.isdecimal():
        layers = find_layers(model)[2]
        if int(what) > len(layers):
            raise UsageError(f"--freeze is {what}, but the base has {len(layers)} layers")
        for layer in layers[: int(what)]:
            layer.requires_grad_(False)


def add_adapters(model: Any, text: str) -> Any:
    from peft import LoraConfig, get_peft_model

    lora = parse_lora(text)
    config = LoraConfig(r=lora.r, lora_alpha=lora.alpha, lora_dropout=0.0, target_modules=list(lora.targets) or "all-linear")
    try:
        with warnings.catch_warnings():  # peft uses a deprecated name of transformers
            warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing", category=FutureWarning)
            return get_peft_model(model, config)
    except ValueError as error:
        raise UsageError(f"lora: {first_line(error)}") from None


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
