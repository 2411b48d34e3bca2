"""Several judges add up to one, each of them kept, and how far they agree is known."""

from __future__ import annotations

import math
from pathlib import Path

import orjson
import pytest

from critic_prm.cli.running import open_judges
from critic_prm.critics.combined import Agreement, Ruling, connect_all, merge, parse_ruling
from critic_prm.data.judgement import Judgement, Verdict, combine, judgement_from_json, judgement_to_json
from critic_prm.data.label_rows import label_row, labelled_from_json
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import UsageError
from critic_prm.label.run import Samples, label

MARKS = {"+": "correct", "-": "incorrect", "0": "neutral"}
EVEN = Ruling("majority", (1.0, 1.0, 1.0))


def judge(marks: str, name: str = "", p: float | None = None) -> Judgement:
    """A judgement from its marks; "" is one that could not be read."""
    if not marks:
        return Judgement("truncated", judge=name)
    verdicts = tuple(Verdict(i, MARKS[m], f"{name} on {i}", p) for i, m in enumerate(marks))  # type: ignore[arg-type]
    return Judgement("ok", verdicts, marks.find("-") if "-" in marks else -1, judge=name)


def test_the_majority_decides_each_step_among_those_who_judged_it() -> None:
    whole = merge([judge("++-", "a"), judge("-", "b"), judge("++-", "c")], 4, EVEN)
    assert (whole.status, whole.first_error) == ("ok", 2)
    assert [v.value for v in whole.verdicts] == ["correct", "correct", "incorrect"]
    assert [v.votes for v in whole.verdicts] == [(2, 3), (2, 2), (0, 2)]
    assert [v.critique for v in whole.verdicts] == ["a on 0", "a on 1", "a on 2"]
    label = combine([whole], 4)
    assert (label.votes, label.p_from) == (((2, 3), (2, 2), (0, 2), (0, 0)), "votes")
    assert label.p_correct == (2 / 3, 1.0, 0.0, None)


def test_after_the_first_error_those_have_a_say_who_saw_it_and_went_on() -> None:
    whole = merge([judge("-+-", "a"), judge("-++", "b"), judge("++-", "c")], 3, EVEN)
    assert (whole.first_error, [v.value for v in whole.verdicts]) == (0, ["incorrect", "correct", "neutral"])
    assert [v.votes for v in whole.verdicts] == [(1, 3), (2, 2), (1, 2)]


def test_a_tie_is_left_open_and_said() -> None:
    ruling = Ruling("majority", (1.0, 1.0))
    whole = merge([judge("+++"), judge("+-")], 3, ruling)
    assert (whole.status, whole.first_error) == ("ok", None)
    assert whole.verdicts[1].votes == (1, 2)
    assert whole.notes == ("step 1: the judges do not agree (1 of 2 say correct)",)
    assert combine([whole], 3).p_correct[1] == 0.5
    early = merge([judge("-"), judge("-")], 3, ruling)
    assert early.first_error == 0
    assert merge([judge("+++"), judge("+++")], 3, ruling).first_error == -1


def test_the_unanimous_need_everybody() -> None:
    ruling = Ruling("unanimous", (1.0, 1.0, 1.0))
    assert merge([judge("+-"), judge("+-"), judge("+-")], 3, ruling).first_error == 1
    assert merge([judge("+-"), judge("+-"), judge("++-")], 3, ruling).first_error is None
    assert merge([judge("+-"), judge("+-"), judge("")], 3, ruling).status == "truncated"
    assert merge([judge("+-"), judge("+-"), judge("")], 3, EVEN).first_error == 1
    few = merge([judge("+-"), judge(""), judge("")], 3, EVEN)
    assert (few.status, few.verdicts, few.notes) == ("truncated", (), ("1 of 3 judges could be read",))


def test_weights_are_the_log_odds_of_being_right() -> None:
    ruling = parse_ruling("weighted:0.9,0.6,0.6", ["a", "b", "c"])
    assert ruling.weights == pytest.approx((math.log(9), math.log(1.5), math.log(1.5)))
    whole = merge([judge("-"), judge("+"), judge("+")], 1, ruling)
    assert whole.first_error == 0, "one who is right nine times in ten outweighs two who hardly know"
    odds = (1 / 9) * 1.5 * 1.5
    assert whole.verdicts[0].p_correct == pytest.approx(odds / (1 + odds))
    assert whole.verdicts[0].votes == (2, 3)


def test_probabilities_of_the_judges_are_averaged() -> None:
    whole = merge([judge("+", p=0.9), judge("+", p=0.6), judge("-", p=0.3)], 1, EVEN)
    assert whole.verdicts[0].p_correct == pytest.approx(0.6)


