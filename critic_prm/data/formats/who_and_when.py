"""Who&When (mingyin1): failed multi-agent runs with the 0-based index of the message with the decisive mistake."""

from __future__ import annotations

from collections.abc import Iterable

from critic_prm.data.formats.common import Format, Source
from critic_prm.data.trajectory import Step, Trajectory


def read(source: Source) -> Iterable[Trajectory]:
    """Read one trajectory. Each message of the history is a step, prefixed with the name of its agent."""
    history = source.get("history")
    if not isinstance(history, list) or not history or not all(isinstance(turn, dict) for turn in history):
        raise source.error("history", "it must be a list of messages")
    steps = tuple(Step(f"{turn.get('name') or turn.get('role')}: {turn.get('content')}") for turn in history)
    yield source.trajectory(
        source.text("question"),
        steps,
        id=source.id("question_ID"),
        gold_answer=source.answer("ground_truth"),
        label=source.first_error("mistake_step", 0, len(steps)),
    )


FORMAT = Format(
    sample={"question": "p", "history": [{"role": "user", "content": "s"}], "mistake_step": "0"},
    read=read,
    fields=("question", "history", "mistake_step"),
    certainty=3,
    labels="`mistake_step`: the decisive incorrect step, as text; every run failed",
    index_base=0,
)
