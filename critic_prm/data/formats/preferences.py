"""Preference pairs, as for DPO: the chosen and the rejected answer become two trajectories of one problem."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from critic_prm.data.formats.chat import conversation
from critic_prm.data.formats.common import Format, Source, about, describe, has
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.errors import InputError

_SIDES = ("chosen", "rejected")
_TURN = "\n\nAssistant:"
"""Begins an assistant turn where a whole conversation is one text, as in Anthropic's HH-RLHF."""


def _score(row: Mapping[str, Any]) -> int:
    return 2 * has(row, *_SIDES) + has(row, *_SIDES, "prompt")


def _read(source: Source) -> Iterable[Trajectory]:
    """Read both answers. A preference says nothing about steps, so they have no labels; `meta.preference` is the side."""
    prompt, own = source.get("prompt"), source.id()
    source.drop(*_SIDES)
    for side in _SIDES:
        problem, steps = _solution(prompt, source.get(side), source, side)
        yield source.trajectory(problem, steps, id=f"{own}/{side}" if own else "", meta={"preference": side})


def _solution(prompt: Any, answer: Any, source: Source, side: str) -> tuple[str, Iterable[Step]]:
    """Problem and steps of one side: texts, messages after a prompt, or a whole conversation."""
    if isinstance(answer, list):
        before = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}] if prompt else []
        chat = conversation([*before, *answer], source.where)
        return chat.problem, chat.steps
    if not isinstance(answer, str) or not answer.strip():
        raise InputError(source.where, f'"{side}" is {describe(answer)}', "it is a text or a list of messages")
    problem = prompt if isinstance(prompt, str) else None
    if problem is None:
        problem, turn, answer = answer.rpartition(_TURN)
        if not turn:
            raise InputError(source.where, 'the row has no "prompt"', "it is a text or a list of messages")
    if not problem.strip():
        raise InputError(source.where, '"prompt" is empty', "it is the problem that both answers solve")
    return problem.strip().removeprefix("Human:").strip(), [Step(answer.strip())]


FORMATS = {
    "preferences": Format(read=_read, score=_score, **about("preferences")),
}
