"""Risk: a beginning whose mean looks good while a share of its futures fails is named, an even one is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from critic_prm.data.label_rows import LabelledTrajectory
from critic_prm.errors import InputError, UsageError
from critic_prm.evaluate.analyze.risk import NUMBERS, risk
from critic_prm.evaluate.settings import RiskSettings
from tests.analyze.conftest import row


def futures(problem: str, begun: list[str], ends: list[float]) -> list[LabelledTrajectory]:
    """One future an end: the steps `begun`, all good, and a last step with this score."""
    return [
        row(f"{problem}-{'-'.join(begun)}-{i}", [0.95] * len(begun) + [end], problem=problem, steps=[*begun, f"end {i}"])
        for i, end in enumerate(ends)
    ]


def test_an_even_beginning_passes() -> None:
    found = risk(futures("p", ["a"], [0.8, 0.82, 0.81, 0.79, 0.8]))
    assert found.findings == ()
    assert found.numbers.keys() == NUMBERS.keys()
    assert found.numbers["prefixes"] == 2  # the problem itself, and step a
    assert found.numbers["hidden"] == 0
    assert found.numbers["mean_sd"] == pytest.approx(0.0101980, abs=1e-6)
    assert found.numbers["worst_tail"] == pytest.approx(0.79)


def test_a_beginning_that_hides_its_risk_is_named() -> None:
    found = risk(
        futures("p", ["safe"], [0.8] * 5) + futures("p", ["bold"], [0.95, 0.95, 0.95, 0.95, 0.0]), RiskSettings(alpha=0.2)
    )
    assert found.numbers["hidden"] == pytest.approx(1 / 3)
    assert found.findings == ("p after 1 step (bold): its continuations score 0.76 on average, but 0.00 in the worst 20%",)
    by_tail = {round(detail["tail"], 6): detail for detail in found.details}
    assert by_tail[0.0]["sd"] == pytest.approx(0.38)
    assert by_tail[0.4]["mean"] == pytest.approx(0.78)  # of all ten; its tail is the mean of 0 and 0.8
    assert found.numbers["riskiest_step"] == pytest.approx(0.4)  # by step "bold", from 0.4 to 0


def test_the_tail_is_the_worst_share_with_a_part_of_the_edge() -> None:
    found = risk(futures("p", [], [0.95, 0.9, 0.6, 0.97, 0.8]), RiskSettings(alpha=0.3))
    assert found.numbers["worst_tail"] == pytest.approx(2 / 3)


def test_futures_of_other_problems_and_without_a_score_do_not_count() -> None:
    rows = [*futures("p", ["a"], [0.8] * 3), *futures("q", ["a"], [0.1] * 3), row("x", None, problem="p", steps=["a", "b"])]
    with pytest.raises(InputError, match="no prefix has 4 continuations"):
        risk(rows)
    assert risk(rows, RiskSettings(min_continuations=3)).numbers["prefixes"] == 4


def test_rollouts_after_each_step_are_futures_that_came_out_right_or_wrong() -> None:
    plain = row("r", [0.9, 0.5], problem="p")
    label = replace(plain.label, votes=((4, 5), (1, 5)))
    found = risk([replace(plain, label=label, critic={"provider": "rollout"})], RiskSettings(alpha=0.1))
    assert [detail["mean"] for detail in found.details] == pytest.approx([0.8, 0.2])
    assert found.details[0]["tail"] == pytest.approx(0.4171345, abs=1e-6)  # Beta(4.5, 1.5), the lowest tenth
    assert found.numbers["riskiest_step"] == pytest.approx(0.4171345 - found.details[1]["tail"], abs=1e-6)


def test_what_makes_no_sense_is_refused() -> None:
    for wrong in ({"alpha": 0.0}, {"alpha": 1.5}, {"min_continuations": 1}):
        with pytest.raises(UsageError, match=r"--(alpha|min-continuations) is"):
            RiskSettings(**wrong)
