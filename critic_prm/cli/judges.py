"""Open the judges named on the command line as one critic, with the statistics to collect."""

from __future__ import annotations

from collections.abc import Sequence

from critic_prm.critics.open import open_critic
from critic_prm.data.critic import Critic
from critic_prm.engine.options import JudgeOptions
from critic_prm.label.run import CriticStats
from critic_prm.label.sampling import Samples, SamplingStats


def open_judges(
    names: Sequence[str], judging: JudgeOptions, consensus: str, samples: Samples
) -> tuple[Critic, list[CriticStats]]:
    """Open one judge as it is, or several as a consensus with statistics of their agreement and costs."""
    spent: list[CriticStats] = [] if samples.rule == "all" else [SamplingStats(samples)]
    if len(names) == 1:
        opened = open_critic(names[0], judging)
        return opened, [*spent, *accounts_of(opened)]
    from critic_prm.critics.consensus import ConsensusStats, connect_all
    from critic_prm.label.agreement import Agreement

    critic = connect_all(names, judging, consensus)
    return critic, [*spent, Agreement(names), ConsensusStats(critic.judges)]


def accounts_of(critic: Critic) -> list[CriticStats]:
    """Return the statistics of a composite critic: the routing of a cascade and the cost of each critic inside it."""
    from critic_prm.critics.cascade import Cascade
    from critic_prm.critics.consensus import ConsensusStats
    from critic_prm.critics.mixture import Mixture

    if isinstance(critic, Cascade):
        return [critic.traffic, ConsensusStats(critic.judges)]
    return [ConsensusStats(critic.judges)] if isinstance(critic, Mixture) else []
