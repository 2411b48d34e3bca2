"""The hybrid student: the linear student combined with two probes on features of a frozen language model."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from critic_prm.errors import InputError, UsageError
from critic_prm.option import Option
from distill.calibration import Floats, logit, sigmoid
from distill.data import Row, TrainingSet, labelled
from distill.settings import DEFAULT, LoadOptions, TrainingSettings
from distill.students import linear
from distill.students.frozen_lm import StepFeatures
from distill.types import Item, Scorer, Student, StudentType, Trained

if TYPE_CHECKING:
    from distill.students.frozen_lm import FrozenLM


FILE = "hybrid.safetensors"
CHUNK = 200
"""Solutions read between two saves."""

STATES_PENALTY, SURPRISE_PENALTY = 1e-3, 1e-2
"""Inverse penalties, chosen by leaving out families of training sources (bench/RESULTS.md), never on a benchmark."""

DEPTH = 0.6
"""Share of the layers after which hidden states are taken; chosen in the same way."""

STATES_SHARE = 0.5
"""Weight of the states' log odds where there are those of surprise, whose weight is 1; chosen in the same way."""

VOCABULARY = 2048
"""Number of tokens over which predictions are normalized; chosen in the same way."""

USUAL = 3.0
"""Number of virtual earlier steps with the mean log odds that every solution starts with; chosen in the same way."""


@dataclass(frozen=True, slots=True)
class Hybrid(Student):
    """A hybrid student over a frozen causal language model (a hub name or a local folder). See `Student`.

    `sources`, `vocabulary` and `layers` are described in `Options`. Of `settings`, only text, dtype and device apply.
    """

    base: str
    settings: TrainingSettings = field(default_factory=TrainingSettings)
    sources: tuple[str, ...] = ("*",)
    vocabulary: int = VOCABULARY
    layers: int | None = None

    @property
    def leaves_out_cheaply(self) -> bool:
        return True

    def train(self, data: TrainingSet, *, seed: int, say: Callable[[str], None], work: Path | None = None) -> Trained:
        """Fit the linear student and the probes to `data.train`. `work` stores the features of a run to resume.

        Raises ConfigError if torch or the requested device is missing, InputError for a base that cannot be read and for
        sources without usable labels, and UsageError in a distributed run.
        """
        return self._train(data, None, seed, say, work)

    def train_leaving_out(
        self,
        data: TrainingSet,
        groups: NDArray[np.int64],
        *,
        seed: int,
        say: Callable[[str], None],
        work: Path | None = None,
    ) -> Trained:
        """Also fit linear student and probes without each group, on features that are read once. See `Student` and `train`.

        The solutions are read whole, since decisions look at steps after the first error, too. Those of other sources than
        `sources` get no scores (NaN).
        """
        return self._train(data, groups, seed, say, work)

    def _train(
        self, data: TrainingSet, groups: NDArray[np.int64] | None, seed: int, say: Callable[[str], None], work: Path | None
    ) -> Trained:
        from distill.students.transformer import require_torch

        require_torch()
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise UsageError("the hybrid student trains in one process; start it without torchrun")
        started = time.monotonic()
        used = [at for at, row in enumerate(data.train) if row.weight > 0 and any(fnmatch(row.source, p) for p in self.sources)]
        rows = [data.train[at] if groups is not None else _truncate(data.train[at]) for at in used]
        if not _has_both_classes(rows):
            raise InputError(
                f"{data.folder}/train.jsonl",
                f"its {len(rows)} solutions from {', '.join(self.sources)} have no correct steps or no incorrect ones",
                "name other sources",
            )
        items = [(row.problem, row.steps) for row in rows]
        reader = open_reader(self.base, self.settings, self.layers)
        if reader.surprise and self.vocabulary:
            reader = replace(reader, vocabulary=frequent_tokens(reader, items, self.vocabulary))
        say(f"{self.base} reads {len(rows)} of {len(data.train)} solutions")
        identity = json.dumps(
            [data.fingerprint, self.base, self.sources, self.vocabulary, self.layers, groups is None, asdict(self.settings)]
        )
        run = hashlib.sha256(identity.encode()).hexdigest()
        views = _read_in_chunks(reader, items, run[:16], work, say)
        say("probes")
        probes, steps = _fit(rows, views)
        plain = linear.train(data, seed=seed, say=say, groups=groups)
        assert isinstance(plain.scorer, linear.LinearScorer)
        left_out: list[Floats] = []
        if groups is not None:
            say("probes without each kind of data")
            left_out = _left_out(rows, views, groups[used], [plain.left_out[at] for at in used])
            scored = dict(zip(used, left_out, strict=True))
            left_out = [scored.get(at, np.full(len(row.steps), np.nan)) for at, row in enumerate(data.train)]
        summary = {
            "solutions_read": len(rows),
            "seconds": round(time.monotonic() - started, 1),
            "settings": {
                "sources": list(self.sources),
                "layers_read": int(reader.model.config.num_hidden_layers),
                "depth": reader.depth,
                "vocabulary": 0 if reader.vocabulary is None else len(reader.vocabulary),
                **asdict(self.settings.resolved()),
            },
        }
        scorer = HybridScorer(plain.scorer, reader, probes, _stored(reader, self.settings))
        return Trained(scorer, "hybrid", len(data.train), steps, self.base, summary, left_out=left_out)


