"""Preference pairs from scores, labels, refinements and trees, by hand and with the columns that trainers document."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from critic_prm.data.records.reading import read_records, write_records
from critic_prm.datasets.pairs import MOST_STEPS, PairOptions, pairs
from critic_prm.errors import InputError, UsageError
from tests.command import invoke


def scored(id: str, problem: str, steps: Sequence[str], p: Sequence[float | None], **more: Any) -> dict[str, Any]:
    first = next((at for at, value in enumerate(p) if value is not None and value < 0.5), -1)
    votes = [[0, 0] if value is None else [int(value >= 0.5), 1] for value in p]
    label = {"p_correct": p, "votes": votes, "first_error": first, "status": "ok", "judgements": []}
    return {"id": id, "problem": problem, "steps": steps, **label, "critic": {"provider": "verifier"}, **more}


def made(rows: Sequence[Mapping[str, Any]], tmp_path: Path, **options: Any) -> list[dict[str, Any]]:
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs(tmp_path / "in.jsonl", tmp_path / "out.jsonl", PairOptions(**options))
    return [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]


FOUR = [
    scored("a", "P", ["x", "y"], [0.9, 0.8]),  # min 0.8
    scored("b", "P", ["x", "z"], [0.9, 0.1]),  # min 0.1
    scored("c", "P", ["w"], [0.5]),  # min 0.5
    scored("d", "Q", ["only one"], [0.9]),
]


def test_best_against_worst(tmp_path: Path) -> None:
    (row,) = made(FOUR, tmp_path)
    assert row == {
        "prompt": "P",
        "chosen": "x\n\ny",
        "rejected": "x\n\nz",
        "score_chosen": 0.8,
        "score_rejected": 0.1,
        "id_chosen": "a",
        "id_rejected": "b",
    }


def test_more_pairs_use_each_text_once_and_exceed_the_margin(tmp_path: Path) -> None:
    rows = [scored(str(i), "P", [f"s{i}"], [p]) for i, p in enumerate((0.9, 0.8, 0.2, 0.1))]
    found = made(rows, tmp_path, per_prompt=5)
    assert [(row["id_chosen"], row["id_rejected"]) for row in found] == [("0", "3"), ("1", "2")]
    with pytest.raises(InputError, match="lower --margin"):
        made(rows, tmp_path, margin=0.8)  # 0.9 - 0.1 does not exceed it
    with pytest.raises(InputError):
        pairs(tmp_path / "in.jsonl", tmp_path / "none.jsonl", PairOptions(margin=0.8))
    assert not (tmp_path / "none.jsonl").exists()


def test_steps_after_the_same_steps(tmp_path: Path) -> None:
    """After "x": y has 0.8, z the mean of 0.1 and 0.3. At the beginning: x the mean of three, w 0.5."""
    rows: list[dict[str, Any]] = [*FOUR, scored("e", "P", ["x", "z", "more"], [0.6, 0.3, None])]
    found = made(rows, tmp_path, level="step", margin=0.25)
    assert [(row["prompt"], row["chosen"], row["rejected"]) for row in found] == [
        ("P\n\n", "x", "w"),
        ("P\n\nx\n\n", "y", "z"),
    ]
    assert [(row["score_chosen"], row["score_rejected"]) for row in found] == [
        (pytest.approx(0.8), 0.5),
        (0.8, pytest.approx(0.2)),
    ]


def test_gold_labels(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": "1", "problem": "P", "steps": ["a", "b"], "label": -1},
        {"id": "2", "problem": "P", "steps": ["a", "c"], "label": 1},
        {"id": "3", "problem": "P", "steps": ["d"], "label": None},
    ]
    (row,) = made(rows, tmp_path, by="gold", margin=0.5)
    assert (row["id_chosen"], row["id_rejected"]) == ("1", "2")
    (row,) = made(rows, tmp_path, by="gold", level="step", margin=0.5)
    assert (row["prompt"], row["chosen"], row["rejected"]) == ("P\n\na\n\n", "b", "c")


def test_alike_in_length(tmp_path: Path) -> None:
    rows = [
        scored("long", "P", ["x" * 100], [0.9]),
        scored("short", "P", ["x" * 10], [0.1]),
        scored("middle", "P", ["y" * 95], [0.4]),
    ]
    assert made(rows, tmp_path)[0]["id_rejected"] == "short"
    assert made(rows, tmp_path, max_length_ratio=1.2)[0]["id_rejected"] == "middle"


def test_columns_of_trainers(tmp_path: Path) -> None:
    user, good, bad = ({"role": r, "content": t} for r, t in (("user", "P"), ("assistant", "x\n\ny"), ("assistant", "x\n\nz")))
    (row,) = made(FOUR, tmp_path, to="trl-chat")
    assert (row["prompt"], row["chosen"], row["rejected"]) == ([user], [good], [bad])
    (row,) = made(FOUR, tmp_path, to="openrlhf")
    assert "prompt" not in row
    assert (row["chosen"], row["rejected"]) == ([user, good], [user, bad])
    rows = made(FOUR, tmp_path, to="kto")
    assert [(row["completion"], row["label"]) for row in rows] == [("x\n\ny", True), ("x\n\nz", False), ("only one", True)]
    rows = made(FOUR, tmp_path, to="kto-chat", margin=0.79)  # 0.895 and more: one; 0.105 and less: one
    assert [(row["prompt"], row["label"]) for row in rows] == [([user], False), ([{"role": "user", "content": "Q"}], True)]


def test_a_refined_solution_and_the_one_before(tmp_path: Path) -> None:
    refine: dict[str, Any] = {"why": "error", "changed": True, "score": [0.1, 0.9], "right": [None, None], "rounds": []}
    row: dict[str, Any] = {
        "id": "r",
        "problem": "P",
        "steps": ["x", "good", "end"],
        "refine": {**refine, "steps_before": ["x", "bad"]},
    }
    kept: dict[str, Any] = {
        "id": "k",
        "problem": "Q",
        "steps": ["x"],
        "refine": {**refine, "changed": False, "steps_before": None},
    }
    (found,) = made([row, kept], tmp_path)
    assert (found["chosen"], found["rejected"], found["id_chosen"]) == ("x\n\ngood\n\nend", "x\n\nbad", "r/after")
    (found,) = made([row, kept], tmp_path, level="step")
    assert (found["prompt"], found["chosen"], found["rejected"]) == ("P\n\nx\n\n", "good", "bad")


def node(number: int, parent: int | None, step: str, p: float | None, done: bool = False, **more: Any) -> dict[str, Any]:
    return {"id": "t", "node": number, "parent": parent, "step": step, "done": done, "p_correct": p, "score": p, **more}


def test_a_search_tree(tmp_path: Path) -> None:
    root = node(0, None, "", None, problem="P")
    rows = [root, node(1, 0, "a", 0.9), node(2, 0, "b", 0.2, True), node(3, 1, "c", 0.8, True), node(4, 1, "d", 0.1, value=0.7)]
    found = made(rows, tmp_path, level="step")
    assert [(row["prompt"], row["chosen"], row["rejected"]) for row in found] == [("P\n\n", "a", "b")]  # c and d: 0.8, 0.7
    (whole,) = made(rows, tmp_path)
    assert (whole["chosen"], whole["rejected"]) == ("a\n\nc", "b")
    with pytest.raises(InputError, match="the root has no problem"):
        made([node(0, None, "", None)], tmp_path)


@pytest.mark.parametrize(
    "damage",
    [
        {"parent": 7},
        {"id": ["t"]},
        {"node": None},
        {"step": 3},
        {"p_correct": "high"},
        {"score": [1]},
        {"done": True, "score": "x"},
    ],
)
def test_a_damaged_node_is_named_by_its_line(damage: dict[str, Any], tmp_path: Path) -> None:
    rows = [node(0, None, "", None, problem="P"), node(1, 0, "a", 0.9), node(2, 0, "b", 0.2, True) | damage]
    with pytest.raises(InputError, match=r"in\.jsonl:3: .*write the tree again"):
        made(rows, tmp_path)


def test_a_node_without_a_field_is_named_by_its_line(tmp_path: Path) -> None:
    rows: list[Any] = [node(0, None, "", None, problem="P"), {"id": "t", "parent": 0}]
    with pytest.raises(InputError, match=r'in\.jsonl:2: "node" of a node is missing'):
        made(rows, tmp_path)
    with pytest.raises(InputError, match=r'in\.jsonl:2: "id" of a node is missing'):
        made([rows[0], {}], tmp_path)


def test_a_tree_is_no_chain_of_a_million_nodes(tmp_path: Path) -> None:
    """Each node was kept with all steps before it: memory grew with the square of the depth."""
    rows = [node(0, None, "", None, problem="P"), *(node(n, n - 1, "a", 0.9) for n in range(1, MOST_STEPS + 2))]
    with pytest.raises(InputError, match="more than 1,000 steps from its root"):
        made(rows, tmp_path)


@pytest.mark.parametrize(
    "refine",
    [
        None,
        [],
        {"steps_before": "x"},
        {"steps_before": [["x"]]},
        {"steps_before": ["x"]},
        {"steps_before": ["x"], "score": [1]},
    ],
)
def test_a_damaged_refinement_is_named_by_its_line(refine: Any, tmp_path: Path) -> None:
    good = {"id": "k", "problem": "Q", "steps": ["x"], "refine": {"steps_before": None}}
    with pytest.raises(InputError, match=r"in\.jsonl:2: .*write the solutions again"):
        made([good, {"id": "r", "problem": "P", "steps": ["x"], "refine": refine}], tmp_path)
    with pytest.raises(InputError, match=r"in\.jsonl:2: .*write the solutions again"):
        made([good, {"id": "r", "problem": "P", "steps": ["x"]}], tmp_path)


def test_many_solutions_of_one_problem_need_little_memory(tmp_path: Path) -> None:
    """All pairs of 2,000 solutions were kept, two million of them."""
    rows = [scored(f"s{n}", "P", [f"step {n}"], [n / 300]) for n in range(301)]
    write_records(tmp_path / "in.jsonl", rows)
    tracemalloc.start()
    pairs(tmp_path / "in.jsonl", tmp_path / "out.jsonl", PairOptions())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000
    (row,) = read_records(tmp_path / "out.jsonl")
    assert (row.data["chosen"], row.data["rejected"]) == ("step 300", "step 0")


def test_a_long_solution_needs_memory_for_its_steps_only(tmp_path: Path) -> None:
    """Every prefix was kept as a list of its steps, which is quadratic in their number."""
    steps = [f"{n}" for n in range(5000)]
    rows = [scored("a", "P", steps, [0.9] * 5000), scored("b", "P", [*steps[:-1], "x"], [0.9] * 4999 + [0.1])]
    write_records(tmp_path / "in.jsonl", rows)
    tracemalloc.start()
    pairs(tmp_path / "in.jsonl", tmp_path / "out.jsonl", PairOptions(level="step"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40_000_000


def test_a_chat_template_cannot_hold_a_step() -> None:
    with pytest.raises(UsageError, match="--level step"):
        PairOptions(level="step", to="trl-chat")


def test_the_command_says_what_it_made(tmp_path: Path) -> None:
    rows = [scored("a", "P", ["x" * 50], [0.9]), scored("b", "P", ["y"], [0.1])]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = invoke("dataset", "pairs", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl")
    assert done.exit_code == 0
    assert "pairs: 2 solutions in, 2 with scores; 1 rows to" in done.stderr
    assert "1 of 1 prompts" in done.stderr
    assert "--max-length-ratio" in done.stderr
