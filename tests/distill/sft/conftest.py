"""Solutions that a scripted judge has labelled, for the tests of the generative student."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from critic_prm.critic import Judging
from critic_prm.critics.llm import with_provider
from critic_prm.judgement import Verdict
from critic_prm.label import Tally, label_into
from critic_prm.prompt import open_style
from critic_prm.provider import Wire
from critic_prm.providers.scripted import ScriptedProvider
from critic_prm.reader import Expect, write_reply
from critic_prm.records import RecordWriter
from critic_prm.trajectory import Step, Trajectory


def solution(number: int, first: int, steps: int = 2) -> Trajectory:
    """A sum cut into steps; the step `first` has a wrong result (-1: none has)."""
    texts = [f"{number} + {k} = {number + k + (k == first)}" for k in range(steps)]
    return Trajectory(f"s{number}", f"Add to {number}.", tuple(map(Step, texts)), label=first)


def chain(trajectory: Trajectory, first: int, style: str | Path = "stepwise", tail: str = "") -> str:
    """What a judge says who finds the first error at `first`."""
    last = len(trajectory.steps) if first < 0 else first + 1
    verdicts = [
        Verdict(
            k,
            "incorrect" if k == first else "correct",
            f"I add again: {trajectory.texts[k]} is {'off' if k == first else 'fine'}.",
        )
        for k in range(last)
    ]
    opened = open_style(style)
    return str(write_reply(opened, Expect(len(trajectory.steps), opened.base, opened.stops), verdicts)) + tail


Script = Callable[[Trajectory, int], str]


async def judge(trajectories: Sequence[Trajectory], out: Path, say: Script, style: str = "stepwise", samples: int = 1) -> Path:
    """Label with a judge that says `say(trajectory, sample)`; replies are kept in the cache beside."""
    asked: dict[str, int] = {}

    def script(wire: Wire) -> dict[str, Any]:
        found = re.search(r"Add to (\d+)\.", wire["messages"][-1]["content"])
        assert found is not None
        turn = asked.get(found.group(1), 0)
        asked[found.group(1)] = turn + 1
        return {"text": say(next(t for t in trajectories if t.id == f"s{found.group(1)}"), turn)}

    judging = Judging(style=style, db=out.with_suffix(".db"), follow_ups=0, schema=False)
    critic = with_provider(ScriptedProvider(script), judging)
    with RecordWriter(out) as writer:
        await label_into(writer, trajectories, critic, Tally(), samples=samples)
    await critic.close()
    return out


def rows(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


@pytest.fixture
def made() -> SimpleNamespace:
    """The makers: solution, chain, judge, rows."""
    return SimpleNamespace(solution=solution, chain=chain, judge=judge, rows=rows)


@pytest.fixture
def problems() -> list[Trajectory]:
    """Forty solutions, half of them with an error."""
    return [solution(number, -1 if number % 2 else number % 4 // 2) for number in range(40)]
