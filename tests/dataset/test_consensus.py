"""Two label sources: what is kept, what the report says of it, and that weights give the classes their shares back."""

from __future__ import annotations

import json
from collections import Counter
from math import sqrt
from pathlib import Path
from typing import Any

import pytest

from critic_prm.data.records.reading import read_records, write_records
from critic_prm.datasets.balance import bin_name, inverse_propensity, stratum
from critic_prm.datasets.build import DatasetOptions, build_dataset
from critic_prm.datasets.consensus import (
    ConsensusOptions,
    StepLabels,
    consensus,
    labels_of,
    same_first_error,
    same_on_confident,
)
from critic_prm.datasets.rows import read_rows
from critic_prm.errors import InputError, UsageError


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    write_records(path, rows)
    return path


def kept(path: Path) -> list[dict[str, Any]]:
    return [record.data for record in read_records(path)]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (StepLabels((1.0, 1.0), -1), StepLabels((0.9, 0.8), -1), StepLabels((1.0, 1.0), -1)),
        (StepLabels((1.0, 0.0, None), 1), StepLabels((0.9, 0.1, 0.0), 1), StepLabels((1.0, 0.0, None), 1)),
        (StepLabels((1.0, 0.0), 1), StepLabels((0.0, 0.0), 0), "another first error"),
        (StepLabels((1.0, 0.0), 1), StepLabels((1.0, 1.0), -1), "another first error"),
        (StepLabels((None, None), None), StepLabels((1.0, 1.0), -1), "A has no first error"),
        (StepLabels((1.0, 1.0), -1), StepLabels((0.5, None), None), "B has no first error"),
    ],
)
def test_the_first_error_is_agreed_on_exactly(a: StepLabels, b: StepLabels, expected: StepLabels | str) -> None:
    assert same_first_error(a, b) == expected


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (StepLabels((1.0, 1.0, 1.0), -1), StepLabels((0.9, 0.75, 1.0), -1), StepLabels((1.0, 1.0, 1.0), -1)),
        (StepLabels((1.0, 1.0, 1.0), -1), StepLabels((0.9, 0.5, 1.0), -1), StepLabels((1.0, None, 1.0), None)),
        (StepLabels((1.0, 0.0, None), 1), StepLabels((0.9, 0.125, 0.9), 1), StepLabels((1.0, 0.0, None), 1)),
        (StepLabels((1.0, 0.0, None), 1), StepLabels((0.9, 0.4, 0.0), 1), StepLabels((1.0, None, None), None)),
        (StepLabels((1.0, 0.0, None), 1), StepLabels((0.9, 0.8, 0.0), 2), "another verdict on a step B is sure of"),
        (StepLabels((1.0, 1.0), -1), StepLabels((0.9, 0.1), 1), "another verdict on a step B is sure of"),
        (StepLabels((1.0, 1.0), -1), StepLabels((0.5, 0.5), -1), "B is sure of no step"),
        (StepLabels((None,), None), StepLabels((1.0,), -1), "A has no first error"),
    ],
)
def test_only_steps_that_b_is_sure_of_are_compared(a: StepLabels, b: StepLabels, expected: StepLabels | str) -> None:
    assert same_on_confident(a, b, 0.125, 0.75) == expected


def test_a_threshold_makes_hard_labels_of_monte_carlo_shares(made: Any, tmp_path: Path) -> None:
    path = written(tmp_path / "mc.jsonl", [{**made.solution(0), "step_labels": [0.5, 0.125, 0.0]}])
    (row,) = read_rows(path)
    assert labels_of(row).first_error == 1
    assert labels_of(row, 0.01).first_error == 2
    assert labels_of(row, 0.6).first_error == 0


def test_acceptance_by_class_is_the_truth_and_weights_give_the_classes_back(made: Any, tmp_path: Path) -> None:
    """Two labellers that err independently: the rates are those of the rows drawn, exactly, and those have a closed form."""
    wrong, (sees_a, clears_a), (sees_b, clears_b) = 0.29, (0.6, 0.95), (0.8, 0.97)
    a, b, truth = made.simulated(4000, wrong, (sees_a, clears_a), (sees_b, clears_b))
    one, other = written(tmp_path / "a.jsonl", a), written(tmp_path / "b.jsonl", b)
    out = tmp_path / "out.jsonl"
    report = consensus(one, other, out, ConsensusOptions(threshold_b=0.01, debias="reweight"))
    rates = {kind: entry["rate"] for kind, entry in report["acceptance"].items()}
    assert report["classes_by"] == "gold"
    drawn: dict[str, list[bool]] = {"erroneous": [], "correct": []}
    for row, by_b, first in zip(a, b, truth, strict=True):
        second = next((step for step, share in enumerate(by_b["step_labels"]) if share < 0.01), -1)
        drawn["erroneous" if first >= 0 else "correct"].append(row["first_error"] == second)
    for kind, closed in {"erroneous": sees_a * sees_b + (1 - sees_a) * (1 - sees_b), "correct": clears_a * clears_b}.items():
        assert rates[kind] == pytest.approx(sum(drawn[kind]) / len(drawn[kind]), abs=1e-4)  # four decimals are reported
        assert rates[kind] == pytest.approx(closed, abs=1.37 * sqrt(closed * (1 - closed) / len(drawn[kind])))
    share = sum(first >= 0 for first in truth) / len(truth)
    rows = kept(out)
    mass = sum(row["weight"] for row in rows)
    assert mass == pytest.approx(len(rows), rel=1e-3)
    back = sum(row["weight"] for row in rows if truth[int(row["id"][1:])] >= 0) / mass
    assert back == pytest.approx(share, abs=0.02)
    assert report["share_erroneous"]["written"] == pytest.approx(share, abs=1e-4)
    assert report["share_erroneous"]["kept"] < share - 0.05
    assert report["weights"]["effective_rows"] < len(rows)
    # of the labels agreed on, those that say right are worse: an error both miss is agreed on, too
    right = {kind: entry["rate"] for kind, entry in report["agreed_labels_that_are_gold"].items()}
    assert right["correct"] == pytest.approx(0.9658, abs=0.01)
    assert right["erroneous"] > 0.99


