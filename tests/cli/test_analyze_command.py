"""The analyze commands: tables that fit 80 columns, JSON, findings, and exit 3 where a bound is broken."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import Result

from critic_prm.data.label_rows import label_row
from critic_prm.data.records.reading import write_records
from critic_prm.data.trajectory import trajectory_to_json
from critic_prm.errors import UsageError
from critic_prm.evaluate.analyze.analysis import numbers_of
from critic_prm.registry import names
from tests import command
from tests.analyze.conftest import row, sums


def invoke(*argv: str) -> Result:
    return command.invoke("analyze", *argv)


def labels(path: Path, scores: Sequence[Sequence[float]]) -> str:
    rows = [row(f"r{i}", given, problem=f"problem {i % 10}", steps=["a", "b"], label=-1) for i, given in enumerate(scores)]
    write_records(path, [label_row(one.trajectory, one.label, one.critic) for one in rows])
    return str(path)


@pytest.fixture
def solutions(tmp_path: Path) -> str:
    write_records(tmp_path / "solutions.jsonl", map(trajectory_to_json, sums(12)))
    return str(tmp_path / "solutions.jsonl")


@pytest.fixture
def old(tmp_path: Path) -> str:
    return labels(tmp_path / "old.jsonl", [(0.9 - i % 7 / 50, 0.8 + i % 5 / 50) for i in range(60)])


@pytest.fixture
def new(tmp_path: Path) -> str:
    return labels(tmp_path / "new.jsonl", [(0.6 - i % 7 / 50, 0.3 + i % 5 / 50) for i in range(60)])


def commands(solutions: str, old: str, new: str) -> dict[str, tuple[str, ...]]:
    return {
        "counterfactual": ("counterfactual", "rules", solutions),
        "credit": ("credit", "rules", solutions, "--limit", "3"),
        "risk": ("risk", old),
        "bias": ("bias", old, new),
        "drift": ("drift", old, new),
    }


@pytest.mark.parametrize("name", names("analysis"))
def test_every_analysis_fits_a_terminal_and_has_json(name: str, solutions: str, old: str, new: str, tmp_path: Path) -> None:
    argv = commands(solutions, old, new)[name]
    shown = invoke(*argv)
    assert shown.exit_code == 0
    assert max(map(len, shown.stdout.splitlines())) <= 80
    out = tmp_path / "result.jsonl"
    told = invoke(*argv, "--json", "-o", str(out))
    result = json.loads(told.stdout)
    assert result["analysis"] == name
    assert set(result["numbers"]) == set(numbers_of(name))
    assert set(result) == {"analysis", "numbers", "findings", "notes", "details"}
    assert json.loads(out.read_text()) == result


def test_findings_come_first(old: str, new: str) -> None:
    lines = invoke("drift", old, new).stdout.splitlines()
    assert lines[0].startswith("! the distribution of P(correct) moved")
    assert invoke("drift", old, old).stdout.splitlines()[0] == "no problem found"


def test_a_critic_is_asked_and_says_what_it_cost(solutions: str) -> None:
    result = invoke("counterfactual", "rules", solutions, "--limit", "5", "--each", "2")
    assert "rows in" in result.stderr
    assert "5 of 5 solutions" in result.stdout


@pytest.fixture
def bounds(tmp_path: Path) -> str:
    path = tmp_path / "bounds.toml"
    path.write_text("[drift]\npsi = {max = 0.2}\nkappa = {min = 0.5}\n[risk]\nhidden = {max = 0.1}\n")
    return str(path)


def test_a_broken_bound_exits_3_with_the_numbers(bounds: str, old: str, new: str) -> None:
    assert invoke("drift", old, old, "--bounds", bounds).exit_code == 0
    bad = invoke("drift", old, new, "--bounds", bounds)
    assert bad.exit_code == 3
    assert "drift.psi" in bad.stdout
    assert "NOT MET" in bad.stdout
    assert invoke("risk", old, "--bounds", bounds).exit_code == 0
    told = invoke("risk", old, "--bounds", bounds, "--json")
    assert json.loads(told.stdout)["analysis"] == "risk"
    assert "risk.hidden" in told.stderr


def test_an_analysis_without_bounds_in_the_file_is_an_error(bounds: str, old: str) -> None:
    with pytest.raises(UsageError, match=r"no bounds for this analysis; add a table \[bias\]"):
        invoke("bias", old, "--bounds", bounds)


def test_guardrails_over_results(tmp_path: Path, old: str, new: str) -> None:
    for name, argv in {"calm": ("drift", old, old), "moved": ("drift", old, new), "risk": ("risk", old)}.items():
        (tmp_path / f"{name}.json").write_text(invoke(*argv, "--json").stdout)
    bounds = tmp_path / "b.toml"
    bounds.write_text("[drift]\npsi = {max = 0.2}\n[risk]\nhidden = {max = 0.1}\n")
    calm = invoke("guardrails", str(bounds), str(tmp_path / "calm.json"), str(tmp_path / "risk.json"))
    assert calm.exit_code == 0
    assert "met" in calm.stdout
    assert "NOT MET" not in calm.stdout
    moved = invoke("guardrails", str(bounds), str(tmp_path / "moved.json"), str(tmp_path / "risk.json"), "--json")
    assert moved.exit_code == 3
    told = [json.loads(line) for line in moved.stdout.splitlines()]
    assert [(one["bound"]["number"], one["holds"]) for one in told] == [("psi", False), ("hidden", True)]
    with pytest.raises(UsageError, match="no result of it"):
        invoke("guardrails", str(bounds), str(tmp_path / "calm.json"))
