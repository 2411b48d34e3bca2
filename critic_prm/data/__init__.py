"""Core data types: trajectories, judgements and labels, and the files they are stored in.

A `Trajectory` is a problem with the `Step`s of one solution. A `Critic` turns it into a `Judgement`: one `Verdict` per step,
computed, or parsed from one or more `Reply`s of a model (each with its token `Usage`). A `Label` aggregates all judgements of
one trajectory.
"""

from critic_prm.data.critic import Critic
from critic_prm.data.judgement import Judgement, Label, Verdict
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.providers.provider import Reply, Usage

__all__ = ["Critic", "Judgement", "Label", "Reply", "Step", "Trajectory", "Usage", "Verdict"]
