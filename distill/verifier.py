"""A verifier's folder in, P(correct) per step out: the distilled PRM, and a critic like any other."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from critic_prm.data.judgement import Judgement, Verdict, first_error_of
from critic_prm.data.trajectory import Trajectory
from critic_prm.errors import UsageError
from distill.calibration import Calibration, Floats
from distill.types import Item, Scorer


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
    def heads(self) -> int:
        """How many heads it has: with several, it can say how sure it is."""
        return int(getattr(self.scorer, "heads", 1))

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

    def score(self, problem: str, steps: Sequence[str]) -> list[float | None]:
        """P(correct) of each step of one solution, None for a step beyond the student's context."""
        return self.score_many([(problem, steps)])[0]

    def score_many(self, items: Sequence[Item]) -> list[list[float | None]]:
        """P(correct) per step for many solutions, in order, None for steps beyond the student's context. A solution without
        steps gets an empty list."""
        out: list[list[float | None]] = []
        for start in range(0, len(items), self.batch):
            out.extend(_known(self.calibration(p)) for p in self.scorer.score(items[start : start + self.batch]))
        return out

    def spread_many(self, items: Sequence[Item]) -> list[list[float | None]]:
        """How far the heads disagree on each step: the standard deviation of their raw P(correct), None for steps beyond the
        student's context. Raises UsageError for a verifier with one head."""
        return [spread for _, spread in self._both(items, needed=True)]

    def remembering(self) -> Verifier:
        """The same verifier for solutions that grow, as in search: a step that is appended costs that step alone, since what
        was computed of earlier calls is remembered. Itself where nothing can be remembered."""
        remember = getattr(self.scorer, "remembering", None)
        return self if remember is None else replace(self, scorer=remember())

    async def judge(self, trajectories: Sequence[Trajectory], sample: int = 0) -> list[Judgement]:
        """A verdict with P(correct) for every step, also after the first error: each score stands for itself. A step beyond the
        student's context has none."""

        def compute() -> list[Judgement]:
            found = self._both([(t.problem, t.texts) for t in trajectories])
            return [self._judgement(p, spread, sample) for p, spread in found]

        return await asyncio.to_thread(compute)

    async def close(self) -> None:
        """Nothing is held open."""

    def _both(self, items: Sequence[Item], needed: bool = False) -> list[tuple[list[float | None], list[float | None]]]:
        """P(correct) per step and the spread over heads, empty where there is one head."""
        ask = getattr(self.scorer, "score_and_spread", None) if self.heads > 1 else None
        if ask is None:
            if needed:
                raise UsageError(f"{self.name} has one head and cannot say how sure it is; distill it with --heads 8")
            return [(p, []) for p in self.score_many(items)]
        out: list[tuple[list[float | None], list[float | None]]] = []
        for start in range(0, len(items), self.batch):
            out.extend((_known(self.calibration(p)), _known(s)) for p, s in ask(items[start : start + self.batch]))
        return out

    def _judgement(self, scores: Sequence[float | None], spread: Sequence[float | None], sample: int) -> Judgement:
        verdicts = tuple(
            Verdict(
                step,
                "incorrect" if p < self.threshold else "correct",
                p_correct=p,
                spread=spread[step] if spread else None,
            )
            for step, p in enumerate(scores)
            if p is not None
        )
        return Judgement("ok", verdicts, first_error_of(verdicts, len(scores)), sample)


def _known(scores: Floats) -> list[float | None]:
    """Scorers say nan where there is no score; everybody else says None."""
    return [None if math.isnan(p) else p for p in scores.tolist()]


def load_verifier(
    path: str | Path, *, backend: str = "torch", dtype: str = "auto", device: str = "auto", base_url: str | None = None
) -> Verifier:
    """Open a verifier's folder. Nothing in it is run. The options are those of `distill.scoring.load.LoadOptions`.

    Raises InputError that says what is missing, damaged or too new, UsageError for an option that the verifier has not, and
    ConfigError for a package, a device or a server that is not there.
    """
    from distill.scoring.load import LoadOptions
    from distill.store import read_verifier

    return read_verifier(Path(path), LoadOptions(backend, dtype, device, base_url))


def fingerprint(folder: Path) -> str:
    """The first 16 hex digits of the SHA-256 over a verifier's weights: equal folders judge equally."""
    from distill.inspection import open_regular

    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.safetensors")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\x00")
        with open_regular(path) as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()[:16]
