"""Critics with a known fault, and label-file rows as they would have written them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from critic_prm.data.critic import Critic
from critic_prm.data.judgement import Judgement, Label, Verdict, combine, first_error_of
from critic_prm.data.label_rows import LabelledTrajectory
from critic_prm.data.trajectory import Step, Trajectory


@dataclass
class Simulated(Critic):
    """Gives step `i` of a trajectory the probability `p(trajectory, i)`; None for a judgement that cannot be read."""

    p: Callable[[Trajectory, int], float | None]
    batch: int = 64
    stochastic: bool = False
    seen: list[Trajectory] = field(default_factory=list)

    @property
    def card(self) -> Mapping[str, Any]:
        return {"provider": "test", "model": "simulated"}

    async def judge(self, trajectories: Sequence[Trajectory], sample: int = 0) -> list[Judgement]:
        self.seen.extend(trajectories)
        return [judgement([self.p(t, i) for i in range(len(t.steps))]) for t in trajectories]

    async def close(self) -> None:
        """Nothing is held open."""


def judgement(scores: Sequence[float | None]) -> Judgement:
    if any(score is None for score in scores):
        return Judgement("unparseable")
    verdicts = [Verdict(i, "correct" if p >= 0.5 else "incorrect", p_correct=p) for i, p in enumerate(scores) if p is not None]
    return Judgement("ok", tuple(verdicts), first_error_of(verdicts, len(verdicts)))


def row(
    name: str,
    scores: Sequence[float] | None,
    *,
    problem: str = "",
    steps: Sequence[str] | None = None,
    label: int | None = None,
    judge: str = "judge",
    **meta: Any,
) -> LabelledTrajectory:
    """A row with these scores; without any, one whose judgement could not be read."""
    texts = list(steps) if steps is not None else [f"step {i}" for i in range(len(scores or "xx"))]
    trajectory = Trajectory(name, problem or f"problem {name}", tuple(map(Step, texts)), label=label, meta=meta)
    found: Label = combine([judgement(scores) if scores is not None else Judgement("unparseable")], len(texts))
    return LabelledTrajectory(trajectory, found, {"provider": "test", "model": judge})


def sums(count: int) -> list[Trajectory]:
    """Right solutions of three equations each."""
    out = []
    for i in range(count):
        a, b = 12 + i, 7 + i % 5
        texts = [
            f"First, {a} + {b} = {a + b}.",
            f"Then {a + b} * 2 = {2 * (a + b)}.",
            f"So {2 * (a + b)} - 4 = {2 * (a + b) - 4}.",
        ]
        out.append(Trajectory(f"sum-{i}", f"Add {a} and {b}, double it and take 4 away.", tuple(map(Step, texts)), label=-1))
    return out
