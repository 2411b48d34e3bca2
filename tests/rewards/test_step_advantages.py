"""Advantages per step and per token: by hand, and in TRL's own GRPOTrainer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.simulated import SimulatedCritic
from critic_prm.errors import UsageError
from critic_prm.serve.rewards import credit
from critic_prm.serve.rewards.advantages import Form, check_form, on_all_tokens, step_advantages, step_ends
from critic_prm.serve.rewards.guards import Guards
from critic_prm.serve.rewards.reward import Reward, Rewarded


def rewarded(p: Sequence[float | None], steps: Sequence[float | None], right: bool | None = None) -> Rewarded:
    known = [value for value in p if value is not None]
    return Rewarded(
        min(known) if known else None, "ok" if known else "truncated", right=right, p_correct=tuple(p), steps=tuple(steps)
    )


REWARD = Reward("rules", outcome=1.0)


def test_normalised_over_the_group_by_hand() -> None:
    """Mean 0.75; the squared differences sum to 0.75, so the deviation is 0.5."""
    found = credit.group_normalised([[1.0, 0.0], [1.0, 1.0]], epsilon=0.0)
    assert found == [[0.5, -1.5], [0.5, 0.5]]
    assert [credit.returns([r or 0.0 for r in row]) for row in found] == [[-1.0, -1.5], [1.0, 0.5]]


@pytest.mark.parametrize(
    ("rewards", "normalised"),
    [
        ([[0.3, 0.3], [0.3]], [[0.0, 0.0], [0.0]]),  # all equal
        ([[0.3], []], [[0.0], []]),  # a single one
        ([[0.3, None], [None]], [[0.0, None], [None]]),
        ([[], []], [[], []]),
    ],
)
def test_rewards_that_nothing_distinguishes(rewards: list[list[float | None]], normalised: list[list[float | None]]) -> None:
    assert credit.group_normalised(rewards) == normalised


def test_missing_rewards_have_no_part_in_the_group() -> None:
    with_none = credit.group_normalised([[1.0, None], [0.0]], epsilon=0.0)
    assert with_none == [[pytest.approx(math.sqrt(0.5)), None], [pytest.approx(-math.sqrt(0.5))]]


GROUP = [rewarded([0.9, 0.1], [1.0, 0.0]), rewarded([0.9, 0.9], [1.0, 1.0]), rewarded([None, None], [None, None])]


@pytest.mark.parametrize(
    ("form", "first", "second"),
    [
        ("grpo", [-1.0, -1.5], [1.0, 0.5]),
        ("prime", [-1.0, -1.0], [1.0, 0.5]),  # 1 - 1 + 0 - 1, 0 - 1; 1 - 0.5 + 1 - 0.5
    ],
)
def test_a_group_by_hand(form: Form, first: list[float], second: list[float]) -> None:
    """The response that could not be judged has no advantage and changes none."""
    found = step_advantages(GROUP, form, REWARD)
    assert [found[0], found[1]] == [pytest.approx(first, abs=1e-5), pytest.approx(second, abs=1e-5)]
    assert found[2] == [0.0, 0.0]
    assert step_advantages(GROUP[:2], form, REWARD) == found[:2]


def test_min_form_blames_the_wrong_step() -> None:
    wrong, right, _ = step_advantages(GROUP, "pure", REWARD)
    by_hand = credit.min_form_advantages([[0.8, -0.8], [0.8, 0.8]])
    assert [wrong, right] == by_hand
    assert wrong[1] < 0 < right[0]


def test_generalised_advantages_use_the_outcome() -> None:
    one = rewarded([0.6, None, 0.8], [0.1, None, 0.2], right=True)
    (found,) = step_advantages([one], "gae", REWARD)
    deltas = (0.0 + 0.6 - 0.5, 1.0 - 0.6)
    assert found == [pytest.approx(deltas[0] + 0.95 * deltas[1]), 0.0, pytest.approx(deltas[1])]
    with pytest.raises(UsageError, match="gold answers"):
        step_advantages([rewarded([0.6], [0.1])], "gae", REWARD)


@pytest.mark.parametrize("form", ["grpo", "prime", "pure"])
def test_one_judged_response_has_nothing_to_compare_with(form: Form) -> None:
    assert step_advantages([GROUP[0], GROUP[2]], form, REWARD) == [[0.0, 0.0], [0.0, 0.0]]


def test_unknown_forms_are_refused() -> None:
    with pytest.raises(UsageError, match="grpo, prime, pure, gae"):
        check_form("ppo")


WORDS = ["two", " plus", " two", ".", "\n\n", "It", " is", " four", ".", "<eos>"]


def decoded(ids: Sequence[int]) -> str:
    return "".join(WORDS[i] for i in ids if WORDS[i] != "<eos>")


def test_steps_on_tokens() -> None:
    """The blank line belongs to the second step, the end mark to the last one."""
    tokens = list(range(len(WORDS)))
    ends = step_ends(decoded, tokens, ["two plus two.", "It is four."])
    assert ends == [4, 10]
    assert on_all_tokens([0.5, -1.0], ends, 12) == [0.5] * 4 + [-1.0] * 6 + [0.0] * 2
    assert step_ends(decoded, tokens, ["two plus two.", "not there", "It is four."]) == [4, 4, 10]
    assert step_ends(decoded, tokens, []) == []
    assert on_all_tokens([], [], 3) == [0.0] * 3


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning", "ignore::DeprecationWarning")
def test_the_trainer_of_trl_gets_the_advantage_of_each_step(tmp_path: Path) -> None:
    """A step of the real trainer; the advantages that its loss is computed from are those by hand."""
    pytest.importorskip("torch", reason="training is an extra")
    pytest.importorskip("trl", reason="TRL is not installed")
    from bench.dense_rewards import LENGTH, trainer_of

    seen: list[Any] = []
    reward = Reward(SimulatedCritic(), dense="p_correct", separator=" ", guards=Guards(repeats=None))
    trainer = trainer_of("grpo", reward, steps=1, seed=0, out=tmp_path, watch=seen.append)
    trainer.train()
    reward.close()
    assert seen
    for made in seen:
        assert made["advantages"].shape == made["completion_ids"].shape
        texts = trainer.processing_class.batch_decode(made["completion_ids"], skip_special_tokens=True)
        size = trainer.num_generations
        for at in range(0, len(texts), size):
            rows = [[0.9 if word == "right" else 0.1 for word in text.split()] for text in texts[at : at + size]]
            normalised = credit.group_normalised(rows)
            whole = [float(text.split() == ["right"] * LENGTH) for text in texts[at : at + size]]
            middle = sum(whole) / size
            spread = math.sqrt(sum((value - middle) ** 2 for value in whole) / (size - 1))
            for place, row in enumerate(normalised):
                outcome = (whole[place] - middle) / (spread + 1e-4)
                steps = credit.returns([r or 0.0 for r in row])
                pairs = zip(made["completion_ids"][at + place].tolist(), made["advantages"][at + place].tolist(), strict=True)
                found = [advantage for token, advantage in pairs if token > 2]  # the first three tokens have no text
                assert found == pytest.approx([outcome + value for value in steps], abs=1e-3)
