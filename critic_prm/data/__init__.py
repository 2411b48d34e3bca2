"""Core data types: trajectories, judgements and labels, and the files they are stored in.

A `Trajectory` is a problem with the `Step`s of one solution. A `Critic` turns it into a `Judgement`: one `Verdict` per step,
computed, or parsed from one or more `Reply`s of a model (each with its token `Usage`). A `Label` aggregates all judgements of
one trajectory.
"""

from critic_prm.data.critic import Critic
from critic_prm.data.hashing import problem_key
from critic_prm.data.judgement import Judgement, Label, Verdict, combine
from critic_prm.data.label_rows import LabelledTrajectory, label_row, read_labels, without_labels
from critic_prm.data.trajectory import (
    Step,
    Trajectory,
    blind,
    content_id,
    split_steps,
    trajectory_from_json,
    trajectory_to_json,
)
from critic_prm.providers.provider import Reply, Usage

__all__ = [
    "Critic", "Judgement", "Label", "LabelledTrajectory", "Reply", "Step", "Trajectory", "Usage", "Verdict",
    "blind", "combine", "content_id", "label_row", "problem_key", "read_labels", "split_steps", "trajectory_from_json",
    "trajectory_to_json", "without_labels",
]  # fmt: skip
