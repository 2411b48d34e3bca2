"""Read training-set folders: problems with their steps and one soft label or None per step."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from critic_prm.data.formats.mistaken import mistaken
from critic_prm.errors import InputError

SPLITS = ("train", "dev", "test")


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a training set."""

    id: str
    problem: str
    steps: tuple[str, ...]
    labels: tuple[float | None, ...]
    """P(correct) in [0, 1] per step, None for a step that carries no loss."""
    weight: float = 1.0
    """Factor of the loss of every step of the row."""
    votes: tuple[tuple[int, int], ...] = ()
    """(k, n) per step: k of n judgements were "correct". Empty if the row has no votes."""
    source: str = ""
    outcome: float | None = None
    """1 if the solution's final answer is correct, 0 if it is wrong, None if unknown."""
    stated: int | None = None
    """The first error as the row states it, because it does not follow from the labels; None in other rows."""

    def first_error(self) -> int | None:
        """Return the stated first error; else the first step whose label is below 0.5, -1 if all steps are labelled and
        correct, None if unknown."""
        return first_error_of(self.labels) if self.stated is None else self.stated


def first_error_of(labels: Sequence[float | None]) -> int | None:
    """Return the first label below 0.5, -1 if all are known and none is, None if unknown."""
    for index, label in enumerate(labels):
        if label is None:
            return None
        if label < 0.5:
            return index
    return -1


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """The three splits of one folder; `fingerprint` is the SHA-256 of their files and identifies a verifier's training data."""

    folder: str
    train: tuple[Row, ...]
    dev: tuple[Row, ...]
    test: tuple[Row, ...]
    fingerprint: str = ""


def read_training_set(folder: str | Path, *, check: bool = True) -> TrainingSet:
    """Read `train.jsonl`, `dev.jsonl` and, if present, `test.jsonl` from `folder`.

    Raises InputError if `folder` is not a training set, if a row is malformed, and with `check` as `require_classes` does.
    """
    root = Path(folder)
    if not (root / f"{SPLITS[0]}.jsonl").is_file() and (wrong := mistaken(root, "training set")):
        raise wrong
    if not root.is_dir():
        raise InputError(str(folder), "there is no such folder", "make one with: critic-prm dataset build LABELS -o DIR")
    digest = hashlib.sha256()
    splits: dict[str, tuple[Row, ...]] = {}
    for split in SPLITS:
        path = root / f"{split}.jsonl"
        if not path.is_file():
            if split == "test":
                splits[split] = ()
                continue
            raise InputError(str(path), "there is no such file", "a training set has train.jsonl and dev.jsonl")
        digest.update(path.read_bytes())
        splits[split] = tuple(_read(path))
    data = TrainingSet(root.name, splits["train"], splits["dev"], splits["test"], digest.hexdigest())
    if check:
        require_classes(data, root)
    return data


def require_classes(data: TrainingSet, where: str | Path = "") -> None:
    """Raise InputError if train or dev has step labels of only one class and outcomes of only one kind: such a split can
    neither be learned from nor calibrated on. `where` is the folder, for the message; by default its name."""
    for split, rows in (("train", data.train), ("dev", data.dev)):
        if not has_both_classes(rows) and not {row.outcome for row in rows if row.weight > 0} >= {0.0, 1.0}:
            right, wrong = _classes(rows)
            rarer = "an incorrect step" if wrong < right else "only correct steps"
            raise InputError(
                str(Path(where or data.folder) / f"{split}.jsonl"),
                f"{right} steps are labelled correct and {wrong} incorrect in {len(rows)} rows, and a verifier needs both",
                f"label more solutions with {rarer}; or {REMEDIES[split]}",
            )


REMEDIES = {
    "train": "give train more: critic-prm dataset build LABELS -o DIR --split 0.8,0.1,0.1",
    "dev": "use no dev split: critic-prm distill --folds 5; or make it larger: critic-prm dataset build LABELS -o DIR"
    " --split 0.6,0.2,0.2",
}
"""What to do about a split that lacks a class."""


def has_both_classes(rows: Sequence[Row]) -> bool:
    """Whether some steps are labelled correct and some incorrect."""
    right, wrong = _classes(rows)
    return bool(right and wrong)


def labelled(rows: Sequence[Row]) -> Iterator[tuple[int, int, float, float]]:
    """Iterate over the steps that carry a loss: (row, step, P(correct), weight of the row)."""
    for r, row in enumerate(rows):
        for s, label in enumerate(row.labels):
            if label is not None:
                yield r, s, label, row.weight


