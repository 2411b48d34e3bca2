"""The transformer student: a pretrained base fine-tuned to say after every step whether it is right."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from critic_prm.errors import ConfigError, InputError
from distill.data import Row, TrainingSet
from distill.scoring import DEFAULT, Opening, Runner
from distill.settings import Settings
from distill.student import Item, Scorer, Trained

if TYPE_CHECKING:
    from distill.batches import Prepared
    from distill.calibration import Floats
    from distill.loop import Task, Team
    from distill.network import Network
    from distill.scoring.machine import Machine
    from distill.sequences import Encoded, Encoder

SCORING = "scoring.json"


@dataclass(frozen=True, slots=True)
class Transformer:
    """A base (a hub name or a local folder) and how to train it. See `Student`."""

    base: str
    settings: Settings = field(default_factory=Settings)

    def train(self, data: TrainingSet, *, seed: int, say: Callable[[str], None], work: Path | None = None) -> Trained:
        """Fine-tune on `data.train`, early stopping on `data.dev`. `work` takes checkpoints and metrics; see `loop.fit`.

        Raises ConfigError without torch or the device asked for, InputError for a base or rows that cannot be used.
        """
        require_torch()
        import torch

        from distill.dev import look
        from distill.domains import Looking, domain_numbers, make_weights, split_trusted
        from distill.loop import fit
        from distill.losses import check_rows, check_settings, open_loss
        from distill.network import mend_padding, open_network, open_tokenizer
        from distill.progress import watching

        check_settings(self.settings)
        settings, loss = self.settings, open_loss(self.settings.loss)
        own, trusted_rows = split_trusted(data.train, settings.trusted)
        check_rows(settings.loss, own, f"{data.folder}/train.jsonl")
        team = open_team(settings)
        if team.rank:
            say = _silent
        torch.manual_seed(seed)
        tokenizer = open_tokenizer(self.base)
        network = open_network(self.base, settings, extra=loss.START, seed=seed, say=say)
        require_room(work, network)
        mend_padding(tokenizer, network.model)
        encoder = encoder_for(tokenizer, network.model.config, network.causal, settings)
        train, rows = prepare_rows(
            own, encoder, settings, f"{data.folder}/train", loss.WANTS == "outcomes", network.causal, say
        )
        domains = make_weights(settings, domain_numbers(own), trusted_rows, say)
        looking = None
        if domains is not None and domains.learned:
            trusted, _ = prepare_rows(trusted_rows, encoder, settings, settings.trusted, True, network.causal, say)
            looking = Looking(domains, network, train, trusted, settings, seed)
        dev, dev_rows = prepare_rows(data.dev, encoder, settings, f"{data.folder}/dev", True, network.causal, say)
        require_vocabulary(self.base, network.model, (train, dev))
        say(
            f"{self.base}: {sum(p.numel() for p in network.trainable().values()):,} of"
            f" {sum(p.numel() for p in network.model.parameters()):,} weights to train,"
            f" on {network.head.weight.device} in {str(network.dtype).removeprefix('torch.')}"
        )
        with watching(say) as watch:
            summary = fit(
                network, train, lambda: look(network, dev, dev_rows, settings, team), settings, seed=seed, team=team, work=work,
                run=run_name(f"{self.base} {trusted_rows}", settings, data, seed), watch=watch, domains=domains, beside=looking,
                heads=network.head.weight if network.heads > 1 else None,
            )  # fmt: skip
        if domains is not None:
            summary["domain_weights"] = domains.told()
        steps = sum(label is not None for row in rows for label in row.labels)
        return Trained(
            _scorer(network, encoder, settings),
            self.base,
            {"solutions": len(rows), "steps": steps, "processes": team.size, **summary, "settings": asdict(settings)},
            "transformer",
            team.rank == 0,
        )


def load(folder: Path, opening: Opening = DEFAULT) -> Scorer:
    """Open a verifier's folder. Raises ValueError where it has no head or lacks weights, ConfigError without what it needs."""
    require_torch()
    from distill.network import open_tokenizer
    from distill.sequences import make_encoder

    stored = json.loads((folder / SCORING).read_text("utf-8"))
    tokenizer = open_tokenizer(folder)
    encoder = make_encoder(
        tokenizer,
        stored["layout"],
        stored["max_length"],
        chat_template=stored["chat_template"],
        causal=stored["causal"],
    )
    if opening.backend == "onnx":
        from distill.scoring.onnx import open_onnx

        return TransformerScorer(open_onnx(folder, tokenizer.pad_token_id), encoder, stored)
    if opening.backend == "vllm":
        from distill.scoring.vllm import open_engine, open_server

        runner = open_server(opening.base_url) if opening.base_url else open_engine(folder)
        return TransformerScorer(runner, encoder, stored)
    model, more = open_model(folder, opening)
    return scorer_of(model, more, encoder, stored)


