"""The linear student: logistic regression on hashed text, and boosted trees on its log odds and other features."""

from __future__ import annotations

import json
import re
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distill.calibration import Floats, sigmoid
from distill.data import Row, TrainingSet, labelled, require_step_labels
from distill.features import steps as features
from distill.settings import DEFAULT, LoadOptions
from distill.students.trees import Forest, forest_from_arrays, forest_from_sklearn, mean_forest
from distill.types import Item, Scorer, Student, StudentType, Trained

_WORD = re.compile(r"[a-z]+|\\[a-z]+|\d+(?:\.\d+)?|[^\sa-z\d]")
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def char_grams(texts: Sequence[str], orders: Sequence[int], bits: int, salt: int) -> Any:
    """Count byte n-grams of each order in `orders`, hashed into 2**bits columns: a CSR matrix (len(texts), 2**bits)."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    codes = np.frombuffer(b"".join(encoded), dtype=np.uint8).astype(np.uint64)
    return _rolled(codes, [len(e) for e in encoded], orders, bits, salt)


def word_grams(texts: Sequence[Sequence[int]], orders: Sequence[int], bits: int, salt: int) -> Any:
    """Count n-grams of word codes (see `words`) in the same way as `char_grams`."""
    lengths = [len(t) for t in texts]
    codes = np.fromiter((code for text in texts for code in text), dtype=np.uint64, count=sum(lengths))
    return _rolled(codes, lengths, orders, bits, salt)


def words(text: str) -> list[int]:
    """Split a text into words as stable codes.

    Words are lower-cased, all numbers of the same length share a code, and symbols stand on their own.
    """
    return [_code(word) for word in _WORD.findall(text.lower())]


@lru_cache(maxsize=65536)
def _code(word: str) -> int:
    if word[0].isdigit():
        word = "0" * min(len(word), 4)
    return zlib.crc32(word.encode("utf-8", "surrogatepass"))


def _rolled(codes: NDArray[np.uint64], lengths: Sequence[int], orders: Sequence[int], bits: int, salt: int) -> Any:
    from scipy.sparse import csr_matrix

    lens = np.asarray(lengths, dtype=np.int64)
    ends = np.cumsum(lens)
    owner = np.repeat(np.arange(len(lens)), lens)
    shift = np.uint64(64 - bits)
    columns, rows = [], []
    rolling = np.full(len(codes), salt + 1, dtype=np.uint64)
    position = np.arange(len(codes))
    with np.errstate(over="ignore"):
        for order in range(1, max(orders) + 1):
            # rolling[i] hashes codes[i : i + order]; positions whose n-gram would cross the end of their text are dropped.
            reach = position + order - 1
            alive = reach < (ends[owner] if len(owner) else 0)
            position, owner, rolling, reach = position[alive], owner[alive], rolling[alive], reach[alive]
            rolling = (rolling ^ (codes[reach] + np.uint64(order))) * _MULTIPLIER
            rolling ^= rolling >> np.uint64(29)
            if order in orders:
                columns.append(((rolling * _MULTIPLIER) >> shift).astype(np.int32))
                rows.append(owner.astype(np.int32))
    column, row = np.concatenate(columns), np.concatenate(rows)
    matrix = csr_matrix((np.ones(len(column), dtype=np.float32), (row, column)), shape=(len(lens), 1 << bits))
    matrix.sum_duplicates()
    return matrix


FOLDS = 5
WEIGHTS = "linear.safetensors"


@dataclass(frozen=True, slots=True)
class LinearSettings:
    """Settings chosen by cross-validation over training sources (bench/RESULTS.md), never on a benchmark."""

    bits: int = 17
    """Base-2 logarithm of the number of hash columns per n-gram type."""
    char_orders: tuple[int, ...] = (3, 4)
    """Orders of the byte n-grams."""
    word_orders: tuple[int, ...] = (1, 2)
    """Orders of the word n-grams."""
    inverse_penalty: float = 0.3
    """Inverse penalty of the logistic regression on text."""
    forests: int = 2
    """Number of forests whose log odds are averaged."""
    trees: int = 150
    """Trees per forest."""
    leaves: int = 15
    """Maximum leaves per tree."""
    depth: int = 6
    """Maximum depth of a tree."""
    learning_rate: float = 0.06
    min_leaf: int = 40
    """Minimum samples per leaf; with less than ten times as many labelled steps, a tenth of those, but at least 5: a tree that
    cannot split learns nothing."""
    l2: float = 5.0
    """L2 regularization of the leaf values."""
    columns: float = 0.3
    """Share of the features that a split may choose from."""


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """The features of all steps of some solutions, one row per step."""

    text: Any
    """Hashed n-grams, CSR; see `text_matrix`."""
    dense: Floats
    """Numbers; see `numeric`."""


@dataclass(frozen=True, slots=True)
class LinearScorer(Scorer):
    """Text weights, intercept and forest; see `Scorer`."""

    weights: NDArray[np.float32]
    intercept: float
    forest: Forest
    settings: LinearSettings
    batch: int = 256
    causal: bool = True

    def score(self, items: Sequence[Item]) -> list[Floats]:
        counts = [len(steps) for _, steps in items]
        if not sum(counts):
            return [np.empty(0) for _ in items]
        return np.split(self.score_steps(features_of(items, self.settings)), np.cumsum(counts)[:-1])

    def score_steps(self, steps: Features) -> Floats:
        """Return the raw P(correct) of every step, shape (steps,)."""
        text = steps.text @ self.weights.astype(np.float64) + self.intercept
        return sigmoid(self.forest.log_odds(np.column_stack([steps.dense, text])))

    def save(self, folder: Path) -> None:
        from safetensors import SafetensorError
        from safetensors.numpy import save_file

        arrays = {f"forest.{name}": array for name, array in self.forest.arrays().items()}
        arrays["text.weights"] = self.weights
        arrays["text.intercept"] = np.array([self.intercept])
        # One entry, because the format's writer stores several in no fixed order and equal verifiers must be equal files.
        meta = json.dumps({"settings": asdict(self.settings), "features": features.fingerprint()})
        try:
            save_file(
                {name: np.ascontiguousarray(a) for name, a in arrays.items()}, folder / WEIGHTS, metadata={"linear": meta}
            )
        except SafetensorError as error:  # how the library reports a full disk
            raise OSError(str(error)) from None


def load(folder: Path, loading: LoadOptions = DEFAULT) -> LinearScorer:
    """Load a scorer from its folder."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(folder / WEIGHTS, "numpy") as file:
            meta: dict[str, Any] = json.loads((file.metadata() or {})["linear"])
            arrays: dict[str, NDArray[Any]] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{WEIGHTS}: {error}") from None
    if meta["features"] != features.fingerprint():
        raise ValueError("it was trained on other features than this version of critic-prm computes; distill it again")
    forest = forest_from_arrays({n.removeprefix("forest."): a for n, a in arrays.items() if n.startswith("forest.")})
    stored: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in meta["settings"].items()}
    settings = LinearSettings(**stored)
    size = len(arrays["text.weights"])
    if type(settings.bits) is not int or not 1 <= settings.bits <= 24 or size != 2 << settings.bits:
        raise ValueError(f"settings.bits is {settings.bits!r}, which does not fit its {size:,} text weights")
    for name, default in asdict(LinearSettings()).items():
        if isinstance(default, tuple):
            orders = getattr(settings, name)
            if not isinstance(orders, tuple) or not all(type(n) is int and 1 <= n <= 16 for n in orders):
                raise ValueError(f"settings.{name} is {orders!r:.80}; it must be a list of numbers from 1 to 16")
    return LinearScorer(arrays["text.weights"], float(arrays["text.intercept"][0]), forest, settings)