def read_rows(path: str | Path) -> list[Row]:
    """Read the rows of one file. Raises InputError, also for a file without rows."""
    rows = list(_read(Path(path)))
    if not rows:
        raise InputError(str(path), "it has no rows")
    return rows


def _read(path: Path) -> Iterator[Row]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                where = f"{path}:{number}"
                try:
                    value = orjson.loads(line)
                except orjson.JSONDecodeError as error:
                    fix = "JSON has no NaN: write null for a step without a label" if b"NaN" in line else ""
                    raise InputError(where, f"broken JSON: {error}", fix) from None
                yield row_from_json(value, where)


def row_from_json(value: Any, where: str) -> Row:
    """Read one training row. `where` names file and line in errors. Raises InputError."""
    if not isinstance(value, dict):
        raise InputError(where, f"a training row is a JSON object, this line contains {str(value)[:60]!r}")
    prompt, steps, labels = value.get("prompt"), value.get("completions"), value.get("labels")
    if not isinstance(prompt, str):
        raise InputError(where, f'"prompt" is {str(prompt)[:60]!r}', "it must be the text of the problem")
    if not isinstance(steps, list) or not steps or not all(isinstance(s, str) for s in steps):
        raise InputError(where, f'"completions" is {str(steps)[:60]!r}', "it must be a list of step texts, at least one")
    if not isinstance(labels, list) or len(labels) != len(steps):
        raise InputError(where, f'"labels" is {str(labels)[:60]!r}', f"it needs one entry for each of the {len(steps)} steps")
    weight = value.get("weight", 1.0)
    if not _number(weight) or not 0 <= weight < math.inf:
        raise InputError(where, f'"weight" is {str(weight)[:60]!r}', "it must be a number from 0 upwards")
    return Row(
        id=str(value.get("id", where)),
        problem=prompt,
        steps=tuple(steps),
        labels=tuple(_label(label, index, where) for index, label in enumerate(labels)),
        weight=float(weight),
        votes=_votes(value.get("votes"), len(steps), where),
        source=str(value.get("source") or ""),
        outcome=_outcome(value.get("outcome"), where),
        stated=_stated(value.get("first_error"), len(steps), where),
    )


def _label(value: Any, index: int, where: str) -> float | None:
    if value is None:
        return None
    if (_number(value) or isinstance(value, bool)) and 0 <= value <= 1:
        return float(value)
    raise InputError(where, f"label {index} is {str(value)[:60]!r}", "it is P(correct) from 0 to 1, true, false or null")


def _votes(value: Any, steps: int, where: str) -> tuple[tuple[int, int], ...]:
    if value is None or value == []:
        return ()
    if not isinstance(value, list) or len(value) != steps:
        raise InputError(where, f'"votes" is {str(value)[:60]!r}', f"it needs one [k, n] for each of the {steps} steps")
    for index, vote in enumerate(value):
        if not (
            isinstance(vote, list)
            and len(vote) == 2
            and all(_number(x) and x == int(x) for x in vote)
            and 0 <= vote[0] <= vote[1]
        ):
            raise InputError(where, f"vote {index} is {str(vote)[:60]!r}", "it is [k, n]: k of n judgements said correct")
    return tuple((int(k), int(n)) for k, n in value)


def _outcome(value: Any, where: str) -> float | None:
    if value is None:
        return None
    if (_number(value) or isinstance(value, bool)) and value in (0, 1):
        return float(value)
    raise InputError(where, f'"outcome" is {str(value)[:60]!r}', "it is true or 1, false or 0, or null")


def _stated(value: Any, steps: int, where: str) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and -1 <= value < steps):
        return value
    raise InputError(where, f'"first_error" is {str(value)[:60]!r}', f"it is a step, 0 to {steps - 1}, -1 or null")


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def require_step_labels(rows: Sequence[Row], where: str, who: str) -> None:
    """Raise InputError unless the rows of `where` have labelled steps of both classes; `who` names what needs them."""
    right, wrong = _classes(rows)
    if not right or not wrong:
        raise InputError(
            where,
            f"{right} steps are labelled correct and {wrong} incorrect in {len(rows)} rows, and {who} needs both",
            f"label more solutions of the other kind, or {REMEDIES['train']}; --loss freeprm and implicit need outcomes only",
        )


def _classes(rows: Sequence[Row]) -> tuple[int, int]:
    labels = [label for _, _, label, weight in labelled(rows) if weight > 0]
    return sum(x >= 0.5 for x in labels), sum(x < 0.5 for x in labels)