def open_model(folder: Path, opening: Opening) -> tuple[Any, dict[str, Any]]:
    """The model of a verifier's folder on its device, and the further heads; see `load`."""
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForTokenClassification

    from distill.network import HEADS, pick_device, pick_dtype, quiet

    device = pick_device(opening.device)
    dtype = torch.float32 if opening.dtype == "auto" and device.type == "cpu" else pick_dtype(opening.dtype, device)
    with quiet():
        model, report = AutoModelForTokenClassification.from_pretrained(folder, dtype=dtype, output_loading_info=True)
    if report["missing_keys"]:
        raise ValueError(f"its weights lack {', '.join(sorted(report['missing_keys'])[:3])}")
    return model.to(device).eval(), load_file(folder / HEADS) if (folder / HEADS).is_file() else {}


def scorer_of(model: Any, more: dict[str, Any], encoder: Encoder, stored: dict[str, Any]) -> TransformerScorer:
    """The scorer of a plain model, as `network.plain_model` gives it."""
    from distill.scoring.machine import open_machine
    from distill.scoring.running import runner_of

    machine = open_machine(model, more, stored["causal"])
    return TransformerScorer(runner_of(machine, encoder.tokenizer.pad_token_id), encoder, stored, machine, more)


@dataclass(frozen=True, slots=True)
class TransformerScorer:
    """What computes, the encoder before it, and what `scoring.json` says; see `Scorer`.

    Steps that do not fit into the context have a score of nan. `machine` is the model itself where it is computed here.
    """

    runner: Runner
    encoder: Encoder
    stored: dict[str, Any]
    machine: Machine | None = None
    more: dict[str, Any] = field(default_factory=dict)
    batch: int = 256

    @property
    def causal(self) -> bool:
        return bool(self.stored["causal"])

    @property
    def heads(self) -> int:
        """Only the model itself has them: what is exported or served is their mean."""
        return 1 if self.machine is None else int(self.stored["heads"])

    def score(self, items: Sequence[Item]) -> list[Floats]:
        return [p for p, _ in self.score_and_spread(items)]

    def score_and_spread(self, items: Sequence[Item]) -> list[tuple[Floats, Floats | None]]:
        """P(correct) of each step, and the standard deviation of the heads' P(correct), None where there is one head."""
        out = []
        for (_, steps), found in zip(items, self.runner.run(self.encoder.encode_many(items)), strict=True):
            out.append((_padded(found.p, len(steps)), None if found.spread is None else _padded(found.spread, len(steps))))
        return out

    def remembering(self) -> TransformerScorer:
        """The same for solutions that grow: a step that is appended costs that step. Itself where it cannot remember."""
        if self.machine is None or not self.machine.packs:
            return self
        from distill.scoring.memory import Remembering

        return replace(self, runner=Remembering(self.machine))

    def save(self, folder: Path) -> None:
        from safetensors import SafetensorError

        from distill.checkpoint import write
        from distill.network import HEADS, quiet

        assert self.machine is not None, "only a model that is here can be saved"
        try:
            with quiet():
                self.machine.model.save_pretrained(folder)
        except SafetensorError as error:  # a full disk, told by the library in its own way
            raise OSError(str(error)) from None
        self.encoder.tokenizer.save_pretrained(folder)
        if self.more:
            write(folder / HEADS, self.more)
        (folder / SCORING).write_text(json.dumps(self.stored, indent=2) + "\n", encoding="utf-8")


def _padded(values: Floats, steps: int) -> Floats:
    import numpy as np

    return np.concatenate([values, np.full(steps - len(values), np.nan)])


def require_torch() -> None:
    """Raises ConfigError where the packages for transformer students are not installed."""
    from importlib.util import find_spec

    missing = [name for name in ("torch", "transformers", "accelerate") if find_spec(name) is None]
    if missing:
        raise ConfigError(f"a transformer student needs {', '.join(missing)}; install it with: pip install 'critic-prm[train]'")


def require_room(work: Path | None, network: Network | Task) -> None:
    """Raises InputError where the disk has no room for what is trained and its best weights so far."""
    if work is None:
        return
    place = next(parent for parent in work.absolute().parents if parent.is_dir())
    needed = sum(4 * p.numel() for p in (*network.model.parameters(), *network.trainable().values()))
    free = shutil.disk_usage(place).free
    if free < needed:
        raise InputError(
            str(place),
            f"{free / 1e9:.1f} GB are free, and the verifier with its best weights so far takes {needed / 1e9:.1f} GB",
            "make room, or name a folder on another disk",
        )  # fmt: skip


