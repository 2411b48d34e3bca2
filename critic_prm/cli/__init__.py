"""The command-line interface: options, then the library, then print; one module per command or group."""

from critic_prm.cli import interrupt  # noqa: F401  # first, because the other imports take a while

# isort: split
from critic_prm.cli.app import build, main

__all__ = ["build", "main"]
