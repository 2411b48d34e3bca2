"""Score the prefixes of solutions to one problem with any critic, judging each prefix once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from critic_prm.data.critic import Critic
from critic_prm.data.judgement import Judgement, combine
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.engine.together import gather_all
from critic_prm.providers.provider import Usage

Path = tuple[str, ...]
Scores = tuple[float | None, ...]


@dataclass
class Scorer:
    """Scores paths and remembers the results.

    A causal critic, such as a verifier, does not change its scores of a prefix when steps are added, so scoring a solution also
    scores its prefixes. `calls` and `usage` count what was requested, whether it was paid for now or cached; `unread` counts
    unusable judgements, whose steps have no score.
    """

    critic: Critic
    problem: str
    samples: int = 1
    calls: int = 0
    usage: Usage = Usage()
    unread: int = 0
    _known: dict[Path, Scores] = field(default_factory=dict)

    async def score(self, paths: Sequence[Path]) -> list[Scores]:
        """P(correct) per step of each path, None for steps that were not judged."""
        new = [path for path in dict.fromkeys(paths) if path not in self._known]
        if new:
            rows = [await self._judge(new, sample) for sample in range(self.samples if self.critic.stochastic else 1)]
            for path, judgements in zip(new, zip(*rows, strict=True), strict=True):
                self._add(path, judgements)
        return [self._known[path] for path in paths]

    async def _judge(self, paths: Sequence[Path], sample: int) -> list[Judgement]:
        asked = [Trajectory("search", self.problem, tuple(map(Step, path))) for path in paths]
        if self.critic.batch > 1:
            return await self.critic.judge(asked, sample)
        # A critic that waits for the network judges all paths concurrently.
        return [judgement for row in await gather_all(self.critic.judge([one], sample) for one in asked) for judgement in row]

    def _add(self, path: Path, judgements: Sequence[Judgement]) -> None:
        label = combine(judgements, len(path))
        self._known[path] = label.p_correct
        self.unread += label.status != "ok"
        for judgement in judgements:
            self.calls += len(judgement.keys)
            self.usage += judgement.usage
        if self.critic.causal:
            for length in range(1, len(path)):
                self._known.setdefault(path[:length], label.p_correct[:length])
