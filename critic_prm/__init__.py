"""Step verdicts from a generative critic, training sets from the verdicts, a small verifier from the training sets."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from critic_prm.data.critic import Critic, Judging, open_critic
    from critic_prm.data.formats.convert import read_trajectories, write_trajectories
    from critic_prm.data.judgement import Judgement, Label, Verdict
    from critic_prm.data.label_rows import read_labels
    from critic_prm.data.trajectory import Step, Trajectory, split_steps
    from critic_prm.errors import CriticPrmError
    from critic_prm.providers.provider import Provider, Sampling, open_provider

_HOME = {
    "critic": ("Critic", "Judging", "open_critic"),
    "errors": ("CriticPrmError",),
    "formats": ("read_trajectories", "write_trajectories"),
    "judgement": ("Judgement", "Label", "Verdict"),
    "labels": ("read_labels",),
    "provider": ("Provider", "Sampling", "open_provider"),
    "trajectory": ("Step", "Trajectory", "split_steps"),
}

__all__ = [
    "Critic",
    "CriticPrmError",
    "Judgement",
    "Judging",
    "Label",
    "Provider",
    "Sampling",
    "Step",
    "Trajectory",
    "Verdict",
    "open_critic",
    "open_provider",
    "read_labels",
    "read_trajectories",
    "split_steps",
    "write_trajectories",
]


def __getattr__(name: str) -> Any:
    """Public names are found where they live when they are first asked for: `import critic_prm` itself costs nothing."""
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(f"critic_prm.{module}"), name)
    raise AttributeError(f"module 'critic_prm' has no attribute {name!r}")
