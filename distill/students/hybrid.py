"""The hybrid student: the linear one, and two probes on what a frozen language model makes of every step; log odds averaged."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from critic_prm.errors import InputError, UsageError
from distill.calibration import Floats, logit, sigmoid
from distill.data import Row, TrainingSet, labelled
from distill.scoring.load import DEFAULT, LoadOptions, require_default
from distill.students import linear
from distill.students.probe import Probe, fit_probe, probe_from_arrays
from distill.students.token_statistics import StepFeatures
from distill.training.settings import TrainingSettings
from distill.types import Item, Trained

if TYPE_CHECKING:
    from distill.students.frozen_lm import FrozenLM

FILE = "hybrid.safetensors"
CHUNK = 200
"""Solutions that are read between two saves."""

STATES_PENALTY, SURPRISE_PENALTY = 1e-3, 1e-2
"""Inverse penalties, fixed by leaving out families of training sources (bench/RESULTS.md), never on a benchmark."""

DEPTH = 0.6
"""After which share of the layers states are taken; fixed in the same way."""

USUAL = 3.0
"""How many steps of the usual log odds every solution is taken to begin with; fixed in the same way."""


APPLY = ("--layout", "--chat-template", "--max-length", "--dtype", "--device")
"""The options that mean something where a base is read and not trained."""


@dataclass(frozen=True, slots=True)
class Hybrid:
    """A causal language model (a hub name or a local folder) that is read and not trained. See `Student`.

    `sources` are shell patterns: which sources of the training set it reads; the linear part learns from all of them. Of
    `settings`, those of text, dtype and device apply.
    """

    base: str
    settings: TrainingSettings = field(default_factory=TrainingSettings)
    sources: tuple[str, ...] = ("*",)

    def train(self, data: TrainingSet, *, seed: int, say: Callable[[str], None], work: Path | None = None) -> Trained:
        """Fit the linear student and the probes to `data.train`. `work` keeps what was read, so that a killed run goes on.

        Raises ConfigError without torch or the device asked for, InputError for a base that cannot be read and for sources
        that hold nothing to learn from, UsageError as one of several processes.
        """
        from distill.students.transformer import require_torch

        require_torch()
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise UsageError("the hybrid student trains in one process; start it without torchrun")
        started = time.monotonic()
        rows = [_cut(row) for row in data.train if row.weight > 0 and any(fnmatch(row.source, p) for p in self.sources)]
        classes = {label >= 0.5 for _, _, label, _ in labelled(rows)}
        if len(classes) < 2:
            raise InputError(
                f"{data.folder}/train.jsonl",
                f"its {len(rows)} solutions from {', '.join(self.sources)} have no right steps or no wrong ones",
                "name other sources",
            )
        reader = open_reader(self.base, self.settings)
        say(f"{self.base} reads {len(rows)} of {len(data.train)} solutions")
        about = json.dumps([data.fingerprint, self.base, self.sources, asdict(self.settings)])
        run = hashlib.sha256(about.encode()).hexdigest()
        views = _read_in_chunks(reader, [(row.problem, row.steps) for row in rows], run[:16], work, say)
        say("probes")
        states, surprise, usual, steps = _fit(rows, views)
        plain = linear.train(data, seed=seed, say=say).scorer
        assert isinstance(plain, linear.LinearScorer)
        summary = {
            "solutions": len(data.train),
            "solutions_read": len(rows),
            "steps": steps,
            "seconds": round(time.monotonic() - started, 1),
            "settings": {"sources": list(self.sources), "depth": DEPTH, **asdict(self.settings)},
        }
        scorer = HybridScorer(plain, reader, states, surprise, usual, _stored(reader, self.settings))
        return Trained(scorer, self.base, summary, "hybrid")


@dataclass(frozen=True, slots=True)
class HybridScorer:
    """The linear scorer, the model that reads, and a probe for each of the two things it tells; see `Scorer`.

    What the probes say of a step counts against what they said of the same solution's earlier steps: how surprising a text is,
    is first of all a matter of its writer and its subject. `usual` is the mean of what they say. A step that the model cannot
    read, because it lies beyond its context, is judged by the linear part alone.
    """

    linear: linear.LinearScorer
    reader: FrozenLM
    states: Probe
    surprise: Probe
    usual: float
    stored: dict[str, Any]
    batch: int = 64
    causal: bool = True

    def score(self, items: Sequence[Item]) -> list[Floats]:
        plain = self.linear.score(items)
        return [sigmoid((logit(p) + self._read(view)) / 3) for p, view in zip(plain, self.reader.read(items), strict=True)]

    def _read(self, view: StepFeatures) -> Floats:
        out = np.full(len(view.states), self.usual)
        read = ~np.isnan(view.states[:, 0])
        said = _said(self.states, self.surprise, StepFeatures(view.states[read], view.surprise[read]))
        before = np.concatenate([[0.0], np.cumsum(said)[:-1]]) if len(said) else said
        out[read] += said - (USUAL * self.usual + before) / (USUAL + np.arange(len(said)))
        return out

    def save(self, folder: Path) -> None:
        from safetensors import SafetensorError
        from safetensors.numpy import save_file

        from distill.training.network import quiet

        arrays = {f"states.{name}": array for name, array in self.states.arrays().items()}
        arrays |= {f"surprise.{name}": array for name, array in self.surprise.arrays().items()}
        arrays["usual"] = np.array([self.usual])
        self.linear.save(folder)
        try:
            save_file(arrays, folder / FILE, metadata={"hybrid": json.dumps(self.stored)})
            with quiet():
                self.reader.model.save_pretrained(folder)
            self.reader.encoder.tokenizer.save_pretrained(folder)
        except SafetensorError as error:  # a full disk, told by the library in its own way
            raise OSError(str(error)) from None


def load(folder: Path, opening: LoadOptions = DEFAULT) -> HybridScorer:
    """Read a scorer back from its folder. Raises ConfigError without torch."""
    require_default(opening, "hybrid")
    from safetensors import SafetensorError, safe_open

    from distill.students.transformer import require_torch

    require_torch()
    try:
        with safe_open(folder / FILE, "numpy") as file:
            stored: dict[str, Any] = json.loads((file.metadata() or {})["hybrid"])
            arrays: dict[str, NDArray[Any]] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{FILE}: {error}") from None
    states, surprise = (
        probe_from_arrays({n.removeprefix(part): a for n, a in arrays.items() if n.startswith(part)})
        for part in ("states.", "surprise.")
    )
    try:
        reader = open_reader(str(folder), TrainingSettings(**stored))
    except InputError as error:
        raise ValueError(str(error)) from None
    return HybridScorer(linear.load(folder), reader, states, surprise, float(arrays["usual"][0]), stored)


def open_reader(base: str, settings: TrainingSettings) -> FrozenLM:
    """The base, ready to read. Raises InputError for one that does not open or is no causal language model."""
    from transformers import AutoModelForCausalLM

    from distill.students.frozen_lm import make_reader
    from distill.students.transformer import encoder_for
    from distill.training.network import MEND, first_line, open_tokenizer, pick_device, pick_dtype, quiet

    device = pick_device(settings.device)
    try:
        with quiet():
            found: Any = AutoModelForCausalLM.from_pretrained(
                base,
                dtype=pick_dtype(settings.dtype, device),
                output_loading_info=True,
                trust_remote_code=False,
                use_safetensors=True,
            )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise InputError(base, f"it does not open as a causal language model: {first_line(error)}", MEND) from None
    model, report = found
    if report["missing_keys"]:
        raise InputError(
            base,
            f"as a causal language model its weights lack {', '.join(sorted(report['missing_keys'])[:3])}",
            "the hybrid student needs a base that writes text",
        )
    return make_reader(model.to(device), encoder_for(open_tokenizer(base), model.config, True, settings), DEPTH)


def _stored(reader: FrozenLM, settings: TrainingSettings) -> dict[str, Any]:
    """What scoring needs to read alike: the numbers' type as it came out here, whatever another machine would choose."""
    return {
        "layout": settings.layout,
        "chat_template": settings.chat_template,
        "max_length": reader.encoder.max_length,
        "dtype": "bf16" if str(reader.model.dtype) == "torch.bfloat16" else "fp32",
    }


