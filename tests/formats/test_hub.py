"""`hf:owner/name` reads data sets through the real client, from a hub on loopback, and offline from the client's own cache."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from critic_prm.data.records.hub import read_hub
from critic_prm.data.records.reading import read_records
from critic_prm.errors import ConfigError, InputError
from tests.formats.hub import serve

pytest.importorskip("datasets", reason="the extra hf is not installed")

ROW = b'{"question": "%d + 2?", "answer": "It is %d.\\nSo %d.\\n#### %d"}' + b"\n"
ROWS = [ROW % (n, n + 2, n + 2, n + 2) for n in range(3)]
CARD = b"""---
configs:
- config_name: main
  data_files:
  - {split: train, path: main/train.jsonl}
  - {split: test, path: main/test.jsonl}
- config_name: socratic
  data_files: socratic/all.jsonl
---
"""
SPLITS = b"""---
configs:
- config_name: default
  data_files:
  - {split: omnimath, path: omnimath.jsonl}
  - {split: gsm8k, path: gsm8k.jsonl}
---
"""
GRADED = b'{"id": "%s", "generator": "m", "problem": "p", "steps": ["2 + 2 = 5."], "final_answer_correct": false, "label": 0}\n'


def parquet(**columns: list[Any]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), out)
    return out.getvalue()


REPOSITORIES: Mapping[str, Mapping[str, bytes]] = {
    "toy/gsm8k": {
        "README.md": CARD,
        "main/train.jsonl": b"".join(ROWS),
        "main/test.jsonl": ROWS[0],
        "socratic/all.jsonl": ROWS[1],
    },
    "toy/plain": {"data/train-00000-of-00001.parquet": parquet(q=["p"], s=[["a", "b"]], l=[1], image=[b"\x89PNG"])},
    "toy/processbench": {"README.md": SPLITS, "omnimath.jsonl": GRADED % b"b", "gsm8k.jsonl": GRADED % b"a"},
    "toy/broken": {"data.jsonl": ROWS[0] + b'{"question": '},
    "toy/code": {"code.py": b"raise SystemExit(1)", "README.md": b""},
}

RUN = """
import json, sys
from tests.command import invoke
for words in json.load(sys.stdin):
    result = invoke(*words, catch=True)
    error = "" if isinstance(result.exception, SystemExit) else str(result.exception or "")
    print(json.dumps([words, result.stdout, result.stderr + error]))
"""


def run(env: Mapping[str, str], *commands: str) -> dict[str, tuple[str, str]]:
    """What commands print and say. They run in one process with these variables, which the client reads when it is imported."""
    words = json.dumps([command.split() for command in commands])
    done = subprocess.run(
        [sys.executable, "-c", RUN], input=words, env=os.environ | env, text=True, capture_output=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return {" ".join(words): (out, said) for words, out, said in map(json.loads, done.stdout.splitlines())}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client's home, whose cache `online` fills."""
    return tmp_path_factory.mktemp("hf")


@pytest.fixture(scope="module")
def online(home: Path) -> dict[str, tuple[str, str]]:
    """What commands print and say with a hub."""
    with serve(REPOSITORIES) as address:
        return run(
            {"HF_HOME": str(home), "HF_ENDPOINT": address, "HF_HUB_OFFLINE": "0"},
            "convert hf:toy/gsm8k:main@test",
            "convert hf:toy/gsm8k:main@train[1:]",
            "label hf:toy/plain --map problem=q,steps=s,label=l --judge rules",
            "evaluate rules processbench:hf:toy/processbench",
            "convert hf:toy/gsm8k",
            "convert hf:toy/gsm8k:main",
            "convert hf:toy/gsm8k:other",
            "convert hf:toy/gsm8k:main@dev",
            "convert hf:toy/code",
            "convert hf:toy/broken",
            "convert hf:toy/absent",
        )


def test_a_split_is_read_like_a_file(online: Mapping[str, tuple[str, str]]) -> None:
    row = json.loads(online["convert hf:toy/gsm8k:main@test"][0])
    assert (row["problem"], row["steps"], row["final_answer"]) == ("0 + 2?", ["It is 2.", "So 2."], "2")
    rows = online["convert hf:toy/gsm8k:main@train[1:]"][0].splitlines()
    assert [json.loads(row)["problem"] for row in rows] == ["1 + 2?", "2 + 2?"]


def test_fields_are_mapped_and_images_left_out(online: Mapping[str, tuple[str, str]]) -> None:
    row = json.loads(online["label hf:toy/plain --map problem=q,steps=s,label=l --judge rules"][0])
    assert (row["problem"], row["steps"], row["label"], row["status"]) == ("p", ["a", "b"], 1, "ok")
    assert "image" not in row


def test_the_splits_of_a_benchmark_are_its_subsets(online: Mapping[str, tuple[str, str]]) -> None:
    table = online["evaluate rules processbench:hf:toy/processbench"][0]
    assert 0 < table.index("gsm8k") < table.index("omnimath")


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("convert hf:toy/gsm8k", "it has the configurations main, socratic; choose one, such as hf:toy/gsm8k:main"),
        ("convert hf:toy/gsm8k:main", "it has the splits train, test; choose one, such as hf:toy/gsm8k:main@test"),
        (
            "convert hf:toy/gsm8k:other",
            "there is no configuration 'other'; it has the configurations main, socratic; ",
        ),
        ("convert hf:toy/gsm8k:main@dev", "there is no split 'dev'; it has the splits train, test; choose one, such as"),
        ("convert hf:toy/code", "this data set needs its own code to be read, which is never run; give a file of its branch"),
        ("convert hf:toy/broken", "the data set cannot be read: "),
        ("convert hf:toy/absent", "there is no such data set on the Hub, or you have no access to it; check the name; "),
    ],
)
def test_what_cannot_be_read_is_one_line(online: Mapping[str, tuple[str, str]], command: str, says: str) -> None:
    printed, said = online[command]
    assert said.startswith(f"{command.split()[1]}: {says}")
    assert (printed, said.count("\n")) == ("", 0)


def test_offline_the_cache_is_read(home: Path, online: Mapping[str, tuple[str, str]]) -> None:
    cached, other, absent = ("convert hf:toy/gsm8k:main@test", "convert hf:toy/gsm8k:socratic", "convert hf:toy/absent")
    offline = run({"HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}, cached, other, absent)
    assert offline[cached] == online[cached]
    assert offline[other][1].startswith("hf:toy/gsm8k:socratic: there is no configuration 'socratic'; the local cache has the ")
    assert offline[absent][1] == (
        "hf:toy/absent: HF_HUB_OFFLINE is set, and the data set is not in the local cache; run once with a connection, or give"
        " the data as a file"
    )


@pytest.mark.parametrize(
    "name", ["hf:", "hf:a b", "hf:a/b/c", "hf:../x@y@z", "hf:/etc/passwd", "hf:..", "hf:../x", "hf:a/..", "hf:a/b:../c"]
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="this is not the name of a data set; write hf:owner/name"):
        list(read_hub(name))


def test_a_name_of_the_hub_without_its_prefix_is_recognized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"there is no such file; .* a data set of the Hugging Face Hub is hf:openai/gsm8k$"):
        next(read_records("openai/gsm8k"))
    with pytest.raises(InputError, match=r"there is no such file; check the path; - reads stdin$"):
        next(read_records("data/x.jsonl"))


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ConfigError, match=r"reading hf:toy/x needs datasets; install it with: pip install "):
        list(read_hub("hf:toy/x"))
