"""The evaluate command: a table that fits 80 columns, JSON, saved predictions, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import Result

from critic_prm.data.records.reading import write_records
from critic_prm.errors import UsageError
from tests import command


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("gsm8k", "olympiadbench"):
        wrong = ({"id": f"w{i}", "problem": f"{name} {i}", "steps": [f"{i} + 1 = {i + 2}"], "label": 0} for i in range(8))
        right = ({"id": f"r{i}", "problem": f"{name} {i}", "steps": [f"{i} + 1 = {i + 1}"], "label": -1} for i in range(8))
        write_records(tmp_path / f"{name}.jsonl", [*wrong, *right])
    return tmp_path


def invoke(*argv: str) -> Result:
    return command.invoke("evaluate", *argv, "--resamples", "200")


def test_the_table_fits_a_terminal(folder: Path) -> None:
    result = invoke("rules", f"processbench:{folder}")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split()[:3] == ["n", "F1", "[95%]"]
    assert [line.split()[0] for line in lines[1:4]] == ["gsm8k", "olympiadbench", "mean"]
    assert lines[1].split()[1:5] == ["16", "100.0", "[100.0,", "100.0]"]
    assert "the critic's own verdicts" in result.stdout
    assert "gsm8k 16 of" in " ".join(lines)


def test_json_and_files(folder: Path, tmp_path: Path) -> None:
    out, saved = tmp_path / "out.json", tmp_path / "saved.jsonl"
    result = invoke("rules", f"processbench:{folder}", "--json", "-o", str(out), "--save", str(saved), "--limit", "5")
    row = json.loads(result.stdout)
    assert json.loads(out.read_text()) == [row]
    assert row["critic"]["provider"] == "rules"
    assert [subset["solutions"] for subset in row["subsets"]] == [5, 5]
    assert len(saved.read_text().splitlines()) == 10


def test_a_critic_compared_with_itself(folder: Path, tmp_path: Path) -> None:
    saved = str(tmp_path / "saved.jsonl")
    invoke("rules", f"processbench:{folder}", "--save", saved)
    result = invoke("rules", f"processbench:{folder}", "--against", saved)
    assert "+0.0 [+0.0, +0.0]" in result.stdout
    row = json.loads(invoke("rules", f"processbench:{folder}", "--against", saved, "--json").stdout)
    assert row["against"]["mean"]["p"] == 1.0


def test_the_oracle_is_named_in_the_table(folder: Path) -> None:
    shown = " ".join(invoke("rules", str(folder), "--oracle-threshold").stdout.split())
    assert "F1 (oracle threshold)" in shown
    assert "upper bound" in shown


def test_two_thresholds_are_one_too_many(folder: Path) -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        invoke("rules", str(folder), "--threshold", "0.5", "--oracle-threshold")


def test_the_reference_answer_stays_hidden(folder: Path) -> None:
    with pytest.raises(UsageError, match="hides the reference answer"):
        invoke("openai/m", str(folder), "--with-reference")


def test_rules_on_genuine_arithmetic(shared_data: Path) -> None:
    row = json.loads(
        invoke("rules", f"bigbench_mistake:{shared_data / 'open' / 'bbm_multistep_arithmetic.jsonl'}", "--json").stdout
    )
    assert row["mean"]["f1"]["value"] > 0.8
