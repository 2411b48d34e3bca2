"""Define the Critic protocol: anything that turns a trajectory into verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from critic_prm.data.judgement import Judgement
from critic_prm.data.trajectory import Trajectory


class Critic(Protocol):
    """Turns trajectories into judgements. Labelling, evaluation, search and rewards use critics only through this protocol.

    `batch` is the preferred number of trajectories per call: 1 for a critic that waits for a network, hundreds for one that
    computes. `repeats` is true if the same question can get a different answer; if false, one sample per trajectory is enough.
    `card` is written to label files and identifies the critic: provider, model, style, fingerprint, sampling.
    """

    @property
    def batch(self) -> int: ...

    @property
    def repeats(self) -> bool: ...

    @property
    def card(self) -> Mapping[str, Any]: ...

    async def judge(self, trajectories: Sequence[Trajectory], sample: int = 0) -> list[Judgement]:
        """Judge each trajectory and return one judgement per trajectory, in order. A failure is returned as a judgement with
        its status. Only errors that must stop the whole run are raised (ConfigError, BudgetError)."""
        ...

    async def close(self) -> None: ...