@dataclass(frozen=True, slots=True)
class HybridScorer(Scorer):
    """A linear scorer, a frozen language model, and the probes on its features; see `Scorer` and `Probes`."""

    linear: linear.LinearScorer
    reader: FrozenLM
    probes: Probes
    stored: dict[str, Any]
    batch: int = 64
    causal: bool = True

    def score(self, items: Sequence[Item]) -> list[Floats]:
        plain = self.linear.score(items)
        return [_combined(p, self.probes, view) for p, view in zip(plain, self.reader.read(items), strict=True)]

    def save(self, folder: Path) -> None:
        from safetensors import SafetensorError
        from safetensors.numpy import save_file

        from distill.training.network import quiet

        arrays = self.probes.arrays()
        if self.reader.vocabulary is not None:
            arrays["vocabulary"] = self.reader.vocabulary
        self.linear.save(folder)
        try:
            save_file(arrays, folder / FILE, metadata={"hybrid": json.dumps(self.stored)})
            with quiet():
                self.reader.model.save_pretrained(folder)
            self.reader.encoder.tokenizer.save_pretrained(folder)
        except SafetensorError as error:  # how the library reports a full disk
            raise OSError(str(error)) from None


def load(folder: Path, loading: LoadOptions = DEFAULT) -> HybridScorer:
    """Load a scorer from its folder. Raises ConfigError without torch."""
    from safetensors import SafetensorError, safe_open

    from distill.students.transformer import require_torch

    require_torch()
    try:
        with safe_open(folder / FILE, "numpy") as file:
            stored: dict[str, Any] = json.loads((file.metadata() or {})["hybrid"])
            arrays: dict[str, NDArray[Any]] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{FILE}: {error}") from None
    probes = probes_from_arrays(arrays)
    try:
        reader = open_reader(str(folder), TrainingSettings(**stored), states_only=probes.surprise is None)
    except InputError as error:
        raise ValueError(str(error)) from None
    reader = replace(reader, vocabulary=arrays.get("vocabulary"))
    return HybridScorer(linear.load(folder), reader, probes, stored)


