"""The verifier as a critic."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from critic_prm.data.judgement import Verdict
from critic_prm.data.trajectory import Step, Trajectory
from distill.calibration import Calibration
from distill.decision import Decision
from distill.types import Item, Scorer
from distill.verifier import Verifier


@dataclass
class Half(Scorer):
    """Gives every step 0.5."""

    batch: int = 32
    causal: bool = True

    def score(self, items: Sequence[Item]) -> list[NDArray[np.float64]]:
        return [np.full(len(steps), 0.5) for _, steps in items]

    def save(self, folder: Path) -> None:
        raise NotImplementedError


async def test_verdicts_are_made_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores were computed in a thread, and a verdict for each of 32,768 steps then made on the loop."""
    where: set[threading.Thread] = set()

    def verdict(step: int, value: str, **given: float) -> Verdict:
        where.add(threading.current_thread())
        return Verdict(step, "correct", **given)  # type: ignore[arg-type]

    monkeypatch.setattr("distill.verifier.Verdict", verdict)
    found = await Verifier("v", Half(), Calibration(), Decision(0.5)).judge([Trajectory("", "p", (Step("a"), Step("b")))])
    assert [v.p_correct for v in found[0].verdicts] == [0.5, 0.5]
    assert where
    assert threading.main_thread() not in where


def test_a_verifier_is_shown_without_its_weights() -> None:
    """A notebook cell that ends with a verifier printed thousands of weights."""
    info = {"student": "linear", "decision": {"data": "dev of <sums>"}, "weights": list(range(100_000))}
    verifier = Verifier("v", Half(), Calibration(), Decision(0.25), info)
    assert repr(verifier) == (
        "Verifier(name='v', student='linear', rule='first-below', threshold=0.25, chosen_on='dev of <sums>')"
    )
    assert "dev of &lt;sums&gt;" in verifier._repr_html_()
