"""A critic that does not react to planted errors is named, one that does is not, whatever else it does."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from critic_prm.critics.rules import RuleCritic
from critic_prm.data.formats.convert import read_trajectories
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.errors import InputError
from critic_prm.evaluate.analyze.analysis import HIDDEN, spread_out
from critic_prm.evaluate.analyze.counterfactual import HARMLESS, INTERVENTIONS, NUMBERS, counterfactual
from critic_prm.evaluate.settings import CounterfactualSettings
from tests.analyze.conftest import Simulated, sums

RIGHT = {(solution.problem, text) for solution in sums(100) for text in solution.texts}


def sound(trajectory: Trajectory, step: int) -> float:
    """What a critic says who knows every right step."""
    text = trajectory.texts[step]
    return 0.9 if (trajectory.problem, text.removesuffix(HARMLESS)) in RIGHT or text == HIDDEN else 0.1


async def test_a_critic_that_reacts_passes() -> None:
    found = await counterfactual(sums(30), Simulated(sound))
    assert found.findings == ()
    assert found.numbers.keys() == NUMBERS.keys()
    assert found.numbers["noticed"] == 1
    assert found.numbers["reaction"] == pytest.approx(0.8)
    assert found.numbers["harmless_changed"] == 0
    assert found.numbers["planted"] == 30
    assert found.numbers["unusable"] == 0


async def test_a_critic_that_does_not_look_is_named() -> None:
    found = await counterfactual(sums(30), Simulated(lambda trajectory, step: 0.9))
    assert found.numbers["noticed"] == 0
    assert found.numbers["reaction"] == 0
    [finding] = found.findings
    assert finding.startswith("simulated does not react to planted errors: P(correct) falls by 0.000 [0.000, 0.000] more than")


async def test_a_critic_that_reacts_to_any_change_alike_is_named() -> None:
    """It falls for a planted error, but as much for harmless words: it reads lengths, not steps."""
    lengths = {t.problem: [len(text) for text in t.texts] for t in sums(30)}

    def nervous(trajectory: Trajectory, step: int) -> float:
        same = trajectory.texts[step] in [t for s in sums(30) if s.problem == trajectory.problem for t in s.texts]
        return 0.9 if same or trajectory.problem not in lengths else 0.3

    found = await counterfactual(sums(30), Simulated(nervous))
    assert found.numbers["noticed"] == 1
    assert found.numbers["reaction"] == pytest.approx(0)
    assert found.findings[0].startswith("simulated does not react to planted errors")
    assert "harmless words change the first error of simulated in 100%" in found.findings[1]


async def test_noise_is_no_reaction() -> None:
    rng = random.Random(0)
    found = await counterfactual(sums(40), Simulated(lambda trajectory, step: rng.uniform(0.6, 1)))
    assert any("does not react" in finding for finding in found.findings)


async def test_a_kind_of_error_that_a_critic_passes_over_is_named() -> None:
    """The rule critic knows equations, not which numbers belong in them."""
    found = await counterfactual(sums(60), RuleCritic())
    [finding] = found.findings
    assert finding.startswith("rules hardly reacts to errors of the kind 'substitution': 0 of ")


async def test_each_change_does_what_it_says() -> None:
    critic = Simulated(sound)
    [solution] = sums(1)
    found = await counterfactual([solution], critic, CounterfactualSettings(each=3))
    assert {detail["change"].split(" ")[0] for detail in found.details} == {"corrupt", "harmless", "drop", "mask", "swap"}
    assert len(found.details) == 3 * 5 - 1  # the last step has none to change places with
    shown = critic.seen[1:]
    assert all(t.label is None and t.gold_answer is None for t in critic.seen)
    assert sorted(len(t.steps) for t in shown) == [2] * 3 + [3] * 11
    by_chance = random.Random(0)
    harmless = INTERVENTIONS["harmless"](solution, 1, -1, by_chance)
    dropped = INTERVENTIONS["drop"](solution, 0, 2, by_chance)
    swapped = INTERVENTIONS["swap"](solution, 0, -1, by_chance)
    assert harmless is not None
    assert harmless.solution.texts[1] == solution.texts[1] + HARMLESS
    assert dropped is not None
    assert (dropped.solution.texts, dropped.first, dropped.places) == (solution.texts[1:], 1, (1, 2))
    assert swapped is not None
    assert swapped.solution.texts == [solution.texts[1], solution.texts[0], solution.texts[2]]
    assert INTERVENTIONS["swap"](solution, 1, 2, by_chance) is None


async def test_what_a_step_means_to_the_others_is_measured() -> None:
    """A critic whose later steps hang on the first: masking it moves them."""

    def hanging(trajectory: Trajectory, step: int) -> float:
        return 0.9 if step == 0 or trajectory.texts[0].startswith("First") else 0.6

    found = await counterfactual(sums(20), Simulated(hanging), CounterfactualSettings(each=3))
    assert found.numbers["context"] == pytest.approx(0.3 / 3)  # only one of the three masks is of the first step


async def test_only_what_is_sound_is_changed() -> None:
    solutions = [Trajectory("a", "p", (Step("1 + 1 = 3"), Step("2 + 2 = 4")), label=0)]
    with pytest.raises(InputError, match="no error could be planted"):
        await counterfactual(solutions, Simulated(lambda trajectory, step: 0.9))


async def test_judgements_that_cannot_be_read_are_counted_not_guessed() -> None:
    found = await counterfactual(
        sums(20), Simulated(lambda trajectory, step: None if "mask" in trajectory.id else sound(trajectory, step))
    )
    assert found.numbers["masked"] is None
    assert found.numbers["unusable"] == pytest.approx(20 / len(found.details))
    assert found.findings == ()


async def test_on_real_solutions_arithmetic_finds_what_arithmetic_shows(shared_data: Path) -> None:
    path = shared_data / "open" / "processbench_gsm8k.jsonl"
    solutions = spread_out(list(read_trajectories(path)), 150)
    found = await counterfactual(solutions, RuleCritic())
    assert (found.numbers["planted"] or 0) > 80
    assert (found.numbers["noticed"] or 0) > 0.3
    assert found.numbers["harmless_changed"] == 0
    assert not any("does not react to planted errors" in finding for finding in found.findings)
    deaf = await counterfactual(solutions, Simulated(lambda trajectory, step: 0.9))
    assert deaf.findings[0].startswith("simulated does not react to planted errors")
