"""A student with a setting of its own: every step gets the same probability, with or without a base."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from distill.calibration import Floats
from distill.data import TrainingSet
from distill.settings import LoadOptions
from distill.types import Item, Scorer, Student, StudentType, Trained


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of this student."""

    p: float = 0.9
    """P(correct) of every step."""


@dataclass(frozen=True, slots=True)
class Steady(Student, Scorer):
    """Student and scorer in one; see `Student` and `Scorer`."""

    p: float
    batch: int = 8
    causal: bool = True

    def train(self, data: TrainingSet, *, seed: int, say: Callable[[str], None], work: Path | None = None) -> Trained:
        labels = [label for row in data.train for label in row.labels if label is not None]
        return Trained(self, "steady", len(data.train), len(labels))

    def score(self, items: Sequence[Item]) -> list[Floats]:
        return [np.full(len(steps), self.p) for _, steps in items]

    def save(self, folder: Path) -> None:
        (folder / "steady.json").write_text(json.dumps(self.p))


def load(folder: Path, loading: LoadOptions) -> Steady:
    return Steady(float(json.loads((folder / "steady.json").read_text())))


STUDENT = StudentType(make=lambda base, settings, options: Steady(options.p), load=load, needs_base=False)
