"""A few dozen solutions are cross-validated by problem, and a verifier that is no better than chance says so."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from critic_prm.errors import InputError, UsageError
from distill.crossvalidate import choose_folds, pooled, problem_folds, train_in_folds
from distill.curve import Curve, estimate, measure_curve
from distill.data import Row, TrainingSet, read_training_set
from distill.measure import useless
from distill.run import distill
from distill.students.linear import Linear, LinearSettings
from distill.types import Item, Scorer, Student, Trained
from distill.verifier import load_verifier
from tests.distill.test_commands import command
from tests.distill.tiny import apples, folder_of

SMALL_STUDENT = Linear(settings=LinearSettings(bits=8, trees=5, forests=1, min_leaf=5))


def rows(count: int, problems: int) -> tuple[Row, ...]:
    """Two of five solutions are wrong in their second step; several solutions share a problem."""
    return tuple(
        Row(f"{n}", f"problem number {n % problems}", ("a", "b"), (1.0, 0.0 if n % problems % 5 < 2 else 1.0), source="s")
        for n in range(count)
    )


def coin_flips(count: int) -> list[dict[str, object]]:
    """Training rows whose labels have nothing to do with their steps."""
    rng = np.random.default_rng(7)
    wrong = rng.permutation(count) < count // 2
    return [
        {**row, "prompt": f"{n} {row['prompt']}", "completions": row["completions"][:1], "labels": [float(not wrong[n])]}
        for n, row in enumerate([row for row in apples(5 * count, 5) if row["labels"] == [1.0, 1.0]][:count])
    ]


def test_folds_keep_problems_together_and_share_the_errors() -> None:
    data = rows(40, 20)
    fold = problem_folds(data, 5, 0)
    of_problem = defaultdict(set)
    for row, own in zip(data, fold.tolist(), strict=True):
        of_problem[row.problem].add(own)
    assert all(len(folds) == 1 for folds in of_problem.values())
    wrong = [sum(row.first_error() == 1 for row, own in zip(data, fold, strict=True) if own == k) for k in range(5)]
    assert min(wrong) > 0
    assert max(np.bincount(fold)) - min(np.bincount(fold)) <= 2


@dataclass
class Stopping(Student):
    """A student that stops early on dev; it remembers what it was given."""

    given: list[tuple[set[str], set[str]]] = field(default_factory=list)

    def train(self, data: TrainingSet, *, seed: int, say: Callable[[str], None], work: Path | None = None) -> Trained:
        self.given.append(({row.problem for row in data.train}, {row.problem for row in data.dev}))
        return Trained(Unseen(self.given[-1][0] | self.given[-1][1]), "stopping", len(data.train), 0)


@dataclass
class Unseen(Scorer):
    """Scores 1 for problems that it was not given, else 0."""

    known: set[str]
    batch: int = 8
    causal: bool = True

    def score(self, items: Sequence[Item]) -> list[np.ndarray[tuple[int], np.dtype[np.float64]]]:
        return [np.full(len(steps), float(problem not in self.known)) for problem, steps in items]

    def save(self, folder: Path) -> None: ...


def test_no_model_has_seen_the_problem_that_it_scores_not_even_to_stop() -> None:
    data, student = TrainingSet("t", rows(40, 20), (), ()), Stopping()
    fold = problem_folds(data.train, 4, 0)
    trained = train_in_folds(student, data, fold, seed=0, say=lambda line: None)
    assert [scores.tolist() for scores in trained.left_out] == [[1.0, 1.0]] * 40
    assert all(train and dev and not train & dev for train, dev in student.given)
    assert len(student.given[-1][0] | student.given[-1][1]) == 20  # the last one sees all problems


def test_which_sets_are_cross_validated() -> None:
    train, dev = rows(60, 60), rows(30, 30)
    linear, costly = Linear(), Stopping()
    assert (
        choose_folds(TrainingSet("t", train, dev[:4], ()), linear) == choose_folds(TrainingSet("t", train, (), ()), costly) == 5
    )
    assert choose_folds(TrainingSet("t", rows(150, 150), rows(40, 40), ()), linear) == 0  # dev has 16 errors
    assert choose_folds(TrainingSet("t", rows(400, 400), dev[:4], ()), costly) == 0  # too costly: training five times
    assert choose_folds(TrainingSet("t", tuple(replace(row, labels=(None, None)) for row in train), (), ()), linear) == 0
    assert len(pooled(TrainingSet("t", train, dev, dev[:5])).train) == 95
    assert len(pooled(TrainingSet("t", train, dev, dev)).test) == 30  # a test split of some size stays a test split


def test_a_useless_verifier_is_called_useless(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distill.types.choose_student", lambda *given: SMALL_STUDENT)
    flips = coin_flips(30)
    folder = folder_of(tmp_path / "set", train=flips[:26], dev=flips[26:28], test=flips[28:])
    out = tmp_path / "v"
    assert command("distill", folder, "-o", out, "--no-learning-curve") == 3
    error = capsys.readouterr().err
    assert "cross-validation of 30 solutions, by problem in 5 folds" in error
    assert f"{out}: no better than chance: AUROC 0." in error
    assert "(cross-validated, 30 solutions); do not use" in error
    assert "**Do not use this verifier.** It is no better than chance: AUROC" in (out / "README.md").read_text()
    info = json.loads((out / "verifier.json").read_text())
    assert info["useless"]
    assert info["learning_curve"] is None
    assert info["training"]["solutions"] == 30  # the labels that there are all train it
    assert load_verifier(out).score("p", ["s"])


def test_a_useful_one_from_a_few_dozen_is_not(tmp_path: Path) -> None:
    told = [{**row, "prompt": f"{row['prompt']} {n}"} for n, row in enumerate(apples(60, 3))]
    for row in told:  # the label stands in the text
        row["completions"] = [f"{s} no" if y == 0.0 else s for s, y in zip(row["completions"], row["labels"], strict=True)]
    folder = folder_of(tmp_path / "set", train=told[:50], dev=told[50:54], test=told[54:])
    made = distill(folder, tmp_path / "v", student=SMALL_STUDENT)
    assert list(made.metrics) == ["cross-validated"]
    assert made.metrics["cross-validated"]["auroc"] > 0.9
    assert made.info["useless"] == ""
    assert "cross-validated in 5 folds" in made.info["decision"]["data"]
    curve = made.info["learning_curve"]
    assert curve["solutions"] == [15, 20, 30, 48]
    again = distill(folder, tmp_path / "again", student=SMALL_STUDENT, learning_curve=False)
    assert again.info["fingerprint"] == made.info["fingerprint"]
    with pytest.raises(UsageError, match="exclude each other"):
        distill(folder, tmp_path / "v", student=SMALL_STUDENT, folds=5, leave_out=2)
    with pytest.raises(UsageError, match="--folds 1 leaves nothing"):
        distill(folder, tmp_path / "v", student=SMALL_STUDENT, folds=1)
    with pytest.raises(InputError, match=r"60 problems cannot be divided into 99 folds; give --folds 60 or less"):
        distill(folder, tmp_path / "v", student=SMALL_STUDENT, folds=99)


def test_a_class_that_one_problem_has_cannot_be_cross_validated(tmp_path: Path) -> None:
    right = [row for row in apples(90, 3) if row["labels"] == [1.0, 1.0]][:20]
    wrong = [row for row in apples(90, 3) if 0.0 in row["labels"]][:1]
    folder = folder_of(tmp_path / "set", train=[*right, *wrong], dev=right[:3])
    with pytest.raises(InputError, match=r"1 an incorrect one, in 24 solutions; label more solutions, some with errors"):
        distill(folder, tmp_path / "v", student=SMALL_STUDENT)
    with pytest.raises(InputError, match=r"critic-prm distill --folds 5; or make it larger: .* --split 0\.6,0\.2,0\.2"):
        read_training_set(folder)


def metric(steps: int, auroc: float | None, bounds: list[float] | None) -> dict[str, object]:
    return {"steps": steps, "solutions": 9, "auroc": auroc, "intervals": {"auroc": bounds}}


def test_the_largest_held_out_split_says_whether_it_is_useless() -> None:
    assert useless({"dev": metric(10, 0.9, [0.8, 1.0]), "test": metric(20, 0.6, [0.45, 0.7])}) == (
        "no better than chance: AUROC 0.60 [0.45, 0.70] (9 solutions of test); do not use"
    )
    assert useless({"dev": metric(30, 0.9, [0.8, 1.0]), "test": metric(20, 0.6, [0.45, 0.7])}) == ""
    assert useless({"dev": metric(30, None, None)}) == ""  # a set without step labels cannot show it
    assert "too few solutions" in useless({"cross-validated": metric(3, 0.7, None)})


def curve_of(floor: float, scale: float, sizes: list[int], noise: float) -> tuple[list[int], np.ndarray, np.ndarray]:
    means = 1 - floor - scale * np.array(sizes, dtype=np.float64) ** -0.5
    return sizes, means, means + noise * np.random.default_rng(0).standard_normal((300, len(sizes)))


def test_more_labels_are_estimated_where_the_curve_tells() -> None:
    # error 0.05 + 2 / sqrt(n): 0.15 at 400, and 0.13 at 625
    found = estimate(*curve_of(0.05, 2.0, [50, 100, 200, 400], 0.001), 400)
    assert found is not None
    middle, low, high = found
    assert low <= 225 <= high
    assert 150 < middle < 330
    for floor, scale, noise in ((0.05, 2.0, 0.05), (0.5, 0.0, 0.01), (0.14, 0.2, 0.001)):  # noisy, flat, level
        assert estimate(*curve_of(floor, scale, [50, 100, 200, 400], noise), 400) is None
    assert Curve([50, 100], [0.7, 0.75], [220, 180, 300]).lines() == [
        "learning curve, AUROC by solutions trained on: 50: 0.70, 100: 0.75",
        "about 220 more labelled solutions for +0.02 AUROC (90% interval 180 to 300, by a power law fitted to the curve)",
    ]
    assert Curve([50, 100], [0.7, 0.75], None).lines()[1:] == Curve([], [], None).lines() == []


def test_with_a_dev_split_the_parts_of_train_are_measured_on_it() -> None:
    data = TrainingSet("t", rows(60, 60), rows(20, 20), ())
    full = [np.array([1.0, 0.5])] * 20
    curve = measure_curve(SMALL_STUDENT, data, data.dev, full, 60, seed=0, say=lambda line: None)
    assert curve.solutions == [15, 20, 30, 60]
    assert (
        measure_curve(SMALL_STUDENT, replace(data, train=data.train[:15]), data.dev, full, 15, seed=0, say=print).lines() == []
    )
