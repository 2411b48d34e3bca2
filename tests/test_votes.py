"""Asking stops when the votes are decided, without ever changing what all of them would have decided."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import product
from types import MappingProxyType
from typing import Any

import pytest

from critic_prm.data.critic import Critic
from critic_prm.data.judgement import Judgement, Verdict, combine
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.errors import UsageError
from critic_prm.label.run import Samples, SamplingStats, favoured, label, parse_samples

STEPS = 3
TRAJECTORY = Trajectory("t", "p", tuple(Step(str(i)) for i in range(STEPS)))


def judgement(first: int | None, sample: int = 0) -> Judgement:
    """A judgement that stops at its first error; None is one that could not be read."""
    if first is None:
        return Judgement("unparseable", sample=sample)
    marks = ["correct"] * STEPS if first < 0 else ["correct"] * first + ["incorrect"]
    return Judgement("ok", tuple(Verdict(i, mark) for i, mark in enumerate(marks)), first, sample)  # type: ignore[arg-type]


def run(policy: Samples, script: Sequence[int | None]) -> list[Judgement]:
    asked: list[Judgement] = []
    while more := policy.more(asked):
        asked += [judgement(script[len(asked) + i], len(asked) + i) for i in range(more)]
    return asked


def decisions(judgements: Sequence[Judgement]) -> tuple[int | None, list[bool]]:
    """The first error, and which side has more votes on every step up to it."""
    label = combine(judgements, STEPS)
    upto = STEPS if label.first_error in (None, -1) else label.first_error + 1
    return label.first_error, [2 * k > n for k, n in label.votes[:upto]]


def test_what_can_be_asked_for() -> None:
    assert parse_samples("4") == Samples(4, 4, "all")
    assert parse_samples("auto") == Samples(3, 9, "majority")
    assert parse_samples("bayes:2-16") == Samples(2, 16, "bayes")
    for wrong in ("0", "-1", "auto:8-3", "auto:0-3", "often", "4.5", ""):
        with pytest.raises(UsageError, match="--samples is"):
            parse_samples(wrong)


@pytest.mark.parametrize("most", [1, 2, 3, 5, 6])
def test_curtailed_votes_decide_what_all_votes_decide(most: int) -> None:
    policy, whole, saved = Samples(1, most, "majority"), Samples(most, most), 0
    for script in product([None, -1, 0, 1], repeat=most):
        asked = run(policy, script)
        if any(j.status == "ok" for j in asked):
            assert decisions(asked) == decisions(run(whole, script)), script
        saved += most - len(asked)
    assert saved > 0 or most < 3


def test_no_vote_of_a_wave_could_have_been_spared() -> None:
    """Whatever comes, one vote less than the wave that is asked for can never be decided."""
    policy = Samples(1, 7, "majority")
    for script in product([-1, 0, 1], repeat=7):
        asked = run(policy, script)
        for cut in range(1, len(asked)):
            assert policy.more(asked[:cut]) > 0


def test_how_many_it_takes_is_known() -> None:
    rng = random.Random(7)
    for p, expected in ((0.7, 6.858662), (0.9, 5.553818)):  # expected votes of a curtailed majority of nine
        counts = [len(run(Samples(1, 9, "majority"), [0 if rng.random() > p else -1 for _ in range(9)])) for _ in range(8000)]
        assert sum(counts) / len(counts) == pytest.approx(expected, abs=0.06)


def test_the_posterior_is_exact() -> None:
    assert [favoured(n, n) for n in (3, 4, 5)] == [0.9375, 0.96875, 0.984375]
    assert favoured(5, 6) == 0.9375
    assert favoured(2, 4) == 0.5
    assert favoured(1, 4) == pytest.approx(1 - favoured(3, 4))


def test_bayes_stops_when_it_is_likely_enough() -> None:
    assert len(run(Samples(3, 16, "bayes"), [-1] * 16)) == 4
    assert len(run(Samples(3, 16, "bayes"), [-1, 1] * 8)) == 16
    assert len(run(Samples(3, 4, "bayes"), [-1, 1, -1, 1])) == 4


def test_nothing_more_is_paid_for_what_cannot_be_read() -> None:
    assert len(run(Samples(3, 8, "bayes"), [None] * 8)) == 4, "three alike would not be enough, so four are asked at once"
    assert len(run(Samples(3, 8, "majority"), [None] * 8)) == 5


async def test_a_run_asks_for_no_more_than_it_takes_and_says_so() -> None:
    class Judge(Critic):
        batch, stochastic = 1, True
        card: Mapping[str, Any] = MappingProxyType({})
        asked = 0

        async def judge(self, trajectories: Sequence[Trajectory], sample: int = 0) -> list[Judgement]:
            self.asked += 1
            return [judgement(-1 if sample % 2 or trajectories[0].id == "easy" else 1, sample)]

        async def close(self) -> None: ...

    judge: Critic = Judge()
    policy = parse_samples("auto:3-8")
    spent = SamplingStats(policy)
    rows = [Trajectory(name, "p", TRAJECTORY.steps) for name in ("easy", "hard")]
    found = {}
    async for trajectory, labelled in label(rows, judge, samples=policy, prior="jeffreys"):
        found[trajectory.id] = labelled
        spent.add(labelled)
    assert [[j.sample for j in found[name].judgements] for name in ("easy", "hard")] == [list(range(5)), list(range(8))]
    assert found["easy"].p_correct[0] == 5.5 / 6
    assert found["easy"].votes[0] == (5, 5)
    assert spent.report() == {"rule": "majority", "asked": 13, "at_most": 16, "saved": 3, "open": 1}
    assert spent.lines() == [
        "samples: asked for 13 judgements of at most 16, 19% saved; the first error of 1 trajectories stays open"
    ]


def test_a_label_says_where_its_probabilities_come_from() -> None:
    word, chance = Verdict(0, "correct"), Verdict(0, "correct", p_correct=0.8)

    def of(*verdicts: Verdict, how: str = "logprobs") -> str | None:
        ways = [(how,) if v.p_correct is not None else ("plain",) for v in verdicts]
        return combine([Judgement("ok", (v,), -1, how=way) for v, way in zip(verdicts, ways, strict=True)], 1).p_from

    assert (of(), of(word), of(chance), of(word, chance)) == (None, "votes", "logprobs", "mixed")
    assert of(chance, how="") == "scores"


def test_jeffreys_adds_half_a_vote_to_either_side_and_leaves_probabilities_alone() -> None:
    yes, no = (Judgement("ok", (Verdict(0, value),), None) for value in ("correct", "incorrect"))
    assert combine([yes, yes, yes, no], 2, "jeffreys").p_correct == (3.5 / 5, None)
    assert combine([yes, yes, yes, no], 2).p_correct == (0.75, None)
    assert combine([yes], 1, "jeffreys").votes == ((1, 1),)
    sure = Judgement("ok", (Verdict(0, "correct", p_correct=0.9),), -1)
    assert combine([sure], 1, "jeffreys").p_correct == (0.9,)