def open_reader(base: str, settings: TrainingSettings, layers: int | None = None, states_only: bool = False) -> FrozenLM:
    """Open the base, or its first `layers`, as a frozen model. States of a part, or with `states_only`, are its last ones.

    Raises InputError if it cannot be opened or is not a causal language model.
    """
    from transformers import AutoModelForCausalLM

    from distill.students.frozen_lm import make_reader
    from distill.students.transformer import encoder_for
    from distill.training.network import FIX, first_line, open_tokenizer, pick_device, pick_dtype, quiet

    device = pick_device(settings.device)
    try:
        with quiet():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                base,
                dtype=pick_dtype(settings.dtype, device),
                output_loading_info=True,
                trust_remote_code=False,
                use_safetensors=True,
            )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise InputError(base, f"it cannot be opened as a causal language model: {first_line(error)}", FIX) from None
    model, report = loaded
    if report["missing_keys"]:
        raise InputError(
            base,
            f"as a causal language model its weights lack {', '.join(sorted(report['missing_keys'])[:3])}",
            "the hybrid student needs a base that writes text",
        )
    if layers is not None:
        _keep_first(model, base, layers)
    states_only = states_only or layers is not None
    encoder = encoder_for(open_tokenizer(base), model.config, True, settings)
    return replace(make_reader(model.to(device), encoder, 1.0 if states_only else DEPTH), surprise=not states_only)


def _keep_first(model: Any, base: str, layers: int) -> None:
    """Remove the layers after the first `layers`. Raises InputError if there are fewer."""
    config, total = model.config, model.config.num_hidden_layers
    stacks = [stack for stack in model.base_model.children() if type(stack).__name__ == "ModuleList" and len(stack) == total]
    if layers > total or not stacks:
        raise InputError(base, f"{layers} of its {total} layers cannot be read alone", "leave --option layers out, or lower it")
    for stack in stacks:
        del stack[layers:]
    if kinds := vars(config).get("layer_types"):
        config.layer_types = kinds[:layers]
    config.num_hidden_layers = layers


def frequent_tokens(reader: FrozenLM, items: Sequence[Item], size: int) -> NDArray[np.int32]:
    """Return the ids of the `size` most frequent tokens of the items, ascending; the lower id first among equals."""
    ids = np.concatenate([encoded.ids for encoded in reader.encoder.encode_many(items)])
    count = np.bincount(ids)
    order = np.lexsort((np.arange(len(count)), -count))[:size]
    return np.sort(order[count[order] > 0]).astype(np.int32)


def _stored(reader: FrozenLM, settings: TrainingSettings) -> dict[str, Any]:
    """Return what scoring needs to compute the same features.

    This includes the dtype, which another machine might choose differently.
    """
    return {
        "layout": settings.layout,
        "chat_template": settings.chat_template,
        "max_length": reader.encoder.max_length,
        "dtype": "bf16" if str(reader.model.dtype) == "torch.bfloat16" else "fp32",
    }


def _truncate(row: Row) -> Row:
    """Truncate the row after its last labelled step: later steps are not used by the probes, and reading them is expensive."""
    last = max((i for i, label in enumerate(row.labels) if label is not None), default=-1) + 1
    return replace(row, steps=row.steps[:last], labels=row.labels[:last])


def _compress(surprise: NDArray[Any]) -> NDArray[Any]:
    """Compress long tails of sums and extremes: the logarithm of the absolute value, with the sign kept."""
    out: NDArray[Any] = np.sign(surprise) * np.log1p(np.abs(surprise))
    return out


def _has_both_classes(rows: Sequence[Row]) -> bool:
    return len({label >= 0.5 for _, _, label, _ in labelled(rows)}) == 2


def _combined(plain: Floats, probes: Probes, view: StepFeatures) -> Floats:
    """Combine the linear student's P(correct) with the probes' log odds. The divisor only keeps scores from the extremes."""
    return sigmoid((logit(plain) + probes.relative(view)) / 3)


def _left_out(
    rows: Sequence[Row], views: Sequence[StepFeatures], groups: NDArray[np.int64], plain: Sequence[Floats]
) -> list[Floats]:
    """Return the scores of every row by probes fitted without its group, from the linear scores `plain` of the same kind."""
    out = [np.full(len(row.steps), np.nan) for row in rows]
    for group in np.unique(groups):
        kept, held = np.flatnonzero(groups != group).tolist(), np.flatnonzero(groups == group).tolist()
        if not _has_both_classes([rows[at] for at in kept]):
            continue
        probes, _ = _fit([rows[at] for at in kept], [views[at] for at in kept])
        for at in held:
            out[at] = _combined(plain[at], probes, views[at])
    return out


