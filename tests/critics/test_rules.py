"""The rule critic: what it says of a step, where it stops, and that it keeps off what is right."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest

from critic_prm.arithmetic.claims import NOTHING, judge_one
from critic_prm.critics.rules import RuleCritic
from critic_prm.data.judgement import Judgement, combine
from critic_prm.data.trajectory import Step, Trajectory, trajectory_from_json
from tests.effort import times_as_long


def judge(*steps: str, problem: str = "How many?") -> Judgement:
    return judge_one(Trajectory("t", problem, tuple(Step(text) for text in steps)))


def test_the_first_false_equation_is_the_first_error_and_nothing_after_it_is_judged() -> None:
    judgement = judge("We add the two.", "3 + 4 = 7", "Then 7 * 2 = 15.", "15 - 15 = 1")
    assert judgement.first_error == 2
    assert [(v.step, v.value) for v in judgement.verdicts] == [(0, "neutral"), (1, "correct"), (2, "incorrect")]
    assert judgement.verdicts[0].critique == NOTHING
    assert judgement.verdicts[2].critique == "7 * 2 is 14, the step says 15"
    assert judgement.notes == ("2 of 3 steps held an equation that could be checked",)


def test_nothing_false_is_minus_one_but_what_was_not_checked_gets_no_vote() -> None:
    judgement = judge("We add the two.", "3 + 4 = 7")
    assert (judgement.status, judgement.first_error) == ("ok", -1)
    label = combine([judgement], 2)
    assert label.p_correct == (None, 1.0)
    assert label.votes == ((0, 0), (1, 1))
    assert label.first_error == -1


def test_observations_are_not_judged() -> None:
    trajectory = Trajectory("t", "How many?", (Step("I call the tool.", observation="2 + 2 = 5"),))
    assert judge_one(trajectory).first_error == -1


def test_a_problem_that_is_an_expression_fixes_what_its_variables_mean() -> None:
    steps = (
        'This can be written as "A - B + C", where A = (-3 - 9), B = (6 - 14) and C = (-9 * 2).',
        "Let's calculate A = (-3 - 9) = -12.",
        "Then, the final equation is A - B + C = -12 - 8 - 18 = -38. So the answer is -38",
    )
    assert judge(*steps, problem="Evaluate: ((-3 - 9) - (6 - 14) + (-9 * 2)) =").first_error == 2
    assert judge(*steps, problem="What do A, B and C make?").first_error == -1


def test_equations_are_followed_from_step_to_step() -> None:
    judgement = judge("So we have 3x + 5 = 20.", "That is 3x = 15.", "Therefore x = 4.")
    assert judgement.first_error == 2
    assert judgement.verdicts[1].value == "correct"
    assert judgement.verdicts[2].critique == "3x = 15 gives x = 5, the step says x = 4"


def test_the_first_step_has_to_agree_with_the_equation_of_the_problem() -> None:
    judgement = judge("Moving the constant over, 7x = 107.", problem="Determine x from 7x + 31 = 136.")
    assert judgement.first_error == 0
    assert (
        judgement.verdicts[0].critique
        == "7x + 31 = 136 gives x = 15, the step says 7x = 107, which gives x = 107/7 (about 15.2857)"
    )
    assert judge("Moving the constant over, 7x = 105.", problem="Determine x from 7x + 31 = 136.").first_error == -1
    assert judge("So x = 2.", problem="Where is f(x) = (x + 2)^2 - 5 least?").first_error == -1


def test_what_is_left_of_a_pure_expression_keeps_its_value() -> None:
    problem = "Compute 30 + 9 × 9 - 30."
    assert judge("Next, 9 × 9 = 81. The expression becomes 30 + 81 - 30.", problem=problem).first_error == -1
    judgement = judge("Next, 30 + 9 = 39. The expression becomes 39 × 9 - 30.", problem=problem)
    assert judgement.first_error == 0
    assert judgement.verdicts[0].critique == "39 × 9 - 30 is 321, the problem asks for 81"


def test_a_hostile_problem_costs_no_more_than_its_beginning() -> None:
    for problem in (" " * 1_000_000 + "x", "Evaluate: " + "1+" * 500_000, "_1" * 500_000, "x = 1 " * 100_000):
        beginning = problem[:6_000]
        longer = times_as_long(
            partial(judge, "3 + 4 = 8", problem=problem), partial(judge, "3 + 4 = 8", problem=beginning), enough=5
        )
        assert longer <= 5


def test_connect_gives_a_critic_that_computes() -> None:
    critic = RuleCritic()
    trajectories = [Trajectory(str(n), "How many?", (Step(f"{n} + 1 = 3"),)) for n in range(4)]
    judgements = asyncio.run(critic.judge(trajectories, sample=2))
    assert [j.first_error for j in judgements] == [0, 0, -1, 0]
    assert {j.sample for j in judgements} == {2}
    assert critic.stochastic is False
    assert critic.batch == 64
    assert critic.card["provider"] == "rules"
    assert critic.card["fingerprint"]
    asyncio.run(critic.close())


def f1(path: Path) -> tuple[float, float]:
    """(first-error F1, share of right solutions left alone), both in percent."""
    wrong: list[bool] = []
    right: list[bool] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        trajectory = trajectory_from_json(json.loads(line), f"{path.name}:{number}")
        (right if trajectory.label == -1 else wrong).append(judge_one(trajectory).first_error == trajectory.label)
    hit, alone = 100 * sum(wrong) / len(wrong), 100 * sum(right) / len(right)
    return 2 * hit * alone / (hit + alone), alone


def test_multistep_arithmetic_is_judged_as_people_did(shared_data: Path) -> None:
    assert f1(shared_data / "open" / "bbm_multistep_arithmetic.jsonl")[0] > 83


@pytest.mark.parametrize("source", ["mrben_math", "mr_math", "eic_gsm8k", "stepverify_teachers", "roscoe_gsm8k", "parc_math"])
def test_right_solutions_are_left_alone(shared_data: Path, source: str) -> None:
    assert f1(shared_data / "open" / f"{source}.jsonl")[1] > 98


@pytest.mark.parametrize(
    "source", ["bbm_dyck_languages", "bbm_word_sorting", "planbench_blocksworld", "agentprocessbench_hotpotqa", "roscoe_esnli"]
)
def test_texts_without_arithmetic_are_left_alone(shared_data: Path, source: str) -> None:
    for number, line in enumerate((shared_data / "open" / f"{source}.jsonl").read_text(encoding="utf-8").splitlines(), 1):
        judgement = judge_one(trajectory_from_json(json.loads(line), f"{source}:{number}"))
        assert judgement.first_error == -1, judgement.verdicts[-1]
