"""Drift: a planted change is caught and named, the same run and another draw of the same judge pass."""

from __future__ import annotations

import random

import numpy as np
import pytest

from critic_prm.data.label_rows import LabelledTrajectory
from critic_prm.errors import InputError
from critic_prm.evaluate.analyze.analysis import correct
from critic_prm.evaluate.analyze.drift import NUMBERS, distance, drift, stability
from tests.analyze.conftest import row


def run(
    seed: int,
    shift: float = 0.0,
    only: str = "",
    count: int = 120,
    prefix: str = "s",
    unreadable: float = 0.0,
    noise: float = 0.1,
) -> list[LabelledTrajectory]:
    """Solutions of two sources; `shift` is added to P(correct), of the source `only` or of all."""
    same, rng = random.Random(0), random.Random(seed)
    out = []
    for i in range(count):
        source = ("math", "logic")[i % 2]
        base = [same.uniform(0.3, 0.9) for _ in range(4)]
        gold = next((place for place, b in enumerate(base) if b < 0.5), -1)
        moved = shift if only in ("", source) else 0.0
        scores = [min(max(b + moved + rng.gauss(0, noise), 0.0), 1.0) for b in base]
        found = None if rng.random() < unreadable else scores
        out.append(
            row(f"{prefix}{i}", found, problem=f"{prefix} problem {i}", steps=["a", "b", "c", "d"], label=gold, source=source)
        )
    return out


def test_the_same_run_has_not_drifted() -> None:
    found = drift(run(1), run(1))
    assert found.findings == ()
    assert found.numbers.keys() == NUMBERS.keys()
    assert found.numbers["psi"] == found.numbers["ks"] == found.numbers["flips"] == found.numbers["mean_shift"] == 0
    assert found.numbers["kappa"] == 1
    assert found.details == ()


@pytest.mark.parametrize("seed", range(2, 8))
def test_another_draw_of_one_judge_passes_though_decisions_flip(seed: int) -> None:
    found = drift(run(1), run(seed))
    assert found.findings == ()
    assert found.numbers["tests_significant"] == 0
    assert (found.numbers["flips"] or 0) > 0.05


def test_a_shift_is_caught() -> None:
    found = drift(run(1), run(2, shift=-0.15))
    assert any(finding.startswith("the distribution of P(correct) moved") for finding in found.findings)
    assert any(finding.startswith("the mean P(correct) changed by -0.1") for finding in found.findings)
    assert any(finding.startswith("the share of solutions found without error changed by -") for finding in found.findings)
    assert (found.numbers["psi"] or 0) > 0.1
    assert (found.numbers["exact_shift"] or 0) < 0
    assert len(found.details) == (found.numbers["flips"] or 0) * 120


def test_a_shift_in_one_subset_is_named_with_it() -> None:
    found = drift(run(1), run(2, shift=-0.2, only="logic"))
    assert any(finding.startswith("logic: the mean P(correct)") for finding in found.findings)
    assert not any(finding.startswith("math:") for finding in found.findings)
    assert (found.numbers["psi_worst"] or 0) > (found.numbers["psi"] or 0)


def test_more_unreadable_judgements_are_caught() -> None:
    found = drift(run(1), run(2, unreadable=0.2))
    assert any(finding.startswith("the share of unusable judgements changed by +") for finding in found.findings)


def test_populations_of_other_problems_are_compared_as_such() -> None:
    def other(shift: float) -> list[LabelledTrajectory]:
        return run(3, shift=shift, prefix="t")

    calm, moved = drift(run(1), other(0.0)), drift(run(1), other(-0.25))
    assert calm.findings == ()
    assert calm.numbers["flips"] is None
    assert any("moved" in finding for finding in moved.findings)
    assert any("120 solutions with 120 others" in note for note in moved.notes)


def test_chance_alone_rarely_makes_a_finding() -> None:
    """Of 40 pairs of runs of one judge, corrected tests call at most a few drifted."""
    rng = random.Random(5)
    called = 0
    for _ in range(40):
        a, b = rng.randrange(10**6), rng.randrange(10**6)
        called += bool(drift(run(a, count=40), run(b, count=40)).numbers["tests_significant"])
    assert called <= 6


def test_runs_that_share_some_solutions_are_refused() -> None:
    with pytest.raises(InputError, match="they share 20 of 120 and 120 solutions"):
        drift(run(1), [*run(1)[:20], *run(2, count=100, prefix="t")])
    with pytest.raises(InputError, match="the new run"):
        drift(run(1), [])


def test_stability_and_distance_by_hand() -> None:
    old, new = np.array([50.0, 50.0]), np.array([75.0, 25.0])
    p, q = np.array([50.5, 50.5]) / 101, np.array([75.5, 25.5]) / 101
    assert float(stability(old, new)) == pytest.approx(float(((q - p) * np.log(q / p)).sum()))
    assert float(stability(old, old)) == 0
    assert float(distance(old, new)) == pytest.approx(0.25)
    assert np.isfinite(stability(np.array([10.0, 0.0]), np.array([0.0, 10.0])))


def test_benjamini_and_hochberg_by_hand() -> None:
    assert correct([0.01, 0.04, None, 0.03, 0.5]) == pytest.approx([0.04, 0.0533333, None, 0.0533333, 0.5])
    assert correct([]) == []