def _fit(rows: Sequence[Row], views: Sequence[StepFeatures]) -> tuple[Probes, int]:
    """Fit the probes. Returns them and the number of steps they were fitted on.

    Each source is weighted by the square root of its number of steps, so that a large source does not dominate.
    """
    places = [(r, s, y, w) for r, s, y, w in labelled(rows) if not np.isnan(views[r].states[s, 0])]
    names, source = np.unique([rows[r].source for r, *_ in places], return_inverse=True)
    share = 1.0 / np.sqrt(np.bincount(source, minlength=len(names)))[source]
    y = np.array([y for _, _, y, _ in places])
    w = np.array([w for *_, w in places]) * share
    used = StepFeatures(*(np.stack([getattr(views[r], part)[s] for r, s, _, _ in places]) for part in ("states", "surprise")))
    states, surprise = fit_probe(*linear.soft(used.states, y, w), STATES_PENALTY), None
    if not np.isnan(used.surprise).all():
        surprise = fit_probe(*linear.soft(_compress(used.surprise), y, w), SURPRISE_PENALTY)
        states = states.scaled(STATES_SHARE)
    return Probes(states, surprise, float(np.average(Probes(states, surprise, 0.0).log_odds(used), weights=w))), len(places)


def _read_in_chunks(
    reader: FrozenLM, items: Sequence[Item], run: str, work: Path | None, say: Callable[[str], None]
) -> list[StepFeatures]:
    """Read all items, saving the features under `work` every CHUNK solutions; saved chunks are not read again."""
    views: list[StepFeatures] = []
    started, last, fresh = time.monotonic(), time.monotonic(), 0
    for number, begin in enumerate(range(0, len(items), CHUNK)):
        part = items[begin : begin + CHUNK]
        path = work / f"read-{run}-{number}.npz" if work else None
        if path and path.is_file():
            with np.load(path) as stored:
                states, surprise = stored["states"].astype(np.float32), stored["surprise"]
        else:
            read = reader.read(part)
            states = np.concatenate([view.states for view in read]).astype(np.float16).astype(np.float32)
            surprise = np.concatenate([view.surprise for view in read])
            fresh += len(part)
            if path:
                path.parent.mkdir(parents=True, exist_ok=True)
                unfinished = path.with_suffix(".tmp.npz")
                np.savez(unfinished, states=states.astype(np.float16), surprise=surprise)
                unfinished.replace(path)
        bounds = np.cumsum([len(steps) for _, steps in part])[:-1]
        views += [StepFeatures(a, b) for a, b in zip(np.split(states, bounds), np.split(surprise, bounds), strict=True)]
        if time.monotonic() - last > 30 and fresh:
            last = time.monotonic()
            left = (len(items) - len(views)) / fresh * (last - started)
            say(f"read {len(views)} of {len(items)} solutions, about {left / 60:.0f} minutes left")
    return views


REACH = 5.0
"""Clipping limit of a feature in standard deviations, so that one unusual text does not decide alone."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Weights for standardized columns. `mean`, `scale` and `weights` have shape (columns,)."""

    mean: Floats
    scale: Floats
    weights: Floats
    intercept: float

    def log_odds(self, x: NDArray[Any]) -> Floats:
        """Return the log odds of the positive class for `x` of shape (n, columns). NaN counts as the column's mean."""
        out: Floats = _standard(x, self.mean, self.scale) @ self.weights + self.intercept
        return out

    def scaled(self, factor: float) -> Probe:
        """Return a probe whose log odds are `factor` times as large."""
        return replace(self, weights=factor * self.weights, intercept=factor * self.intercept)

    def arrays(self) -> dict[str, Floats]:
        """Return the arrays to store: the inverse of `probe_from_arrays`."""
        return {"mean": self.mean, "scale": self.scale, "weights": self.weights, "intercept": np.array([self.intercept])}


