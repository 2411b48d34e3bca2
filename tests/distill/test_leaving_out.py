"""Groups of data are left out of training in turn, and their scores come from models that have not seen them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distill.calibration import Floats
from distill.data import Row, TrainingSet
from distill.run import distill
from distill.students.linear import Linear
from distill.types import Item, Scorer, Student, Trained


@dataclass(frozen=True)
class Memory(Scorer):
    """Scores a step 1 if its problem was trained on, else 0."""

    problems: frozenset[str]
    batch: int = 7
    causal: bool = True

    def score(self, items: Sequence[Item]) -> list[Floats]:
        return [np.full(len(steps), float(problem in self.problems)) for problem, steps in items]

    def save(self, folder: Path) -> None:
        raise NotImplementedError


@dataclass(frozen=True)
class Remembering(Student):
    """A student that says which problems it was trained on."""

    trained_on: list[tuple[frozenset[str], Path | None]] = field(default_factory=list)

    def train(self, data: TrainingSet, *, seed: int, say: Callable[[str], None], work: Path | None = None) -> Trained:
        problems = frozenset(row.problem for row in data.train)
        self.trained_on.append((problems, work))
        return Trained(Memory(problems), "memory", len(data.train), 0)


def rows(count: int, sources: int) -> tuple[Row, ...]:
    return tuple(
        Row(
            id=str(i),
            problem=f"How much is {i} + {i}?",
            steps=(f"{i} + {i} = {2 * i + i % 2}", f"The answer is {2 * i + i % 2}."),
            labels=(1.0, 1.0) if i % 2 == 0 else (0.0, None),
            source=f"kind{i // 2 % sources}_x",
        )
        for i in range(count)
    )


def test_any_student_is_trained_once_more_without_each_group(tmp_path: Path) -> None:
    data, groups = TrainingSet("t", rows(30, 3), (), ()), np.arange(30) % 3
    student = Remembering()
    trained = student.train_leaving_out(data, groups, seed=0, say=lambda line: None, work=tmp_path)
    assert [len(problems) for problems, _ in student.trained_on] == [20, 20, 20, 30]
    assert len({work for _, work in student.trained_on}) == 4  # an interrupted training is never resumed with other rows
    assert all((scores == 0).all() and scores.shape == (2,) for scores in trained.left_out)
    assert trained.scorer.score([(data.train[0].problem, ["x"])])[0].tolist() == [1.0]


def test_the_linear_student_scores_every_row_without_its_group() -> None:
    train = rows(300, 5)
    train = (*train[:299], replace(train[299], weight=0.0))
    groups = np.arange(300) % 5
    trained = Linear().train_leaving_out(TrainingSet("t", train, (), ()), groups, seed=0, say=lambda line: None)
    assert [len(p) for p in trained.left_out] == [2] * 300
    assert np.isnan(trained.left_out[299]).all()  # a row of weight 0 is not trained on and not scored
    known = np.concatenate(trained.left_out[:299])
    assert ((known > 0) & (known < 1)).all()
    own = np.concatenate(trained.scorer.score([(row.problem, row.steps) for row in train[:299]]))
    assert not np.allclose(own, known)
    wrong = np.array([trained.left_out[i][0] for i in range(299) if i % 2])
    right = np.array([trained.left_out[i][0] for i in range(299) if i % 2 == 0])
    assert wrong.mean() < 0.2 < 0.8 < right.mean()  # false sums are recognised in every kind of data


def test_a_group_that_holds_all_errors_leaves_nothing_to_learn_from() -> None:
    train = rows(60, 2)
    groups = np.array([int(row.labels[0] == 0.0) for row in train])
    trained = Linear().train_leaving_out(TrainingSet("t", train, (), ()), groups, seed=0, say=lambda line: None)
    assert all(np.isnan(p).all() for p in trained.left_out)


@pytest.mark.parametrize(("leave_out", "where"), [(0, "data/dev"), (2, "2 groups left out"), (None, "5 groups left out")])
def test_the_decision_says_what_it_was_chosen_on(leave_out: int | None, where: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    made = [as_json(row) for row in rows(420, 6)]
    (folder / "train.jsonl").write_text("\n".join(made[:360]) + "\n")
    (folder / "dev.jsonl").write_text("\n".join(made[360:]) + "\n")
    info = distill(folder, tmp_path / "v", leave_out=leave_out).info
    assert where in info["decision"]["data"]
    assert info["decision"]["f1"] > 0.9
    assert (info["error_rate"] is None) == (leave_out == 0)
    assert [row["source"] for row in info["unseen"]["sources"]] == ([] if leave_out == 0 else [f"kind{i}_x" for i in range(6)])
    card = (tmp_path / "v" / "README.md").read_text()
    assert ("**a new kind**" in card) == (leave_out != 0)


def as_json(row: Row) -> str:
    line: dict[str, Any] = {"id": row.id, "prompt": row.problem, "completions": row.steps, "labels": row.labels}
    return json.dumps({**line, "source": row.source})
