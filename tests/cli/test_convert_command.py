"""critic-prm convert: what it writes, what it says on stderr, and how it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from critic_prm.data.formats.convert import Options, names
from critic_prm.data.records.reading import read_records, write_records
from critic_prm.errors import CriticPrmError, InputError, UsageError
from tests import command

ROWS: list[dict[str, Any]] = [
    {"id": "a", "problem": "6*7?", "steps": ["6*7=42", "So 42"], "step_labels": [1, "neutral"], "gold_answer": "42"},
    {"id": "b", "problem": "6*8?", "steps": ["6*8=41", "So 41"], "step_labels": [0, None], "gold_answer": "48"},
]


def run(*arguments: str | Path) -> Result:
    result = command.invoke("convert", *arguments, catch=True)
    if isinstance(result.exception, CriticPrmError):
        raise result.exception
    return result


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_records(tmp_path / "in.jsonl", ROWS)
    return tmp_path / "in.jsonl"


def test_a_conversion_says_what_it_did_and_what_got_lost(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    result = run(source, "-o", out, "--to", "trl", "--neutral", "good")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        f"read 2 rows (native), wrote 2 (trl) to {out}",
        "trl cannot represent: 2 gold_answer, 1 steps without a label",
    ]
    assert [record.data for record in read_records(out)] == [
        {"prompt": "6*7?", "completions": ["6*7=42", "So 42"], "labels": [True, True], "id": "a"},
        {"prompt": "6*8?", "completions": ["6*8=41"], "labels": [False], "id": "b"},
    ]


def test_data_goes_to_stdout_and_messages_to_stderr(source: Path) -> None:
    result = run(source, "--to", "bigbench-mistake")
    assert result.stdout.splitlines()[0].startswith('{"input":"6*7?"')
    assert result.stderr.startswith("read 2 rows (native), wrote 2 (bigbench-mistake) to -\n")


def test_the_index_base_speaks_of_the_input(tmp_path: Path) -> None:
    write_records(tmp_path / "in.jsonl", [{"input": "p", "steps": ["s", "t"], "mistake_index": 1}])
    run(tmp_path / "in.jsonl", "--index-base", "1", "-o", tmp_path / "out.jsonl", "--to", "processbench")
    assert next(read_records(tmp_path / "out.jsonl")).data["label"] == 0


def test_bad_rows_stop_it_or_are_skipped_with_exit_3(source: Path, tmp_path: Path) -> None:
    with source.open("a") as stream:
        stream.write('{"id": 3, "steps": [\n{"id": "d", "problem": "p", "steps": []}\n')
    out = tmp_path / "out.jsonl"
    with pytest.raises(InputError, match=r"in\.jsonl:3: "):
        run(source, "-o", out)
    assert len(list(read_records(out))) == 2
    result = run(source, "-o", out, "--skip-bad")
    assert result.exit_code == 3
    assert f"skipped {source}:3: broken JSON" in result.stderr
    assert f'skipped {source}:4: "steps" is empty' in result.stderr
    assert "left out: 2 unreadable" in result.stderr


def test_wrong_words_are_usage_errors(source: Path) -> None:
    refused = run(source, "--neutral", "blue")
    assert refused.exit_code == 2
    said = " ".join(refused.stderr.replace("│", " ").split())
    assert ": 'blue' is not one of 'keep', 'good', 'bad', 'drop'" in said
    assert "Value error" not in said
    with pytest.raises(UsageError, match="--neutral is 'blue'; it must be one of keep, good, bad, drop"):
        Options(neutral="blue")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="name the file to convert"):
        run()
    with pytest.raises(UsageError, match="step 1 is neutral, which trl cannot represent; choose --neutral good"):
        run(source, "--to", "trl")


def test_the_list_is_a_block_a_format_that_fits_a_terminal() -> None:
    lines = run("--list").stdout.splitlines()
    heads = [line.partition(" (")[0] for line in lines if not line.startswith(" ")]
    assert heads[0] == "native"
    assert sorted(heads) == names()
    assert max(map(len, lines)) <= 80
    assert "trl (reads and writes)" in lines
    assert "mrben (reads)" in lines
    text = " ".join(" ".join(lines).split())
    assert "`mistake_index`: first incorrect step, null if every step is correct; first step 0; neutral: not supported;" in text


def test_the_input_is_never_written_over(source: Path, tmp_path: Path) -> None:
    before = source.read_bytes()
    (tmp_path / "link.jsonl").symlink_to(source)
    for out in (source, tmp_path / "link.jsonl"):
        with pytest.raises(UsageError, match="is also what this command reads"):
            run(source, "-o", out, "--to", "trl", "--neutral", "good")
    assert source.read_bytes() == before
