"""Candidates brought together by problem and answer, chosen, filtered, and ranked again from what was written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from critic_prm.cli import main
from critic_prm.data.aggregate import AGGREGATIONS
from critic_prm.data.judgement import Judgement, Label, Verdict, combine
from critic_prm.data.label_rows import label_row
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.errors import UsageError
from critic_prm.generate.policy.answers import Grader
from critic_prm.search.ranking import Group, choose, group_candidates, length_bias, powers, rank
from critic_prm.search.settings import RankSettings


def candidate(problem: str, answer: str | None, p: Sequence[float], gold: str | None = "7") -> tuple[Trajectory, Label]:
    verdicts = tuple(Verdict(i, "correct" if x >= 0.5 else "incorrect", p_correct=x) for i, x in enumerate(p))
    steps = tuple(Step(f"step {i} to {answer}") for i in range(len(p)))
    trajectory = Trajectory(f"{problem}-{answer}-{p}", problem, steps, final_answer=answer, gold_answer=gold)
    return trajectory, combine([Judgement("ok", verdicts, -1)], len(p))


async def groups(
    *rows: tuple[Trajectory, Label], bound: str | None = None, by: Sequence[str] = tuple(AGGREGATIONS)
) -> list[Group]:
    return await group_candidates(rows, Grader(), bound, by)


async def test_equal_answers_are_one_whatever_they_look_like() -> None:
    (group,) = await groups(
        candidate("p", "7", [0.9]), candidate("p ", "7.0", [0.8]), candidate("p", "$7$", [0.7]), candidate("p", "8", [0.95])
    )
    assert group.answers == ("7", "8")
    assert [c.answer for c in group.candidates] == [0, 0, 0, 1]
    assert [c.right for c in group.candidates] == [True, True, True, False]
    assert choose(group).taken.answer == 1
    assert choose(group, pick="vote").taken.trajectory.final_answer == "7"
    assert choose(group, pick="vote").order == (0, 1, 2, 3)


async def test_scores_that_tie_are_told_apart_by_their_mean_not_by_their_place() -> None:
    (group,) = await groups(candidate("p", "7", [0.5, 0.6]), candidate("p", "8", [0.5, 0.9]))
    assert choose(group).taken.trajectory.final_answer == "8"


async def test_an_answer_is_read_from_the_steps_and_may_be_missing() -> None:
    stated = Trajectory("a", "p", (Step("so it is \\boxed{7}"),), gold_answer="7")
    silent = Trajectory("b", "p", (Step("I do not know"),), gold_answer="7")
    label = combine([Judgement("ok", (Verdict(0, "correct"),), -1)], 1)
    (group,) = await groups((stated, label), (silent, label))
    assert [c.answer for c in group.candidates] == [0, -1]
    assert [c.right for c in group.candidates] == [True, False]
    assert rank([group]).without_answer == 1


async def test_a_candidate_without_a_score_comes_last_and_nothing_is_imputed() -> None:
    unread = combine([Judgement("unparseable")], 1)
    lost = Trajectory("lost", "p", (Step("x"),), final_answer="7", gold_answer="7")
    (group,) = await groups((lost, unread), candidate("p", "8", [0.01]))
    ranking = rank([group])
    assert ranking.unscored == 1
    assert ranking.choices[0].taken.trajectory.final_answer == "8"
    (alone,) = await groups((lost, unread))
    assert choose(alone, pick="vote").score is None


async def test_all_aggregations_at_once_and_cautious_ones_from_votes() -> None:
    (group,) = await groups(candidate("p", "7", [0.9, 0.4, 0.8]), by=[*AGGREGATIONS, "cvar:0.5"])
    scores = group.candidates[0].scores
    assert scores["min"] == 0.4
    assert scores["last"] == 0.8
    assert scores["cvar:0.5"] == pytest.approx((0.4 + 0.8 * 0.5) / 1.5)
    (cautious,) = await groups(candidate("p", "7", [0.9, 0.8]), bound="wilson")
    assert cautious.candidates[0].scores["min"] == pytest.approx(0.2698, abs=1e-3)
    with pytest.raises(UsageError, match="median"):
        RankSettings(by="median")
    with pytest.raises(UsageError, match="no bound"):
        await groups(candidate("p", "7", [0.9]), bound="agresti")


async def test_judges_that_differ_make_a_cautious_score() -> None:
    voices = [Judgement("ok", (Verdict(0, "correct", p_correct=p),), -1) for p in (0.7, 0.8, 0.9)]
    trajectory = Trajectory("a", "p", (Step("x"),), final_answer="7")
    (group,) = await groups((trajectory, combine(voices, 1)), bound="spread")
    assert group.candidates[0].scores["min"] == pytest.approx(0.8 - 1.6448536 * 0.1)
    whole = Judgement("ok", (Verdict(0, "correct", p_correct=0.8),), -1, parts=tuple(voices))
    (group,) = await groups((trajectory, combine([whole], 1)), bound="spread")
    assert group.candidates[0].scores["min"] == pytest.approx(0.8 - 1.6448536 * 0.1)
    (group,) = await groups((trajectory, combine([Judgement("refused")], 1)), bound="spread")
    assert group.candidates[0].scores["min"] is None


async def test_a_score_that_pays_for_length_is_named() -> None:
    rows = [candidate("p", "7", [0.9] * k) for k in range(1, 6)]
    (group,) = await groups(*rows)
    assert length_bias([group], "sum").equal == pytest.approx(1.0)
    assert length_bias([group], "product").within == pytest.approx(-1.0)
    assert length_bias([group], "last").within is None
    ranking = rank([group])
    assert ranking.length["sum"].flagged
    assert not ranking.length["min"].flagged


def test_sizes() -> None:
    assert powers(0) == []
    assert powers(1) == [1]
    assert powers(12) == [1, 2, 4, 8, 12]


@pytest.fixture
def scored(tmp_path: Path) -> Path:
    path = tmp_path / "scored.jsonl"
    rows = [
        candidate("p", "7", [0.9, 0.8]),
        candidate("p", "8", [0.6]),
        candidate("q", "7", [0.3]),
        candidate("q", "9", [0.4]),
    ]
    path.write_text("".join(json.dumps(label_row(t, label, {"provider": "test"})) + "\n" for t, label in rows))
    return path


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as done:
        main(["rank", *arguments])
    return int(done.value.code or 0)


def test_the_command_keeps_escalates_and_reads_its_own_output(
    scored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {name: tmp_path / f"{name}.jsonl" for name in ("out", "kept", "escalate")}
    options = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    assert run(str(scored), "--floor", "0.5", "--json", *options) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["accuracy"] == 0.5
    assert report["kept"] == {"problems": 1, "accuracy": 1.0}
    assert report["escalated"] == {"problems": 1, "accuracy": 0.0}
    assert report["curves"]["best:min"][-1]["accuracy"] == 0.5
    assert report["curves"]["pass"][-1]["accuracy"] == 1.0
    kept, escalated = (json.loads(files[name].read_text()) for name in ("kept", "escalate"))
    assert (kept["problem"], kept["rank"]["answer"], kept["rank"]["right"]) == ("p", "7", True)
    assert escalated["problem"] == "q"
    assert len(files["out"].read_text().splitlines()) == 4
    assert run(str(files["out"])) == 0
    table = capsys.readouterr().out
    assert "50.0% of choices are right" in table
    assert "best-of-N" in table


def test_a_critic_scores_with_the_gold_hidden(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "candidates.jsonl"
    rows = [("2 + 2 = 4", "4"), ("2 + 2 = 5", "5")]
    path.write_text(
        "".join(
            json.dumps({"problem": "p", "steps": [text], "final_answer": answer, "gold_answer": "4"}) + "\n"
            for text, answer in rows
        )
    )
    assert run(str(path), "--critic", "rules", "--json") == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == 1.0


def test_usage_is_checked_before_anything_is_read(scored: Path) -> None:
    assert run(str(scored), "--escalate", "x.jsonl") == 2
    assert run(str(scored), "--pick", "first") == 2
    assert run(str(scored), "-n", "1,x") == 2
    assert run(str(scored), "--by", "median") == 2
