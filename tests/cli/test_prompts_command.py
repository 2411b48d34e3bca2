"""critic-prm prompts: list, show and render, as a user runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from critic_prm.errors import UsageError
from critic_prm.styles.prompt import open_style, style_names
from tests import command

ROWS = '{"id": "a", "problem": "2 + 2?", "steps": ["It is 4.", "So 5."]}\n{"id": "b", "problem": "1 + 1?", "steps": ["2."]}\n'


def run(*arguments: str, stdin: str = "") -> str:
    result = command.invoke("prompts", *arguments, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_list_names_every_style_and_its_reader() -> None:
    listed = run("list")
    for name in style_names():
        assert name in listed
        assert open_style(name).reader in listed


def test_show_is_the_template_itself() -> None:
    assert run("show", "stepwise") == open_style("stepwise").source


def test_render_shows_what_would_be_sent(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(ROWS)
    one = run("render", "stepwise", "--input", str(path))
    assert "=== stepwise: a ===" in one
    assert "1 + 1?" not in one
    assert "=== stepwise: b ===" in run("render", "stepwise", "--input", str(path), "--limit", "2")
    both = run("render", "yes-no", "--input", str(path))
    assert "=== yes-no: a, step 0 ===" in both
    assert "=== yes-no: a, step 1 ===" in both
    assert "step 0 ===" not in run("render", "yes-no", "--input", str(path), "--step", "1")


def test_a_step_that_does_not_fit_is_said(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(ROWS)
    with pytest.raises(UsageError, match="steps 0 to 1"):
        run("render", "yes-no", "--input", str(path), "--step", "7")
