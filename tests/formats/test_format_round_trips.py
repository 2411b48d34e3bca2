"""What the conversion options mean, and what every kind of file carries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from critic_prm.data.formats.convert import Options, Report, names, read_trajectories, write_trajectories
from critic_prm.data.records.reading import write_records
from critic_prm.data.trajectory import Step, StepLabel, Trajectory, trajectory_to_json


@pytest.mark.parametrize("suffix", ["json", "jsonl.gz", "jsonl.zst", "parquet"])
def test_containers_carry_every_kind_of_row(tmp_path: Path, suffix: str) -> None:
    rows = [
        Trajectory("a", "p", (Step("s"), Step("t", "seen")), label=1, step_labels=(1.0, 0.0), meta={"k": [1]}),
        Trajectory(
            "b", "q", (Step("s"),), label=-1, step_labels=("neutral",), tools=({"name": "x"},), extra={"votes": [[1, 2]]}
        ),
    ]
    write_trajectories(tmp_path / f"x.{suffix}", rows)
    assert list(read_trajectories(tmp_path / f"x.{suffix}")) == rows


LABELLED = Trajectory("t", "p", tuple(Step(f"s{n}") for n in range(5)), step_labels=(1.0, "neutral", 1.0, 0.0, 1.0))


@pytest.mark.parametrize(
    ("options", "expected", "first"),
    [
        (Options(), (1.0, "neutral", 1.0, 0.0, None), 3),
        (Options(after_error="keep"), (1.0, "neutral", 1.0, 0.0, 1.0), 3),
        (Options(neutral="good"), (1.0, 1.0, 1.0, 0.0, None), 3),
        (Options(neutral="bad"), (1.0, 0.0, None, None, None), 1),
        (Options(neutral="bad", after_error="keep"), (1.0, 0.0, 1.0, 0.0, 1.0), 1),
        (Options(neutral="drop"), (1.0, None, 1.0, 0.0, 1.0), None),
    ],
)
def test_options_decide_what_labels_mean(
    tmp_path: Path, options: Options, expected: tuple[StepLabel, ...], first: int | None
) -> None:
    path = tmp_path / "x.jsonl"
    write_trajectories(path, [LABELLED], "prm800k")
    report = Report()
    (read,) = read_trajectories(path, "auto", options, report=report)
    assert read.step_labels == expected
    assert read.label == first
    hidden = sum(a is not None and b is None for a, b in zip(LABELLED.step_labels or (), expected, strict=True))
    assert report.hidden["labels after the first error"] == (0 if options.neutral == "drop" else hidden)


@pytest.mark.parametrize("name", ["trl", "math-shepherd", "openr", "rlhflow", "prmbench"])
def test_a_target_without_neutral_asks_for_a_choice_and_keeps_the_rows_before(tmp_path: Path, name: str) -> None:
    from critic_prm.errors import UsageError

    fine = replace(LABELLED, id="fine", step_labels=(1.0,) * 5)
    path = tmp_path / "x.jsonl"
    with pytest.raises(UsageError, match=r"t: step 1 is neutral.*--neutral good, --neutral bad or --neutral drop"):
        write_trajectories(path, [fine, LABELLED], name)
    assert len(list(read_trajectories(path, name))) == 1
    report = write_trajectories(path, [fine, LABELLED], name, Options(neutral="good"))
    assert (report.written, report.unsaid["steps without a label"]) == (2, 0)
    report = write_trajectories(path, [LABELLED], name, Options(neutral="drop"))
    assert (report.written, report.unsaid["steps without a label"]) == (1, 4)


def test_soft_labels_are_rounded_and_counted(tmp_path: Path) -> None:
    report = write_trajectories(tmp_path / "x.jsonl", [replace(LABELLED, step_labels=(0.9, 0.4, 0.5, None, None))], "trl")
    assert report.unsaid["soft labels (rounded at 0.5)"] == 3
    assert next(iter(read_trajectories(tmp_path / "x.jsonl"))).step_labels == (1.0, 0.0, None)


BASES: dict[str, Callable[[int], dict[str, Any]]] = {
    "native": lambda number: {"id": "a", "problem": "p", "steps": ["s", "t"], "label": number, "meta": {"k": 1}},
    "processbench": lambda number: {
        "id": "a",
        "problem": "p",
        "steps": ["s", "t"],
        "label": number,
        "final_answer_correct": False,
    },
    "bigbench-mistake": lambda number: {"input": "p", "steps": ["s", "t"], "mistake_index": number},
    "prmbench": lambda number: {"question": "p", "modified_process": ["s", "t"], "error_steps": [number]},
}


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("base", [0, 1])
def test_the_index_base_is_the_users_to_name(tmp_path: Path, name: str, base: int) -> None:
    path = tmp_path / "x.jsonl"
    write_records(path, [BASES[name](1)])
    (read,) = read_trajectories(path, "auto", Options(index_base=base))
    assert read.first_error() == 1 - base


def test_an_index_base_where_there_are_no_step_numbers_is_an_error(tmp_path: Path) -> None:
    from critic_prm.errors import UsageError

    write_trajectories(tmp_path / "x.jsonl", [LABELLED], "prm800k")
    with pytest.raises(UsageError, match="prm800k has no step numbers"):
        list(read_trajectories(tmp_path / "x.jsonl", "auto", Options(index_base=1)))


def test_formats_that_are_only_read_say_so(tmp_path: Path) -> None:
    from critic_prm.errors import UsageError

    with pytest.raises(UsageError, match="mrben is only read, not written; available: agentprocessbench, "):
        write_trajectories(tmp_path / "x.jsonl", [], "mrben")
    with pytest.raises(UsageError, match="there is no format 'nothing'; available: agentprocessbench, "):
        write_trajectories(tmp_path / "x.jsonl", [], "nothing")
    assert {"mrben", "text", "native"} <= set(names())


def test_native_rows_with_the_fields_of_a_label_file_keep_them(tmp_path: Path) -> None:
    row = {
        **trajectory_to_json(replace(LABELLED, label=3)),
        "p_correct": [0.9, None, 0.5, 0.1, None],
        "votes": [[4, 4]],
        "first_error": 3,
        "status": "ok",
        "judgements": [{"sample": 0, "status": "ok", "verdicts": []}],
        "critic": {"model": "m"},
    }
    write_records(tmp_path / "x.jsonl", [row])
    (read,) = read_trajectories(tmp_path / "x.jsonl")
    assert trajectory_to_json(read) == row
