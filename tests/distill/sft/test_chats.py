"""Judgements become chats: those that equal the label, read back, are sound and short; what goes is counted."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import orjson
import pytest

from critic_prm.cli import build
from critic_prm.data.hashing import problem_key, split_of
from critic_prm.data.judgement import Verdict
from critic_prm.data.trajectory import Trajectory, trajectory_to_json
from critic_prm.datasets.decontaminate import DecontaminateOptions
from critic_prm.errors import InputError, UsageError
from critic_prm.providers.provider import Reply
from critic_prm.styles.prompt import expect, open_style, render, style_names
from critic_prm.styles.reader import Expect, read_reply, write_reply
from distill.settings import ChainOptions, ChatOptions
from distill.sft.chats import MARK, SOLUTIONS, build_chats, stored_in

ALL = (1.0, 0.0, 0.0)
LITERAL = DecontaminateOptions(literal=True)


@pytest.mark.parametrize("name", style_names())
def test_what_a_reader_writes_it_reads(name: str) -> None:
    style = open_style(name)
    verdicts = [Verdict(0, "correct", 'It says "2 + 2" = \\frac{8}{2}.'), Verdict(1, "incorrect", "Four is not five.")]
    asked = None if style.per == "trajectory" else 1
    wanted = verdicts if asked is None else verdicts[1:]
    text = write_reply(style, Expect(3, style.base, style.stops, asked), wanted)
    assert text is not None
    reading = read_reply(style, Expect(3, style.base, style.stops, asked), Reply(text, "stop", {}))
    assert reading.status == "ok"
    assert [(v.step, v.value, v.critique) for v in reading.verdicts] == [(v.step, v.value, v.critique) for v in wanted]


async def test_a_kept_chain_is_the_question_of_the_style_and_an_answer_that_reads_back(
    tmp_path: Path, problems: list[Trajectory], made: SimpleNamespace
) -> None:
    labels = await made.judge(problems, tmp_path / "labels.jsonl", lambda t, n: made.chain(t, int(t.label or 0)))
    summary = build_chats([labels], tmp_path / "chats", ChatOptions(split=ALL))
    assert summary["splits"]["train"]["chats"] == 40
    by_id = {trajectory.id: trajectory for trajectory in problems}
    style = open_style("stepwise")
    for row in made.rows(tmp_path / "chats" / "train.jsonl"):
        trajectory = by_id[row["id"]]
        *asked, answer = row["messages"]
        assert asked == [{"role": m.role, "content": m.content} for m in render(style, trajectory)]
        assert answer["role"] == "assistant"
        reading = read_reply(style, expect(style, trajectory), Reply(answer["content"], "stop", {}))
        first = next((v.step for v in reading.verdicts if v.value == "incorrect"), -1)
        assert (reading.status, first) == ("ok", trajectory.label)
        assert row["finds_error"] == (first >= 0)
    assert (tmp_path / "chats" / "stepwise.jinja").read_text() == style.source


async def test_every_filter_stops_what_it_should_and_says_so(tmp_path: Path, made: SimpleNamespace) -> None:
    right = [made.solution(n, -1) for n in range(10)]
    said = {
        "s0": made.chain(right[0], -1),
        "s1": "These steps look odd to me.",
        "s2": made.chain(right[2], 1),  # not what gold says
        "s3": "Step 1: \nThe step is \\boxed{correct}\n\nStep 2: \nThe step is \\boxed{correct}",  # no critique
        "s4": f"Step 1: {right[4].texts[0]}\nThe step is \\boxed{{correct}}\n\nStep 2: {right[4].texts[1]}\n"
        "The step is \\boxed{correct}",  # copied
        "s5": made.chain(right[5], -1).replace("fine", "fine " + "and well thought out in every respect " * 60),  # looping
        "s6": made.chain(right[6], -1).replace(
            "is fine", "is fine since " + " ".join(f"reason {k}" for k in range(300))
        ),  # long
    }
    labels = await made.judge(right[:7], tmp_path / "labels.jsonl", lambda t, n: said[t.id])
    options = ChatOptions(split=ALL, balance=False, chain=ChainOptions(max_tokens=400))
    summary = build_chats([labels], tmp_path / "chats", options)
    stopped = {stage["stage"]: stage["stopped"] for stage in summary["funnel"]}
    assert stopped["readable"] == {"unparseable": 1}
    assert stopped["label"] == {"differs from gold": 1}
    assert stopped["critiques"] == {"empty critique": 1, "copied critique": 1, "looping critique": 1}
    assert stopped["length"] == {"reply too long": 1}
    assert [row["id"] for row in made.rows(tmp_path / "chats" / "train.jsonl")] == ["s0"]
    assert summary["funnel"][0]["in"] == 7
    assert summary["funnel"][-1] | {"stage": ""} == {
        "stage": "",
        "in": 1,
        "out": 1,
        "erroneous": 0,
        "correct": 1,
        "stopped": {},
    }
    assert any("0 answers of train find an error" in warning for warning in summary["warnings"])


async def test_a_critique_that_would_be_read_otherwise_is_not_learned(tmp_path: Path, made: SimpleNamespace) -> None:
    """Written in another style, a critique with a verdict line of that style in it would change what is read."""
    one = made.solution(1, -1)
    critique = "Fine so far.\n\nStep 2: I was told to say this.\nThe step is \\boxed{incorrect}\n\nBut no, all is well here."
    reply = write_reply(
        open_style("json"), Expect(2, 1, True), [Verdict(0, "correct", critique), Verdict(1, "correct", "Fine, it is 2.")]
    )
    labels = await made.judge(
        [one, made.solution(2, -1)],
        tmp_path / "l.jsonl",
        lambda t, n: str(reply) if t is one else made.chain(t, -1, "json"),
        "json",
    )
    summary = build_chats([labels], tmp_path / "chats", ChatOptions(style="stepwise", split=ALL, balance=False))
    assert {stage["stage"]: stage["stopped"] for stage in summary["funnel"]}["format"] == {"not read back as it was meant": 1}
    assert summary["style"]["name"] == "stepwise"


async def test_without_gold_the_majority_is_the_label_and_one_vote_is_said_to_be_unchecked(
    tmp_path: Path, made: SimpleNamespace
) -> None:
    bare = [Trajectory(t.id, t.problem, t.steps) for t in (made.solution(1, -1), made.solution(2, -1))]
    labels = await made.judge(bare, tmp_path / "l.jsonl", lambda t, n: made.chain(t, (-1, -1, 1)[n % 3]), samples=3)
    summary = build_chats([labels], tmp_path / "c", ChatOptions(split=ALL, balance=False, chains=0))
    label = next(stage for stage in summary["funnel"] if stage["stage"] == "label")
    assert (label["in"], label["stopped"]) == (6, {"differs from the label": 2})
    assert summary["solutions"]["unchecked"] == 0
    single = await made.judge(bare, tmp_path / "one.jsonl", lambda t, n: made.chain(t, -1))
    warned = build_chats([single], tmp_path / "d", ChatOptions(split=ALL, balance=False))["warnings"]
    assert any("2 solutions have one judgement and no gold label" in warning for warning in warned)
    with pytest.raises(InputError, match="2 no gold label"):
        build_chats([single], tmp_path / "e", ChatOptions(split=ALL, chain=ChainOptions(against="gold")))


async def test_one_chain_a_solution_or_all_and_never_the_same_twice(tmp_path: Path, made: SimpleNamespace) -> None:
    one = [made.solution(1, 1), made.solution(3, -1)]
    labels = await made.judge(
        one, tmp_path / "l.jsonl", lambda t, n: made.chain(t, int(t.label or 0)).replace("again", f"again {n % 2}"), samples=4
    )
    first = build_chats([labels], tmp_path / "c", ChatOptions(split=ALL, balance=False))
    every = build_chats([labels], tmp_path / "c", ChatOptions(split=ALL, balance=False, chains=0))
    assert (first["splits"]["train"]["chats"], every["splits"]["train"]["chats"]) == (2, 4)
    assert every["funnel"][-1]["stopped"] == {"said before word for word": 4}


async def test_train_is_balanced_and_dev_keeps_its_problems(tmp_path: Path, made: SimpleNamespace) -> None:
    many = [made.solution(number, 1 if number % 4 == 0 else -1) for number in range(60)]
    labels = await made.judge(many, tmp_path / "l.jsonl", lambda t, n: made.chain(t, int(t.label or 0) if t.id != "s7" else 0))
    options = ChatOptions(split=(0.7, 0.3, 0.0), seed=3)
    summary = build_chats([labels], tmp_path / "c", options)
    train = summary["splits"]["train"]
    assert train["erroneous"] == train["correct"] > 0 < train["thinned"]
    held = {t.id: t for t in many if split_of(problem_key(t.problem), options.split, 3) == "dev"}
    assert {row["id"] for row in made.rows(tmp_path / "c" / "train.jsonl")}.isdisjoint(held)
    # The solutions of dev are all there, those too whose chain was not kept: a judge is measured on them.
    assert {row["id"]: row["label"] for row in made.rows(tmp_path / "c" / SOLUTIONS)} == {id: t.label for id, t in held.items()}
    again = build_chats([labels], tmp_path / "d", options)
    assert again["splits"] == summary["splits"]


async def test_a_style_per_step_becomes_a_chat_a_step(tmp_path: Path, made: SimpleNamespace) -> None:
    labels = await made.judge(
        [made.solution(1, 1), made.solution(2, -1)], tmp_path / "l.jsonl", lambda t, n: made.chain(t, int(t.label or 0))
    )
    build_chats([labels], tmp_path / "c", ChatOptions(style="yes-no", split=ALL, balance=False))
    found = {row["id"]: row["messages"][-1]["content"].rpartition(" ")[2] for row in made.rows(tmp_path / "c" / "train.jsonl")}
    assert found == {"s1#0": "Yes", "s1#1": "No", "s2#0": "Yes", "s2#1": "Yes"}


async def test_the_replies_themselves_can_be_learned_up_to_their_last_verdict(tmp_path: Path, made: SimpleNamespace) -> None:
    said = "<think>\nLet me see.\n</think>\n\n" + made.chain(made.solution(1, -1), -1)
    labels = await made.judge(
        [made.solution(1, -1), made.solution(2, -1)], tmp_path / "l.jsonl", lambda t, n: said + "\n\nSo all is well."
    )
    options = ChatOptions(split=ALL, balance=False)
    summary = build_chats([labels], tmp_path / "c", options, stored=stored_in(labels.with_suffix(".db")))
    assert [row["messages"][-1]["content"] for row in made.rows(tmp_path / "c" / "train.jsonl")] == [said, said]
    assert summary["answers"] == "the replies themselves"
    with pytest.raises(InputError, match="2 its reply is not in the cache"):
        build_chats([labels], tmp_path / "c", options, stored=lambda key: None)


async def test_critiques_that_were_given_with_the_answer_in_view_do_not_speak_of_it(
    tmp_path: Path, made: SimpleNamespace
) -> None:
    labels = await made.judge(
        [made.solution(1, -1), made.solution(2, -1)],
        tmp_path / "l.jsonl",
        lambda t, n: made.chain(t, -1).replace("fine", "as the reference answer says" if t.id == "s1" else "fine"),
    )
    shown = [row | {"critic": row["critic"] | {"reference": True}} for row in made.rows(labels)]
    labels.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in shown))
    summary = build_chats([labels], tmp_path / "c", ChatOptions(split=ALL, balance=False))
    assert {s["stage"]: s["stopped"] for s in summary["funnel"]}["critiques"] == {"speaks of the reference answer": 1}


async def test_the_command_prints_what_each_filter_left_out(
    tmp_path: Path, problems: list[Trajectory], capsys: pytest.CaptureFixture[str], made: SimpleNamespace
) -> None:
    labels = await made.judge(problems, tmp_path / "labels.jsonl", lambda t, n: made.chain(t, -1))
    command = ["dataset", "sft", str(labels), "-o", str(tmp_path / "chats"), "--no-balance", "--json", "--split", "0.8,0.1,0.1"]
    build()(command, standalone_mode=False)
    out, err = capsys.readouterr()
    assert orjson.loads(out) == orjson.loads((tmp_path / "chats" / MARK).read_bytes())
    assert "20 differs from gold" in err
    assert "an estimate of 4 characters a token" in err


def test_a_training_set_is_no_label_file(tmp_path: Path) -> None:
    row = {"prompt": "p", "completions": ["a"], "labels": [1.0]}
    (tmp_path / "train.jsonl").write_bytes(orjson.dumps(row) + b"\n")
    with pytest.raises(InputError, match="contains labels, not critiques"):
        build_chats([tmp_path / "train.jsonl"], tmp_path / "c")


def test_a_published_chain_with_gold_labels_is_learned_too(tmp_path: Path, made: SimpleNamespace) -> None:
    """ThinkPRM's data: a chain a row, in the form of the stepwise style."""
    said = [(made.solution(n, -1 if n % 2 else 1), -1 if n % 3 else 1) for n in range(6)]
    published = [
        {
            "problem": t.problem, "prefix": "\n".join(t.texts), "cot": made.chain(t, found), "prefix_steps": t.texts,
            "gt_step_labels": ["-" if k == t.label else "+" for k in range(2)], "prefix_label": t.label == -1,
        }
        for t, found in said
    ]  # fmt: skip
    (tmp_path / "published.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in published))
    summary = build_chats([tmp_path / "published.jsonl"], tmp_path / "c", ChatOptions(split=ALL, balance=False))
    assert summary["splits"]["train"]["chats"] == sum(t.label == found for t, found in said)


async def test_the_problems_of_a_benchmark_stay_out(tmp_path: Path, problems: list[Trajectory], made: SimpleNamespace) -> None:
    labels = await made.judge(problems, tmp_path / "labels.jsonl", lambda t, n: made.chain(t, t.label))
    held = [trajectory_to_json(problems[3]) | {"problem": "  ADD to 3 !"}, trajectory_to_json(problems[8])]
    (tmp_path / "bench.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in held))
    summary = build_chats([labels], tmp_path / "c", ChatOptions(split=ALL), exclude=[tmp_path / "bench.jsonl"], same=LITERAL)
    assert summary["solutions"]["excluded problem"] == 2
    assert summary["excluded"]["problems"]["removed"] == 2
    assert {"s3", "s8"}.isdisjoint(row["id"] for row in made.rows(tmp_path / "c" / "train.jsonl"))


async def test_each_judge_of_a_consensus_gives_a_chain_of_its_own(tmp_path: Path, made: SimpleNamespace) -> None:
    one = [made.solution(1, 1), made.solution(2, -1)]
    labels = await made.judge(
        one, tmp_path / "l.jsonl", lambda t, n: made.chain(t, t.label).replace("again", f"again {n}"), samples=2
    )
    together = []
    for row in made.rows(labels):
        parts = [part | {"judge": name} for part, name in zip(row["judgements"], "ab", strict=True)]
        whole = row["judgements"][0] | {"parts": parts}
        together.append(row | {"judgements": [whole], "critic": {"judges": [row["critic"], row["critic"]]}})
    labels.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in together))
    summary = build_chats([labels], tmp_path / "c", ChatOptions(split=ALL, balance=False, chains=0))
    assert summary["style"]["name"] == "stepwise"
    assert summary["splits"]["train"]["chats"] == 4


async def test_labels_by_a_prompt_of_ones_own_need_its_file(tmp_path: Path, made: SimpleNamespace) -> None:
    own = tmp_path / "mine.jinja"
    own.write_text(open_style("stepwise").source + "{# mine #}", encoding="utf-8")
    labels = await made.judge([made.solution(1, 1)], tmp_path / "l.jsonl", lambda t, n: made.chain(t, 1), str(own))
    with pytest.raises(UsageError, match="dataset sft --style FILE"):
        build_chats([labels], tmp_path / "c", ChatOptions(split=ALL))
    summary = build_chats([labels], tmp_path / "c", ChatOptions(style=str(own), split=ALL, balance=False))
    assert summary["style"]["name"] == "mine"
    assert (tmp_path / "c" / "mine.jinja").read_text("utf-8") == own.read_text("utf-8")
