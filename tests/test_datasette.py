"""The documented queries of the cache: each runs on a cache as it is written; Datasette serves them."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from critic_prm.engine.cache import Attempt, Cache, Entry
from critic_prm.providers.provider import Usage

ROOT = Path(__file__).resolve().parents[1]
METADATA = ROOT / "docs" / "datasette" / "metadata.yaml"
GIVEN = {"model": "", "key": "k1", "words": "WOMBAT", "price_in": "2", "price_cached": "1", "price_out": "10"}


def metadata() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml", reason="PyYAML reads the metadata; it comes with Datasette")
    found: dict[str, Any] = yaml.safe_load(METADATA.read_text("utf-8"))
    return found


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    path = tmp_path / "critic-prm.db"
    opened = Cache(path)
    wire = {"messages": [{"role": "system", "content": "You judge."}, {"role": "user", "content": "2+2?"}], "model": "m"}
    told: dict[str, Any] = {"provider": "openai", "model": "m", "base_url": None, "raw": {}, "salt": "", "finish": "stop"}
    usage = Usage(input=1000, output=100, cached=400)
    entries = [
        Entry(key=f"k{n}", wire=wire, sample=n, text=f"a wombat {n}", usage=usage, seconds=n + 1.0, **told) for n in range(3)
    ]
    failures = [Attempt("k0", "openai", "m", "throttle", http_status=429), Attempt("lost", "openai", "m", "length")]
    opened.add(entries, failures)
    opened.close()
    return path


def ask(path: Path, name: str) -> list[dict[str, Any]]:
    query = metadata()["databases"]["critic-prm"]["queries"][name]
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    cursor = connection.execute(query["sql"], {key: GIVEN[key] for key in query.get("params", ())})
    names = [column[0] for column in cursor.description]
    rows = [dict(zip(names, row, strict=True)) for row in cursor]
    connection.close()
    return rows


def test_the_queries_say_what_they_promise(cache: Path) -> None:
    (spending,) = ask(cache, "spending")
    assert (spending["replies"], spending["input_tokens"], spending["output_tokens"]) == (3, 3000, 300)
    assert ask(cache, "price")[0]["usd"] == round(3 * (600 * 2 + 400 * 1 + 100 * 10) / 1e6, 4)
    assert ask(cache, "finishes")[0] | {"mean_output_tokens": 100.0} == ask(cache, "finishes")[0]
    assert {row["failure"]: row["http_status"] for row in ask(cache, "failures")} == {"throttle": 429, "length": None}
    assert [row["key"] for row in ask(cache, "open_requests")] == ["lost"]
    assert [row["key"] for row in ask(cache, "slowest")] == ["k2", "k1", "k0"]
    assert (ask(cache, "samples")[0]["samples"], ask(cache, "samples")[0]["different"]) == (3, 3)
    (reply,) = ask(cache, "read_reply")
    assert (reply["key"], reply["reply"]) == ("k1", "a wombat 1")
    assert "You judge." in reply["instruction"]
    assert "2+2?" in reply["messages"]
    assert len(ask(cache, "find_text")) == 3
    assert ask(cache, "cache_hits")[0]["share"] == 0.4
    assert ask(cache, "styles")[0]["replies"] == 3
    assert len(ask(cache, "wasted")) == 2


def test_every_query_is_documented_and_every_column_is_there(cache: Path) -> None:
    text = (ROOT / "docs" / "datasette.md").read_text("utf-8")
    database = metadata()["databases"]["critic-prm"]
    assert set(re.findall(r"^\| `(\w+)` \| ", text, re.MULTILINE)) == {*database["queries"], *database["tables"]} - {
        "_sqlite_migrations"
    }
    connection = sqlite3.connect(cache)
    for table, about in database["tables"].items():
        columns = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
        assert columns, table
        assert about.get("columns", {}).keys() <= columns
    connection.close()


@pytest.mark.parametrize("name", ["spending", "read_reply"])
def test_datasette_serves_them(cache: Path, name: str) -> None:
    program = Path(sys.executable).with_name("datasette")
    if not program.exists() and shutil.which("datasette") is None:
        pytest.skip("Datasette is not installed")
    command = [str(program) if program.exists() else "datasette", "serve", str(cache), "-m", str(METADATA)]
    found = subprocess.run([*command, "--get", f"/critic-prm/{name}.json?_shape=array&key=k1"], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert len(json.loads(found.stdout)) == 1
