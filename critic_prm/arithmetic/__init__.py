"""Parse and check the arithmetic written in solution steps."""

from critic_prm.arithmetic.algebra import Notes, remember
from critic_prm.arithmetic.claims import Claim, Finding, check, judge_one

__all__ = ["Claim", "Finding", "Notes", "check", "judge_one", "remember"]
