"""Shards of a table to shards with scores: what a label file would say of each row."""

from __future__ import annotations

import pyarrow
import pytest

from bench.runs import trajectories
from critic_prm.critics.remote import Scorer
from critic_prm.errors import InputError, UsageError
from tests.cluster.conftest import Run


def table(rows: int) -> pyarrow.Table:
    solutions = list(trajectories(rows))
    return pyarrow.table({"problem": [s.problem for s in solutions], "steps": [s.texts for s in solutions], "n": range(rows)})


def test_scores_stand_beside_what_was_there() -> None:
    scored = Scorer("rules")(table(5)).to_pylist()
    assert [row["n"] for row in scored] == [0, 1, 2, 3, 4]
    assert all(len(row["p_correct"]) == len(row["steps"]) == 6 for row in scored)
    assert {row["status"] for row in scored} == {"ok"}


def test_a_wrong_equation_is_the_first_error() -> None:
    row = pyarrow.table({"problem": ["?"], "steps": [["2 + 2 = 4", "4 + 4 = 9", "so 9"]]})
    (scored,) = Scorer("rules")(row).to_pylist()
    assert scored["first_error"] == 1
    assert scored["p_correct"][1] < 0.5


def test_a_table_without_steps_is_refused() -> None:
    with pytest.raises(InputError, match="no column 'steps'"):
        Scorer("rules")(pyarrow.table({"problem": ["?"]}))


def test_judges_are_refused(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.chdir(run.folder)
    with pytest.raises(UsageError, match="--engine ray"):
        Scorer("openai/bench")
