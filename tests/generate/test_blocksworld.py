"""The Blocksworld family: every plan is carried out by a simulator that keeps what each block stands on."""

from __future__ import annotations

import re

from tests.families import trajectories_of, unnumbered

Under = dict[str, str]
MOVE = re.compile(
    r"(?:Move |Put |The |Block )?(?:the |block )?(\w+)(?: block)?"
    r" (?:onto|on|to|goes on|goes to) (?:the |block )?(\w+)(?: block)?"
)


def stacks(text: str) -> Under:
    """From "A B | C" to what each block stands on."""
    under = {}
    for stack in text.split(" | "):
        below = "table"
        for block in stack.split():
            under[block] = below
            below = block
    return under


def test_every_label_is_confirmed_by_a_simulator() -> None:
    for t in trajectories_of("blocksworld"):
        start, goal = (
            stacks(text) for text in re.findall(r"\w+(?: \w+)*(?: \| \w+(?: \w+)*)*(?=\.)", described(t.problem))[:2]
        )
        assert start.keys() == goal.keys(), t.problem
        world, first = dict(start), -1
        plan = []
        for index, step in enumerate(t.texts):
            text = unnumbered(step)
            if done := re.match(r"(?:The goal is reached|This is the goal|Done): (.*)\.$", text):
                claimed = stacks(done[1])
                assert index == len(t.texts) - 1
                if first == -1 and not (claimed == world == goal):
                    first = index
                continue
            said, now = re.split(r"\. (?:Now: |The stacks are now |That gives )", text.removesuffix("."))
            match = MOVE.fullmatch(said)
            assert match is not None, said
            block, to = (name.lower() if name.lower() in start or name == "table" else name for name in match.groups())
            plan.append(f"{block} -> {to}")
            if first >= 0:
                continue
            tops = world.keys() - set(world.values())
            legal = block in tops and (to == "table" or (to in tops and to != block)) and world[block] != to
            world[block] = to
            if not legal or stacks(now) != world:
                first = index
        assert first == t.label, (t.problem, t.texts)
        assert t.final_answer == ", ".join(plan)


def described(problem: str) -> str:
    """The start and the goal alone, each with its full stop."""
    for words in (
        "At the start the stacks, from bottom to top, are ",
        "There are these stacks on a table (bottom to top): ",
        "The goal is ",
        "They are to become ",
        "Wanted: ",
    ):
        problem = problem.replace(words, "")
    return problem
