"""Text to the arithmetic that is written in it: what it claims, what that comes to, and whether it holds."""

from __future__ import annotations

from critic_prm.arithmetic.claims import Claim, Finding, check
from critic_prm.arithmetic.notes import Notes, remember

__all__ = ["Claim", "Finding", "Notes", "check", "remember"]
