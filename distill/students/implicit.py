"""The implicit student: a language model trained on outcomes only, scored by its log ratio to a reference."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from critic_prm.errors import InputError
from distill.data import TrainingSet
from distill.layouts import Encoded, Encoder, make_encoder
from distill.settings import DEFAULT, LoadOptions, TrainingSettings
from distill.types import Floats, Item, Scorer, Student, StudentType, Trained, check_settings

if TYPE_CHECKING:
    from distill.training.causal import Policy

BETA = 0.05
"""Factor of the log ratio, in training and in scoring (arXiv 2412.01981)."""

SCORING = "scoring.json"
REFERENCE = "reference"
"""Subfolder of the verifier that holds the reference: the untrained base, relative to which scores are defined."""


@dataclass(frozen=True, slots=True)
class Implicit(Student):
    """A causal base (a hub name or a local folder) and how to train it. See `Student`.

    The reward of a step is beta times the sum over its tokens of log policy - log reference. The rewards of a solution sum to
    the log odds of its outcome, which is all that the loss uses: no step needs a label.
    """

    base: str
    settings: TrainingSettings = field(default_factory=TrainingSettings)
    beta: float = BETA

    def train(self, data: TrainingSet, *, seed: int, say: Callable[[str], None], work: Path | None = None) -> Trained:
        """Train on the outcomes of `data.train`. `work` receives checkpoints and metrics; see `loop.Run`.

        Raises ConfigError if torch or the requested device is missing, InputError for a base that is not a causal language
        model and for rows without outcomes of both kinds.
        """
        from distill.students.transformer import digest_of, encoder_for, prepare_rows, require_torch, require_vocabulary

        require_torch()
        from distill.losses.loss import check_rows
        from distill.training.causal import ImplicitNetwork, open_policy, plain_policy, reference_log_probs
        from distill.training.loop import evaluate_dev, fit, open_run, run_name
        from distill.training.network import ensure_padding_token, open_tokenizer

        check_settings("implicit", self.settings)
        settings = replace(self.settings.resolved(), loss="implicit")
        check_rows("implicit", data.train, f"{data.folder}/train.jsonl")
        run = open_run(settings, seed, work, say)
        tokenizer = open_tokenizer(self.base)
        policy = open_policy(self.base, settings)
        ensure_padding_token(tokenizer, policy.model)
        encoder = encoder_for(tokenizer, policy.model.config, True, settings)
        train, dev = (
            prepare_rows(rows, f"{data.folder}/{name}", encoder=encoder, settings=settings, causal=True, say=run.say)
            for name, rows in (("train", data.train), ("dev", data.dev))
        )
        require_vocabulary(self.base, policy.model, (*train.encoded, *dev.encoded))
        run.say(f"{self.base}: log probabilities of the reference, {int(train.lengths.sum() + dev.lengths.sum()):,} tokens")
        # Before its first step, the policy equals the reference. Training needs only these log probabilities of the reference.
        reference_values = reference_log_probs(policy, train, encoder) | reference_log_probs(policy, dev, encoder)
        network = ImplicitNetwork(policy, reference_values, self.beta)
        run = replace(run, name=run_name([f"implicit {self.beta} {self.base}"], settings, digest_of(data), seed))
        summary = fit(network, train, lambda: evaluate_dev(network, dev, settings, run.processes), settings, run)
        stored = {
            "layout": settings.layout,
            "chat_template": settings.chat_template,
            "max_length": encoder.max_length,
            "beta": self.beta,
        }
        reference = open_policy(self.base, replace(settings, lora="", freeze="none"))
        scorer = ImplicitScorer(plain_policy(policy), reference, encoder, stored)
        outcomes = sum(row.outcome is not None for row in train.rows)
        more = {"outcomes": outcomes, "processes": run.processes.size, **summary, "settings": asdict(settings)}
        return Trained(scorer, "implicit", len(train.rows), len(train.targets.p), self.base, more, run.leads)


def load(folder: Path, loading: LoadOptions = DEFAULT) -> Scorer:
    """Open a verifier folder with the policy, and the reference in its subfolder. Raises OSError, ValueError or KeyError."""
    from distill.students.transformer import require_torch

    require_torch()
    from distill.training.causal import open_policy
    from distill.training.network import open_tokenizer

    stored = json.loads((folder / SCORING).read_text("utf-8"))
    settings = TrainingSettings(dtype="fp32")
    try:
        policy, reference = open_policy(str(folder), settings), open_policy(str(folder / REFERENCE), settings)
    except InputError as error:
        raise ValueError(str(error)) from None
    encoder = make_encoder(
        open_tokenizer(folder), stored["layout"], stored["max_length"], chat_template=stored["chat_template"], causal=True
    )
    return ImplicitScorer(policy, reference, encoder, stored)


@dataclass(frozen=True, slots=True)
class ImplicitScorer(Scorer):
    """A policy and its reference; see `Scorer`.

    A raw score is sigmoid(beta * log ratio of the step): above 0.5, the step made a correct outcome likelier. Steps that do not
    fit into the context have a score of nan.
    """

    policy: Policy
    reference: Policy
    encoder: Encoder
    stored: dict[str, Any]
    batch: int = 256
    causal: bool = True

    def score(self, items: Sequence[Item]) -> list[Floats]:
        import numpy as np
        import torch

        from distill.training.batches import collate, micro

        encoded: list[Encoded] = self.encoder.encode_many(items)
        starts = [len(head) for head in self.encoder.heads([problem for problem, _ in items])]
        out = [np.full(len(steps), np.nan) for _, steps in items]
        lengths = np.array([len(e.ids) for e in encoded], dtype=np.int64)
        full = np.array([n for n, e in enumerate(encoded) if len(e.ends)], dtype=np.int64)
        for rows in micro(full, lengths, 4096):
            batch = collate([encoded[r] for r in rows], self.encoder.tokenizer.pad_token_id, causal=True).to(self.policy.device)
            begin = [starts[r] for r in rows]
            with torch.no_grad():
                ratio = self.policy.steps(batch, begin) - self.reference.steps(batch, begin)
            p = torch.sigmoid(self.stored["beta"] * ratio.double()).cpu().numpy()
            for r, scores in zip(rows, np.split(p, np.cumsum([len(encoded[r].ends) for r in rows])[:-1]), strict=True):
                out[r][: len(scores)] = scores
        return out

    def save(self, folder: Path) -> None:
        self.policy.save(folder)
        self.reference.save(folder / REFERENCE)
        self.encoder.tokenizer.save_pretrained(folder)
        (folder / SCORING).write_text(json.dumps(self.stored, indent=2) + "\n", encoding="utf-8")


HEADS_ONLY = {"heads", "loss", "domain_weights", "trusted", "class_weights", "label_smoothing"}

STUDENT = StudentType(
    make=lambda base, settings, options: Implicit(base, settings),
    load=load,
    settings={field.name for field in fields(TrainingSettings)} - HEADS_ONLY,
)
