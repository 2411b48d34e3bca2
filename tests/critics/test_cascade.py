"""A cascade asks where it is told to, as worked numbers say; what nobody decides reaches a person and comes back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from critic_prm.cli import main
from critic_prm.critics.cascade import Band, By, Cascade, Escalations, in_doubt
from critic_prm.critics.combined import Consensus, parse_ruling
from critic_prm.critics.llm import with_provider
from critic_prm.critics.open import open_critic
from critic_prm.data.critic import Critic
from critic_prm.data.human import read_answers
from critic_prm.data.judgement import Judgement, Verdict, combine
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import InputError, UsageError
from critic_prm.providers.scripted import ScriptedProvider

Says = Callable[[Trajectory], Judgement]


@dataclass
class Fake(Critic):
    """A critic that says what it is told to, and remembers what it was asked."""

    says: Says
    batch: int = 100
    stochastic: bool = False
    asked: list[Trajectory] = field(default_factory=list)

    @property
    def card(self) -> Mapping[str, Any]:
        return {"provider": "fake"}

    async def judge(self, trajectories: Sequence[Trajectory], sample: int = 0) -> list[Judgement]:
        self.asked += trajectories
        return [self.says(trajectory) for trajectory in trajectories]

    async def close(self) -> None: ...


def scored(*errors: float, threshold: float = 0.5) -> Judgement:
    """A judgement with these P(error)."""
    verdicts = [Verdict(i, "incorrect" if p > threshold else "correct", p_correct=1 - p) for i, p in enumerate(errors)]
    return Judgement("ok", tuple(verdicts), next((v.step for v in verdicts if v.value == "incorrect"), -1))


def words(first_error: int, steps: int) -> Judgement:
    last = steps if first_error < 0 else first_error + 1
    verdicts = tuple(Verdict(i, "incorrect" if i == first_error else "correct", span=(0, 1)) for i in range(last))
    return Judgement("ok", verdicts, first_error, keys=("k",))


def solution(steps: int = 4, name: str = "t") -> Trajectory:
    return Trajectory(name, f"problem {name}", tuple(Step(f"{name} step {i}") for i in range(steps)), label=2)


def cascade(first: Fake, *others: Any, band: Band, by: By = "solution", path: Path | None = None) -> Cascade:
    named = tuple((f"judge{i}", judge) for i, judge in enumerate(others))
    return Cascade(first, named, band, by, Escalations(path) if path else None)


P, ERROR = (0.02, 0.10, 0.40, 0.60, 0.90, 0.97), (0, 1, 0, 1, 1, 1)


@pytest.mark.parametrize(
    ("low", "high", "asked", "f1"), [(0.05, 0.5, 2, 1.0), (0.35, 0.65, 2, 0.857143), (0.5, 0.5, 0, 0.857143)]
)
async def test_bands_worked(low: float, high: float, asked: int, f1: float) -> None:
    """Six steps, each a solution of its own, and a perfect judge."""
    first = Fake(lambda t: scored(float(t.steps[0].text)))
    judge = Fake(lambda t: words(0 if ERROR[P.index(float(t.steps[0].text))] else -1, 1))
    rows = [Trajectory(str(p), "p", (Step(str(p)),)) for p in P]
    found = await cascade(first, judge, band=Band(low, high)).judge(rows)
    assert len(judge.asked) == asked
    said = [judgement.first_error == 0 for judgement in found]
    hits = sum(s and bool(e) for s, e in zip(said, ERROR, strict=True))
    assert 2 * hits / (sum(said) + sum(ERROR)) == pytest.approx(f1, abs=1e-6)


async def test_only_steps_up_to_the_first_error_can_be_in_doubt() -> None:
    band = Band(0.3, 0.6)
    assert in_doubt(band, (0.9, 0.6, 0.1, 0.5), 2) == [1]
    assert in_doubt(band, (0.9, 0.9, 0.1, 0.5), 2) == []
    assert in_doubt(band, (0.9, 0.65, None, 0.5), -1) == [1, 2, 3]
    assert in_doubt(Band(0.3, 0.3, spread=0.1), (0.9, 0.9), -1, (0.2, None)) == [0]


@pytest.mark.parametrize("numbers", [(0.6, 0.5, None), (-0.1, 0.5, None), (0.1, 1.1, None), (0.1, 0.2, -1.0)])
def test_a_band_that_is_none_is_refused(numbers: tuple[float, float, float | None]) -> None:
    with pytest.raises(UsageError):
        Band(*numbers)


async def test_by_step_only_what_is_in_doubt_is_asked() -> None:
    first = Fake(lambda t: scored(0.01, 0.4, 0.02, 0.4, 0.99))
    judge = Fake(lambda t: words(-1, len(t.steps)))
    critic = cascade(first, judge, band=Band(0.3, 0.6), by="step")
    (found,) = await critic.judge([solution(5)])
    assert [len(t.steps) for t in judge.asked] == [2, 4]
    assert all(t.label is None for t in judge.asked)
    assert found.first_error == 4
    assert [v.value for v in found.verdicts] == ["correct"] * 4 + ["incorrect"]
    assert found.verdicts[1].p_correct is None
    assert found.verdicts[0].p_correct == pytest.approx(0.99)
    assert found.keys == ("k", "k")
    assert all(v.span is None for v in found.verdicts)
    assert critic.traffic.asked == {"judge0": 2}


async def test_by_step_nothing_is_asked_after_an_error_and_an_earlier_one_counts() -> None:
    first = Fake(lambda t: scored(0.01, 0.4, 0.4, 0.4))
    earlier = Fake(lambda t: words(0, len(t.steps)))
    (found,) = await cascade(first, earlier, band=Band(0.3, 0.6), by="step").judge([solution()])
    assert len(earlier.asked) == 1
    assert found.first_error == 0
    assert len(found.verdicts) == 1
    label = combine([found], 4)
    assert label.p_correct == (0.0, None, None, None)


async def test_a_judge_with_a_question_per_step_gets_that_question_alone(tmp_path: Path) -> None:
    provider = ScriptedProvider([{"text": "Yes, it is right.\nVerdict: correct"}, {"text": "Yes"}])
    judge = with_provider(provider, JudgeOptions(style="yes-no", db=tmp_path / "c.db", follow_ups=0))
    first = Fake(lambda t: scored(0.01, 0.02, 0.4, 0.02))
    await cascade(first, judge, band=Band(0.3, 0.6), by="step").judge([solution()])
    assert len(provider.asked) == 1
    assert "t step 2" in json.dumps(provider.asked[0])
    await judge.close()


async def test_what_one_judge_cannot_say_the_next_is_asked_and_then_a_person(tmp_path: Path) -> None:
    path = tmp_path / "escalate.jsonl"
    mute = Fake(lambda t: Judgement("unparseable"))
    torn = Fake(lambda t: Judgement("ok", (Verdict(0, "neutral"),), None) if t.id == "a" else words(1, 4))
    first = Fake(lambda t: scored(0.1, 0.4, 0.1, 0.1))
    critic = cascade(first, mute, torn, band=Band(0.3, 0.6), path=path)
    undecided, decided = await critic.judge([solution(name="a"), solution(name="b")])
    assert decided.first_error == 1
    assert [part.judge for part in decided.parts] == ["first", "judge0", "judge1"]
    assert undecided.first_error == -1
    assert "the first critic's result is kept" in " ".join(undecided.notes)
    assert critic.traffic.counts["escalated"] == 1
    await critic.judge([solution(name="a")])
    (row,) = [json.loads(line) for line in path.read_text().splitlines()]
    assert row["escalated"]["steps"] == [1]
    assert [one["status"] for one in row["escalated"]["judges"]] == ["unparseable", "ok"]
    assert row["human"] == {"first_error": None, "by": "", "note": ""}
    assert critic.traffic.counts == {"solutions": 3, "undecided": 2, "escalated": 1}


async def test_by_step_the_first_critic_stands_in_for_a_judge_that_fails(tmp_path: Path) -> None:
    first = Fake(lambda t: scored(0.1, 0.4, 0.55, 0.1))
    critic = cascade(first, Fake(lambda t: Judgement("refused")), band=Band(0.3, 0.6), by="step", path=tmp_path / "e.jsonl")
    (found,) = await critic.judge([solution()])
    assert found.first_error == 2
    assert read_answers(tmp_path / "e.jsonl").open == 1


async def test_an_unusable_first_judgement_goes_to_the_judge() -> None:
    critic = cascade(Fake(lambda t: Judgement("provider_error")), Fake(lambda t: words(1, 4)), band=Band(0.5, 0.5))
    (found,) = await critic.judge([solution()])
    assert found.first_error == 1


async def test_a_wide_spread_is_doubt() -> None:
    members = tuple((name, Fake(lambda t, p=p: scored(p, 0.1))) for name, p in (("a", 0.05), ("b", 0.35)))  # type: ignore[misc]
    ensemble: Any = Consensus(members, parse_ruling("majority", ["a", "b"]))
    judge = Fake(lambda t: words(0, 2))
    band = Band(0.9, 0.9, spread=0.1)
    (found,) = await Cascade(ensemble, (("j", judge),), band).judge([solution(2)])
    assert found.first_error == 0
    assert len(judge.asked) == 1


def test_a_person_s_word_comes_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"id": str(i), "problem": f"p{i}", "steps": ["2 + 2 = 4", "so 4"]} for i in range(3)]
    Path("in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(SystemExit):
        main(["label", "in.jsonl", "-o", "labels.jsonl"])
    filled = [
        rows[0] | {"human": {"first_error": 1, "by": "ada", "note": "does not follow"}},
        rows[1] | {"human": {"first_error": None}},
        {"id": "x", "problem": "other", "steps": ["a"], "human": {"first_error": -1}},
    ]
    Path("escalate.jsonl").write_text("".join(json.dumps(row) + "\n" for row in filled))
    with pytest.raises(SystemExit) as done:
        main(["labels", "import", "labels.jsonl", "escalate.jsonl", "-o", "out.jsonl"])
    assert done.value.code == 0
    assert "1 answered by a person, 1 not answered yet, 1 answered but not in" in capsys.readouterr().err
    out = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert (out[0]["first_error"], out[0]["p_correct"], out[0]["critic"]) == (1, [1.0, 0.0], {"provider": "human", "by": "ada"})
    assert out[0]["judgements"][0]["verdicts"][1]["critique"] == "does not follow"
    assert out[0]["before_human"]["critic"]["provider"] == "rules"
    before = [json.loads(line) for line in Path("labels.jsonl").read_text().splitlines()]
    assert out[1:] == before[1:]


@pytest.mark.parametrize("human", [None, {"first_error": 2}, {"first_error": True}, {"first_error": "1"}])
def test_an_answer_that_is_no_step_is_refused(tmp_path: Path, human: Any) -> None:
    path = tmp_path / "e.jsonl"
    path.write_text(json.dumps({"problem": "p", "steps": ["a", "b"], "human": human}) + "\n")
    with pytest.raises(InputError, match=r"e\.jsonl:1"):
        read_answers(path)


async def test_a_cascade_is_opened_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "cascade.toml"
    (tmp_path / "judge.jsonl").write_text(json.dumps({"text": "\\boxed{-1}"}) + "\n")
    path.write_text(
        f'[cascade]\nfirst = "rules"\njudges = ["scripted/{tmp_path}/judge.jsonl"]\nlow = 0.1\nhigh = 0.9\n'
        'style = "first-error"\nescalate = "e.jsonl"\n'
    )
    critic = open_critic(str(path), JudgeOptions(db=tmp_path / "c.db"))
    assert isinstance(critic, Cascade)
    (found,) = await critic.judge([solution()])
    assert found.first_error == -1
    assert critic.card["judges"][0]["style"] == "first-error"
    await critic.close()


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "has the tables none"),
        ("[cascade]\nfirst = 'rules'", "lacks high, judges, low"),
        ("[cascade]\nfirst = 'rules'\njudges = ['rules']\nlow = 0\nhigh = 1\nmiddle = 1", "has no middle"),
        ("[cascade]\nfirst = 'rules'\njudges = ['rules']\nlow = 0.9\nhigh = 0.1", "0 <= low <= high"),
        ("[cascade]\nfirst = 'rules'\njudges = ['rules']\nlow = 0\nhigh = 1\nby = 'word'", "step or solution"),
        ("[cascade]\nfirst = 'nobody'\njudges = ['rules']\nlow = 0\nhigh = 1", "nobody"),
    ],
)
def test_a_file_that_does_not_fit_says_so(tmp_path: Path, text: str, match: str) -> None:
    path = tmp_path / "cascade.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=match):
        open_critic(str(path))
    with pytest.raises(InputError, match="cannot be read"):
        open_critic(str(tmp_path / "missing.toml"))
