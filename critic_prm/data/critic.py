"""The Critic: anything that turns a trajectory into verdicts. Labelling, evaluation, search and rewards know nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from critic_prm.data.judgement import Judgement
from critic_prm.data.trajectory import Trajectory


class Critic(Protocol):
    """Turns trajectories into judgements.

    `batch` is how many trajectories it likes at once: 1 for a critic that waits for a network, hundreds for one that computes.
    `repeats` says whether asking again can give another answer; where it cannot, one sample is all there is.
    `card` is written into label files: who judged, and how (provider, model, style, fingerprint, sampling).
    """

    @property
    def batch(self) -> int: ...

    @property
    def repeats(self) -> bool: ...

    @property
    def card(self) -> Mapping[str, Any]: ...

    async def judge(self, trajectories: Sequence[Trajectory], sample: int = 0) -> list[Judgement]:
        """One judgement per trajectory, in order. A failure is a judgement with its status; only what must stop the whole run
        is raised (ConfigError, BudgetError)."""
        ...

    async def close(self) -> None: ...
