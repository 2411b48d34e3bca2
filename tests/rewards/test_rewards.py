"""Rewards: what a solution gets, what it gets when nothing could be read, and where the critic lives while training goes on."""

from __future__ import annotations

import asyncio
import json
import pickle
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import BudgetError, InputError, UsageError
from critic_prm.serve.rewards.guards import Guards
from critic_prm.serve.rewards.reward import DENSE, Dense, Reward, Solution, read_reward, shared_reward
from tests.rewards.conftest import Oracle

GOOD, BAD, UNREADABLE = "0.9 a\n\n0.8 b", "0.9 a\n\n0.2 b", "0.9 a\n\nunreadable"


@pytest.fixture
def oracle() -> Oracle:
    return Oracle()


@pytest.fixture
def reward(oracle: Oracle) -> Iterator[Reward]:
    made = Reward(oracle)
    yield made
    made.close()


def texts(*given: str) -> list[Solution]:
    return [Solution("p", text) for text in given]


def test_a_solution_gets_the_aggregate_of_its_steps(reward: Reward) -> None:
    good, bad = reward.of(texts(GOOD, BAD))
    assert (good.reward, good.first_error, good.p_correct) == (0.8, -1, (0.9, 0.8))
    assert (bad.reward, bad.first_error, bad.status) == (0.2, 1, "ok")


def test_a_missing_judgement_is_no_number(reward: Reward) -> None:
    good, missing = reward.of(texts(GOOD, UNREADABLE))
    assert good.reward == 0.8
    assert (missing.reward, missing.status, missing.score) == (None, "unparseable", None)


def test_writing_nothing_gets_the_lowest_reward_and_is_not_judged(reward: Reward, oracle: Oracle) -> None:
    found = reward.of(texts(" \n", GOOD))
    assert (found[0].reward, found[0].status, found[1].reward) == (0.0, "empty", 0.8)
    assert len(oracle.seen) == 1


@pytest.mark.parametrize(("how", "want"), [("min", 0.2), ("mean", 0.55), ("last", 0.2), ("product", 0.18), ("cvar:0.5", 0.2)])
def test_any_aggregation(oracle: Oracle, how: str, want: float) -> None:
    made = Reward(oracle, aggregation=how)
    assert made.of(texts(BAD))[0].reward == pytest.approx(want)
    made.close()


@pytest.mark.parametrize(
    ("dense", "want"),
    [("p_correct", (0.9, 0.2)), ("progress", (0.4, -0.7)), ("shaping", (0.4, -0.9)), ("min_form", (6.6e-7, -0.5999995))],
)
def test_dense_rewards(oracle: Oracle, dense: Dense, want: tuple[float, ...]) -> None:
    made = Reward(oracle, dense=dense)
    assert made.of(texts(BAD))[0].steps == pytest.approx(want, abs=1e-6)
    made.close()
    assert set(DENSE) == {"p_correct", "progress", "min_form", "shaping"}


def test_a_repeated_step_gains_nothing(oracle: Oracle) -> None:
    made = Reward(oracle)
    again = made.of(texts("0.6 add the two\n\n0.7 and now five\n\n0.9 x\n\n0.9 x"))[0]
    assert again.steps == pytest.approx((0.1, 0.1, 0.2, 0.0))
    repeated = made.of(
        texts("0.5 so now we add two and two and two and two\n\n0.9 so now we add two and two and two and two more")
    )[0]
    assert repeated.steps == pytest.approx((0.0, 0.0))
    assert repeated.reward == pytest.approx(0.25)
    made.close()


def test_the_outcome_counts_where_it_is_asked_for(oracle: Oracle) -> None:
    made = Reward(oracle, process=0.5, outcome=0.5)
    right = Solution("p", GOOD + "\n\n0.9 The answer is 4.", "4")
    wrong = Solution("p", GOOD + "\n\n0.9 The answer is 5.", "4")
    unknown = Solution("p", GOOD)
    found = made.of([right, wrong, unknown])
    assert [one.reward for one in found] == [pytest.approx(0.9), pytest.approx(0.4), None]
    assert [one.right for one in found] == [True, False, None]
    assert found[2].status == "no gold answer"
    made.close()


