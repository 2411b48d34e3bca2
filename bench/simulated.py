"""Simulated policy and critic with known accuracy, for checking search results against theory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from critic_prm.data.critic import Critic
from critic_prm.data.judgement import Judgement, Verdict
from critic_prm.data.trajectory import Trajectory
from critic_prm.generate.policy.policy import Completion
from critic_prm.providers.provider import Usage
from critic_prm.search.stepper import Proposal


def chance(*key: object) -> float:
    """A pseudo-random number in [0, 1) that depends only on `key`."""
    digest = hashlib.blake2b("\x00".join(map(str, key)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def is_right(path: Sequence[str]) -> bool:
    """Whether all steps of a simulated solution are correct."""
    return all(step.startswith("right") for step in path)


@dataclass
class SimulatedPolicy:
    """A simulated policy whose solutions have `length` steps, each correct with probability `q`, independently of the others.
    If all steps are correct the answer is 1, otherwise one of `wrongs` wrong answers. Every step costs 10 tokens. `salt`
    selects another random policy. A rewritten step is correct with probability `better`, if given."""

    length: int
    q: float
    wrongs: int = 3
    salt: str = ""
    greedy_q: float | None = None
    decide: Callable[[str, Sequence[str], int], bool] | None = None
    better: float | None = None

    def take(self, problem: str, path: Sequence[str], sample: int, greedy: bool = False) -> str:
        draw = chance(self.salt, problem, *path, "|", sample, greedy)
        q = self.greedy_q if greedy and self.greedy_q is not None else self.q
        good = draw < q if self.decide is None else self.decide(problem, path, sample)
        step = f"{'right' if good else 'wrong'} {sample}"
        if len(path) == self.length - 1:
            wrong = 2 + int(chance("answer", draw) * self.wrongs)
            step += f" \\boxed{{{1 if is_right([*path, step]) else wrong}}}"
        return step

    async def step(self, problem: str, steps: Sequence[str], sample: int = 0, *, greedy: bool = False) -> Proposal:
        done = len(steps) == self.length - 1
        return Proposal("ok", self.take(problem, steps, sample, greedy), done, usage=Usage(5, 10))

    async def complete(self, problem: str, steps: Sequence[str] = (), sample: int = 0) -> Completion:
        path = list(steps)
        while len(path) < self.length:
            path.append(self.take(problem, path, sample))
        new = tuple(path[len(steps) :])
        return Completion(sample, "ok", "\n\n".join(new), new, usage=Usage(5, 10 * len(new)))

    async def rewrite(self, problem: str, steps: Sequence[str], rejected: str, critique: str, sample: int = 0) -> Completion:
        q = self.q if self.better is None else self.better
        first = replace(self, q=q, salt=self.salt + rejected).take(problem, steps, sample)
        if len(steps) == self.length - 1:
            return Completion(sample, "ok", first, (first,))
        rest = await self.complete(problem, (*steps, first), sample)
        return Completion(sample, "ok", "", (first, *rest.steps))

    async def close(self) -> None: ...


@dataclass
class SimulatedCritic(Critic):
    """A simulated critic that judges each step correctly with probability `accuracy`, consistently for the same step: 0.9 if it
    takes the step for correct, 0.1 if not. With `spread`, scores vary slightly so that there are no ties. It is causal."""

    accuracy: float = 1.0
    spread: float = 0.0
    salt: str = ""
    stochastic: bool = False
    batch: int = 1000
    causal: bool = True
    judged: int = 0

    @property
    def card(self) -> Mapping[str, Any]:
        return {"provider": "simulated"}

    async def judge(self, trajectories: Sequence[Trajectory], sample: int = 0) -> list[Judgement]:
        return [self.one(trajectory, sample) for trajectory in trajectories]

    def one(self, trajectory: Trajectory, sample: int) -> Judgement:
        self.judged += 1
        path = trajectory.texts
        verdicts = []
        for place, step in enumerate(path):
            key = (self.salt, trajectory.problem, *path[: place + 1])
            agrees = chance("agrees", *key) < self.accuracy
            p = 0.9 if agrees == step.startswith("right") else 0.1
            if self.spread:
                p += self.spread * (chance("spread", *key) - 0.5)
            verdicts.append(Verdict(place, "correct" if p >= 0.5 else "incorrect", p_correct=p))
        first = next((v.step for v in verdicts if v.value == "incorrect"), -1)
        return Judgement("ok", tuple(verdicts), first, sample)

    async def close(self) -> None: ...
