"""Exports: what each convention gets of a training set and of a label file, and a folder that `datasets` really loads."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from critic_prm.data.formats import convert as formats
from critic_prm.data.formats.common import Neutral
from critic_prm.data.formats.convert import Options, read_trajectories
from critic_prm.data.judgement import Judgement, Verdict
from critic_prm.data.records.reading import read_records, write_records
from critic_prm.datasets.build import DatasetOptions, build_dataset
from critic_prm.datasets.describe import About, write_card
from critic_prm.datasets.export import export, targets
from critic_prm.errors import InputError, UsageError


@pytest.fixture
def training(tmp_path: Path, made: Any) -> Path:
    rows = []
    for number in range(120):
        row = made.solution(number, 3 + number % 3)
        if number % 7 == 0:
            row["steps"][0] = {"text": row["steps"][0], "observation": f"seen {number}"}
        rows.append(made.judged(row, *([1, 1, 1, -1] if number % 3 else [-1, -1, -1, -1])))
    write_records(tmp_path / "labels.jsonl", rows)
    build_dataset([tmp_path / "labels.jsonl"], tmp_path / "set", DatasetOptions(split=(0.8, 0.2, 0.0)))
    return tmp_path / "set"


def read(path: Path) -> list[dict[str, Any]]:
    return [record.data for record in read_records(path)]


@pytest.mark.parametrize("to", [name for name in targets() if name not in ("datasets", "parquet", "chat", "thinkprm")])
def test_a_training_set_goes_to_every_format_split_by_split(training: Path, tmp_path: Path, to: str) -> None:
    out = tmp_path / "out"
    report = export(training, to, out)
    assert sorted(path.name for path in out.iterdir()) == ["dev.jsonl", "export.json", "train.jsonl"]
    assert json.loads((out / "export.json").read_text()) == report
    assert report["rows_out"] == report["rows_in"] == 120
    for split in ("train", "dev"):
        before = {row["prompt"]: row for row in read(training / f"{split}.jsonl")}
        after = list(read_trajectories(out / f"{split}.jsonl", to))
        assert len(after) == len(before)
        for trajectory in after:
            row = before[trajectory.problem]
            labels = [p for p in row["labels"] if p is not None]
            assert trajectory.texts[: len(labels)] == row["completions"][: len(labels)]
            bad = next((i for i, p in enumerate(labels) if p < 0.5), -1)
            assert trajectory.first_error() == bad


def test_what_a_format_cannot_say_is_counted(training: Path, tmp_path: Path) -> None:
    report = export(training, "trl", tmp_path / "out")
    assert report["cannot_say"]["soft labels (rounded at 0.5)"] == 80
    assert report["cannot_say"]["weight"] == 120
    train = read(tmp_path / "out" / "train.jsonl")
    assert {type(label) for row in train for label in row["labels"]} == {bool}


def test_the_shapes_that_trainers_read(tmp_path: Path, made: Any) -> None:
    source = tmp_path / "gold.jsonl"
    write_records(source, [{"id": "a", "problem": "6*7?", "steps": ["6*7=42", "So 43"], "label": 1}])
    expected: dict[str, dict[str, Any]] = {
        "trl": {"prompt": "6*7?", "completions": ["6*7=42", "So 43"], "labels": [True, False], "id": "a"},
        "math-shepherd": {
            "input": "6*7? Step 1: 6*7=42 ки\nStep 2: So 43 ки",
            "label": "6*7? Step 1: 6*7=42 +\nStep 2: So 43 -",
        },
        "rlhflow": {
            "id": "a",
            "conversations": [
                {"role": "user", "content": "6*7? Step 1: 6*7=42"},
                {"role": "assistant", "content": "+"},
                {"role": "user", "content": "Step 2: So 43"},
                {"role": "assistant", "content": "-"},
            ],
        },
        "fover": {
            "id": "a",
            "problem": "6*7?",
            "solution_steps": ["6*7=42", "So 43"],
            "error_labels": [True, False],
            "messages": [
                {"role": "user", "content": "6*7?\n\n6*7=42"},
                {"role": "assistant", "content": "correct"},
                {"role": "user", "content": "So 43"},
                {"role": "assistant", "content": "incorrect"},
            ],
        },
        "processbench": {"id": "a", "problem": "6*7?", "steps": ["6*7=42", "So 43"], "label": 1},
        "qwen-prm": {
            "id": "a",
            "messages": [
                {"role": "user", "content": "6*7?"},
                {"role": "assistant", "content": "6*7=42<extra_0>So 43<extra_0>"},
            ],
            "labels": [1, 0],
        },
        "openrlhf": {"id": "a", "inputs": "6*7? Step 1: 6*7=42 ки\nStep 2: So 43 ки", "labels": ["+", "-"]},
    }
    for to, row in expected.items():
        export(source, to, tmp_path / "out.jsonl")
        assert read(tmp_path / "out.jsonl") == [row], to
    export(source, "prm800k", tmp_path / "out.jsonl")
    (row,) = read(tmp_path / "out.jsonl")
    assert [step["completions"][0]["rating"] for step in row["label"]["steps"]] == [1, -1]


def test_kept_critiques_become_chains_to_train_on(tmp_path: Path, made: Any) -> None:
    row = made.solution(0, label=1)
    first = made.judgement(3, 1, ["Six times seven is 42.", "It is 42, not 43."])
    second = made.judgement(3, -1, ["Fine.", "Fine, too.", "And this."], sample=1)
    write_records(tmp_path / "l.jsonl", [made.labelled(row, first, second), made.judged(made.solution(1), 0)])
    report = export(tmp_path / "l.jsonl", "thinkprm", tmp_path / "out.jsonl")
    kept, other = read(tmp_path / "out.jsonl")
    chain = "Step 1: Six times seven is 42. The step is \\boxed{correct}"
    chain += "\n\nStep 2: It is 42, not 43. The step is \\boxed{incorrect}"
    assert kept["cot"] == chain
    assert (kept["gt_step_labels"], kept["prefix_label"]) == (["+", "-", "-"], False)
    user, assistant = kept["messages"]
    assert (user["role"], assistant["role"]) == ("user", "assistant")
    assert assistant["content"] == chain + "\n\nIs the solution correct? No"
    assert row["problem"] in user["content"]
    assert "Step 3: step 2 of solution 0" in user["content"]
    assert other["gt_step_labels"] == ["-", "-", "-"]
    assert report["rows_out"] == 2
    export(tmp_path / "l.jsonl", "thinkprm", tmp_path / "out.jsonl", samples="all")
    chains = read(tmp_path / "out.jsonl")
    assert [one["id"] for one in chains] == ["s0#0", "s0#1", "s1"]
    assert chains[1]["messages"][1]["content"].endswith("correct? Yes")
    assert len(list(read_trajectories(tmp_path / "out.jsonl"))) == 3


def test_a_neutral_verdict_is_no_verdict_of_a_chain(tmp_path: Path, made: Any) -> None:
    verdicts = (Verdict(0, "correct", "Six sevens"), Verdict(1, "neutral", "No sum here."), Verdict(2, "correct", "Yes!"))
    row = made.labelled(made.solution(0, label=-1), Judgement("ok", verdicts, -1))
    write_records(tmp_path / "l.jsonl", [row, made.judged(made.solution(1), -1)])
    report = export(tmp_path / "l.jsonl", "thinkprm", tmp_path / "out.jsonl")
    assert report["left_out"] == {"a neutral verdict in the chain": {"correct": 1}}
    endings: dict[Neutral, tuple[str, str]] = {"good": ("correct", "Yes"), "bad": ("incorrect", "No")}
    for neutral, (verdict, whole) in endings.items():
        export(tmp_path / "l.jsonl", "thinkprm", tmp_path / "out.jsonl", Options(neutral=neutral))
        said = read(tmp_path / "out.jsonl")[0]["messages"][1]["content"]
        assert said.startswith("Step 1: Six sevens. The step is \\boxed{correct}\n\nStep 2: No sum here. The step is")
        assert f"Step 2: No sum here. The step is \\boxed{{{verdict}}}" in said
        assert said.endswith(f"Is the solution correct? {whole}")


def test_rows_that_cannot_go_are_counted_by_reason(tmp_path: Path, made: Any) -> None:
    write_records(tmp_path / "x.jsonl", [made.solution(0, label=0), made.solution(1), made.judged(made.solution(2), 0, -1)])
    report = export(tmp_path / "x.jsonl", "trl", tmp_path / "o.jsonl")
    assert {reason: sum(kinds.values()) for reason, kinds in report["left_out"].items()} == {"no step has a label": 1, "tie": 1}
    write_records(tmp_path / "y.jsonl", [made.solution(0, label=0), made.solution(1, label=0)])
    with pytest.raises(InputError, match="no row of it can be exported to thinkprm; left out: 2 no judgement with critiques"):
        export(tmp_path / "y.jsonl", "thinkprm", tmp_path / "o.jsonl")


def test_parquet_carries_the_training_rows(training: Path, tmp_path: Path) -> None:
    export(training, "parquet", tmp_path / "out")
    before, after = read(training / "train.jsonl"), read(tmp_path / "out" / "train.parquet")
    assert after == before


def test_a_folder_is_replaced_only_where_it_is_an_export(training: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(training, "trl", out)
    first = {path.name: path.read_bytes() for path in out.iterdir()}
    export(training, "trl", out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == first
    export(training, "datasets", out)
    assert sorted(path.name for path in out.iterdir()) == ["README.md", "data", "export.json"]
    with pytest.raises(UsageError, match="exists and is not an export"):
        export(training, "trl", training)
    assert (training / "train.jsonl").is_file()
    with pytest.raises(UsageError, match="a folder cannot go to stdout"):
        export(training, "trl", "-")
    with pytest.raises(UsageError, match="--to is 'mrben'; it is one of datasets, parquet,"):
        export(training, "mrben", out)
    with pytest.raises(UsageError, match=r"is a folder without dataset\.json"):
        export(tmp_path, "trl", out)


def test_the_card_says_what_the_files_hold(training: Path, tmp_path: Path) -> None:
    export(training, "datasets", tmp_path / "out", about=About("Toy: steps", "mit", ("en",)))
    card = (tmp_path / "out" / "README.md").read_text()
    train = read(training / "train.jsonl")
    assert card.startswith('---\npretty_name: "Toy: steps"\nlicense: "mit"\nlanguage: ["en"]\nsize_categories: ["n<1K"]\n')
    wrong = sum(any(p is not None and p < 0.5 for p in row["labels"]) for row in train)
    assert f"| train | {len(train)} | {len(train)} | {wrong} | {len(train) - wrong} | 0 |" in card
    assert "| labels | 120 |" in card
    assert "120 of 120 rows were kept" in card
    assert "num_examples" not in card
    path = write_card(training)
    assert path == training / "README.md"
    assert '  - {split: validation, path: "dev.jsonl"}' in path.read_text()
    assert "license" not in path.read_text()
    with pytest.raises(UsageError, match=r"contains no train\.jsonl"):
        write_card(tmp_path)


def test_a_card_counts_an_error_behind_a_step_nobody_judged(tmp_path: Path) -> None:
    labels: list[list[float | None]] = [[1.0, None, 0.0, None], [1.0, 1.0], [None, 1.0]]
    write_records(
        tmp_path / "train.jsonl",
        ({"prompt": f"p{i}", "completions": ["a"] * len(own), "labels": own} for i, own in enumerate(labels)),
    )
    assert "| train | 3 | 3 | 1 | 1 | 1 | 4 | 1 | 3 |" in write_card(tmp_path).read_text()


LOAD = """
import json, sys
from datasets import load_dataset
found = load_dataset(sys.argv[1], cache_dir=sys.argv[2])
print(json.dumps({split: [dict(row) for row in rows] for split, rows in found.items()}))
"""


def test_datasets_loads_the_folder_offline(training: Path, tmp_path: Path) -> None:
    """With the library itself, from this environment or from the interpreter that CRITIC_PRM_TEST_DATASETS names."""
    python = os.environ.get("CRITIC_PRM_TEST_DATASETS", sys.executable)
    if shutil.which(python) is None or subprocess.run([python, "-c", "import datasets"], capture_output=True).returncode:
        pytest.skip("the library datasets is not installed")
    export(training, "datasets", tmp_path / "out")
    write_card(training)
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(tmp_path / "home"),
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    }
    for folder in (tmp_path / "out", training):
        command = [python, "-c", LOAD, str(folder), str(tmp_path / "cache")]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        found = json.loads(done.stdout)
        assert set(found) == {"train", "validation"}
        for split, name in (("train", "train"), ("validation", "dev")):
            rows = read(training / f"{name}.jsonl")
            assert [{key: value for key, value in row.items() if value is not None} for row in found[split]] == rows


def test_every_written_format_can_be_exported() -> None:
    assert set(targets()) == {"datasets", "parquet", *formats.writable()}