def fit_probe(x: NDArray[Any], y: NDArray[np.int64], w: Floats, inverse_penalty: float) -> Probe:
    """Fit to rows `x` with classes `y` (0 or 1) and weights `w`, which are scaled to a mean of 1."""
    from sklearn.linear_model import LogisticRegression

    valid = ~np.isnan(x)
    count = np.maximum(valid.sum(axis=0), 1)
    mean = np.where(valid, x, 0.0).sum(axis=0, dtype=np.float64) / count
    scale = np.sqrt((np.where(valid, x - mean, 0.0) ** 2).sum(axis=0, dtype=np.float64) / count) + 1e-6
    model = LogisticRegression(C=inverse_penalty, max_iter=300, tol=1e-4)
    model.fit(_standard(x, mean, scale), y, sample_weight=w / w.mean())
    return Probe(mean, scale, model.coef_[0].astype(np.float64), float(model.intercept_[0]))


def probe_from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Probe:
    """Rebuild a probe. Raises KeyError or ValueError if the arrays do not describe one."""
    mean, scale, weights = arrays["mean"], arrays["scale"], arrays["weights"]
    if not mean.shape == scale.shape == weights.shape:
        raise ValueError("the arrays of a probe have different lengths")
    return Probe(mean, scale, weights, float(arrays["intercept"][0]))


@dataclass(frozen=True, slots=True)
class Probes:
    """A probe for the states, one for the surprise (None if that was not computed), and the mean of their summed log odds.

    The log odds of a step are taken relative to those of the earlier steps of the same solution, because how surprising a text
    is depends mainly on its writer and subject. A step beyond the model's context gets `usual`, so only the linear part varies.
    """

    states: Probe
    surprise: Probe | None
    usual: float

    def log_odds(self, view: StepFeatures) -> Floats:
        """Return the sum of both probes' log odds."""
        states = self.states.log_odds(view.states)
        return states if self.surprise is None else states + self.surprise.log_odds(_compress(view.surprise))

    def relative(self, view: StepFeatures) -> Floats:
        """Return the log odds relative to earlier steps."""
        out = np.full(len(view.states), self.usual)
        read = ~np.isnan(view.states[:, 0])
        log_odds = self.log_odds(StepFeatures(view.states[read], view.surprise[read]))
        before = np.concatenate([[0.0], np.cumsum(log_odds)[:-1]]) if len(log_odds) else log_odds
        out[read] += log_odds - (USUAL * self.usual + before) / (USUAL + np.arange(len(log_odds)))
        return out

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays to store: the inverse of `probes_from_arrays`."""
        parts = {"states": self.states, "surprise": self.surprise}
        arrays = {f"{part}.{name}": array for part, probe in parts.items() if probe for name, array in probe.arrays().items()}
        return {**arrays, "usual": np.array([self.usual])}


def probes_from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Probes:
    """Rebuild the probes. Raises KeyError or ValueError if the arrays do not describe any."""
    states, surprise = (
        {n.removeprefix(part): a for n, a in arrays.items() if n.startswith(part)} for part in ("states.", "surprise.")
    )
    return Probes(probe_from_arrays(states), probe_from_arrays(surprise) if surprise else None, float(arrays["usual"][0]))


def _standard(x: NDArray[Any], mean: Floats, scale: Floats) -> Floats:
    return np.clip(np.nan_to_num((x - mean) / scale, nan=0.0, posinf=REACH, neginf=-REACH), -REACH, REACH)


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of the hybrid student alone."""

    sources: tuple[str, ...] = ("*",)
    """Shell patterns of the sources of the training set that the base reads, with commas."""
    vocabulary: Annotated[int, Option(min=0)] = VOCABULARY
    """Number of the most frequent tokens over which the base's predictions are normalized, 0 for all: fewer are faster."""
    layers: Annotated[int | None, Option(min=1)] = None
    """Read only the first layers of the base, without its predictions: faster, but the scores are worse."""


STUDENT = StudentType(
    make=lambda base, settings, options: Hybrid(base, settings, options.sources, options.vocabulary, options.layers),
    load=load,
    settings=("layout", "chat_template", "max_length", "dtype", "device"),
)
