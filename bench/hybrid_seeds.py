"""bench/transfer.py for the hybrid student, with everything that the base reads kept in a folder.

    python -m bench.hybrid_seeds READINGS --data DIR --student hybrid:BASE --option layers=18 --seeds 3 --work FOLDER

The arguments after READINGS are those of bench/transfer.py. A solution is read once for all seeds, profiles and repeated runs,
if its features are the same: always with `layers` or `vocabulary=0`, otherwise if the frequent tokens, which depend on the
seed, are the same. Run an interrupted command again to resume it.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from bench import transfer
from distill.students.frozen_lm import FrozenLM, StepFeatures
from distill.types import Item

CHUNK = 50
"""Solutions read between two saves."""


def main() -> None:
    if len(sys.argv) < 3 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    FrozenLM.read = keeping(FrozenLM.read, Path(sys.argv.pop(1)))  # type: ignore[method-assign]
    transfer.main()


def keeping(read: Callable[..., list[StepFeatures]], folder: Path) -> Callable[..., list[StepFeatures]]:
    """`FrozenLM.read`, with its results in files of `folder`."""
    folder.mkdir(parents=True, exist_ok=True)

    def kept(self: FrozenLM, items: Sequence[Item]) -> list[StepFeatures]:
        reader = identity(self)
        keys = [hashlib.sha256(f"{reader}{json.dumps([problem, *steps])}".encode()) for problem, steps in items]
        paths = [folder / key.hexdigest()[:32] for key in keys]
        missing = [at for at, path in enumerate(paths) if not path.exists()]
        for begin in range(0, len(missing), CHUNK):
            part = missing[begin : begin + CHUNK]
            for at, view in zip(part, read(self, [items[at] for at in part]), strict=True):
                unfinished = paths[at].with_suffix(".tmp.npz")
                np.savez(unfinished, states=view.states, surprise=view.surprise)
                unfinished.replace(paths[at])
        views = []
        for path in paths:
            with np.load(path) as stored:
                views.append(StepFeatures(stored["states"], stored["surprise"]))
        return views

    return kept


def identity(reader: FrozenLM) -> str:
    """What the features of a solution depend on, besides its text."""
    weights = [part.detach().flatten()[:8].tolist() for part in reader.model.parameters()]
    vocabulary = b"" if reader.vocabulary is None else reader.vocabulary.tobytes()
    encoder = [reader.encoder.before, reader.encoder.between, reader.encoder.start.tolist(), reader.encoder.tag.tolist()]
    facts = [
        weights,
        reader.model.config.num_hidden_layers,
        reader.depth,
        str(reader.model.dtype),
        reader.encoder.max_length,
        encoder,
    ]
    return hashlib.sha256(vocabulary + json.dumps(facts).encode()).hexdigest()


if __name__ == "__main__":
    main()
