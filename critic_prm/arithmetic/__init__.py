"""Parse and check the arithmetic written in solution steps."""

from __future__ import annotations

from critic_prm.arithmetic.claims import Claim, Finding, check
from critic_prm.arithmetic.notes import Notes, remember

__all__ = ["Claim", "Finding", "Notes", "check", "remember"]