def test_the_gold_answer_is_not_shown(reward: Reward, oracle: Oracle) -> None:
    reward.of([Solution("p", GOOD, "4")])
    [seen] = oracle.seen
    assert (seen.gold_answer, seen.problem, seen.texts) == (None, "p", ["0.9 a", "0.8 b"])


def test_guards_bound_what_is_rewarded(oracle: Oracle) -> None:
    made = Reward(oracle, guards=Guards(most_steps=2, slack=0.5, low=-1.0))
    short, long = made.of(texts(GOOD, "0.9 a\n\n0.9 b\n\n0.9 c"))
    assert (short.reward, short.kept) == (0.8, 1.0)
    assert (long.reward, long.kept) == (-1.0, 0.0)
    made.close()


@pytest.mark.parametrize(("outcome", "low"), [(0.0, 0.2), (-0.5, -0.4)])
def test_the_lowest_reward_cannot_be_above_what_a_solution_earns(oracle: Oracle, outcome: float, low: float) -> None:
    with pytest.raises(UsageError, match="must not raise a reward"):
        Reward(oracle, outcome=outcome, guards=Guards(low=low))
    Reward(oracle, outcome=outcome, guards=Guards(low=min(outcome, 0.0)))


def test_a_separator_of_ones_own(oracle: Oracle) -> None:
    made = Reward(oracle, separator="\n")
    assert made.of(texts("0.9 a\n\n0.8 b\n0.7 c\n"))[0].p_correct == (0.9, 0.8, 0.7)
    made.close()


async def test_the_critic_lives_on_one_loop_whoever_calls(reward: Reward, oracle: Oracle) -> None:
    await reward.of_async(texts(GOOD))
    await asyncio.gather(*(asyncio.to_thread(reward.of, texts(GOOD)) for _ in range(4)))
    thread = threading.Thread(target=lambda: asyncio.run(_call(reward)))
    thread.start()
    thread.join()
    assert len(oracle.seen) == 6
    assert oracle.threads == {"critic-prm"}
    assert len(oracle.loops) == 1


async def _call(reward: Reward) -> None:
    await reward.of_async(texts(GOOD))


def test_no_more_are_with_a_judge_at_once_than_was_said() -> None:
    judge = Oracle(batch=1)
    made = Reward(judge, concurrent=3)
    assert [one.reward for one in made.of(texts(*[GOOD, BAD] * 10))] == [0.8, 0.2] * 10
    assert 1 < judge.most_at_once <= 3
    made.close()


@pytest.mark.parametrize("batch", [1, 64])
def test_what_must_stop_a_run_is_raised(batch: int) -> None:
    made = Reward(Oracle(batch=batch, fails=BudgetError("the budget is spent")))
    with pytest.raises(BudgetError, match="spent"):
        made.of(texts(GOOD, BAD))
    made.close()


def test_closing_closes_the_critic_and_a_later_call_starts_again(oracle: Oracle) -> None:
    made = Reward(oracle)
    made.close()  # nothing was opened
    made.of(texts(GOOD))
    made.close()
    assert oracle.closed
    assert made.of(texts(GOOD))[0].reward == 0.8
    assert len(oracle.loops) == 2
    made.close()


def test_a_reward_can_be_sent_to_another_process() -> None:
    made = Reward("rules", aggregation="mean")
    made.of(texts("1 + 1 = 2"))
    copy = pickle.loads(pickle.dumps(made))
    assert copy.of([Solution("p", "1 + 1 = 2"), Solution("p", "1 + 1 = 3")])[1].reward == 0.0
    copy.close()
    made.close()


