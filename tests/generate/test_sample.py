"""Solutions sampled from a policy: cut into steps, compared with the right answer, filtered; trees grown from them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor, log2
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from critic_prm.cli import build
from critic_prm.data.label_rows import labelled_from_json
from critic_prm.data.trajectory import trajectory_from_json
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import InputError, UsageError
from critic_prm.generate.options import SampleOptions, TreeOptions
from critic_prm.generate.policy import answers
from critic_prm.generate.policy.answers import Grader, final_answer, plainly_same
from critic_prm.generate.policy.policy import LLMPolicy, continuation, marked, unmarked, with_provider
from critic_prm.generate.policy.problems import Problem, read_problems
from critic_prm.generate.sample import (
    SampleStats,
    grow,
    quality,
    sample,
    tree_rows,
    tree_to_json,
    urge,
)
from critic_prm.providers.provider import Wire
from critic_prm.providers.scripted import ScriptedProvider
from tests.effort import times_as_long, until_async


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("so \\boxed{\\frac{1}{2}} it is", "\\frac{1}{2}"),
        ("\\boxed{1} or rather \\boxed{2}", "2"),
        ("cut off \\boxed{12", None),
        ("She sold 9 eggs.\n#### 18", "18"),
        ("The final answer is **$28.50**.", "$28.50"),
        ("The answer is 5. I hope that helps.", "5"),
        ("Answer: x = 3", "x = 3"),
        ("There are 12 eggs, and 4 are eaten.", None),
        ("", None),
    ],
)
def test_the_final_answer_of_a_solution(text: str, answer: str | None) -> None:
    assert final_answer(text) == answer


@pytest.mark.parametrize(
    ("answer", "gold", "same"),
    [
        ("\\frac{1}{2}", "0.5", True),
        ("\\dfrac12", "1/2", True),
        ("1,200", "1200", True),
        ("$28.50", "28.5", True),
        ("50\\%", "0.5", True),
        ("50%", "50", True),
        ("18 dollars", "18", True),
        ("x=5", "5", True),
        ("\\text{(B)}", "B", True),
        ("(1, 200)", "(1,200)", True),
        ("(1,200)", "1200", None),
        ("17", "18", False),
        ("-3", "3", False),
        ("", "3", False),
        ("\\sqrt{8}", "2\\sqrt{2}", None),
    ],
)
def test_plain_rules_compare_answers_or_say_that_they_cannot(answer: str, gold: str, same: bool | None) -> None:
    assert plainly_same(answer, gold) is same


@pytest.mark.parametrize("piece", ["\\boxed{", "the answer is ", "\\boxed{1} ", "#### ", "{"])
def test_an_answer_is_found_in_linear_time_in_a_text_that_loops(piece: str) -> None:
    """Twenty times the text: about twenty times as long; quadratic would be 400 times."""
    long, short = piece * 50_000, piece * 2_500
    assert times_as_long(lambda: final_answer(long), lambda: final_answer(short), enough=100) <= 100


@pytest.mark.parametrize("piece", ["(", "\\frac{", "1,", "x=", "9", "\\text{"])
def test_answers_that_loop_are_compared_in_linear_time(piece: str) -> None:
    long, short = piece * 2_000, piece * 100
    assert times_as_long(lambda: plainly_same(long, long + "1"), lambda: plainly_same(short, short + "1"), enough=100) <= 100


async def test_without_math_verify_it_is_said_that_answers_could_not_be_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "find_spec", lambda name: None)
    grader = Grader()
    assert await grader.same("0.5", "1/2")
    assert not grader.note
    assert not await grader.same("\\sqrt{8}", "2\\sqrt{2}")
    assert "math-verify" in grader.note
    await grader.close()


async def test_math_verify_compares_what_rules_cannot_and_has_a_time_limit() -> None:
    pytest.importorskip("math_verify", reason="math-verify is not installed")
    grader = Grader(limit=60)
    assert await grader.same("\\sqrt{8}", "2\\sqrt{2}")
    assert await grader.same("\\{2,1\\}", "\\{1,2\\}")
    assert not await grader.same("[0,1)", "[0,1]")
    grader.limit = 0.5
    assert not await grader.same("9^{9^{9^{9}}} + x", "x")
    grader.limit = 60
    assert await grader.same("x^2-1", "(x-1)(x+1)")  # a new worker
    assert grader.counts["math-verify"] == 4
    assert grader.counts["timed out"] == 1
    await grader.close()


async def test_a_worker_that_dies_costs_one_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "find_spec", lambda name: True)
    grader = Grader(limit=30)
    if (plainly := plainly_same("\\sqrt{8}", "2\\sqrt{2}")) is not None:
        pytest.fail(f"plain rules told: {plainly}")
    same = await grader.same("\\sqrt{8}", "2\\sqrt{2}")
    # Without the package the worker ends at once; with it, it answers.
    assert grader.counts["failed"] + grader.counts["math-verify"] == 1
    assert same == bool(grader.counts["math-verify"])
    await grader.close()


def test_steps_of_a_text_that_goes_on() -> None:
    assert continuation("Step 3: a\n\nb\nStep 4: c", 2) == ("Step 3: a\n\nb", "Step 4: c")
    assert continuation("Step 3: only\n\nthis", 2) == ("Step 3: only\n\nthis",)
    assert continuation("Step 1: x\nStep 2: y\nStep 3: z", 2) == ("Step 3: z",)
    assert continuation("Step 1: x\n\nStep 2: y", 0) == ("Step 1: x", "Step 2: y")
    assert continuation("thus\n\nthe end", 2) == ("thus", "the end")
    assert marked(["a", "Step 2: b", "**Step 3.** c", "4. d"]) == ["Step 1: a", "Step 2: b", "**Step 3.** c", "4. d"]
    assert [unmarked(text) for text in marked(["a", "b"])] == ["a", "b"]


def rows(path: Path, *given: Mapping[str, Any]) -> str:
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in given))
    return str(path)


def test_problems_in_the_layouts_of_the_field(tmp_path: Path) -> None:
    path = rows(
        tmp_path / "p.jsonl",
        {"id": "a", "problem": "one", "gold_answer": "1", "level": 3},
        {"question": "two", "answer": "It is so.\n#### 2"},
        {"problem": "three", "solution": "thus \\boxed{3}"},
        {"problem": "four", "answer": 4, "subject": "Algebra"},
        {"problem": "one ", "gold_answer": "1", "steps": ["another solution of it"]},
    )
    found = list(read_problems(path))
    assert [(p.text, p.gold) for p in found] == [("one", "1"), ("two", "2"), ("three", "3"), ("four", "4")]
    assert found[0].id == "a"
    assert found[0].meta == {"level": 3}
    with pytest.raises(InputError, match="no answer"):
        list(read_problems(rows(tmp_path / "q.jsonl", {"problem": "x"})))


def test_problems_of_real_files(shared_data: Path) -> None:
    found = list(read_problems(str(shared_data / "open" / "outcome_gsm8k_openai.jsonl")))
    assert 100 < len(found) <= 1200
    assert all(problem.gold for problem in found)


def policy(script: Callable[[Wire], Mapping[str, Any]], folder: Path) -> tuple[LLMPolicy, ScriptedProvider]:
    provider = ScriptedProvider(script)
    return with_provider(provider, JudgeOptions(db=folder / "cache.db")), provider


PROBLEM = Problem("p", "What is 6 * 7?", "42")


async def test_samples_are_labelled_filtered_and_paid_for_once(tmp_path: Path) -> None:
    texts = [
        {"text": "Step 1: 6 * 7 = 42\n\nStep 2: \\boxed{42}"},
        {"text": "Step 1: 6 * 7 = 42\nStep 2:  \\boxed{42}"},
        {"text": "Step 1: 6 * 7 = 48\n\nStep 2: \\boxed{48}"},
        {"text": "Step 1: it is large\n\nStep 2: I do not know"},
        {"text": "Step 1: 6 * ", "finish": "length"},
        {"text": "", "finish": "content_filter"},
    ]
    turn = iter(texts)
    ours, provider = policy(lambda wire: next(turn), tmp_path)
    ours.client.options = replace(ours.client.options, regenerate=0)
    account = SampleStats()
    found = await sample(PROBLEM, ours, Grader(), SampleOptions(6), account)
    await ours.close()
    assert [s.id for s in found] == ["p-s0", "p-s2", "p-s3"]
    assert [s.meta["final_answer_correct"] for s in found] == [True, False, False]
    assert [s.final_answer for s in found] == ["42", "48", None]
    assert found[0].texts == ["Step 1: 6 * 7 = 42", "Step 2: \\boxed{42}"]
    assert found[0].meta["pass_rate"] == [2, 4]
    assert (account.counts["said twice"], account.counts["cut"], account.counts["refused"]) == (1, 1, 1)
    assert account.counts["without an answer"] == 1
    assert "What is 6 * 7?" in provider.asked[0]["messages"][-1]["content"]

    again, second = policy(lambda wire: {"text": "\\boxed{0}"}, tmp_path)
    again.client.options = replace(again.client.options, regenerate=0)
    once_more = await sample(PROBLEM, again, Grader(), SampleOptions(6), SampleStats())
    await again.close()
    # Whole and cut replies are used again; a refusal is asked anew.
    assert len(second.asked) == 1
    assert [s.id for s in once_more][:3] == ["p-s0", "p-s2", "p-s3"]


async def test_difficulty_and_balance(tmp_path: Path) -> None:
    def script(wire: Wire) -> Mapping[str, Any]:
        number = len(provider.asked)
        return {"text": f"Step 1: try {number}\n\nStep 2: \\boxed{{{42 if number % 4 else 41}}}"}

    ours, provider = policy(script, tmp_path)
    grader = Grader()
    every = await sample(PROBLEM, ours, grader, SampleOptions(8), SampleStats())
    assert sum(s.meta["final_answer_correct"] for s in every) == 6
    balanced = await sample(PROBLEM, ours, grader, SampleOptions(8, balance=True), SampleStats())
    assert [s.meta["final_answer_correct"] for s in balanced].count(True) == 2
    assert len(balanced) == 4
    assert len(await sample(PROBLEM, ours, grader, SampleOptions(8, most=1), SampleStats())) == 2
    assert await sample(PROBLEM, ours, grader, SampleOptions(8, "0.1-0.5"), SampleStats()) == []
    assert await sample(PROBLEM, ours, grader, SampleOptions(3), (account := SampleStats())) == []
    assert account.counts["always solved"] == 1
    assert len(await sample(PROBLEM, ours, grader, SampleOptions(3, "all"), SampleStats())) == 3
    assert len(provider.asked) == 8
    await ours.close()
    with pytest.raises(UsageError):
        SampleOptions(keep="half")


async def test_a_provider_that_can_go_on_is_given_the_steps_as_its_own(tmp_path: Path) -> None:
    ours, provider = policy(lambda wire: {"text": "Step 3: \\boxed{42}"}, tmp_path)
    shown = ours.request("p", ["first", "Step 2: second"])
    assert not shown.continues
    assert "Step 1: first\n\nStep 2: second\n\nGo on with Step 3." in shown.messages[-1].content
    provider.capabilities = frozenset({"continue"})
    begun = ours.request("p", ["first", "Step 2: second"])
    assert begun.continues
    assert [message.role for message in begun.messages] == ["system", "user", "assistant"]
    assert begun.messages[-1].content == "Step 1: first\n\nStep 2: second\n\n"
    assert begun.messages[1] == ours.request("p").messages[1]
    assert not ours.request("p").continues
    done = await ours.complete("p", ["first", "Step 2: second"])
    assert done.steps == ("Step 3: \\boxed{42}",)
    assert done.key
    await ours.close()


def simulated(rng: Random, chance: Callable[[Sequence[str]], float]) -> Callable[[Wire], Mapping[str, Any]]:
    """Solutions of six steps that say in words whether they are still right; errors never heal."""

    def script(wire: Wire) -> Mapping[str, Any]:
        shown = re.findall(r"^Step \d+: (\w+)", str(wire["messages"][-1]["content"]).partition("so far")[2], re.MULTILINE)
        words = list(shown)
        while len(words) < 6:
            words.append("wrong" if words and words[-1] == "wrong" else "right" if rng.random() < chance(words) else "wrong")
        answer = "42" if words[-1] == "right" else "41"
        lines = [f"Step {i}: {word} words here, {rng.random():.6f}" for i, word in enumerate(words, 1)]
        lines[-1] += f" \\boxed{{{answer}}}"
        return {"text": "\n\n".join(lines[len(shown) :])}

    return script


def steady(chance: float) -> Callable[[Sequence[str]], float]:
    return lambda words: chance


def test_q_and_u_worked_examples() -> None:
    growth = TreeOptions()
    assert quality(0.25, 120, growth) == pytest.approx(0.5797566, abs=1e-6)
    assert quality(0.75, 120, growth) == pytest.approx(0.8198997, abs=1e-6)
    assert quality(0.75, 480, growth) == pytest.approx(0.7600030, abs=1e-6)
    assert urge(3, 20, growth) == pytest.approx(0.1397542, abs=1e-6)


async def test_a_tree_labels_the_step_at_which_its_rollouts_go_wrong(tmp_path: Path) -> None:
    ours, provider = policy(simulated(Random(3), lambda words: 0.85), tmp_path)
    growth = TreeOptions(rollouts=8, searches=6, budget=60, least_words=0)
    right = wrong = 0
    for number in range(8):
        problem = Problem(f"p{number}", f"problem {number}", "42")
        tree = await grow(problem, ours, Grader(), growth)
        assert tree.rollouts <= 60 + 8 * (floor(log2(6)) + 1)
        searched = [s.steps for s in tree.searched]
        assert len(set(searched)) == len(searched)
        found = [labelled_from_json(row, "here") for row in tree_rows(tree, growth, ours.card)]
        for row in found:
            words = [unmarked(text).split()[0] for text in row.trajectory.texts]
            if row.label.first_error == -1:
                right += 1
                assert "wrong" not in words
                assert row.label.votes[-1] == (1, 1)
            else:
                wrong += 1
                assert row.label.first_error == words.index("wrong")
                first = words.index("wrong")
                assert all(p is None for p in row.label.p_correct[first + 1 :])
                assert row.label.p_correct[first] == 0
        nodes = [tree_to_json(tree.root)]
        for node in nodes:
            nodes += node.get("children", [])
        assert sum(node["visits"] for node in nodes) == len(tree.searched)
        assert not tree.searched or any(0 < node["k"] < node["n"] for node in nodes)
    assert 0 < right <= wrong
    made = len(provider.asked)
    await grow(Problem("p0", "problem 0", "42"), ours, Grader(), growth)
    assert len(provider.asked) == made  # the same tree, from the cache
    await ours.close()


async def test_no_tree_grows_where_all_rollouts_agree(tmp_path: Path) -> None:
    for number, chance in enumerate((0.0, 1.0)):
        ours, _ = policy(simulated(Random(1), steady(chance)), tmp_path)
        tree = await grow(Problem("p", f"problem {number}", "42"), ours, Grader(), TreeOptions())
        assert not tree.searched
        assert tree.rollouts == 16
        assert tree_rows(tree, TreeOptions(), {}) == []
        await ours.close()


def run(*arguments: str) -> int:
    try:
        return build()(list(arguments), standalone_mode=False) or 0
    except SystemExit as error:
        return int(error.code or 0)


@dataclass
class Files:
    problems: str
    replies: str
    db: str


@pytest.fixture
def files(tmp_path: Path) -> Files:
    problems = rows(
        tmp_path / "p.jsonl", *({"id": f"p{i}", "problem": f"What is 6 * 7, {i}?", "answer": "42"} for i in range(3))
    )
    replies = rows(
        tmp_path / "replies.jsonl",
        {"text": "Step 1: 6 * 7 = 42\n\nStep 2: It is \\boxed{42}"},
        {"text": "Step 1: 6 * 7 = 48\n\nStep 2: It is \\boxed{48}"},
    )
    return Files(problems, replies, str(tmp_path / "cache.db"))


def test_the_commands_end_to_end(files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--policy", f"scripted/{files.replies}", "--db", files.db]
    solutions, labels = str(tmp_path / "s.jsonl"), str(tmp_path / "l.jsonl")
    assert run("generate", "sample", files.problems, *asked, "-k", "4", "--dry-run") == 0
    assert "3 problems: 12 requests, 0 of them in the cache" in capsys.readouterr().err
    assert run("generate", "sample", files.problems, *asked, "-k", "4", "-o", solutions) == 0
    assert "3 right and 3 wrong written; left out: 6 said twice" in capsys.readouterr().err
    found = [trajectory_from_json(orjson.loads(line), "s") for line in Path(solutions).read_bytes().splitlines()]
    assert {t.meta["pass_rate"][0] for t in found} == {2}
    assert run("generate", "sample", files.problems, *asked, "-k", "4", "--dry-run") == 0
    assert "12 requests, 12 of them in the cache" in capsys.readouterr().err
    before = Path(solutions).read_bytes()
    offline = ["--policy", f"scripted/{files.replies}", "--db", files.db, "--offline"]
    assert run("generate", "sample", files.problems, *offline, "-k", "4", "-o", solutions) == 0
    assert Path(solutions).read_bytes() == before

    assert run("generate", "rollout", solutions, *asked, "--dry-run") == 0
    assert "6 trajectories" in capsys.readouterr().err
    assert run("generate", "rollout", solutions, *asked, "-k", "4", "--search", "every", "-o", labels) == 0
    labelled = [labelled_from_json(orjson.loads(line), "l") for line in Path(labels).read_bytes().splitlines()]
    assert [row.label.votes for row in labelled] == [((2, 4), (int(t.final_answer == "42"), 1)) for t in found]
    assert labelled[0].critic["policy"]["model"] == "replies.jsonl"
    assert (
        run("label", solutions, "--judge", f"rollout:scripted/{files.replies}", "--db", files.db, "-o", labels, "--overwrite")
        == 0
    )
    trees = tmp_path / "t.jsonl"
    assert run("generate", "tree", files.problems, *asked, "-k", "4", "--dry-run") == 0
    assert "3 problems: 12 to 360 requests, 12 of them in the cache" in capsys.readouterr().err
    grown = str(tmp_path / "grown.jsonl")
    assert run("generate", "tree", files.problems, *asked, "-k", "4", "--trees", str(trees), "-o", grown) == 0
    assert len(trees.read_bytes().splitlines()) == 3


async def test_a_cancelled_comparison_leaves_no_verdict_behind() -> None:
    """The worker's reply to a cancelled comparison was read as the verdict on the next one."""
    grader = Grader(limit=60)
    cancelled = asyncio.create_task(grader.same("x+1", "1+x"))
    await until_async(lambda: grader._worker is not None)
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert not await grader.same("x+1", "x+2")
    assert await grader.same("x+1", "1+x")
    await grader.close()