def require_vocabulary(base: str, model: Any, splits: Sequence[Prepared]) -> None:
    """Raises InputError where the tokenizer gives tokens that the model has no vector for."""
    known = model.get_input_embeddings().num_embeddings
    highest = max(int(e.ids.max()) for split in splits for e in split.encoded)
    if highest >= known:
        raise InputError(
            base, f"its tokenizer gives the token {highest}, and its model knows {known}", "the two do not belong together"
        )


def open_team(settings: Settings) -> Team:
    """The processes that torchrun or accelerate launch started, or this one alone."""
    import os

    import torch
    from accelerate import PartialState

    from distill.loop import Team

    # Unless told, accelerate does not look for others where there is no GPU: each would train alone, and write to one place.
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    state = PartialState(cpu=settings.device == "cpu" or (several and not torch.accelerator.is_available()))
    return Team(state.process_index, state.num_processes)


def encoder_for(tokenizer: Any, config: Any, causal: bool, settings: Settings) -> Encoder:
    """The encoder of a base: the settings' layout, and the shorter of their length and the base's."""
    from distill.sequences import make_encoder

    limits = [settings.max_length, getattr(config, "max_position_embeddings", None) or settings.max_length]
    if not causal:
        limits.append(tokenizer.model_max_length)  # RoBERTa counts positions from 2: its tokenizer knows, its config does not
    return make_encoder(tokenizer, settings.layout, min(limits), chat_template=settings.chat_template, causal=causal)


def prepare_rows(
    rows: Sequence[Row],
    encoder: Encoder,
    settings: Settings,
    where: str,
    whole: bool,
    causal: bool,
    say: Callable[[str], None],
) -> tuple[Prepared, list[Row]]:
    """Rows that can be learned from, with their sequences. Unless `whole`, a causal model's sequences end at the last step with
    a label, since nothing after it reaches the loss. Says how many steps were dropped; raises InputError when too many labels
    were."""
    from distill.batches import prepare
    from distill.domains import domain_numbers

    rows = [row for row in rows if row.weight > 0]
    for row in rows:
        if any(label is not None and not 0 <= label <= 1 for label in row.labels):
            raise InputError(f"{where}: {row.id}", f"its labels are {row.labels}", "each is P(correct) from 0 to 1, or None")
    encoded = encoder.encode_many([(row.problem, row.steps) for row in rows])
    labels = sum(label is not None for row in rows for label in row.labels)
    lost = sum(label is not None for row, e in zip(rows, encoded, strict=True) for label in row.labels[len(e.ends) :])
    if lost > settings.allow_dropped * labels:
        raise InputError(
            where,
            f"{lost} of {labels} labels are lost: their steps do not fit into {encoder.max_length} tokens",
            "raise --max-length, split long steps, or allow it with"
            f" --allow-dropped {math.ceil(1000 * lost / labels) / 1000:g}",
        )  # fmt: skip
    dropped = sum(e.dropped for e in encoded)
    if dropped:
        say(f"{where}: {dropped} steps, {lost} with a label, do not fit into {encoder.max_length} tokens and are dropped")
    kept: list[tuple[Row, Encoded]] = []
    for row, e in zip(rows, encoded, strict=True):
        last = max(
            (n + 1 for n in range(len(e.ends)) if row.labels[n] is not None or (row.votes and row.votes[n][1])), default=0
        )
        steps = len(e.ends) if whole else last
        if steps:
            kept.append((row, e.cut(steps) if causal and not whole else e))
    if not kept:
        raise InputError(where, "no row has a step that fits", "raise --max-length, or take other rows")
    domains = domain_numbers(rows)
    pad = encoder.tokenizer.pad_token_id
    return prepare([row for row, _ in kept], [e for _, e in kept], pad, causal=causal, domains=domains), [
        row for row, _ in kept
    ]


def run_name(base: str, settings: Settings, data: TrainingSet, seed: int) -> str:
    """A fingerprint of all that a run's numbers follow from."""
    told = settings_that_matter(settings)
    digest = data.fingerprint or hashlib.sha256(repr((data.train, data.dev)).encode()).hexdigest()
    return hashlib.sha256(json.dumps([base, told, digest, seed], sort_keys=True).encode()).hexdigest()[:16]


def settings_that_matter(settings: Settings) -> dict[str, Any]:
    return {name: value for name, value in asdict(settings).items() if name not in ("save_minutes", "device")}


def _scorer(network: Network, encoder: Encoder, settings: Settings) -> Scorer:
    from distill.network import plain_model

    model, more = plain_model(network)
    stored = {
        "layout": settings.layout,
        "chat_template": settings.chat_template,
        "max_length": encoder.max_length,
        "causal": network.causal,
        "loss": settings.loss,
        "heads": settings.heads,
    }
    return scorer_of(model.eval(), {name: t.cpu() for name, t in more.items()}, encoder, stored)


def _silent(line: str) -> None:
    """Only one of several processes speaks."""
