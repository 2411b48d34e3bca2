"""Let a judge say where the steps of solutions begin: it sees numbered parts and answers with numbers, never with text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from critic_prm.data.segment.methods import segment, units
from critic_prm.data.segment.rows import StepCounts, is_labelled, resplit
from critic_prm.data.trajectory import Trajectory
from critic_prm.engine.client import Client, open_client
from critic_prm.engine.concurrency import ordered_map
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import InputError
from critic_prm.generate.policy.policy import open_prompt
from critic_prm.providers.provider import Request, open_provider

MOST = 400
"""Largest number of parts that a judge is asked about; a longer text is split by rules."""

_LINE = re.compile(r"STEPS[*: \t]++(\d[\d, \t]*+)", re.IGNORECASE)
_THOUGHT = re.compile(r"\A.*</think(?:ing)?>", re.DOTALL)


async def mark_steps(
    trajectories: Iterable[Trajectory], judge: str, judging: JudgeOptions, counts: StepCounts
) -> list[Trajectory]:
    """The trajectories with the steps that a judge marked; the text of the steps is that of the input.

    Replies are cached like all others. Where a reply cannot be used, the text is split by rules ("auto"), which
    `counts.fallbacks` counts. Raises InputError if steps have labels, and what stops a run: ConfigError, BudgetError.
    """
    provider = open_provider(judge, judging.base_url, judging.option, judging.header, judging.api_key_env)
    marker = Marker(open_client(provider, judging))

    async def work(part: Sequence[Trajectory]) -> list[tuple[Trajectory, bool]]:
        return [await marker.split(trajectory) for trajectory in part]

    made: list[Trajectory] = []
    try:
        async for _, (trajectory, marked) in ordered_map(trajectories, work, workers=lambda: marker.client.gate.most):
            counts.add(trajectory, "llm" if marked else "")
            counts.fallbacks += not marked
            made.append(trajectory)
    finally:
        await marker.client.close()
    return made


class Marker:
    """Asks a judge for the beginnings of steps."""

    def __init__(self, client: Client) -> None:
        self.client, self._prompt = client, open_prompt("steps", "segment")

    async def split(self, trajectory: Trajectory) -> tuple[Trajectory, bool]:
        """The trajectory with the steps that the judge marked, or split by rules and False."""
        if is_labelled(trajectory):
            problem = "the steps have labels, so --segment llm cannot split them again"
            raise InputError(trajectory.id, problem, "leave out --segment, or remove the labels")
        texts = list[str]()

        def keep(text: str) -> Sequence[str]:
            texts.append(text)
            return [text]

        resplit(trajectory, keep)
        parts = [await self._parts(trajectory.problem, text) for text in texts]
        turns = iter(zip(texts, parts, strict=True))

        def next_parts(_: str) -> Sequence[str]:
            text, marked = next(turns)
            return segment(text)[0] if marked is None else marked

        return resplit(trajectory, next_parts), None not in parts

    async def _parts(self, problem: str, text: str) -> list[str] | None:
        """The steps of a text; None if the judge did not say usably where they begin."""
        pieces = units(text)
        if len(pieces) < 2:
            return [text]
        if len(pieces) > MOST:
            return None
        messages = self._prompt.messages(problem, [text[start:end] for start, end in pieces])
        answer = await self.client.ask(Request(messages, self.client.options.sampling))
        starts = read_starts(answer.reply.text, len(pieces)) if answer.reply else None
        if starts is None:
            return None
        ends = [*(start - 1 for start in starts[1:]), len(pieces)]
        return [text[pieces[first - 1][0] : pieces[last - 1][1]] for first, last in zip(starts, ends, strict=True)]


def read_starts(reply: str, parts: int) -> list[int] | None:
    """The numbers of the parts that begin a step, from the last line "STEPS: 1, 4" of a reply; None if they are not increasing
    numbers of parts."""
    lines = _LINE.findall(_THOUGHT.sub("", reply, count=1))
    numbers = [int(number) for number in re.findall(r"\d{1,9}", lines[-1])] if lines else []
    if not numbers or numbers != sorted(set(numbers)) or not 1 <= numbers[0] <= numbers[-1] <= parts:
        return None
    return numbers if numbers[0] == 1 else [1, *numbers]
