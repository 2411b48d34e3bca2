"""A served verifier's scores are watched: in the metrics, in /health, and in one line of the log."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from critic_prm.data.critic import CriticStats
from critic_prm.serve.app import FEWEST, WATCHED
from distill.decision import Decision
from distill.watch import ScoreWatch
from tests.serve.conftest import Oracle, Running, Start

TOKEN = "0123456789abcdef"


@dataclass
class Watched(Oracle):
    stats: Sequence[CriticStats] = ()


def oracle() -> Watched:
    """Its threshold, 0.5, was chosen on solutions whose scores are spread evenly."""
    return Watched(stats=(ScoreWatch(np.linspace(0, 1, 101).tolist(), Decision(0.5)),))


def score(server: Running, scores: Sequence[float]) -> None:
    for start in range(0, len(scores), 200):
        part = [{"problem": "p", "steps": ["1.0 a", f"{p:.4f} b"]} for p in scores[start : start + 200]]
        assert server.post("/v1/score", {"trajectories": part})[0] == 200


def metrics(server: Running) -> dict[str, float]:
    text = server.request("GET", "/metrics")[2]
    lines = (line.split(" ") for line in text.splitlines() if not line.startswith("#") and "{" not in line)
    return {name.removeprefix("critic_prm_"): float(value) for name, value in lines}


def test_a_shift_is_measured_and_logged_once(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    server = start(oracle())
    before = metrics(server)
    assert (before["watched_solutions"], before["scores_shifted"]) == (0, 0)
    assert not {"flagged_share", "score_ks_distance"} & before.keys()  # unknown
    caplog.set_level(logging.WARNING, "critic_prm.serve")
    score(server, [i * 0.618034 % 1 for i in range(WATCHED)])
    calm = metrics(server)
    assert calm["watched_solutions"] == WATCHED
    assert calm["flagged_share"] == pytest.approx(0.5, abs=0.02)
    assert (calm["scores_shifted"], caplog.messages) == (0, [])
    for _ in range(3):
        score(server, np.linspace(0.01, 0.3, 400).tolist())
    after = metrics(server)
    assert (after["watched_solutions"], after["flagged_share"], after["scores_shifted"]) == (WATCHED, 1.0, 1)
    assert after["flagged_share_expected"] == pytest.approx(0.5, abs=0.01)
    assert after["score_ks_distance"] == pytest.approx(0.7, abs=0.02)
    assert after["steps_scored_total"] == 2 * (WATCHED + 1200)
    assert len(caplog.messages) == 1
    assert "solutions score differently" in caplog.messages[0]
    assert "run: critic-prm calibrate VERIFIER FILE" in caplog.messages[0]
    report = server.request("GET", "/health")[2]
    assert (report["status"], report["scores"]["solutions"], report["scores"]["shifted"]) == ("ok", WATCHED, True)


def test_a_few_solutions_are_not_judged(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    server = start(oracle())
    caplog.set_level(logging.WARNING, "critic_prm.serve")
    score(server, [0.01] * (FEWEST - 1))
    assert (metrics(server)["scores_shifted"], caplog.messages) == (0, [])
    score(server, [0.01])
    assert (metrics(server)["scores_shifted"], len(caplog.messages)) == (1, 1)


def test_strangers_learn_only_that_the_server_is_up(start: Start) -> None:
    server = start(oracle(), token=TOKEN)
    assert server.request("GET", "/health")[2] == {"status": "ok"}
    known: Any = server.request("GET", "/health", headers={"authorization": f"Bearer {TOKEN}"})[2]
    assert known["scores"]["solutions"] == 0
    local = start(oracle())
    assert local.request("GET", "/health", headers={"host": "evil.example"})[2] == {"status": "ok"}


def test_other_critics_are_not_watched(start: Start) -> None:
    server = start()
    assert server.request("GET", "/health")[2] == {"status": "ok"}
    assert "watched_solutions" not in metrics(server)
