"""Blocksworld planning: move one block per step and state the resulting stacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

from critic_prm.generate.families._common import WORDS, Impossible, Run, SimulatedTask, draw_numbering, say, sentence
from critic_prm.generate.family import FamilyTask

KINDS = {
    "covered": 4.0,  # moves a block that has another block on top
    "buried": 3.0,  # puts a block onto one that already has a block on top
    "state": 4.0,  # a legal move with wrongly stated resulting stacks
    "early": 2.0,  # claims that the goal is reached when it is not
}
Stacks = tuple[tuple[str, ...], ...]
"""Each stack from bottom to top; stacks are sorted by their bottom blocks."""

SIZES = {1: (3, 3), 2: (4, 4), 3: (5, 5), 4: (6, 6), 5: (7, 8)}
TABLE = "table"


def shown(stacks: Stacks) -> str:
    """Write the stacks, each from bottom to top."""
    return " | ".join(map(" ".join, stacks))


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
class Planning(SimulatedTask):
    """Initial stacks, goal stacks, and one way of writing the plan."""

    problem: str
    start: Stacks
    goal: Stacks
    moves: tuple[str, str]
    block: str
    now: str
    done: str
    numbering: str
    longest: int  # upper bound on the steps of any solution, correct or wrong
    form: str = ""

    def kinds(self, steps: int) -> Sequence[tuple[str, ...]]:
        return [("covered", "buried", "state"), *[("covered", "buried", "state", "early")] * (steps - 2), ("state",)]

    def solve(self, run: Run) -> str:
        """Plan the next move from the current stacks or, after an error, possibly continue the original plan."""
        stacks, plan = self.start, list[tuple[str, str]]()
        fixed = self.plan if run.at >= 0 and run.rng.random() < 0.5 else None
        while len(run.texts) < self.longest:
            step = len(run.texts)
            move = next_move(stacks, self.goal) if fixed is None else fixed[step] if step < len(fixed) else None
            if run.error == "early" or move is None:
                break
            if run.error in ("covered", "buried"):
                moves = _illegal(stacks, run.error)
                move = run.choose([m for m in moves if m[0] == move[0]] or moves)
            stacks = after(stacks, *move)
            if run.error == "state":
                stacks = _misseen(stacks, run.rng)
            plan.append(move)
            run.texts.append(f"{self._say(*move)} {self.now.format(shown(stacks))}")
        if len(run.texts) == self.longest or (run.kind == "early" and stacks == self.goal):
            raise Impossible
        if run.error == "state":
            stacks = _misseen(stacks, run.rng)  # the last step misstates the final stacks
        elif run.kind == "early":
            stacks = self.goal
        run.texts.append(self.done.format(shown(stacks)))
        return ", ".join(f"{block} -> {to}" for block, to in plan)

    def _say(self, block: str, to: str) -> str:
        onto, down = self.moves
        name = self.block.format(block)
        return sentence(down.format(name) if to == TABLE else onto.format(name, self.block.format(to)))

    @cached_property
    def plan(self) -> list[tuple[str, str]]:
        """The moves of the correct plan."""
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
    blocks = rng.sample(WORDS["blocksworld"]["colours"], count) if coloured else list("ABCDEFGHIJ"[:count])
    block = rng.choice(("the {} block", "{}")) if coloured else rng.choice(("block {}", "{}"))
    while True:
        start, goal = _arrange(rng, blocks), _arrange(rng, blocks)
        first, wanted, ask = (say(rng, "blocksworld", key) for key in ("start", "goal", "ask"))
        problem = f"{first} {shown(start)}. {wanted} {shown(goal)}. {ask}"
        moves = rng.choice(WORDS["blocksworld"]["moves"])
        now, done = say(rng, "blocksworld", "now"), say(rng, "blocksworld", "done")
        planning = Planning(problem, start, goal, moves, block, now, done, draw_numbering(rng), longest=level + 7)
        if level < len(planning.plan) < planning.longest:
            return planning


def _arrange(rng: Random, blocks: Sequence[str]) -> Stacks:
    stacks: list[list[str]] = []
    for block in rng.sample(blocks, len(blocks)):
        if stacks and rng.random() < 0.65:
            rng.choice(stacks).append(block)
        else:
            stacks.append([block])
    return tidy(stacks)