def _cut(row: Row) -> Row:
    """The row up to its last label: what comes later has no part in the probes, and reading is dear."""
    last = max((i for i, label in enumerate(row.labels) if label is not None), default=-1) + 1
    return replace(row, steps=row.steps[:last], labels=row.labels[:last])


def _compress(surprise: NDArray[Any]) -> NDArray[Any]:
    """Sums and extremes have long tails: logarithms of their sizes, the signs kept."""
    out: NDArray[Any] = np.sign(surprise) * np.log1p(np.abs(surprise))
    return out


def _said(states: Probe, surprise: Probe, view: StepFeatures) -> Floats:
    """The sum of both probes' log odds."""
    return states.log_odds(view.states) + surprise.log_odds(_compress(view.surprise))


def _fit(rows: Sequence[Row], views: Sequence[StepFeatures]) -> tuple[Probe, Probe, float, int]:
    """Both probes, the mean of what they say, and from how many steps.

    Sources count by the root of their steps: a large one must not decide alone.
    """
    places = [(r, s, y, w) for r, s, y, w in labelled(rows) if not np.isnan(views[r].states[s, 0])]
    names, source = np.unique([rows[r].source for r, *_ in places], return_inverse=True)
    share = 1.0 / np.sqrt(np.bincount(source, minlength=len(names)))[source]
    y = np.array([y for _, _, y, _ in places])
    w = np.array([w for *_, w in places]) * share
    seen = StepFeatures(*(np.stack([getattr(views[r], part)[s] for r, s, _, _ in places]) for part in ("states", "surprise")))
    states = fit_probe(*linear.soft(seen.states, y, w), STATES_PENALTY)
    surprise = fit_probe(*linear.soft(_compress(seen.surprise), y, w), SURPRISE_PENALTY)
    return states, surprise, float(np.average(_said(states, surprise, seen), weights=w)), len(places)