def test_resampling_gives_the_classes_back_without_weights(made: Any, tmp_path: Path) -> None:
    a, b, truth = made.simulated(6000, 0.4, (0.7, 0.95), (0.8, 0.95), seed=1)
    one, other = written(tmp_path / "a.jsonl", a), written(tmp_path / "b.jsonl", b)
    out = tmp_path / "out.jsonl"
    report = consensus(one, other, out, ConsensusOptions(debias="resample"))
    rows = kept(out)
    share = sum(first >= 0 for first in truth) / len(truth)
    assert sum(truth[int(row["id"][1:])] >= 0 for row in rows) / len(rows) == pytest.approx(share, abs=0.02)
    assert {row["weight"] for row in rows} == {1.0}
    assert len({row["id"] for row in rows}) == len(rows) == report["rows_out"]
    places = Counter(stratum("erroneous", truth[int(row["id"][1:])], 0) for row in rows if truth[int(row["id"][1:])] >= 0)
    offered = Counter(stratum("erroneous", first, 0) for first in truth if first >= 0)
    for place, n in offered.items():
        assert places[place] / places.total() == pytest.approx(n / offered.total(), abs=0.02)


def test_resampling_is_repeatable_and_follows_its_seed(made: Any, tmp_path: Path) -> None:
    a, b, _ = made.simulated(1000, 0.4, (0.7, 0.95), (0.8, 0.95), seed=1)
    one, other = written(tmp_path / "a.jsonl", a), written(tmp_path / "b.jsonl", b)
    out = tmp_path / "out.jsonl"
    consensus(one, other, out, ConsensusOptions(debias="resample"))
    first_bytes = out.read_bytes()
    consensus(one, other, out, ConsensusOptions(debias="resample"))
    assert out.read_bytes() == first_bytes
    consensus(one, other, out, ConsensusOptions(debias="resample", seed=1))
    assert out.read_bytes() != first_bytes


def test_without_gold_the_classes_are_those_of_b(made: Any, tmp_path: Path) -> None:
    a, b, _ = made.simulated(4000, 0.3, (0.7, 0.95), (0.8, 0.95), gold=False)
    one, other = written(tmp_path / "a.jsonl", a), written(tmp_path / "b.jsonl", b)
    report = consensus(one, other, tmp_path / "out.jsonl", ConsensusOptions(debias="reweight"))
    assert report["classes_by"] == "b"
    assert set(report["acceptance_from"]) == {"a", "b"}
    assert report["agreed_labels_that_are_gold"] == {}
    wrong = [row for row in kept(tmp_path / "out.jsonl") if row["label"] >= 0]
    shares = report["share_erroneous"]
    assert sum(row["weight"] for row in wrong) / report["rows_out"] == pytest.approx(shares["offered"], abs=1e-3)
    with pytest.raises(UsageError, match="class_by is gold, which gives no row a class"):
        consensus(one, other, tmp_path / "out.jsonl", ConsensusOptions(class_by="gold"))


def test_a_kept_row_is_as_with_the_labels_agreed_on_and_what_both_said(made: Any, tmp_path: Path) -> None:
    a = [made.judged(made.solution(0, label=0), 1), made.judged(made.solution(1), -1), made.judged(made.solution(2), 2)]
    b = [{**made.solution(0), "step_labels": [0.9, 0.0, 0.0]}, {**made.solution(1), "step_labels": [0.9, 0.9, 0.9]}]
    other = {**made.solution(2), "id": "another id", "step_labels": [1, 1, 0.25]}
    out = tmp_path / "out.jsonl"
    report = consensus(written(tmp_path / "a.jsonl", a), written(tmp_path / "b.jsonl", [*b, other, made.solution(9)]), out)
    rows = kept(out)
    assert [(row["id"], row["label"], row["step_labels"]) for row in rows] == [
        ("s0", 1, [1.0, 0.0, None]),
        ("s1", -1, [1.0, 1.0, 1.0]),
        ("s2", 2, [1.0, 1.0, 0.0]),
    ]
    assert rows[0]["consensus"] == {"a": 1, "b": 1, "b_p_correct": [0.9, 0.0, 0.0], "before": {"label": 0}}
    assert rows[0]["judgements"] == a[0]["judgements"]
    assert (report["joined"], report["only_in_a"], report["only_in_b"]) == (3, 0, 1)


