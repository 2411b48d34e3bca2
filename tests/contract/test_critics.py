"""Contract of every critic of the registry, and of a critic of another package with an option of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from critic_prm import registry
from critic_prm.critics.open import open_critic
from critic_prm.data.critic import Critic
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import UsageError
from tests.command import invoke

ROWS = [
    Trajectory("right", "What is 6 * 7?", (Step("6 * 7 = 42."), Step("So it is 42.")), label=-1),
    Trajectory("wrong", "What is 2 + 3?", (Step("2 + 3 = 6, which is a long step."), Step("So it is 6.")), label=0),
]

TOY = '''
"""Judge a step by its length."""
from __future__ import annotations
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from critic_prm.data.critic import Critic
from critic_prm.data.judgement import Judgement, Verdict, first_error_of
from critic_prm.data.trajectory import Trajectory
from critic_prm.option import Option

@dataclass(frozen=True)
class Options:
    """Options of the critic."""
    longest: Annotated[int, Option(min=1)] = 100
    """Longest correct step, in characters."""

@dataclass(frozen=True)
class LengthCritic(Critic):
    """A step is correct if it is short."""
    options: Options = Options()
    stochastic: bool = False

    @property
    def card(self) -> Mapping[str, Any]:
        return {"provider": "length", "longest": self.options.longest}

    async def judge(self, trajectories: Sequence[Trajectory], sample: int = 0) -> list[Judgement]:
        return [self._one(trajectory, sample) for trajectory in trajectories]

    def _one(self, trajectory: Trajectory, sample: int) -> Judgement:
        short = [len(text) <= self.options.longest for text in trajectory.texts]
        verdicts = tuple(Verdict(i, "correct" if ok else "incorrect", p_correct=float(ok)) for i, ok in enumerate(short))
        return Judgement("ok", verdicts, first_error_of(verdicts, len(verdicts)), sample)

CRITIC = LengthCritic
'''


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A distribution on sys.path that registers the critic `length`; in its folder, the trajectories as rows.jsonl."""
    info = tmp_path / "length_critic-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: length-critic\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[critic_prm.critics]\nlength = length_critic\n")
    (tmp_path / "length_critic.py").write_text(TOY)
    rows = [{"id": t.id, "problem": t.problem, "steps": t.texts, "label": t.label} for t in ROWS]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    forget()
    yield tmp_path
    sys.modules.pop("length_critic", None)
    forget()


def forget() -> None:
    for cached in (registry.load, registry._installed, registry._entry_points):
        cached.cache_clear()


@pytest.mark.parametrize("name", registry.names("critic"))
async def test_a_critic_judges_every_trajectory_in_order(name: str) -> None:
    critic: Critic = open_critic(name)
    assert critic.card["provider"]
    assert critic.batch >= 1
    judgements = await critic.judge([*ROWS, *reversed(ROWS)], sample=2)
    assert [judgement.sample for judgement in judgements] == [2] * 4
    for trajectory, judgement in zip([*ROWS, *reversed(ROWS)], judgements, strict=True):
        steps = [verdict.step for verdict in judgement.verdicts]
        assert steps == sorted(set(steps))
        assert set(steps) <= set(range(len(trajectory.steps)))
        assert judgement.first_error is None or -1 <= judgement.first_error < len(trajectory.steps)
    if not critic.stochastic:
        assert judgements[:2] == judgements[:1:-1]
    one = await critic.judge_step(ROWS[1], 0)
    assert {verdict.step for verdict in one.verdicts} <= {0}
    await critic.close()


@pytest.mark.parametrize("name", registry.names("critic"))
def test_a_critic_refuses_options_that_it_does_not_have(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} has no option"):
        open_critic(name, JudgeOptions(option=("no-such-option=1",)))


async def test_what_a_critic_does_not_declare_has_a_default(toy: Path) -> None:
    critic = open_critic("length", JudgeOptions(option=("longest=20",)))
    assert (critic.batch, critic.parallel_batches, critic.causal, critic.asks_per_step) == (1, 1, False, False)
    assert (critic.client, critic.judges, critic.stats, critic.with_prefix_cache()) == (None, (), (), critic)
    assert (await critic.judge_step(ROWS[1], 0)).first_error == 0
    await critic.close()


def test_a_critic_with_an_option_goes_through_every_command(toy: Path) -> None:
    result = invoke("label", "rows.jsonl", "-o", "labels.jsonl", "--judge", "length", "--option", "longest=20")
    assert result.exit_code == 0, result.output
    labels = [json.loads(line) for line in (toy / "labels.jsonl").read_text().splitlines()]
    assert [row["first_error"] for row in labels] == [-1, 0]
    assert labels[0]["critic"]["longest"] == 20
    (toy / "mix.toml").write_text('[mixture]\n[[mixture.part]]\ncritic = "length"\n[[mixture.part]]\ncritic = "rules"\n')
    result = invoke("label", "rows.jsonl", "-o", "mixed.jsonl", "--judge", "length", "--judge", "mix.toml")
    assert result.exit_code == 0, result.output
    result = invoke("evaluate", "length", "rows.jsonl", "--option", "longest=20", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["critic"]["longest"] == 20