def train(
    data: TrainingSet,
    *,
    seed: int,
    say: Callable[[str], None],
    groups: NDArray[np.int64] | None = None,
    settings: LinearSettings | None = None,
    steps: Features | None = None,
) -> Trained:
    """Fit to `data.train`. The trees see text log odds of folds that did not contain the row (see `_folds`).

    With `groups` (the group of each row), also score every row with trees and a text model that have not seen its group.
    `steps` are the features of all steps of the rows of positive weight, if they have been computed before.
    """
    require_step_labels(data.train, f"{data.folder}/train.jsonl", "the linear student")
    settings, started = settings or LinearSettings(), time.monotonic()
    used = np.array([row.weight > 0 for row in data.train])
    rows = [row for row in data.train if row.weight > 0]
    items: list[Item] = [(row.problem, row.steps) for row in rows]
    place, y, w, owner = _targets(rows)
    settings = replace(settings, min_leaf=min(settings.min_leaf, max(5, len(y) // 10)))
    say(f"features of {len(rows)} solutions, {len(y)} labelled steps")
    steps = features_of(items, settings) if steps is None else steps
    text, dense = steps.text[place], steps.dense[place]
    group = None if groups is None else groups[used]
    fold = _folds(rows, seed) if group is None or len(np.unique(group)) < FOLDS else group
    say(f"text model, {FOLDS} folds")
    log_odds = np.empty(len(y))
    folds: list[tuple[Floats, float]] = []
    for k in range(FOLDS):
        held = fold[owner] == k
        folds.append(_logistic(text[~held], y[~held], w[~held], settings))
        log_odds[held] = text[held] @ folds[k][0] + folds[k][1]
    weights, intercept = _logistic(text, y, w, settings)
    say("trees")
    known = np.column_stack([dense, log_odds])
    scorer = LinearScorer(weights.astype(np.float32), intercept, _trees(known, y, w, seed, settings), settings)
    left_out: list[Floats] = []
    if group is not None:
        say("trees without each kind of data")
        step_group = np.repeat(group, [len(row.steps) for row in rows])
        p = np.full(len(step_group), np.nan)
        for k in np.unique(group):
            kept, held = group[owner] != k, step_group == k
            if len(np.unique(y[kept] >= 0.5)) < 2:
                continue
            model = folds[k] if fold is group else _logistic(text[kept], y[kept], w[kept], settings)
            forest = _trees(known[kept], y[kept], w[kept], seed, settings)
            p[held] = sigmoid(forest.log_odds(np.column_stack([steps.dense[held], steps.text[held] @ model[0] + model[1]])))
        scores = iter(np.split(p, np.cumsum([len(row.steps) for row in rows])[:-1]))
        left_out = [next(scores) if row.weight > 0 else np.full(len(row.steps), np.nan) for row in data.train]
    summary = {"seconds": round(time.monotonic() - started, 1), "settings": asdict(settings)}
    return Trained(scorer, "linear", len(rows), len(y), summary=summary, left_out=left_out)


def _trees(x: Floats, y: Floats, w: Floats, seed: int, settings: LinearSettings) -> Forest:
    """Fit boosted trees to soft labels."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    rows, hard, weight = soft(x, y, w)
    # With weights, scikit-learn (1.8, 1.9) sorts a column again for each of its 254 bin edges, which takes longer than the
    # trees. No weights give the same edges and trees as weights of 1.
    weights = None if (weight == 1).all() else weight
    forests = [
        HistGradientBoostingClassifier(
            max_iter=settings.trees, max_leaf_nodes=settings.leaves, max_depth=settings.depth,
            learning_rate=settings.learning_rate, min_samples_leaf=settings.min_leaf, l2_regularization=settings.l2,
            max_features=settings.columns, early_stopping=False, random_state=seed + number,
        ).fit(rows, hard, sample_weight=weights)
        for number in range(settings.forests)
    ]  # fmt: skip
    return mean_forest([forest_from_sklearn(model) for model in forests])


@dataclass(frozen=True, slots=True)
class Linear(Student):
    """The linear student; see `Student`. The command line has no options for its settings."""

    leaves_out_cheaply: bool = True
    settings: LinearSettings = LinearSettings()
    steps: Features | None = None
    """The features of the training rows, to train several times on the same solutions; see `train`."""

    def train(self, data: TrainingSet, *, seed: int, say: Callable[[str], None], work: Path | None = None) -> Trained:
        return train(data, seed=seed, say=say, settings=self.settings, steps=self.steps)

    def train_leaving_out(
        self,
        data: TrainingSet,
        groups: NDArray[np.int64],
        *,
        seed: int,
        say: Callable[[str], None],
        work: Path | None = None,
    ) -> Trained:
        return train(data, seed=seed, say=say, groups=groups, settings=self.settings, steps=self.steps)


STUDENT = StudentType(make=lambda base, settings, options: Linear(), load=load, needs_base=False)


def features_of(items: Sequence[Item], settings: LinearSettings) -> Features:
    """Compute the features of all steps of all items."""
    return Features(text_matrix(items, settings), numeric(items))


def numeric(items: Sequence[Item]) -> Floats:
    """Return the numeric features of all steps of all items, shape (steps, features)."""
    return np.concatenate([features.extract(problem, steps) for problem, steps in items])


def text_matrix(items: Sequence[Item], settings: LinearSettings) -> Any:
    """Return the hashed n-grams of all steps as a CSR matrix; each channel has logarithmic counts and unit length."""
    from scipy.sparse import hstack

    texts = [step for _, steps in items for step in steps]
    channels = [
        char_grams([t.lower() for t in texts], settings.char_orders, settings.bits, 1),
        word_grams([words(t) for t in texts], settings.word_orders, settings.bits, 2),
    ]
    for matrix in channels:
        np.log1p(matrix.data, out=matrix.data)
        norm = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1))).ravel()
        matrix.data /= np.repeat(np.maximum(norm, 1e-9), np.diff(matrix.indptr)).astype(np.float32)
    return hstack(channels, format="csr")


def _targets(rows: Sequence[Row]) -> tuple[NDArray[np.int64], Floats, Floats, NDArray[np.int64]]:
    """Return for the labelled steps: index among all steps, P(correct), weight, and row."""
    begin = np.concatenate([[0], np.cumsum([len(row.steps) for row in rows])])
    steps = list(labelled(rows))
    place = np.array([begin[r] + s for r, s, _, _ in steps])
    return place, np.array([y for *_, y, _ in steps]), np.array([w for *_, w in steps]), np.array([r for r, *_ in steps])


def _folds(rows: Sequence[Row], seed: int) -> NDArray[np.int64]:
    """Assign every row to a fold: by source if there are enough sources, otherwise by problem.

    Text reveals its source. With folds by problem, the text model is far better on held-out rows than on a source it has never
    seen, and the trees learn to trust it too much (measured: bench/RESULTS.md).
    """
    sources = {row.source for row in rows}
    groups = [row.source if len(sources) >= FOLDS else row.problem for row in rows]
    if len(set(groups)) < 2:
        groups = [str(number) for number in range(len(rows))]
    names = sorted(set(groups))
    fold = dict(zip(names, np.random.default_rng(seed).permutation(len(names)) % FOLDS, strict=True))
    return np.array([fold[group] for group in groups])


def soft(x: Any, y: Floats, w: Floats) -> tuple[Any, NDArray[np.int64], Floats]:
    """Split each soft label p into a positive row of weight p and a negative row of weight 1 - p.

    Rows of weight 0 are dropped.
    """
    right, wrong = np.flatnonzero(y > 0), np.flatnonzero(y < 1)
    order = np.concatenate([right, wrong])
    hard = np.concatenate([np.ones(len(right), dtype=np.int64), np.zeros(len(wrong), dtype=np.int64)])
    return x[order], hard, np.concatenate([(w * y)[right], (w * (1 - y))[wrong]])


def _logistic(x: Any, y: Floats, w: Floats, settings: LinearSettings) -> tuple[Floats, float]:
    from sklearn.linear_model import LogisticRegression

    rows, hard, weight = soft(x, y, w)
    if len(np.unique(hard)) < 2:  # only for a part of the data: such a model knows nothing
        return np.zeros(x.shape[1]), 0.0
    model = LogisticRegression(C=settings.inverse_penalty, solver="liblinear").fit(rows, hard, sample_weight=weight)
    return model.coef_[0], float(model.intercept_[0])
