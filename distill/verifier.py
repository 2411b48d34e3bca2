"""A verifier's folder in, P(correct) per step out: the distilled PRM, and a critic like any other."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from critic_prm.judgement import Judgement, Verdict, first_error_of
from critic_prm.trajectory import Trajectory
from distill.calibration import Calibration
from distill.student import Item, Scorer


@dataclass(frozen=True, slots=True)
class Verifier:
    """A trained student, calibrated, with the threshold chosen on its dev split. `info` is `verifier.json` as it is.

    Loaded with `load_verifier`. Scores are P(the step is correct) in [0, 1]; a step is judged incorrect when p < threshold.
    """

    name: str
    scorer: Scorer
    calibration: Calibration
    threshold: float
    info: Mapping[str, Any] = field(default_factory=dict)
    repeats: bool = False

    @property
    def batch(self) -> int:
        """How many trajectories it likes at once."""
        return self.scorer.batch

    @property
    def card(self) -> Mapping[str, Any]:
        """Who judged, for label files."""
        return {
            "provider": "verifier",
            "model": self.name,
            "student": self.info.get("student"),
            "base": self.info.get("base"),
            "threshold": self.threshold,
            "threshold_chosen": (self.info.get("threshold_from") or {}).get("f1") is not None,
            "calibration": self.calibration.method,
            "fingerprint": self.info.get("fingerprint"),
        }

    def score(self, problem: str, steps: Sequence[str]) -> list[float]:
        """P(correct) of each step of one solution."""
        return self.score_many([(problem, steps)])[0]

    def score_many(self, items: Sequence[Item]) -> list[list[float]]:
        """P(correct) per step for many solutions, in order. A solution without steps gets an empty list."""
        out: list[list[float]] = []
        for start in range(0, len(items), self.batch):
            out.extend(self.calibration(p).tolist() for p in self.scorer.score(items[start : start + self.batch]))
        return out

    async def judge(self, trajectories: Sequence[Trajectory], sample: int = 0) -> list[Judgement]:
        """A verdict with P(correct) for every step, also after the first error: each score stands for itself."""
        scores = await asyncio.to_thread(self.score_many, [(t.problem, t.texts) for t in trajectories])
        return [self._judgement(p, sample) for p in scores]

    async def close(self) -> None:
        """Nothing is held open."""

    def _judgement(self, scores: Sequence[float], sample: int) -> Judgement:
        verdicts = tuple(
            Verdict(step, "incorrect" if p < self.threshold else "correct", p_correct=p) for step, p in enumerate(scores)
        )
        return Judgement("ok", verdicts, first_error_of(verdicts, len(verdicts)), sample)


def load_verifier(path: str | Path) -> Verifier:
    """Open a verifier's folder. Nothing in it is run. Raises InputError that says what is missing, damaged or too new."""
    from distill.folder import read_verifier

    return read_verifier(Path(path))


def fingerprint(folder: Path) -> str:
    """The first 16 hex digits of the SHA-256 over a verifier's weights: equal folders judge equally."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.safetensors")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\x00" + path.read_bytes())
    return digest.hexdigest()[:16]
