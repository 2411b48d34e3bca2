"""Define the Critic protocol: anything that turns a trajectory into verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from critic_prm.data.judgement import Judgement, Label
from critic_prm.data.trajectory import Trajectory


class Critic(Protocol):
    """Turns trajectories into judgements. Labelling, evaluation, search and rewards use critics only through this protocol.

    Subclass it: `card` and `judge` are required, everything else has a default.
    """

    @property
    def card(self) -> Mapping[str, Any]:
        """What identifies the critic in label files: provider, model, style, fingerprint, sampling."""
        ...

    @property
    def batch(self) -> int:
        """Preferred number of trajectories per call: 1 if judging waits for a network, hundreds if it computes."""
        return 1

    @property
    def parallel_batches(self) -> int:
        """Number of batches to judge at once if `batch` is above 1; more than one only helps if other machines compute."""
        return 1

    @property
    def stochastic(self) -> bool:
        """Whether the same question can get a different answer. If false, one sample per trajectory is enough."""
        return True

    @property
    def causal(self) -> bool:
        """Whether the verdict on a step depends only on that step and the steps before it."""
        return False

    @property
    def asks_per_step(self) -> bool:
        """Whether `judge_step` costs one question about that step, instead of a judgement of the steps up to it."""
        return False

    @property
    def client(self) -> Any | None:
        """The `critic_prm.engine.client.Client` that sends this critic's requests; None if it sends none itself."""
        return None

    @property
    def judges(self) -> Sequence[tuple[str, Critic]]:
        """The critics that this critic combines, by name."""
        return ()

    @property
    def stats(self) -> Sequence[CriticStats]:
        """Statistics that the critic collects itself, for the run report."""
        return ()

    async def judge(self, trajectories: Sequence[Trajectory], sample: int = 0) -> list[Judgement]:
        """Judge each trajectory and return one judgement per trajectory, in order. A failure is returned as a judgement with
        its status. Only errors that must stop the whole run are raised (ConfigError, BudgetError)."""
        ...

    async def judge_step(self, trajectory: Trajectory, step: int, sample: int = 0) -> Judgement:
        """Judge one step (0-based), by default by judging the solution up to it."""
        return (await self.judge([trajectory.prefix(step + 1)], sample))[0]

    def with_prefix_cache(self) -> Critic:
        """This critic for solutions that grow step by step, as in search: one that can, computes the new steps only."""
        return self

    async def close(self) -> None:
        """Release what the critic holds open."""
        return

    async def __aenter__(self) -> Self:
        """`async with open_critic(...) as critic`: close the critic at the end."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __enter__(self) -> Self:
        """`with open_critic(...) as critic`: the same for code without `await`, where `label_all` uses the critic."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        from critic_prm.background import BACKGROUND

        BACKGROUND.run(self.close())


class Report(Protocol):
    """A part of a run's report: `lines` for the summary at its end, `report` for run.json under `name`."""

    @property
    def name(self) -> str: ...

    def lines(self) -> list[str]: ...

    def report(self) -> Any: ...


class CriticStats(Report, Protocol):
    """Statistics of a critic's labels."""

    def add(self, label: Label) -> None:
        """Count a label."""
        return

    def restart(self) -> None:
        """Reset the counts when labelling starts, so that the passes that collect requests for batches are not counted."""
        return
