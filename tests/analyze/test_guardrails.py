"""Guardrails: a bound that is broken is broken, one that holds holds, and what was not measured is not in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from critic_prm.errors import InputError, UsageError
from critic_prm.evaluate.analyze.analysis import Bound, check, numbers_in, numbers_of, read_bounds, table_of
from critic_prm.registry import names


def bounds_file(folder: Path, text: str) -> Path:
    path = folder / "bounds.toml"
    path.write_text(text)
    return path


def test_every_analysis_says_what_its_numbers_mean() -> None:
    assert names("analysis") == ["bias", "counterfactual", "credit", "drift", "risk"]
    for name in names("analysis"):
        assert all(len(meaning) > 15 for meaning in numbers_of(name).values())


def test_bounds_from_a_file(tmp_path: Path) -> None:
    path = bounds_file(
        tmp_path, "[drift]\npsi = {max = 0.2}\nkappa = {min = 0.6}\n[bias]\nposition = {min = -0.1, max = 0.1}\n"
    )
    assert read_bounds(path) == [
        Bound("drift", "psi", None, 0.2),
        Bound("drift", "kappa", 0.6, None),
        Bound("bias", "position", -0.1, 0.1),
    ]


@pytest.mark.parametrize(
    ("value", "holds"), [(-0.2, False), (-0.1, True), (0.0, True), (0.1, True), (0.11, False), (None, False)]
)
def test_a_bound_holds_up_to_its_ends_and_not_without_a_number(value: float | None, holds: bool) -> None:
    bound = Bound("bias", "position", -0.1, 0.1)
    [one] = check([bound], {"bias": {"position": value}})
    assert one.holds is holds
    assert bound.words == ">= -0.1 and <= 0.1"


def test_broken_bounds_are_shown_first() -> None:
    checked = check([Bound("drift", "ks", None, 1), Bound("drift", "psi", None, 0.2)], {"drift": {"psi": 0.3, "ks": 0.5}})
    assert [row[0] for row in table_of(checked).rows] == ["drift.psi", "drift.ks"]
    assert [row[3] for row in table_of(checked).rows] == ["NOT MET", "met"]


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        ("[drift", InputError, "cannot be read"),
        ("", InputError, "it has no bounds"),
        ("[drift]\n", InputError, "it has no bounds"),
        ("[drifts]\npsi = {max = 1}", UsageError, "there is no analysis 'drifts'; available: bias, counter"),
        ("[guardrails]\npsi = {max = 1}", UsageError, "there is no analysis 'guardrails'"),
        ("[drift]\npsy = {max = 1}", UsageError, "drift has no number 'psy'; it has: psi, psi_worst"),
        ("[drift]\npsi = 1", UsageError, "write {min = 0.1}"),
        ("[drift]\npsi = {}", UsageError, "write {min = 0.1}"),
        ("[drift]\npsi = {maximum = 1}", UsageError, "write {min = 0.1}"),
        ("[drift]\npsi = {max = 'x'}", UsageError, "write {min = 0.1}"),
        ("[drift]\npsi = {max = true}", UsageError, "write {min = 0.1}"),
        ("drift = 1", UsageError, "there is no analysis 'drift'"),
    ],
)
def test_bounds_that_bound_nothing_are_refused(tmp_path: Path, text: str, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        read_bounds(bounds_file(tmp_path, text))


def test_an_analysis_that_was_not_run_is_missed() -> None:
    with pytest.raises(UsageError, match="there are bounds for risk, but no result of it"):
        check([Bound("risk", "hidden", None, 0.1)], {"drift": {}})


def test_results_are_read_by_analysis_the_last_counts() -> None:
    rows = [({"analysis": "drift", "numbers": {"psi": value}}, f"r.json:{value}") for value in (0.1, 0.3)]
    assert numbers_in(rows) == {"drift": {"psi": 0.3}}
    with pytest.raises(InputError, match="x:1: this is not the result"):
        numbers_in([({"id": "a"}, "x:1")])


def test_every_number_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "analyze.md").read_text("utf-8")
    for name in names("analysis"):
        for number, meaning in numbers_of(name).items():
            assert f"| {name} | `{number}` | {meaning} |" in page