def test_what_cannot_be_compared_is_counted_by_reason(made: Any, tmp_path: Path) -> None:
    a = [
        made.judged(made.solution(0), 0),
        made.judged(made.solution(1), 0, -1),
        made.judged(made.solution(2), 0),
        made.judged(made.solution(3), 0),
    ]
    b = [made.judged(made.solution(0), 1), made.judged(made.solution(1), 0), {**made.solution(7), "id": "s2", "label": 0}]
    out = tmp_path / "out.jsonl"
    report = consensus(written(tmp_path / "a.jsonl", a), written(tmp_path / "b.jsonl", b), out)
    assert {reason: sum(kinds.values()) for reason, kinds in report["left_out"].items()} == {
        "A has no first error": 1,
        "another first error": 1,
        "only in A": 1,
        "other steps under the same id in B": 1,
    }
    assert report["first_errors"] == {"one step apart": 1, "open": 1}
    twice = written(tmp_path / "b2.jsonl", [{**made.solution(0), "label": 0}, {**made.solution(1), "id": "s0", "label": 0}])
    with pytest.raises(InputError, match="the id 's0' was already used for other steps"):
        consensus(tmp_path / "a.jsonl", twice, out)


def test_the_agreed_labels_and_weights_reach_the_training_set(made: Any, tmp_path: Path) -> None:
    a, b, _ = made.simulated(600, 0.4, (0.7, 0.95), (0.8, 0.95))
    out = tmp_path / "agreed.jsonl"
    consensus(written(tmp_path / "a.jsonl", a), written(tmp_path / "b.jsonl", b), out, ConsensusOptions(debias="reweight"))
    weights = {row["id"]: row["weight"] for row in kept(out)}
    for options in (DatasetOptions(), DatasetOptions(gold=True)):
        summary = build_dataset([out], tmp_path / "set", options)
        rows = kept(tmp_path / "set" / "train.jsonl")
        assert {row["id"]: row["weight"] for row in rows} == {row["id"]: weights[row["id"]] for row in rows}
        assert summary["effective_rows"] < summary["kept"]


def test_the_published_counts_give_the_published_weights() -> None:
    """VRPRM2: 12,571 of 13,808 right and 3,555 of 5,645 wrong solutions were accepted."""
    offered, accepted = {("correct", 0): 13808, ("erroneous", 0): 5645}, {("correct", 0): 12571, ("erroneous", 0): 3555}
    found = inverse_propensity(offered, accepted)
    assert found.weight["correct", 0] == pytest.approx(0.910544, abs=1e-6)
    assert found.weight["erroneous", 0] == pytest.approx(1.316329, abs=1e-6)
    assert not found.clipped


def test_small_strata_share_a_rate_and_weights_are_clipped() -> None:
    offered = {("erroneous", place): 100 for place in range(4)} | {("correct", 0): 1000, ("partial", 0): 5}
    accepted = {("erroneous", 0): 50, ("erroneous", 1): 12, ("erroneous", 2): 10, ("erroneous", 3): 3, ("correct", 0): 1000}
    found = inverse_propensity(offered, accepted)
    assert found.merged == ((("erroneous", 1), ("erroneous", 2), ("erroneous", 3)),)
    assert found.weight["erroneous", 1] == found.weight["erroneous", 3] == 5.0
    assert found.clipped
    assert found.lost == ("partial",)


def test_strata_are_places_from_one_on() -> None:
    assert stratum("erroneous", 0, 9) == ("erroneous", 0)
    assert stratum("erroneous", 4, 9) == stratum("erroneous", 5, 9)
    assert stratum("correct", -1, 40) == ("correct", 7)
    assert [bin_name(number) for number in range(8)] == ["1", "2", "3", "4", "5-6", "7-9", "10-13", "14+"]


def test_the_report_lies_beside_the_output(made: Any, tmp_path: Path) -> None:
    a, b = [made.judged(made.solution(0), 0)], [{**made.solution(0), "label": 0}]
    report = consensus(written(tmp_path / "a.jsonl", a), written(tmp_path / "b.jsonl", b), tmp_path / "o.jsonl")
    beside = json.loads((tmp_path / "o.jsonl.report.json").read_text())
    assert beside["acceptance"] == report["acceptance"]
    assert [one["rows"] for one in beside["inputs"]] == [1, 1]
    assert len(beside["output"]["sha256"]) == 64


@pytest.mark.parametrize(
    ("options", "said_of_it"),
    [
        ({"match": "near"}, "--match is 'near'; it must be one of first-error, confident"),
        ({"low": 0.9}, "--tau-low is 0.9 and --tau-high 0.75"),
        ({"threshold_b": 0.0}, "--threshold-b is 0"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], said_of_it: str) -> None:
    with pytest.raises(UsageError, match=said_of_it):
        ConsensusOptions(**options)
