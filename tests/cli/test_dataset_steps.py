"""The steps of a dataset on the command line: data to the output, an account on stderr and beside it, errors in a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from critic_prm.data.judgement import Judgement, Verdict, combine
from critic_prm.data.label_rows import label_row
from critic_prm.data.records.reading import read_records, write_records
from critic_prm.data.trajectory import trajectory_from_json
from critic_prm.errors import UsageError
from tests import command


def run(*arguments: str | Path) -> Result:
    more = ("--overwrite",) if arguments[0] not in ("build", "card", "stats") else ()  # several tests write one file twice
    return command.invoke("dataset", *arguments, *more)


def read(path: Path) -> list[Any]:
    return [record.data for record in read_records(path)]


def report(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(f"{path}.report.json").read_text())
    return found


def solution(number: int, label: int | None) -> dict[str, Any]:
    steps = [f"add {number} and {step} with care, which gives {number + step}" for step in range(3)]
    return {"id": f"s{number}", "problem": f"What is the sum of thing {number}?", "steps": steps, "label": label}


def judged(row: dict[str, Any], first: int, critique: str) -> dict[str, Any]:
    verdicts = tuple(
        Verdict(step, "incorrect" if step == first else "correct", critique) for step in range(3 if first < 0 else first + 1)
    )
    judgement = Judgement("ok", verdicts, first)
    return label_row(trajectory_from_json(row, "test"), combine([judgement], 3), {"model": "made up"})


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    """Thirty solutions, a third wrong at step 0 or 1; the judge misses every other error and writes one bad critique."""
    rows = []
    for number in range(30):
        gold = number % 2 if number % 3 == 0 else -1
        first = -1 if number % 6 == 0 else gold
        rows.append(judged(solution(number, gold), first, "" if number == 1 else f"number {number} was added by hand"))
    write_records(tmp_path / "labels.jsonl", rows)
    return tmp_path / "labels.jsonl"


def test_consensus(labels: Path, tmp_path: Path) -> None:
    gold, out = tmp_path / "gold.jsonl", tmp_path / "agreed.jsonl"
    write_records(gold, [solution(number, number % 2 if number % 3 == 0 else -1) for number in range(30)])
    result = run("consensus", labels, gold, "-o", out)
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        f"consensus: 30 rows in, 25 out to {out} (erroneous 5 of 10, correct 20 of 20)",
        "left out: 5 another first error (5 erroneous)",
        "joined 30; kept 100.0% of the correct (20 of 20), 50.0% of the erroneous (5 of 10), classes by gold",
        "correct, of so many steps: 3: 100%",
        "erroneous, first error at step: 1: 0%, 2: 100%",
        "where gold is known, 100.0% of the labels correct, 100.0% of the labels erroneous are it",
        "share of erroneous solutions: 33.3% offered, 20.0% kept; --reweight or --resample gives the classes their shares back",
    ]
    assert report(out)["acceptance"]["erroneous"] == {"offered": 10, "kept": 5, "rate": 0.5}
    result = run("consensus", labels, gold, "-o", out, "--reweight")
    assert "33.3% after reweight (effective rows 22)" in result.stderr
    assert {row["weight"] for row in read(out)} == {0.833333, 1.666667}
    result = run("consensus", labels, gold, "-o", out, "--resample", "--class-by", "a", "--match", "confident")
    assert report(out)["options"]["match"] == "confident"
    with pytest.raises(UsageError, match="undo the same bias"):
        run("consensus", labels, gold, "--reweight", "--resample")


def test_filter(labels: Path, tmp_path: Path) -> None:
    out = tmp_path / "kept.jsonl"
    result = run("filter", labels, "-o", out, "--critiques", "all", "--matches-gold", "--max-steps", "5")
    assert result.stderr.splitlines() == [
        f"filter: 30 rows in, 24 out to {out} (erroneous 5 of 10, correct 19 of 20)",
        "left out: 5 differs from gold (5 erroneous), 1 empty critique (1 correct)",
        "length: 30 rows in, 30 out (100.0% of the erroneous, 100.0% of the correct)",
        "critiques: 30 rows in, 29 out (100.0% of the erroneous, 95.0% of the correct); judgements 30 in, 29 out:"
        " 1 empty critique",
        "matches gold: 29 rows in, 24 out (50.0% of the erroneous, 100.0% of the correct); judgements 29 in, 24 out:"
        " 5 differs from gold",
    ]
    assert len(read(out)) == 24
    result = run("filter", labels, "-o", out, "--preset", "thinkprm", "--seed", "3")
    assert sorted(row["first_error"] for row in read(out)) == [-1] * 5 + [1] * 5
    assert report(out)["options"]["seed"] == 3
    with pytest.raises(UsageError, match="no rule is asked for"):
        run("filter", labels)


def test_dedupe(labels: Path, tmp_path: Path) -> None:
    twice = tmp_path / "twice.jsonl"
    twice.write_bytes(labels.read_bytes() * 2)
    out = tmp_path / "once.jsonl"
    result = run("dedupe", twice, "-o", out)
    assert result.stderr.splitlines() == [
        f"dedupe: 60 rows in, 30 out to {out} (erroneous 10 of 20, correct 20 of 40)",
        "left out: 30 exact copy (20 correct, 10 erroneous)",
    ]
    assert out.read_bytes() == labels.read_bytes()
    listed = read(tmp_path / "once.jsonl.removed.jsonl")
    assert listed[0] == {
        "id": "s0",
        "row": 31,
        "reason": "exact copy",
        "similarity": 1.0,
        "copy_of": "s0",
        "copy_of_row": 1,
    }
    result = run("dedupe", twice, "--exact", "--removed", tmp_path / "x.jsonl")
    assert len(result.stdout.splitlines()) == 30
    assert len(read(tmp_path / "x.jsonl")) == 30


def test_decontaminate(labels: Path, tmp_path: Path) -> None:
    bench = tmp_path / "bench.jsonl"
    write_records(bench, [{"id": "b", "problem": "what is the sum of THING 7?", "steps": ["x"], "label": 0}])
    out = tmp_path / "clean.jsonl"
    result = run("decontaminate", labels, "--against", bench, "-o", out, "--near", "1", "--contained", "1")
    # with numbers masked, all thirty problems are one
    assert result.stderr.splitlines()[0] == f"decontaminate: 30 rows in, 0 out to {out} (erroneous 0 of 10, correct 0 of 20)"
    listed = read(tmp_path / "clean.jsonl.removed.jsonl")
    assert {row["sign"] for row in listed} == {"same text", "renamed"}
    assert [row["id"] for row in listed if row["sign"] == "same text"] == ["s7"]
    assert "30 of 30 problems are among the 1 of bench.jsonl" in result.stderr
    write_records(bench, [{"problem": "A train leaves the station at nine and meets another. When?"}])
    assert "0 of 30 problems" in run("decontaminate", labels, "--against", bench, "-o", out).stderr
    assert out.read_bytes() == labels.read_bytes()


def test_mix(labels: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    write_records(other, [solution(number, 0) for number in range(100, 120)])
    out = tmp_path / "mixed.jsonl"
    result = run("mix", f"{labels}=0.75", f"{other}=0.25", "-n", "20", "--seed", "1", "-o", out)
    assert result.stderr.splitlines()[1] == "drawn: labels.jsonl 15 of 30 (75.0%), other.jsonl 5 of 20 (25.0%)"
    first = out.read_bytes()
    run("mix", f"{labels}=0.75", f"{other}=0.25", "-n", "20", "--seed", "1", "-o", out)
    assert out.read_bytes() == first
    assert report(out)["rows_out"] == 20


def test_stats(labels: Path, tmp_path: Path) -> None:
    result = run("stats", labels)
    assert result.stdout.startswith("30 rows, 30 problems, 30 distinct solutions; steps: 80 good, 5 bad, 5 unlabelled\n")
    assert "first error at step: 2: 5" in result.stdout
    assert "status: ok: 30" in result.stdout
    found = json.loads(run("stats", labels, "--json").stdout)
    assert found["classes"] == {"erroneous": 10, "correct": 20}


def test_card_and_export(labels: Path, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    run("build", labels, "-o", folder, "--split", "0.7,0.3,0")
    result = run("card", folder, "--name", "Sums", "--license", "apache-2.0", "--language", "en")
    assert result.stderr == f"wrote {folder / 'README.md'}\n"
    assert 'pretty_name: "Sums"' in (folder / "README.md").read_text()
    out = tmp_path / "trl"
    result = run("export", folder, "--to", "trl", "-o", out)
    assert result.stderr.splitlines()[0] == f"export: 30 rows in, 30 out to {out} (erroneous 5 of 5, correct 25 of 25)"
    assert result.stderr.splitlines()[1].startswith("trl cannot represent: 30 ")
    out = tmp_path / "chains.jsonl"
    run("export", labels, "--to", "thinkprm", "-o", out)
    assert len(read(out)) == 30 - 1
    assert report(out)["left_out"] == {"no judgement with critiques": {"correct": 1}}
    run("export", folder, "--to", "datasets", "-o", tmp_path / "hub", "--name", "Sums")
    assert sorted(path.name for path in (tmp_path / "hub" / "data").iterdir()) == [
        "train-00000-of-00001.jsonl",
        "validation-00000-of-00001.jsonl",
    ]


def test_the_same_input_gives_the_same_bytes_in_every_step(labels: Path, tmp_path: Path) -> None:
    steps: list[list[str | Path]] = [
        ["consensus", labels, labels, "--resample"],
        ["filter", labels, "--balance"],
        ["dedupe", labels],
        ["decontaminate", labels, "--against", labels],
        ["export", labels, "--to", "openrlhf"],
    ]
    for step in steps:
        found = []
        for _ in range(2):
            run(*step, "-o", tmp_path / "out.jsonl")
            found.append([path.read_bytes() for path in sorted(tmp_path.glob("out.jsonl*"))])
        assert found[0] == found[1], step[0]
