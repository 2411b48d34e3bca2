"""Stored replies are read again for nothing, and what that changes is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from critic_prm.cli import main
from critic_prm.critics.combined import Consensus, Ruling
from critic_prm.critics.llm import LLMCritic, with_provider
from critic_prm.data.judgement import Verdict
from critic_prm.data.label_rows import LabelledTrajectory, label_row, labelled_from_json
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.engine.cache import Cache
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import UsageError
from critic_prm.label.reread import Changes, reread
from critic_prm.label.run import label
from critic_prm.providers.provider import Reply, Wire
from critic_prm.providers.scripted import ScriptedProvider
from critic_prm.styles.reader import Expect, Reading

STEPS = (Step("1 + 1 = 2"), Step("2 + 2 = 5"), Step("So it is 5."))
TRAJECTORIES = [Trajectory(name, f"Problem {name}.", STEPS) for name in ("plain", "mended", "cut", "hopeless", "thought")]

GOOD = "Step 1: yes.\nThe step is \\boxed{correct}\n\nStep 2: no.\nThe step is \\boxed{incorrect}"
HALF = "Step 1: yes.\nThe step is \\boxed{correct}"


def whole(wire: Wire) -> dict[str, Any]:
    question, last = wire["messages"][1]["content"], wire["messages"][-1]["content"]
    if "Problem mended" in question and "cannot be used" not in last:
        return {"text": HALF, "usage": {"prompt_tokens": 9}}
    if "Problem cut" in question and "cut off" not in last:
        return {"text": f"{HALF}\n\nStep 2: hm, two and two", "finish": "length"}
    if "Problem hopeless" in question:
        return {"text": "I do not know."}
    return {"text": GOOD}


def stepwise(wire: Wire) -> dict[str, Any]:
    question, last = wire["messages"][1]["content"], wire["messages"][-1]["content"]
    if "Problem cut" in question and "cut off" not in last:
        return {"text": "Let me think, and think", "finish": "length"}
    if "Problem hopeless" in question and "Judge step 2." in question:
        return {"text": "I do not know."}
    return {"text": f"So.\n\nIs the step correct? {'No' if 'Judge step 2.' in question else 'Yes'}"}


def critic(db: Path, script: Any, **options: Any) -> LLMCritic:
    return with_provider(ScriptedProvider(script), JudgeOptions(db=db, **options))


async def labelled(judge: Any, db: Path) -> list[LabelledTrajectory]:
    """Label rows as they come back from a file."""
    try:
        pairs = [pair async for pair in label(TRAJECTORIES, judge)]
    finally:
        await judge.close()
    rows = [orjson.loads(orjson.dumps(label_row(*pair, judge.card))) for pair in pairs]
    return [labelled_from_json(row, "here") for row in rows]


def again(rows: list[LabelledTrajectory], db: Path, style: str | None = None) -> tuple[list[LabelledTrajectory], Changes]:
    changes, cache = Changes(), Cache(db, readonly=True)
    found = [LabelledTrajectory(*row) for row in reread(rows, cache, changes, style)]
    cache.close()
    return found, changes


@pytest.mark.parametrize(
    ("script", "options"),
    [
        (whole, {}),
        (whole, {"regenerate": 0, "think_rounds": 1}),
        (stepwise, {"style": "yes-no"}),
        (stepwise, {"style": "yes-no", "force": False, "regenerate": 0}),
    ],
)
async def test_what_was_read_is_read_the_same_again(tmp_path: Path, script: Any, options: dict[str, Any]) -> None:
    db = tmp_path / "x.db"
    rows = await labelled(critic(db, script, **options), db)
    assert {row.label.status for row in rows} >= {"ok", "unparseable"}
    found, changes = again(rows, db)
    assert found == rows
    assert (changes.compared.total(), changes.changed.total(), changes.labels, changes.missing) == (5, 0, 0, 0)


async def test_answers_that_went_on_are_put_together_as_they_were(tmp_path: Path) -> None:
    class Continuing(ScriptedProvider):
        gives = frozenset({"continue"})

    def script(wire: Wire) -> dict[str, Any]:
        if wire["messages"][-1]["role"] == "assistant":
            return {"text": "incorrect}"}
        return {"text": f"{HALF}\n\nStep 2: hm", "finish": "length"}

    db = tmp_path / "x.db"
    rows = await labelled(with_provider(Continuing(script), JudgeOptions(db=db, regenerate=0)), db)
    assert {row.label.judgements[0].how for row in rows} == {("plain", "forced")}
    assert again(rows, db)[0] == rows


async def test_a_consensus_is_read_again_judge_by_judge(tmp_path: Path) -> None:
    db = tmp_path / "x.db"
    names = (("a", critic(db, whole)), ("b", critic(db, stepwise, style="yes-no")))
    rows = await labelled(Consensus(names, Ruling("majority", (1.0, 1.0))), db)
    found, changes = again(rows, db)
    assert found == rows
    assert dict(changes.compared) == {"stepwise": 5, "yes-no": 5}


async def test_what_a_better_reader_changes_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    db = tmp_path / "x.db"
    rows = await labelled(critic(db, whole), db)

    def better(style: Any, expected: Expect, reply: Reply) -> Reading:
        if "do not know" in reply.text:
            return Reading("ok", (Verdict(0, "incorrect"),))
        return Reading("ok", (Verdict(0, "correct"), Verdict(1, "correct"), Verdict(2, "correct")))

    monkeypatch.setattr("critic_prm.label.reread.read_reply", better)
    found, changes = again(rows, db)
    assert [row.label.first_error for row in found] == [-1, -1, -1, 0, -1]
    assert changes.lines() == [
        "stepwise: 5 judgements read again, 5 changed",
        "  status unparseable -> ok: 1",
        "  verdict incorrect -> correct: 4",
        "  verdict none -> correct: 4",
        "  verdict none -> incorrect: 1",
        "5 labels changed",
    ]


async def test_a_step_that_could_not_be_read_before_shows_what_was_never_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = tmp_path / "x.db"
    rows = await labelled(critic(db, stepwise, style="yes-no"), db)

    def better(style: Any, expected: Expect, reply: Reply) -> Reading:
        assert expected.step is not None
        return Reading("ok", (Verdict(expected.step, "correct"),))

    monkeypatch.setattr("critic_prm.label.reread.read_reply", better)
    found, _ = again(rows, db)
    assert found[3].label.status == "count_mismatch"
    assert found[3].label.judgements[0].notes == ("steps from 2 on were never judged; label again to resume",)


async def test_what_is_not_in_the_cache_stays(tmp_path: Path) -> None:
    db = tmp_path / "x.db"
    rows = await labelled(critic(db, whole), db)
    Cache(tmp_path / "other.db").close()
    found, changes = again(rows, tmp_path / "other.db")
    assert found == rows
    assert changes.lines() == ["5 judgements stay as they were: their replies are not in the cache", "0 labels changed"]


async def test_a_prompt_of_ones_own_has_to_be_named(tmp_path: Path) -> None:
    from critic_prm.styles.prompt import open_style

    own, db = tmp_path / "mine.jinja", tmp_path / "x.db"
    own.write_text(open_style("stepwise").source)
    rows = await labelled(critic(db, whole, style=str(own)), db)
    with pytest.raises(UsageError, match="give its file with --style"):
        again(rows, db)
    assert again(rows, db, str(own))[0] == rows


def test_the_command_reads_a_label_file_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script, source, db = tmp_path / "judge.jsonl", tmp_path / "in.jsonl", str(tmp_path / "x.db")
    script.write_bytes(orjson.dumps({"text": GOOD}))
    source.write_bytes(orjson.dumps({"id": "t", "problem": "p", "steps": [step.text for step in STEPS]}))
    out = [tmp_path / f"{place}.jsonl" for place in range(3)]

    def run(*arguments: str) -> int:
        with pytest.raises(SystemExit) as stopped:
            main([*arguments, "--db", db])
        return int(stopped.value.code or 0)

    judge = ("--judge", f"scripted/{script}", "--prior", "jeffreys")
    assert run("label", str(source), *judge, "-o", str(out[0])) == 0
    assert run("labels", "reread", str(out[0]), "-o", str(out[1])) == 0
    assert "stepwise: 1 judgements read again, 0 changed" in capsys.readouterr().err
    assert run("label", "--offline", str(source), *judge, "-o", str(out[2])) == 0
    assert out[0].read_bytes() == out[1].read_bytes() == out[2].read_bytes()
    assert orjson.loads(out[1].read_bytes())["p_correct"] == [0.75, 0.25, None]
