"""The transformer student: a pretrained base fine-tuned to predict after every step whether it is correct."""

from __future__ import annotations

import hashlib
import math
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from critic_prm.errors import ConfigError, InputError
from critic_prm.registry import install
from distill.data import Row, TrainingSet
from distill.layouts import Encoded, Encoder, make_encoder
from distill.settings import DEFAULT, LoadOptions, TrainingSettings
from distill.sft.tokens import Tokens
from distill.types import Scorer, Student, StudentType, Trained

if TYPE_CHECKING:
    from distill.training.batches import Prepared
    from distill.training.network import Network


@dataclass(frozen=True, slots=True)
class Transformer(Student):
    """A base (a hub name or a local folder) and how to train it. See `Student`."""

    base: str
    settings: TrainingSettings = field(default_factory=TrainingSettings)

    def train(self, data: TrainingSet, *, seed: int, say: Callable[[str], None], work: Path | None = None) -> Trained:
        """Fine-tune on `data.train`, with early stopping on `data.dev`.

        `work` receives checkpoints and metrics; see `loop.Run`. Raises ConfigError if torch or the requested device is missing,
        and InputError for a base or rows that cannot be used.
        """
        require_torch()
        from distill.losses.loss import check_rows, check_settings, open_loss
        from distill.training.domains import DomainWeightLearner, domain_numbers, make_weights, split_trusted
        from distill.training.loop import evaluate_dev, fit, open_run, run_name
        from distill.training.network import ensure_padding_token, open_network, open_tokenizer, trainable

        check_settings(self.settings)
        settings, loss = self.settings.resolved(), open_loss(self.settings.loss)
        train_rows, trusted_rows = split_trusted(data.train, settings.trusted)
        check_rows(settings.loss, train_rows, f"{data.folder}/train.jsonl")
        run = open_run(settings, seed, work, say)
        tokenizer = open_tokenizer(self.base)
        network = open_network(self.base, settings, extra=loss.extra_bias, seed=seed, say=run.say)
        require_room(work, network.model)
        ensure_padding_token(tokenizer, network.model)
        encoder = encoder_for(tokenizer, network.model.config, network.causal, settings)
        prepared = partial(prepare_rows, encoder=encoder, settings=settings, causal=network.causal, say=run.say)
        train = prepared(train_rows, f"{data.folder}/train", whole=loss.label_kind == "outcomes")
        domains = make_weights(settings, domain_numbers(train_rows), trusted_rows, run.say)
        learner = None
        if domains is not None and domains.learned:
            learner = DomainWeightLearner(domains, network, train, prepared(trusted_rows, settings.trusted), settings, seed)
        dev = prepared(data.dev, f"{data.folder}/dev")
        require_vocabulary(self.base, network.model, (*train.encoded, *dev.encoded))
        run.say(
            f"{self.base}: {sum(p.numel() for p in trainable(network.model).values()):,} of"
            f" {sum(p.numel() for p in network.model.parameters()):,} weights to train,"
            f" on {network.head.weight.device} in {str(network.dtype).removeprefix('torch.')}"
        )
        summary = fit(
            network,
            train,
            lambda: evaluate_dev(network, dev, settings, run.processes),
            settings,
            replace(run, name=run_name([f"{self.base} {trusted_rows}"], settings, digest_of(data), seed)),
            domains=domains,
            learner=learner,
            heads=network.head.weight if network.heads > 1 else None,
        )
        if domains is not None:
            summary["domain_weights"] = domains.by_name()
        steps = sum(label is not None for row in train.rows for label in row.labels)
        return Trained(
            _scorer(network, encoder, settings),
            "transformer",
            len(train.rows),
            steps,
            self.base,
            {"processes": run.processes.size, **summary, "settings": asdict(settings)},
            run.leads,
        )


def load(folder: Path, loading: LoadOptions = DEFAULT) -> Scorer:
    """Open a verifier folder. Raises ValueError if it lacks a head or weights, ConfigError if a requirement is missing."""
    require_torch()
    from distill.scoring.scorer import open_scorer

    return open_scorer(folder, loading)


def require_torch() -> None:
    """Raise ConfigError if the packages for transformer students are not installed."""
    from importlib.util import find_spec

    missing = [name for name in ("torch", "transformers", "accelerate") if find_spec(name) is None]
    if missing:
        raise ConfigError(f"a transformer student needs {', '.join(missing)}; install it with: {install('train')}")


