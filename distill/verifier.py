"""Score steps with a distilled verifier, which is also a critic."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from critic_prm.data.critic import Critic, CriticStats
from critic_prm.data.judgement import Judgement, Verdict, first_error_of
from critic_prm.data.trajectory import Trajectory
from critic_prm.errors import UsageError
from distill.calibration import Calibration, Floats
from distill.decision import Decision
from distill.settings import Backend, Dtype, LoadOptions
from distill.types import Item, Scorer


@dataclass(frozen=True, slots=True)
class Verifier(Critic):
    """A trained and calibrated student, with the decision that turns its scores into a first error. Open one with
    `load_verifier`.

    `info` is the content of `verifier.json`. Scores are P(correct) in [0, 1].
    """

    name: str
    scorer: Scorer
    calibration: Calibration
    decision: Decision
    info: Mapping[str, Any] = field(default_factory=dict)
    profile: str | None = None
    """The calibration profile in use; None: the decision and calibration that `distill` wrote."""
    stats: Sequence[CriticStats] = ()
    stochastic: bool = False

    def __repr__(self) -> str:
        return f"Verifier({', '.join(f'{name}={value!r}' for name, value in self.facts.items())})"

    def _repr_html_(self) -> str:
        from critic_prm.data.html import facts_html

        return facts_html("Verifier", self.facts)

    @property
    def facts(self) -> dict[str, Any]:
        """What a notebook shows of the verifier, without its weights."""
        named = {"name": self.name, "student": self.info.get("student"), "base": self.info.get("base")}
        chosen = {"rule": self.decision.rule, "threshold": round(self.threshold, 4), "chosen_on": self.origin}
        return {k: v for k, v in {**named, **chosen, "profile": self.profile}.items() if v is not None}

    @property
    def threshold(self) -> float:
        """The threshold of the decision."""
        return self.decision.threshold

    @property
    def origin(self) -> str:
        """What the decision was chosen on, as text."""
        if self.profile is not None:
            return f"calibrated on {self.info['profiles'][self.profile].get('data') or 'solutions without a name'}"
        return str(self.info.get("decision", {}).get("data", "a default"))

    @property
    def batch(self) -> int:
        """The preferred number of trajectories per call."""
        return self.scorer.batch

    @property
    def causal(self) -> bool:
        return self.scorer.causal

    @property
    def heads(self) -> int:
        """The number of heads; with more than one, the verifier can estimate its uncertainty."""
        return self.scorer.heads

    @property
    def card(self) -> Mapping[str, Any]:
        """The description of this critic that is stored in label files."""
        return {
            "provider": "verifier",
            "model": self.name,
            "student": self.info.get("student"),
            "base": self.info.get("base"),
            "threshold": self.decision.threshold,
            "rule": self.decision.rule,
            "threshold_chosen": self.profile is not None or self.info.get("decision", {}).get("f1") is not None,
            "threshold_from": self.origin,
            "profile": self.profile,
            "calibration": self.calibration.method,
            "fingerprint": self.info.get("fingerprint"),
        }

    def score(self, problem: str, steps: Sequence[str]) -> list[float | None]:
        """Return P(correct) of each step of one solution, None for a step beyond the student's context."""
        return self.score_many([(problem, steps)])[0]

    def score_many(self, items: Sequence[Item]) -> list[list[float | None]]:
        """Return P(correct) per step for many solutions, in order, None for steps beyond the student's context.

        A solution without steps gets an empty list.
        """
        out: list[list[float | None]] = []
        for start in range(0, len(items), self.batch):
            out.extend(_nan_to_none(self.calibration(p)) for p in self.scorer.score(items[start : start + self.batch]))
        return out

    def spread_many(self, items: Sequence[Item]) -> list[list[float | None]]:
        """Return the disagreement of the heads per step: the standard deviation of their raw P(correct).

        It is None for steps beyond the student's context. Raises UsageError for a verifier with one head.
        """
        if self.heads == 1:
            raise UsageError(f"{self.name} has one head and no uncertainty estimate; distill it with --heads 8")
        return [spread for _, spread in self._scores_and_spreads(items)]

    def with_prefix_cache(self) -> Verifier:
        """Return a copy of this verifier that caches prefixes, for solutions that grow step by step, as in search.

        Scoring an appended step then costs that step alone. If the student cannot cache, the copy scores as before.
        """
        return replace(self, scorer=self.scorer.with_prefix_cache())

    async def judge(self, trajectories: Sequence[Trajectory], sample: int = 0) -> list[Judgement]:
        """Return a verdict with P(correct) for every step, including those after the first error.

        No step before the first error is judged incorrect. A step beyond the student's context has no verdict.
        """

        def compute() -> list[Judgement]:
            results = self._scores_and_spreads([(t.problem, t.texts) for t in trajectories])
            return [self._judgement(p, spread, sample) for p, spread in results]

        return await asyncio.to_thread(compute)

    def _scores_and_spreads(self, items: Sequence[Item]) -> list[tuple[list[float | None], list[float | None]]]:
        """Return P(correct) per step and the spread over heads; the spread is empty if there is one head."""
        out: list[tuple[list[float | None], list[float | None]]] = []
        for start in range(0, len(items), self.batch):
            for p, spread in self.scorer.score_and_spread(items[start : start + self.batch]):
                out.append((_nan_to_none(self.calibration(p)), [] if spread is None else _nan_to_none(spread)))
        return out

    def _judgement(self, scores: Sequence[float | None], spread: Sequence[float | None], sample: int) -> Judgement:
        first = self.decision.first_error(scores)
        verdicts = tuple(
            Verdict(
                step,
                "incorrect" if step == first or (0 <= first < step and p < self.threshold) else "correct",
                p_correct=p,
                spread=spread[step] if spread else None,
            )
            for step, p in enumerate(scores)
            if p is not None
        )
        return Judgement("ok", verdicts, first_error_of(verdicts, len(scores)), sample)


def _nan_to_none(scores: Floats) -> list[float | None]:
    """Convert nan, which scorers use for a missing score, to None."""
    return [None if math.isnan(p) else p for p in scores.tolist()]


def load_verifier(
    path: str | Path,
    *,
    profile: str | None = None,
    backend: Backend = "torch",
    dtype: Dtype = "auto",
    device: str = "auto",
    base_url: str | None = None,
) -> Verifier:
    """Open a verifier folder. No code in it is executed. `profile` is a calibration profile, by default the one in use; "none":
    the decision that `distill` wrote. The other options are those of `distill.settings.LoadOptions`.

    Raises InputError if something is missing, damaged or of a newer format version, UsageError for an option that the verifier
    does not support, and ConfigError for a missing package, device or server.
    """
    from distill.store import read_verifier

    return read_verifier(Path(path), LoadOptions(backend, dtype, device, base_url), profile)


def fingerprint(folder: Path) -> str:
    """Return the first 16 hex digits of the SHA-256 over a verifier's weights: folders with equal weights give equal scores."""
    from distill.store import open_regular

    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.safetensors")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\x00")
        with open_regular(path) as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()[:16]
