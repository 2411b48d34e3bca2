"""The report command: files in, a page out, and errors that say what to do."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path

import pytest
from typer.testing import Result

from critic_prm.errors import InputError, UsageError
from tests import command
from tests.report.making import judged, saved


def invoke(*argv: object) -> Result:
    return command.invoke("report", *argv)


def test_a_page_is_made(tmp_path: Path) -> None:
    labels = saved(tmp_path / "a.labels.jsonl", [judged("a", ["x"], -1)])
    out = tmp_path / "page.html"
    result = invoke(labels, labels, "-o", out, "--title", "Mine & yours")
    assert result.exit_code == 0
    assert "2 labels of 2 runs" in result.stderr
    page = out.read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert "<title>Mine &amp; yours</title>" in page
    index = re.search(r'id="index">([^<]+)<', page)
    assert index is not None
    made = json.loads(gzip.decompress(base64.b64decode(index[1])))["made"]
    assert made["command"].startswith(f"critic-prm report {labels}")
    assert made["at"] > "2026"
    assert [path.name for path in tmp_path.iterdir() if "part" in path.name] == []


def test_what_cannot_be_read_or_written(tmp_path: Path) -> None:
    labels = saved(tmp_path / "a.jsonl", [judged("a", ["x"], -1)])
    with pytest.raises(InputError, match="cannot be written"):
        invoke(labels, "-o", tmp_path / "missing" / "page.html")
    with pytest.raises(InputError, match="no such file"):
        invoke(tmp_path / "none.jsonl", "-o", tmp_path / "page.html")
    with pytest.raises(UsageError, match="9 files"):
        invoke(*[labels] * 9, "-o", tmp_path / "page.html")
