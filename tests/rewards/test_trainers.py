"""The trainers' own ways of calling: TRL's keywords, verl's compute_score, OpenRLHF's function file and HTTP body."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from critic_prm.errors import InputError, UsageError
from critic_prm.serve.rewards import openrlhf, trl, verl
from critic_prm.serve.rewards.guards import Guards
from critic_prm.serve.rewards.reward import Reward
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


@pytest.fixture
def graded(oracle: Oracle) -> Iterator[Reward]:
    made = Reward(oracle, process=0.5, outcome=0.5)
    yield made
    made.close()


def call(function: Any, **given: Any) -> Any:
    """As TRL calls: keywords only, with all that it hands over."""
    everything = {"completion_ids": [[1]] * len(given["prompts"]), "trainer_state": object(), "environments": None, **given}
    found = function(**everything)
    return asyncio.run(found) if inspect.iscoroutine(found) else found


@pytest.fixture(params=[trl.reward_function, trl.async_reward_function], ids=["sync", "async"])
def make(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_trl_gets_a_number_or_none_for_every_completion(make: Any, reward: Reward) -> None:
    function = make(reward)
    assert inspect.iscoroutinefunction(function) == (make is trl.async_reward_function)
    assert function.__name__ == "critic_prm"
    assert call(function, prompts=["p"] * 3, completions=[GOOD, BAD, UNREADABLE]) == [0.8, 0.2, None]


def test_trl_conversations(make: Any, reward: Reward, oracle: Oracle) -> None:
    prompt = [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "asked"}]}]
    completion = [
        {"role": "assistant", "content": "0.9 a"},
        {"role": "tool", "content": "t"},
        {"role": "assistant", "content": "0.7 b"},
    ]
    assert call(make(reward), prompts=[prompt], completions=[completion]) == [0.7]
    assert (oracle.seen[0].problem, oracle.seen[0].texts) == ("asked", ["0.9 a", "0.7 b"])


def test_trl_columns_and_logs(make: Any, graded: Reward, oracle: Oracle) -> None:
    metrics: dict[str, float] = {}
    extra: dict[str, list[Any]] = {}
    rewards = call(
        make(graded, name="steps", gold="solution"),
        prompts=["a prompt"] * 2,
        completions=[GOOD + "\n\n0.9 The answer is 4.", UNREADABLE],
        problem=["the problem"] * 2,
        solution=["4", "4"],
        log_metric=metrics.__setitem__,
        log_extra=extra.__setitem__,
    )
    assert rewards == [pytest.approx(0.9), None]
    assert oracle.seen[0].problem == "the problem"
    assert metrics == {"steps/missing": 0.5, "steps/steps": 3, "steps/without_error": 1, "steps/guarded": 0}
    assert extra == {"steps/first_error": [-1, None], "steps/status": ["ok", "unparseable"]}


def test_trl_logs_whether_length_is_paid_for(make: Any, reward: Reward) -> None:
    metrics: dict[str, float] = {}
    long, longer = "0.7 a\n\n0.7 b", "0.9 a\n\n0.9 b\n\n0.9 c"
    call(make(reward), prompts=["p"] * 4, completions=["0.5 a", long, longer, UNREADABLE], log_metric=metrics.__setitem__)
    assert metrics["critic_prm/length_correlation"] == pytest.approx(1)


def test_trl_says_which_column_is_missing(make: Any, graded: Reward) -> None:
    with pytest.raises(UsageError, match=r"no column 'gold_answer' with the gold answer; columns: .*solution"):
        call(make(graded), prompts=["p"], completions=[GOOD], solution=["4"])


VERL: dict[str, Any] = {
    "data_source": "my/math",
    "ground_truth": "4",
    "extra_info": {"split": "train", "index": 0, "question": "2+2?", "num_turns": 2},
}


def test_verl_gets_the_same_keys_for_every_sample(reward: Reward, oracle: Oracle) -> None:
    async def both() -> list[dict[str, float]]:
        calls = [verl.compute_score(**VERL, solution_str=text, recipe=reward) for text in (GOOD, UNREADABLE, "")]
        return await asyncio.gather(*calls)

    rows = asyncio.run(both())
    assert [row["score"] for row in rows] == [0.8, 0.0, 0.0]
    assert [row["judged"] for row in rows] == [1, 0, 1]
    assert rows[0].keys() == rows[1].keys() == rows[2].keys()
    assert all(isinstance(value, float) for row in rows for value in row.values())
    assert oracle.seen[0].problem == "2+2?"


def test_verl_in_threads_with_a_recipe_and_what_else_it_passes(tmp_path: Path) -> None:
    path = tmp_path / "reward.toml"
    path.write_text('critic = "rules"\noutcome = 0.5\nprocess = 0.5\n')
    row = verl.compute_score_sync(
        **VERL,
        solution_str="2 + 2 = 4\n\nThe answer is 4.",
        recipe=str(path),
        reward_router_address="h:1",
        reward_model_tokenizer=None,
    )
    assert row == {"score": 1.0, "judged": 1, "without_error": 1, "steps": 2, "kept": 1, "acc": 1}


def test_what_was_not_judged_is_not_without_error() -> None:
    made = Reward("rules")
    row = verl.compute_score_sync("d", "Hm.", "4", {"question": "2+2?"}, recipe=made)
    assert (row["judged"], row["without_error"]) == (0, 0)
    reply = openrlhf.reward_function(made)(["2+2?\n\nHm."], ["2+2?\n\n"], ["4"])
    assert reply["extra_logs"]["without_error"] == [0]
    made.close()


def test_verl_sees_a_plain_coroutine_function(reward: Reward) -> None:
    compute = verl.score_function(reward, problem="asked", missing=-0.5)
    assert inspect.iscoroutinefunction(compute)
    assert inspect.iscoroutinefunction(verl.compute_score)
    assert not inspect.iscoroutinefunction(verl.compute_score_sync)

    async def run() -> dict[str, float]:
        return await compute("d", UNREADABLE, "4", {"asked": "2+2?"})

    row = asyncio.run(run())
    assert (row["score"], row["judged"]) == (-0.5, 0)


def test_verl_without_the_problem_is_told_where_to_put_it(reward: Reward) -> None:
    with pytest.raises(UsageError, match="extra_info has no text under 'question'"):
        asyncio.run(verl.compute_score("d", GOOD, "4", {"split": "train", "index": 0}, recipe=reward))


CHATML = "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"


def test_openrlhf_calls_a_function_file_with_one_sample(reward: Reward, oracle: Oracle) -> None:
    function = openrlhf.reward_function(reward)
    reply = function([CHATML + GOOD + "<|im_end|>"], [CHATML], ["4"])
    assert reply["rewards"] == reply["scores"] == [0.8]
    assert all(len(values) == 1 for values in reply["extra_logs"].values())
    assert (oracle.seen[0].problem, oracle.seen[0].texts) == ("2+2?", ["0.9 a", "0.8 b"])
    missing = function([CHATML + UNREADABLE], [CHATML], ["4"])
    assert (missing["rewards"], missing["extra_logs"]["judged"]) == ([0.0], [0.0])


async def test_openrlhf_over_http(reward: Reward) -> None:
    body = {"query": ["asked\n\n" + BAD], "prompts": ["asked\n\n"], "labels": ["4"]}
    reply = await openrlhf.answer(reward, body)
    assert (reply["rewards"], reply["extra_logs"]["steps"]) == ([0.2], [2.0])
    assert await openrlhf.answer(reward, {"query": [], "prompts": [], "labels": []}) == {
        "rewards": [],
        "scores": [],
        "extra_logs": {},
    }
    for broken in ({}, {"query": "text"}, {"query": ["a", "b"], "prompts": ["a"]}):
        with pytest.raises(InputError, match="the request"):
            await openrlhf.answer(reward, broken)


def test_openrlhf_scores_stay_between_0_and_1(oracle: Oracle) -> None:
    made = Reward(oracle, guards=Guards(low=-1.0, high=1.0))
    reply = openrlhf.reward_function(made)(["p\n\n" + BAD], ["p\n\n"], [None])
    assert reply["rewards"] == pytest.approx([0.2])
    assert reply["scores"] == pytest.approx([0.6])
    made.close()