def require_room(work: Path | None, model: Any) -> None:
    """Raise InputError if the disk lacks room for the trained model and its best weights so far."""
    if work is None:
        return
    from distill.training.network import trainable

    place = next(parent for parent in work.absolute().parents if parent.is_dir())
    needed = sum(4 * p.numel() for p in (*model.parameters(), *trainable(model).values()))
    free = shutil.disk_usage(place).free
    if free < needed:
        raise InputError(
            str(place),
            f"{free / 1e9:.1f} GB are free, and the verifier with its best weights so far takes {needed / 1e9:.1f} GB",
            "make room, or name a folder on another disk",
        )


def require_vocabulary(base: str, model: Any, sequences: Iterable[Encoded | Tokens]) -> None:
    """Raise InputError if the tokenizer produces tokens that have no embedding in the model."""
    size = model.get_input_embeddings().num_embeddings
    highest = max(int(sequence.ids.max()) for sequence in sequences)
    if highest >= size:
        raise InputError(
            base,
            f"its tokenizer produces token {highest}, but its model has {size} embeddings",
            "use the tokenizer of this model",
        )


def encoder_for(tokenizer: Any, config: Any, causal: bool, settings: TrainingSettings) -> Encoder:
    """Create the encoder of a base: the layout of the settings, and the lower of their maximum length and the base's."""
    longest = settings.resolved().max_length or 0
    limits = [longest, getattr(config, "max_position_embeddings", None) or longest]
    if not causal:
        limits.append(tokenizer.model_max_length)  # RoBERTa counts positions from 2, which only its tokenizer's limit reflects
    return make_encoder(tokenizer, settings.layout, min(limits), chat_template=settings.chat_template, causal=causal)


def prepare_rows(
    rows: Sequence[Row],
    where: str,
    *,
    encoder: Encoder,
    settings: TrainingSettings,
    causal: bool,
    say: Callable[[str], None],
    whole: bool = True,
) -> Prepared:
    """Return the rows that can be learned from, with their encoded sequences.

    Unless `whole`, a causal model's sequences end at the last step with a label, since nothing after it affects the loss.
    Reports the number of dropped steps; raises InputError if too many labels were dropped.
    """
    from distill.training.batches import prepare
    from distill.training.domains import domain_numbers

    rows = [row for row in rows if row.weight > 0]
    for row in rows:
        if any(label is not None and not 0 <= label <= 1 for label in row.labels):
            raise InputError(f"{where}: {row.id}", f"its labels are {row.labels}", "each is P(correct) from 0 to 1, or None")
    encoded = encoder.encode_many([(row.problem, row.steps) for row in rows])
    labels = sum(label is not None for row in rows for label in row.labels)
    lost = sum(label is not None for row, e in zip(rows, encoded, strict=True) for label in row.labels[len(e.ends) :])
    if lost > settings.allow_dropped * labels:
        share = math.ceil(1000 * lost / labels) / 1000
        raise InputError(
            where,
            f"{lost} of {labels} labels are lost: their steps do not fit into {encoder.max_length} tokens",
            f"raise --max-length, split long steps, or allow it with --allow-dropped {share:g}",
        )
    dropped = sum(e.dropped for e in encoded)
    if dropped:
        say(f"{where}: {dropped} steps, {lost} with a label, do not fit into {encoder.max_length} tokens and are dropped")
    kept: list[tuple[Row, Encoded]] = []
    for row, e in zip(rows, encoded, strict=True):
        used = [n + 1 for n in range(len(e.ends)) if row.labels[n] is not None or (row.votes and row.votes[n][1])]
        steps = len(e.ends) if whole else max(used, default=0)
        if steps:
            kept.append((row, e.cut(steps) if causal and not whole else e))
    if not kept:
        raise InputError(where, "no row has a step that fits", "raise --max-length, or use other rows")
    pad, domains = encoder.tokenizer.pad_token_id, domain_numbers(rows)
    return prepare([row for row, _ in kept], [e for _, e in kept], pad, causal=causal, domains=domains)


def digest_of(data: TrainingSet) -> str:
    """Return a digest of the rows, by which a run recognizes its checkpoints."""
    return data.fingerprint or hashlib.sha256(repr((data.train, data.dev)).encode()).hexdigest()


def _scorer(network: Network, encoder: Encoder, settings: TrainingSettings) -> Scorer:
    from distill.scoring.scorer import scorer_of
    from distill.training.network import plain_model

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


STUDENT = StudentType(
    make=lambda base, settings, options: Transformer(base, settings),
    load=load,
    takes_bare_base=True,
    settings={field.name for field in fields(TrainingSettings)},
    has_backends=True,
)
