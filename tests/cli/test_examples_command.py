"""`critic-prm examples` gives a folder all that the cookbook needs, and overwrites nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from critic_prm.cli.examples import FILES
from critic_prm.errors import UsageError
from tests.command import invoke


def test_the_examples_can_be_used_and_copied_again(tmp_path: Path) -> None:
    folder = tmp_path / "cookbook"
    assert invoke("examples", folder).exit_code == 0
    assert {path.name for path in folder.iterdir()} == set(FILES)
    assert invoke("examples", folder).exit_code == 0
    done = invoke(
        "evaluate", "recorded/example-judge", folder / "examples.jsonl", "--db", folder / "cache.db.example", "--offline"
    )
    assert done.exit_code == 0
    assert "examples 93" in done.stdout


def test_a_file_of_the_user_stays(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text("mine")
    with pytest.raises(UsageError, match="choose another folder"):
        invoke("examples", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["server.py"]
    assert (tmp_path / "server.py").read_text() == "mine"
