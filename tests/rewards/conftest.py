"""A critic whose verdicts are known, and the event loop it was called on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from critic_prm.data.critic import Critic
from critic_prm.data.judgement import Judgement, Verdict, first_error_of
from critic_prm.data.trajectory import Trajectory


@dataclass
class Oracle(Critic):
    """Gives a step the probability its text begins with ("0.9 ..."); "unreadable" anywhere makes the judgement unreadable."""

    batch: int = 256
    stochastic: bool = False
    seen: list[Trajectory] = field(default_factory=list)
    loops: set[asyncio.AbstractEventLoop] = field(default_factory=set)
    threads: set[str] = field(default_factory=set)
    at_once: int = 0
    most_at_once: int = 0
    closed: bool = False
    fails: Exception | None = None

    @property
    def card(self) -> Mapping[str, Any]:
        return {"provider": "test", "model": "oracle"}

    async def judge(self, trajectories: Sequence[Trajectory], sample: int = 0) -> list[Judgement]:
        self.loops.add(asyncio.get_running_loop())  # itself: the id of a loop that is gone may come again
        self.threads.add(threading.current_thread().name)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        self.seen.extend(trajectories)
        if self.fails is not None:
            raise self.fails
        return [self._one(trajectory, sample) for trajectory in trajectories]

    def _one(self, trajectory: Trajectory, sample: int) -> Judgement:
        if any("unreadable" in text for text in trajectory.texts):
            return Judgement("unparseable", sample=sample)
        verdicts = []
        for index, text in enumerate(trajectory.texts):
            p = float(text.split(" ")[0])
            verdicts.append(Verdict(index, "correct" if p >= 0.5 else "incorrect", p_correct=p))
        return Judgement("ok", tuple(verdicts), first_error_of(verdicts, len(verdicts)), sample)

    async def close(self) -> None:
        self.closed = True