def test_neutral_is_a_verdict_too() -> None:
    whole = merge([judge("+0"), judge("+0"), judge("++")], 2, EVEN)
    assert whole.verdicts[1] == Verdict(1, "neutral", " on 1")
    assert whole.first_error == -1
    assert combine([whole], 2).votes == ((3, 3), (0, 0))


def test_rulings_that_cannot_be(tmp_path: Path) -> None:
    for text in (
        "best",
        "weighted",
        "majority:1",
        "weighted:0.9",
        "weighted:0.9,0.4",
        "weighted:0.9,1.1",
        "weighted:nowhere.json",
    ):
        with pytest.raises(UsageError):
            parse_ruling(text, ["a", "b"])
    path = tmp_path / "eval.json"
    measured = (("b", "json", 0.8), ("a", "json", 0.7), ("a", "other", 0.6), ("b", "broken", None))
    rows = [{"judge": name, "style": style, "mean": {"step_accuracy": {"value": value}}} for name, style, value in measured]
    path.write_bytes(orjson.dumps({"judges": rows}))
    assert parse_ruling("weighted:1,0.99", ["a", "b"]).weights == pytest.approx((math.log(99), math.log(99)))
    assert parse_ruling(f"weighted:{path}", ["a", "b"], "json").weights == pytest.approx((math.log(7 / 3), math.log(4)))
    with pytest.raises(UsageError, match="does not say how accurate a, c are"):
        parse_ruling(f"weighted:{path}", ["a", "c"])


def test_what_one_cannot_ask_of_several() -> None:
    with pytest.raises(UsageError, match="named twice"):
        connect_all(["rules", "rules"], JudgeOptions())
    with pytest.raises(UsageError, match="--base-url names one server"):
        connect_all(["openai/a", "anthropic/b"], JudgeOptions(base_url="http://localhost:1"))


def test_agreement_is_counted_where_all_judged() -> None:
    agreement = Agreement(["a", "b", "c"])
    rounds = [("+++", "+++", "+++"), ("+-", "+-", "++-"), ("+++", "+-", "+++"), ("", "+", "+")]
    for parts in rounds:
        whole = merge([judge(marks) for marks in parts], 3, EVEN)
        agreement.add(combine([whole], 3))
    report = agreement.report()
    assert (report["steps"]["judged_by_all"], report["first_errors"]["judged_by_all"]) == (7, 3)
    assert report["steps"]["alike"] == pytest.approx(5 / 7)
    assert len(report["steps"]["cohen_kappa"]) == 3
    # Of seven steps, a and b differ on one: 6/7 observed, (6 * 5 + 1 * 2) / 49 by chance.
    assert report["steps"]["cohen_kappa"][0] == pytest.approx((6 / 7 - 32 / 49) / (1 - 32 / 49))
    assert "kappa a and b" in agreement.lines()[0]
    assert "(Fleiss)" in agreement.lines()[0]


async def test_two_judges_end_to_end_with_their_cards_and_their_words(tmp_path: Path) -> None:
    replies = {
        "first": "Step 1: fine.\nThe step is \\boxed{correct}\n\nStep 2: wrong.\nThe step is \\boxed{incorrect}",
        "second": "Step 1: fine.\nThe step is \\boxed{correct}\n\nStep 2: fine too.\nThe step is \\boxed{correct}",
    }
    for name, text in replies.items():
        (tmp_path / name).write_bytes(orjson.dumps({"text": text}))
    names = [f"scripted/{tmp_path / name}" for name in replies]
    critic, accounts = open_judges(names, JudgeOptions(db=tmp_path / "x.db"), "weighted:0.9,0.7", Samples(1, 1))
    trajectory = Trajectory("t", "p", (Step("one"), Step("two")))
    try:
        [(_, found)] = [pair async for pair in label([trajectory], critic)]
    finally:
        await critic.close()
    for account in accounts:
        account.add(found)
    row = orjson.loads(orjson.dumps(label_row(trajectory, found, critic.card)))
    assert [card["judge"] for card in row["critic"]["judges"]] == names
    assert row["critic"]["consensus"] == "weighted"
    assert (row["first_error"], row["votes"]) == (1, [[2, 2], [1, 2]])
    parts = row["judgements"][0]["parts"]
    assert [part["judge"] for part in parts] == names
    assert parts[1]["verdicts"][1]["critique"] == "fine too."
    assert labelled_from_json(row, "here").label == found
    assert [account.name for account in accounts] == ["agreement", "judges"]
    assert "1 paid" in accounts[1].lines()[0]


def test_a_consensus_survives_json() -> None:
    whole = merge([judge("+-", "a"), judge("++", "b"), judge("", "c")], 2, EVEN)
    assert judgement_from_json(orjson.loads(orjson.dumps(judgement_to_json(whole)))) == whole
