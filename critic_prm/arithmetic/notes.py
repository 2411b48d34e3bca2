"""What a solution says of its variables, from step to step: values that stay, and the last linear equation in each."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from critic_prm.arithmetic.algebra import letters, solution
from critic_prm.arithmetic.sides import Side
from critic_prm.arithmetic.values import Unreadable, Value, distance, say

_CASES = re.compile(
    r"\bor\b|case|either|\bif\b|\blet\b|when|suppos|assum|\bset|\bfor \$?[a-z]\b|check|test|try|not |doesn|"
    r"choice|possib|\^|sqrt|solutions|roots|\||±|\\pm",
    re.IGNORECASE,
)
"""Steps in which a variable may rightly take another value than the equation before gave it."""


class Solved(NamedTuple):
    """A linear equation in one variable, the step it stands in, and what the variable has to be."""

    step: int
    text: str
    value: Value


@dataclass(slots=True)
class Notes:
    """Kept by the reader of one solution and handed to `check` with each of its steps; `step` is counted up in between.

    `values`: None, or what each variable is, where the problem leaves no doubt that a name keeps its value.
    """

    values: dict[str, Value] | None = None
    step: int = 0
    equations: dict[str, Solved] = field(default_factory=dict)


@lru_cache(maxsize=4)
def _varies(step: str) -> bool:
    return _CASES.search(step) is not None


def follow(notes: Notes, left: Side, right: Side, shown: str, step: str) -> tuple[bool | None, str]:
    """Compare a linear equation with the last one in the same variable, in this step or the one before, and remember it.

    (True, "") when they have the same solution, (False, critique) when not, (None, "") when there is nothing to compare.
    """
    names = letters(left) | letters(right)
    if len(names) != 1 or left.doubtful or right.doubtful or _varies(step):
        return None, ""
    (name,) = names
    try:
        value = solution(left, right)
        if value is None or "_" in name:
            return None, ""
        before = notes.equations.get(name)
        solves = len(left.tokens) == 1 and left.tokens[0].kind == "v" and not letters(right)
        if not solves:
            notes.equations[name] = Solved(notes.step, shown, value)
        if before is None or notes.step - before.step > 1:
            return None, ""
        if distance(value, before.value) * 100 <= distance(before.value, 0):
            return True, ""
    except Unreadable:
        return None, ""
    stated = "" if solves else f", which gives {name} = {say(value)}"
    return False, f"{before.text} gives {name} = {say(before.value)}, the step says {shown}{stated}"
