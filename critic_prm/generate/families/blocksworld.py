"""Blocksworld planning: move one block per step and state the resulting stacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

from critic_prm.generate.families._runs import RunTask
from critic_prm.generate.families._words import NUMBERING, numbered, sentence
from critic_prm.generate.family import FamilyTask, Solution

KINDS = {
    "covered": 4.0,  # moves a block that has another block on top
    "buried": 3.0,  # puts a block onto one that already has a block on top
    "state": 4.0,  # a legal move with wrongly stated resulting stacks
    "early": 2.0,  # claims that the goal is reached when it is not
}
Stacks = tuple[tuple[str, ...], ...]
"""Each stack from bottom to top; stacks are sorted by their bottom blocks."""

COLOURS = ("red", "blue", "green", "yellow", "white", "black", "orange", "purple", "grey", "brown")
SIZES = {1: (3, 3), 2: (4, 4), 3: (5, 5), 4: (6, 6), 5: (7, 8)}
ASK = ("Only the top block of a stack can be moved, onto the table or onto another top block. Give a plan, a move a step.",
       "A block is moved only if nothing lies on it, and only to where nothing lies on top. Write a plan.")  # fmt: skip
START = ("At the start the stacks, from bottom to top, are", "There are these stacks on a table (bottom to top):")
GOAL = ("The goal is", "They are to become", "Wanted:")
MOVES = (
    ("Move {} onto {}.", "Move {} to the table."),
    ("Put {} on {}.", "Put {} on the table."),
    ("{} goes on {}.", "{} goes to the table."),
)
NOW = ("Now: {}.", "The stacks are now {}.", "That gives {}.")
DONE = ("The goal is reached: {}.", "This is the goal: {}.", "Done: {}.")
TABLE = "table"


def tidy(stacks: Sequence[Sequence[str]]) -> Stacks:
    """Drop empty stacks and sort the rest."""
    return tuple(sorted(tuple(stack) for stack in stacks if stack))


def below(stacks: Stacks) -> dict[str, str]:
    """Map each block to what it stands on."""
    return {block: under for stack in stacks for under, block in zip((TABLE, *stack), stack, strict=False)}


def after(stacks: Stacks, block: str, to: str) -> Stacks:
    """Return the stacks after moving `block` from wherever it is directly onto `to`, legal or not."""
    left = [[other for other in stack if other != block] for stack in stacks]
    if to == TABLE:
        return tidy([*left, [block]])
    for stack in left:
        if to in stack:
            stack.insert(stack.index(to) + 1, block)
    return tidy(left)


def next_move(stacks: Stacks, goal: Stacks) -> tuple[str, str] | None:
    """Return a move towards the goal: a block to its final position if possible, else one out of the way; None at the goal."""
    wanted, now = below(goal), below(stacks)

    def settled(block: str) -> bool:
        return now[block] == wanted[block] and (wanted[block] == TABLE or settled(wanted[block]))

    tops = [stack[-1] for stack in stacks]
    for block in tops:
        to = wanted[block]
        if not settled(block) and (to == TABLE or (to in tops and settled(to))):
            return block, to
    for stack in stacks:
        if not all(settled(block) for block in stack) and len(stack) > 1 and not settled(stack[-1]):
            return stack[-1], TABLE
    return None


@dataclass(frozen=True)
class Planning:
    """Initial stacks, goal stacks, and one way of writing the plan."""

    start: Stacks
    goal: Stacks
    intro: tuple[str, str, str]
    moves: tuple[str, str]
    block: str
    now: str
    done: str
    numbering: str
    longest: int  # upper bound on the steps of any solution, correct or wrong

    def _show(self, stacks: Stacks) -> str:
        return " | ".join(" ".join(stack) for stack in stacks)

    @property
    def problem(self) -> str:
        start, goal, ask = self.intro
        return f"{start} {self._show(self.start)}. {goal} {self._show(self.goal)}. {ask}"

    @property
    def facts(self) -> Mapping[str, object]:
        return {}

    def places(self, steps: int) -> tuple[tuple[str, ...], ...]:
        return (("covered", "buried", "state"),) + (("covered", "buried", "state", "early"),) * (steps - 2) + (("state",),)

    def run(self, at: int, kind: str, rng: Random) -> Solution | None:
        """Plan the next move from the current stacks or, after an error, possibly continue the original plan."""
        stacks, texts, plan = self.start, list[str](), list[tuple[str, str]]()
        blind = self._plan if at >= 0 and rng.random() < 0.5 else None
        while len(texts) < self.longest:
            step = len(texts)
            wrong = kind if step == at else ""
            move = next_move(stacks, self.goal) if not blind else blind[step] if step < len(blind) else None
            if wrong == "early" or move is None:
                break
            if wrong in ("covered", "buried"):
                moves = _illegal(stacks, wrong)
                if not moves:
                    return None
                move = rng.choice([m for m in moves if m[0] == move[0]] or moves)
            stacks = after(stacks, *move)
            if wrong == "state":
                stacks = _misseen(stacks, rng)
            plan.append(move)
            texts.append(f"{self._say(*move)} {self.now.format(self._show(stacks))}")
        if len(texts) == self.longest:
            return None
        if kind == "state" and len(texts) == at:
            stacks = _misseen(stacks, rng)  # the last step misstates the final stacks
        elif kind == "early" and stacks != self.goal:
            stacks = self.goal
        elif kind == "early":
            return None
        texts.append(self.done.format(self._show(stacks)))
        return Solution(numbered(texts, self.numbering), ", ".join(f"{block} -> {to}" for block, to in plan))

    def _say(self, block: str, to: str) -> str:
        onto, down = self.moves
        name = self.block.format(block)
        return sentence(down.format(name) if to == TABLE else onto.format(name, self.block.format(to)))

    @cached_property
    def _plan(self) -> list[tuple[str, str]]:
        """Return the moves of the correct plan."""
        stacks, plan = self.start, list[tuple[str, str]]()
        while move := next_move(stacks, self.goal):
            stacks = after(stacks, *move)
            plan.append(move)
        return plan


def _illegal(stacks: Stacks, kind: str) -> list[tuple[str, str]]:
    """Return the illegal moves: of a covered block ("covered") or onto one ("buried")."""
    tops = [stack[-1] for stack in stacks]
    inner = [block for stack in stacks for block in stack[:-1]]
    under = below(stacks)
    if kind == "covered":
        return [(block, to) for block in inner for to in (*tops, TABLE) if under[block] != to and not _same(stacks, block, to)]
    return [(block, to) for block in tops for to in inner if under[block] != to]


def _same(stacks: Stacks, block: str, to: str) -> bool:
    """Return whether both are in the same stack."""
    return any(block in stack and to in stack for stack in stacks)


def _misseen(stacks: Stacks, rng: Random) -> Stacks:
    """Return the stacks with two blocks swapped or one block elsewhere."""
    blocks = [block for stack in stacks for block in stack]
    if rng.random() < 0.5:
        a, b = rng.sample(blocks, 2)
        names = {a: b, b: a}
        seen = tidy([[names.get(block, block) for block in stack] for stack in stacks])
    else:
        block = rng.choice(blocks)
        tops = [stack[-1] for stack in stacks if block not in stack]
        seen = after(stacks, block, rng.choice([*tops, TABLE]))
    return seen if seen != stacks else _misseen(stacks, rng)


def draw(rng: Random, level: int) -> FamilyTask:
    """Draw two arrangements of the same blocks."""
    count = rng.randint(*SIZES[level])
    coloured = rng.random() < 0.4
    blocks = rng.sample(COLOURS, count) if coloured else list("ABCDEFGHIJ"[:count])
    block = rng.choice(("the {} block", "{}")) if coloured else rng.choice(("block {}", "{}"))
    while True:
        start, goal = _arrange(rng, blocks), _arrange(rng, blocks)
        intro = (rng.choice(START), rng.choice(GOAL), rng.choice(ASK))
        words = (rng.choice(MOVES), block, rng.choice(NOW), rng.choice(DONE), rng.choice(NUMBERING))
        planning = Planning(start, goal, intro, *words, longest=level + 7)
        if level < len(planning._plan) < planning.longest:
            return RunTask(planning)


def _arrange(rng: Random, blocks: Sequence[str]) -> Stacks:
    stacks: list[list[str]] = []
    for block in rng.sample(blocks, len(blocks)):
        if stacks and rng.random() < 0.65:
            rng.choice(stacks).append(block)
        else:
            stacks.append([block])
    return tidy(stacks)
