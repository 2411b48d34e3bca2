"""Preference pairs of TRL's and OpenRLHF's shapes and of HH-RLHF are read as two trajectories each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from critic_prm.data import Trajectory
from critic_prm.data.formats.convert import read_trajectories
from critic_prm.datasets.pairs import Columns, PairOptions, pairs
from critic_prm.errors import InputError


def read(row: dict[str, Any], tmp_path: Path) -> list[Trajectory]:
    (tmp_path / "in.jsonl").write_text(json.dumps(row) + "\n")
    return list(read_trajectories(tmp_path / "in.jsonl"))


USER = {"role": "user", "content": "What is 2 + 3?"}
GOOD, BAD = ({"role": "assistant", "content": text} for text in ("2 + 3 = 5.\n\nThe answer is 5.", "2 + 3 = 6."))
ROWS: dict[str, dict[str, Any]] = {
    "texts": {"prompt": "What is 2 + 3?", "chosen": GOOD["content"], "rejected": BAD["content"]},
    "messages after a prompt": {"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]},
    "a text, then messages": {"prompt": "What is 2 + 3?", "chosen": [GOOD], "rejected": [BAD]},
    "whole conversations": {"chosen": [USER, GOOD], "rejected": [USER, BAD]},
    "HH-RLHF": {
        "chosen": f"\n\nHuman: What is 2 + 3?\n\nAssistant: {GOOD['content']}",
        "rejected": f"\n\nHuman: What is 2 + 3?\n\nAssistant: {BAD['content']}",
    },
}


@pytest.mark.parametrize("name", ROWS)
def test_both_answers_are_read(name: str, tmp_path: Path) -> None:
    chosen, rejected = read({"id": "7", **ROWS[name], "source": "x"}, tmp_path)
    assert (chosen.id, rejected.id) == ("7/chosen", "7/rejected")
    assert chosen.problem == rejected.problem == "What is 2 + 3?"
    assert (chosen.texts, rejected.texts) == (["2 + 3 = 5.", "The answer is 5."], ["2 + 3 = 6."])
    assert (chosen.meta, rejected.meta) == (
        {"source": "x", "preference": "chosen"},
        {"source": "x", "preference": "rejected"},
    )
    assert chosen.gold() == (None, None)


@pytest.mark.parametrize("row", [{"chosen": "a", "rejected": "b"}, {"prompt": "p", "chosen": "a", "rejected": 3}])
def test_rows_without_a_problem_or_an_answer(row: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"in\.jsonl:1"):
        read(row, tmp_path)


def test_pairs_that_were_made_here_can_be_read(tmp_path: Path) -> None:
    rows = [{"id": str(at), "problem": "P", "steps": ["a", f"b{at}"], "label": label} for at, label in enumerate((-1, 1))]
    (tmp_path / "gold.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    every: tuple[Columns, ...] = ("trl", "trl-chat", "openrlhf")
    for columns in every:
        pairs(tmp_path / "gold.jsonl", tmp_path / "pairs.jsonl", PairOptions(by="gold", to=columns))
        chosen, rejected = read_trajectories(tmp_path / "pairs.jsonl")
        assert (chosen.problem, chosen.texts, rejected.texts) == ("P", ["a", "b0"], ["a", "b1"])
