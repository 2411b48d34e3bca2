"""Open the judges named on the command line as one critic, with the statistics to collect."""

from __future__ import annotations

from collections.abc import Sequence

from critic_prm.critics.open import open_critic
from critic_prm.data.critic import Critic, CriticStats
from critic_prm.engine.options import JudgeOptions
from critic_prm.label.sampling import Samples, SamplingStats


def open_judges(
    names: Sequence[str], judging: JudgeOptions, consensus: str, samples: Samples
) -> tuple[Critic, list[CriticStats]]:
    """Open one judge as it is, or several as a consensus with statistics of their agreement and costs."""
    spent: list[CriticStats] = [] if samples.rule == "all" else [SamplingStats(samples)]
    if len(names) == 1:
        opened = open_critic(names[0], judging)
        return opened, [*spent, *opened.stats]
    from critic_prm.critics.consensus import connect_all
    from critic_prm.label.agreement import Agreement

    critic = connect_all(names, judging, consensus)
    return critic, [*spent, Agreement(names), *critic.stats]
