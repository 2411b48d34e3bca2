"""Label reasoning steps with LLM judges, build PRM training sets, and distill a small local verifier."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from critic_prm.critics.open import open_critic
    from critic_prm.data.critic import Critic
    from critic_prm.data.formats.convert import read_trajectories, write_trajectories
    from critic_prm.data.judgement import Judgement, Label, Verdict
    from critic_prm.data.label_rows import LabelledTrajectory, read_labels
    from critic_prm.data.tables import Labels, Trajectories, to_dataset, to_pandas, trajectories_from, write_labels
    from critic_prm.data.trajectory import Step, Trajectory, split_steps
    from critic_prm.engine.options import JudgeOptions
    from critic_prm.errors import CriticPrmError
    from critic_prm.label.label_all import label_all
    from critic_prm.providers.provider import Provider, Sampling, open_provider

_MODULES = {
    "critics.open": ("open_critic",),
    "data.critic": ("Critic",),
    "data.formats.convert": ("read_trajectories", "write_trajectories"),
    "data.judgement": ("Judgement", "Label", "Verdict"),
    "data.label_rows": ("LabelledTrajectory", "read_labels"),
    "data.tables": ("Labels", "Trajectories", "to_dataset", "to_pandas", "trajectories_from", "write_labels"),
    "data.trajectory": ("Step", "Trajectory", "split_steps"),
    "engine.options": ("JudgeOptions",),
    "errors": ("CriticPrmError",),
    "label.label_all": ("label_all",),
    "providers.provider": ("Provider", "Sampling", "open_provider"),
}

__all__ = [
    "Critic",
    "CriticPrmError",
    "JudgeOptions",
    "Judgement",
    "Label",
    "LabelledTrajectory",
    "Labels",
    "Provider",
    "Sampling",
    "Step",
    "Trajectories",
    "Trajectory",
    "Verdict",
    "label_all",
    "open_critic",
    "open_provider",
    "read_labels",
    "read_trajectories",
    "split_steps",
    "to_dataset",
    "to_pandas",
    "trajectories_from",
    "write_labels",
    "write_trajectories",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `import critic_prm` itself imports nothing else."""
    if name == "__version__":
        from importlib.metadata import version

        return version("critic-prm")
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"critic_prm.{module}"), name)
    raise AttributeError(f"module 'critic_prm' has no attribute {name!r}")