def test_a_critic_without_anything_to_say_gives_no_reward() -> None:
    made = Reward("rules")
    said, silent = made.of([Solution("p", "2 + 2 = 4"), Solution("p", "Let us begin.")])
    assert (said.reward, silent.reward, silent.status) == (1.0, None, "no step judged")
    made.close()


@pytest.mark.parametrize(
    ("field", "match"),
    [({"aggregation": "median"}, "no aggregation"), ({"dense": "none"}, "no dense reward"), ({"samples": 0}, "at least 1")],
)
def test_what_does_not_exist_is_refused(field: dict[str, object], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        Reward("rules", **field)  # type: ignore[arg-type]


RECIPE = """
critic = "rules"
aggregation = "mean"
outcome = 0.5

[guards]
most_steps = 30

[judging]
db = "judge.db"
rpm = 60

[judging.sampling]
temperature = 0.5
"""


def test_a_reward_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "reward.toml"
    path.write_text(RECIPE)
    made = read_reward(path)
    assert (made.critic, made.aggregation, made.outcome, made.guards.most_steps) == ("rules", "mean", 0.5, 30)
    assert (made.judging.db, made.judging.rpm, made.judging.sampling.temperature) == (tmp_path / "judge.db", 60, 0.5)
    assert shared_reward(str(path)) is shared_reward(str(path))
    assert shared_reward(made) is made


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        ("critic = ", InputError, "cannot be read"),
        ("aggregation = 'min'", InputError, "names no critic"),
        ("critic = 'rules'\nagregation = 'min'", UsageError, "'agregation'; known names: critic, judging, aggregation"),
        ("critic = 'rules'\naggregation = 'median'", UsageError, "no aggregation"),
        ("critic = 'rules'\n[guards]\nmost = 3", UsageError, r"\[guards\]: unknown name 'most'"),
        ("critic = 'rules'\nloop = 1", UsageError, "unknown name 'loop'"),
        ("critic = 'rules'\nsamples = 'x'", UsageError, "check the types"),
    ],
)
def test_a_file_that_says_what_does_not_exist(tmp_path: Path, text: str, error: type[Exception], match: str) -> None:
    path = tmp_path / "reward.toml"
    path.write_text(text)
    with pytest.raises(error, match=match):
        read_reward(path)


async def test_a_judge_is_asked_once_whatever_thread_asks(tmp_path: Path) -> None:
    """Through prompt, cache and reader: two verdicts, a reply that cannot be read, and nothing bought twice."""
    replies = tmp_path / "replies.jsonl"
    rows = [
        {"contains": "2 + 2", "text": "Step 1: right.\nVerdict: correct\n\nStep 2: no.\nVerdict: incorrect"},
        {"contains": "broken", "text": "I would rather not say."},
    ]
    replies.write_text("".join(json.dumps(one) + "\n" for one in rows))
    judging = JudgeOptions(db=tmp_path / "cache.db", follow_ups=0, force=False, regenerate=0)
    made = Reward(f"scripted/{replies}", judging=judging, samples=2)
    solutions = [Solution("sum", "2 + 2 = 4\n\n4 + 1 = 6"), Solution("sum", "broken\n\nsteps")]
    first = await made.of_async(solutions)
    assert [one.reward for one in first] == [0.0, None]
    assert first[0].first_error == 1
    client = made.loop.objects["critic"].client
    paid = client.money.requests
    assert await asyncio.to_thread(made.of, solutions[:1]) == first[:1]
    assert client.money.requests == paid
    made.close()


def test_the_file_on_the_page_is_one(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text("utf-8")
    [text] = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    path = tmp_path / "reward.toml"
    path.write_text(text)
    made = read_reward(path)
    assert (made.critic, made.process, made.outcome, made.guards.most_steps) == ("verifier", 0.5, 0.5, 30)
    assert (made.judging.rpm, made.judging.budget_usd) == (600, 20.0)
