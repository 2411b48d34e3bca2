"""Rollouts of a policy whose chances are known: estimates cover the truth, the first error is found, nothing is rolled out
twice."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import comb, floor, log2
from pathlib import Path
from random import Random
from typing import Any

import pytest

from critic_prm.critics.open import open_critic
from critic_prm.critics.rollout import RolloutCritic
from critic_prm.data.judgement import combine
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import UsageError
from critic_prm.generate.options import RolloutOptions
from critic_prm.generate.policy.answers import Grader
from critic_prm.generate.policy.policy import Came, Completion, with_provider
from critic_prm.generate.policy.rollout import (
    Prefixes,
    dual_sided,
    every_step,
    halving,
    progress_labels,
    progress_ratios,
)
from critic_prm.generate.policy.stopping import Enough, interval, parse_rollouts, rollouts_for
from critic_prm.label.run import label
from critic_prm.providers.provider import Wire
from critic_prm.providers.scripted import ScriptedProvider

RIGHT, WRONG = "So the answer is \\boxed{42}.", "So the answer is \\boxed{41}."


@dataclass
class Simulated:
    """A policy that finishes right from a prefix with a chance that `chance` knows; the same asking gives the same
    completion."""

    chance: Callable[[str, int], float]
    asked: list[tuple[str, int, int]] = field(default_factory=list)
    came: Came = "ok"

    @property
    def card(self) -> Mapping[str, Any]:
        return {"provider": "simulated"}

    async def complete(self, problem: str, steps: Sequence[str] = (), sample: int = 0) -> Completion:
        self.asked.append((problem, len(steps), sample))
        right = Random(f"{problem} {len(steps)} {sample}").random() < self.chance(problem, len(steps))
        text = RIGHT if right else WRONG
        return Completion(sample, self.came, text if self.came == "ok" else "", (text,), f"{problem}/{len(steps)}/{sample}")

    async def close(self) -> None:
        pass


def flat(chance: float) -> Callable[[str, int], float]:
    """The same chance from every prefix."""
    return lambda problem, length: chance


def solution(name: str, steps: int = 8, *, answer: str | None = "41") -> Trajectory:
    return Trajectory(
        name, f"Problem {name}", tuple(Step(f"step {i}") for i in range(steps)), final_answer=answer, gold_answer="42"
    )


def prefixes(policy: Simulated, trajectory: Trajectory) -> Prefixes:
    return Prefixes(policy, Grader(), trajectory.problem, "42")


def erring(at: int, good: float = 0.7, bad: float = 0.0) -> Callable[[str, int], float]:
    """A problem whose prefixes can be finished until step `at` (0-based) is in them."""
    return lambda problem, length: good if length <= at else bad


async def test_estimates_lie_in_their_interval_as_often_as_it_says() -> None:
    for enough in (Enough(8), Enough(16), Enough(8, "curtailed"), Enough(32, "decided", 0.3)):
        inside = total = 0
        for number in range(400):
            chance = Random(number).random()
            trajectory = solution(f"{enough} {number}")
            estimate = await prefixes(Simulated(flat(chance)), trajectory).estimate(["step 0"], enough)
            low, high = estimate.interval
            inside += low <= chance <= high
            total += 1
        assert inside / total >= 0.95, enough


@pytest.mark.parametrize("recheck", [False, True])
async def test_halving_finds_the_planted_error_with_few_rollouts(recheck: bool) -> None:
    steps, k, found, made, sequential, n = 8, 8, 0, 0, 0, 320
    for number in range(n):
        at = number % steps
        trajectory = solution(str(number), steps)
        ours = prefixes(Simulated(erring(at)), trajectory)
        result = await halving(ours, trajectory, Enough(k, "curtailed"), recheck=recheck)
        found += result.first_error == at
        made += ours.made
        theirs = prefixes(Simulated(erring(at)), trajectory)
        await every_step(theirs, trajectory, Enough(k))
        sequential += theirs.made
    assert found / n >= 0.99
    assert made <= (0.4 if not recheck else 0.6) * sequential


@pytest.mark.parametrize("answer", ["41", None])
async def test_halving_asks_of_few_prefixes_and_is_never_wrong_with_an_oracle(answer: str | None) -> None:
    for steps in range(1, 33):
        for at in range(steps):
            policy = Simulated(erring(at, 1.0))
            trajectory = solution("x", steps, answer=answer)
            result = await halving(prefixes(policy, trajectory), trajectory, Enough(1))
            assert result.first_error == at
            assert len({length for _, length, _ in policy.asked}) <= floor(log2(steps)) + 1
        whole = Simulated(erring(steps, 1.0))
        trajectory = solution("x", steps, answer="42" if answer else None)
        assert (await halving(prefixes(whole, trajectory), trajectory, Enough(1))).first_error == -1


async def test_an_error_that_more_rollouts_would_move_is_not_said() -> None:
    moving = 0
    for number in range(100):
        trajectory = solution(str(number))
        policy = Simulated(erring(3, 0.9, bad=0.1))
        result = await halving(prefixes(policy, trajectory), trajectory, Enough(8), recheck=True)
        moving += result.first_error is None
    # A wrong prefix that is rescued with 0.1 stays at none of 8 more with 0.43.
    assert 30 < moving < 80


async def test_fewer_rollouts_give_the_same_labels() -> None:
    """Curtailed ones exactly those of all; "decided" ones as good ones, with at most 0.6 of the completions."""
    same = fixed_right = decided_right = total = 0
    made: Counter[str] = Counter()
    for number in range(300):
        chance = Random(number).choice([0.02, 0.05, 0.1, 0.4, 0.6, 0.8])
        policy = Simulated(flat(chance))
        for theta, rules in ((0.0, ("all", "curtailed")), (0.25, ("all", "decided"))):
            goods = []
            for rule in rules:
                ours = Prefixes(policy, Grader(), str(number), "42")
                estimate = await ours.estimate(["step"], Enough(32 if theta else 16, rule, theta))  # type: ignore[arg-type]
                goods.append(estimate.good)
                made[f"{rule} {theta}"] += ours.made
            if theta:
                fixed_right += goods[0] == (chance > theta)
                decided_right += goods[1] == (chance > theta)
            else:
                same += goods[0] == goods[1]
        total += 1
    assert same == total
    assert made["curtailed 0.0"] <= 0.6 * made["all 0.0"]
    assert made["decided 0.25"] <= 0.6 * made["all 0.25"]
    assert decided_right >= fixed_right - 0.02 * total


@pytest.mark.parametrize(("most", "theta"), [(8, 0.25), (16, 0.25), (16, 0.5), (32, 0.3), (64, 0.3)])
def test_deciding_early_costs_next_to_nothing_computed_exactly(most: int, theta: float) -> None:
    """Over all sequences of rollouts, for chances spread evenly over [0, 1]: accuracy of the label, and how many are made."""

    def worth(enough: Enough) -> tuple[float, float]:
        accuracy = made = 0.0
        for p in [(i + 0.5) / 100 for i in range(100)]:
            reached = {(0, 0): 1.0}
            for n in range(most + 1):
                for k in range(n + 1):
                    mass = reached.pop((k, n), 0.0)
                    wave = enough.more(k, n)
                    if mass and not wave:
                        made += mass * n / 100
                        accuracy += mass * (enough.good(k, n) == (p > theta)) / 100
                    for right in range(wave + 1) if mass and wave else ():
                        place = (k + right, n + wave)
                        share = comb(wave, right) * p**right * (1 - p) ** (wave - right)
                        reached[place] = reached.get(place, 0.0) + mass * share
        return accuracy, made

    fixed, everything = worth(Enough(most, "all", theta))
    right, made = worth(Enough(most, "decided", theta))
    assert right >= fixed - 0.0025
    assert made <= 0.61 * everything


@pytest.mark.parametrize(
    "enough",
    [Enough(8), Enough(8, "curtailed"), Enough(16, "curtailed", 0.25), Enough(16, "decided", 0.25), Enough(24, "decided", 0.5)],
)
def test_intervals_cover_every_chance_computed_exactly(enough: Enough) -> None:
    for p in [i / 50 for i in range(1, 50)]:
        reached, covered = {(0, 0): 1.0}, 0.0
        for n in range(enough.most + 1):
            for k in range(n + 1):
                mass = reached.pop((k, n), 0.0)
                wave = enough.more(k, n)
                if mass and not wave:
                    low, high = interval(k, n, enough)
                    covered += mass * (low <= p <= high)
                for right in range(wave + 1) if mass and wave else ():
                    place = (k + right, n + wave)
                    reached[place] = reached.get(place, 0.0) + mass * comb(wave, right) * p**right * (1 - p) ** (wave - right)
        assert covered >= 0.95


def test_how_many_curtailed_rollouts_to_expect() -> None:
    """(1 - (1-p)^n) / p."""
    rng, p, runs, asked = Random(0), 0.5, 20_000, 0
    enough = Enough(8, "curtailed")
    for _ in range(runs):
        k = n = 0
        while enough.more(k, n):
            k, n = k + (rng.random() < p), n + 1
        asked += n
    assert asked / runs == pytest.approx(1.992188, abs=0.04)
    assert [enough.more(0, n) for n in range(9)] == [1, 1, 1, 1, 1, 1, 1, 1, 0]
    assert enough.more(1, 3) == 0


async def test_math_shepherds_worked_example() -> None:
    """n = 4, k = 4, 3, 1 and the last step wrong: soft 1, .75, .25, 0, hard 1, 1, 1, 0, first error 3."""
    counts = {1: 4, 2: 3, 3: 1}

    @dataclass
    class Counting(Simulated):
        async def complete(self, problem: str, steps: Sequence[str] = (), sample: int = 0) -> Completion:
            text = RIGHT if sample < counts[len(steps)] else WRONG
            return Completion(sample, "ok", text, (text,))

    trajectory = solution("x", 4)
    for target, expected in (("soft", (1, 0.75, 0.25, 0)), ("hard", (1, 1, 1, 0))):
        critic = RolloutCritic(Counting(erring(0)), RolloutOptions(Enough(4), "every", target))  # type: ignore[arg-type]
        found = combine(await critic.judge([trajectory]), 4)
        assert list(found.p_correct) == list(expected)
        assert found.first_error == 3
        assert found.votes == ((4, 4), (3, 4), (1, 4), (0, 1))


def test_relative_progress_worked_example() -> None:
    shares = [0.45, 0.30, 0.30, 0.05, 0, 0]
    ratios = progress_ratios(0.5, shares)
    assert [None if r is None else round(r, 4) for r in ratios] == [0.9, 0.6667, 1.0, 0.1667, 0.0, None]
    assert progress_labels(0.5, shares) == [1, 0, 1, 0, 0, 0]
    for factor in (1.0, 0.5, 0.1, 1 / 3):
        assert progress_labels(0.5 * factor, [s * factor for s in shares]) == [1, 0, 1, 0, 0, 0]
    assert progress_labels(0.5, [0.4, 0.0, 0.3]) == [1, 0, 0]


def test_labels_from_both_sides_worked_example() -> None:
    values = [0.5, 0.6, 0.2, 1]  # after the problem itself, with 1
    assert dual_sided(values, recursive=True) == pytest.approx([0.5, 0.7, -0.3, 2.3])
    assert dual_sided(values) == pytest.approx([0.5, 0.7, -0.2, 1.8])


async def test_progress_skips_what_the_policy_never_solves_and_labels_the_rest() -> None:
    critic = RolloutCritic(Simulated(flat(0.0)), RolloutOptions(Enough(8), "every", "progress"))
    judgement = (await critic.judge([solution("x")]))[0]
    assert judgement.status == "ok"
    assert judgement.first_error is None
    assert not judgement.verdicts
    assert "no completion of the problem itself" in judgement.notes[0]
    policy = Simulated(erring(3, 0.9))
    critic = RolloutCritic(policy, RolloutOptions(Enough(), "every", "progress", table=parse_rollouts("128@0,64@0.1,32@0.9")))
    judgement = (await critic.judge([solution("y")]))[0]
    assert judgement.first_error == 3
    assert {v.votes[1] for v in judgement.verdicts[:-1] if v.votes} <= {32, 64}


def test_numbers_of_rollouts_by_pass_rate() -> None:
    table = parse_rollouts("128@0,64@0.1,32@0.9")
    assert [rollouts_for(table, rate) for rate in (0.0, 0.09, 0.1, 0.5, 0.9, 1.0)] == [128, 128, 64, 64, 32, 32]
    assert rollouts_for(parse_rollouts("8"), 0.3) == 8
    for broken in ("", "8@", "0", "8@0.5", "x", "2000", "8@2"):
        with pytest.raises(UsageError):
            parse_rollouts(broken)


async def test_steps_between_what_was_asked_about_have_no_label() -> None:
    critic = RolloutCritic(Simulated(erring(5, 1.0)), RolloutOptions(Enough(8, "curtailed"), "halving", "hard"))
    found = combine(await critic.judge([solution("x")]), 8)
    assert found.first_error == 5
    assert found.p_correct == (None, None, None, 1.0, 1.0, 0.0, None, None)
    assert found.votes == ((0, 0), (0, 0), (0, 0), (1, 1), (1, 1), (0, 8), (0, 0), (0, 0))


async def test_what_came_to_no_end_is_not_counted() -> None:
    policy = Simulated(erring(5), came="truncated")
    judgement = (await RolloutCritic(policy).judge([solution("x")]))[0]
    assert judgement.status == "truncated"
    assert not judgement.verdicts
    assert "truncated 8" in judgement.notes[0]


async def test_what_cannot_be_rolled_out_says_why() -> None:
    critic = RolloutCritic(Simulated(erring(1)))
    nameless = Trajectory("x", "p", (Step("a"),))
    tool = Trajectory("x", "p", (Step("a", "seen"),), gold_answer="42")
    for trajectory, word in ((nameless, "gold_answer"), (tool, "generate agent")):
        judgement = (await critic.judge([trajectory]))[0]
        assert judgement.status == "unparseable"
        assert word in judgement.notes[0]


def test_what_does_not_go_together_is_refused() -> None:
    for how in ({"target": "progress"}, {"enough": Enough(8, "curtailed")}, {"recheck": True}, {"search": "none"}):
        with pytest.raises(UsageError):
            RolloutOptions(**how)
    with pytest.raises(UsageError):
        Enough(0)
    with pytest.raises(UsageError):
        open_critic("rollout:nobody/m")


def scripted(rng: Random, chance: Callable[[int], float]) -> ScriptedProvider:
    def answer(wire: Wire) -> Mapping[str, Any]:
        shown = len(re.findall(r"^Step \d+: step", str(wire["messages"][-1]["content"]), re.MULTILINE))
        return {"text": f"Step {shown + 1}: on.\n\nStep {shown + 2}: {RIGHT if rng.random() < chance(shown) else WRONG}"}

    return ScriptedProvider(answer)


async def test_nothing_is_rolled_out_twice(tmp_path: Path) -> None:
    judging = JudgeOptions(db=tmp_path / "cache.db")
    first = scripted(Random(1), lambda shown: 0.7 if shown <= 3 else 0.0)
    trajectories = [solution(str(i)) for i in range(5)]

    async def run(provider: ScriptedProvider, how: RolloutOptions) -> list[Any]:
        critic = RolloutCritic(with_provider(provider, judging), how)
        try:
            return [found async for _, found in label(trajectories, critic)]
        finally:
            await critic.close()

    every = await run(first, RolloutOptions(Enough(8), "every"))
    assert len(first.asked) == 5 * 7 * 8
    again = ScriptedProvider(lambda wire: pytest.fail("it was asked again"))
    # The same, with less, and another way through the same prefixes: all of it is in the cache.
    assert await run(again, RolloutOptions(Enough(8), "every")) == every
    assert [f.first_error for f in await run(again, RolloutOptions(Enough(8, "curtailed"), "halving", "hard"))] == [3] * 5
    more = ScriptedProvider(first.script)
    await run(more, RolloutOptions(Enough(10), "every"))
    assert len(more.asked) == 5 * 7 * 2