def _read_in_chunks(
    reader: FrozenLM, items: Sequence[Item], run: str, work: Path | None, say: Callable[[str], None]
) -> list[StepFeatures]:
    """Read all items; what was read is saved under `work` every CHUNK solutions and not read again."""
    views: list[StepFeatures] = []
    started, last, fresh = time.monotonic(), time.monotonic(), 0
    for number, begin in enumerate(range(0, len(items), CHUNK)):
        part = items[begin : begin + CHUNK]
        path = work / f"read-{run}-{number}.npz" if work else None
        if path and path.is_file():
            with np.load(path) as stored:
                found, surprise = stored["states"].astype(np.float32), stored["surprise"]
        else:
            read = reader.read(part)
            found = np.concatenate([view.states for view in read]).astype(np.float16).astype(np.float32)
            surprise = np.concatenate([view.surprise for view in read])
            fresh += len(part)
            if path:
                path.parent.mkdir(parents=True, exist_ok=True)
                unfinished = path.with_suffix(".tmp.npz")
                np.savez(unfinished, states=found.astype(np.float16), surprise=surprise)
                unfinished.replace(path)
        bounds = np.cumsum([len(steps) for _, steps in part])[:-1]
        views += [StepFeatures(a, b) for a, b in zip(np.split(found, bounds), np.split(surprise, bounds), strict=True)]
        if time.monotonic() - last > 30 and fresh:
            last = time.monotonic()
            left = (len(items) - len(views)) / fresh * (last - started)
            say(f"read {len(views)} of {len(items)} solutions, about {left / 60:.0f} minutes left")
    return views
