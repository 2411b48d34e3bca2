"""Native rows -> every format that can be written -> native rows: nothing that both sides can say is lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from critic_prm.data.formats.convert import Options, Report, names, read_trajectories, table, write_trajectories
from critic_prm.data.records.reading import write_records
from critic_prm.data.trajectory import Step, StepLabel, Trajectory, trajectory_to_json

ALPHABET = st.characters(exclude_categories=["Cs"]) | st.sampled_from(
    [" ", "\n", "\u2028", "к", "и", " ки", "+", "-", "Step 1: ", "2."]
)
TEXT = st.lists(ALPHABET, max_size=12).map("".join)
FULL = TEXT.filter(str.strip)
KEEP = Options(after_error="keep")


@dataclass(frozen=True)
class Says:
    """What a format can say of a trajectory: the labels of a step, or only a first error, and which fields."""

    labels: tuple[StepLabel, ...] = ()
    fields: tuple[str, ...] = ()
    observations: bool = False
    may_drop: bool = False
    needs: Mapping[str, str] = field(default_factory=dict)


RIGHT_WRONG: tuple[StepLabel, ...] = (1.0, 0.0)
SAYS = {
    "native": Says(
        (1.0, 0.0, 0.25, "neutral", None), ("id", "final_answer", "gold_answer", "images", "tools", "meta", "extra"), True
    ),
    "processbench": Says(fields=("id",)),
    "bigbench-mistake": Says(fields=("final_answer", "gold_answer")),
    "reasoneval": Says(fields=("id", "gold_answer")),
    "trl": Says(RIGHT_WRONG, ("id",)),
    "math-shepherd": Says(RIGHT_WRONG, may_drop=True),
    "openr": Says(RIGHT_WRONG, may_drop=True),
    "rlhflow": Says(RIGHT_WRONG, ("id",), may_drop=True),
    "prmbench": Says(RIGHT_WRONG, ("id", "gold_answer")),
    "fover": Says((*RIGHT_WRONG, None), ("id",), may_drop=True),
    "qwen-prm": Says(RIGHT_WRONG, ("id",), may_drop=True),
    "openrlhf": Says(RIGHT_WRONG, ("id",), may_drop=True),
    "thinkprm": Says(RIGHT_WRONG, ("id",), needs={"cot": "Step 1: fine."}),
    "prm800k": Says((1.0, 0.0, "neutral", None), ("final_answer", "gold_answer")),
    "agentprocessbench": Says((1.0, 0.0, "neutral", None), ("id", "final_answer", "gold_answer", "images", "tools"), True),
    "chat": Says((None,), ("id", "images", "tools"), True),
}


@st.composite
def trajectories(draw: st.DrawFn, says: Says) -> Trajectory:
    texts = draw(st.lists(TEXT, min_size=1, max_size=5))
    seen = st.none() | TEXT if says.observations else st.none()
    labels = draw(st.tuples(*(st.sampled_from(says.labels) for _ in texts))) if says.labels else None
    values: dict[str, Any] = {
        "id": FULL,
        "final_answer": FULL,
        "gold_answer": FULL,
        "images": st.lists(FULL, max_size=2).map(tuple),
        "tools": st.lists(st.dictionaries(TEXT, TEXT, max_size=2), max_size=2).map(tuple),
        "meta": st.dictionaries(TEXT, TEXT, max_size=2),
        "extra": st.dictionaries(TEXT.map("x".__add__), TEXT, max_size=2),
    }
    return Trajectory(
        problem=draw(FULL),
        steps=tuple(Step(text, draw(seen)) for text in texts),
        label=None if labels else draw(st.integers(-1, len(texts) - 1)),
        step_labels=labels,
        **{"id": "", "meta": says.needs, **{name: draw(values[name]) for name in says.fields}},
    )


def test_every_format_that_can_be_written_is_in_the_table() -> None:
    assert set(SAYS) == {name for name, _, writes, _ in table() if writes}


@pytest.mark.parametrize("name", SAYS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(drawing=st.data())
def test_what_both_sides_can_say_survives(tmp_path: Path, name: str, drawing: st.DataObject) -> None:
    says = SAYS[name]
    before = drawing.draw(trajectories(says))
    assume(name != "prm800k" or "# Answer" not in before.texts[-1])
    assume(name not in ("prm800k", "agentprocessbench") or any(label is not None for label in before.gold()))
    path = tmp_path / "there.jsonl"
    report = write_trajectories(path, [before], name, KEEP)
    if says.may_drop and report.dropped:
        return
    (after,) = read_trajectories(path, name, KEEP)
    assert (after.problem, after.steps) == (before.problem, before.steps)
    assert after.first_error() == before.first_error()
    if says.labels:
        assert after.gold() == before.gold()
    for name_of_field in says.fields:
        assert getattr(after, name_of_field) == getattr(before, name_of_field), name_of_field
    assert set(report.unsaid) <= {"id"}


@pytest.mark.parametrize("name", SAYS)
def test_what_the_target_cannot_say_is_counted(tmp_path: Path, name: str) -> None:
    full = Trajectory(
        id="t",
        problem="What is 6*7?",
        steps=(Step("6*7=42", "42"), Step("So 43")),
        final_answer="43",
        gold_answer="42",
        step_labels=(1.0, 0.0),
        images=("a.png",),
        tools=({"name": "calculator"},),
        meta={"origin": "made up"},
        extra={"votes": [[4, 4], [0, 4]]},
    )
    said = SAYS[name]
    full = replace(full, meta={**full.meta, **said.needs})
    report = write_trajectories(tmp_path / "x.jsonl", [full, replace(full, id="u")], name)
    assert report.written == 2
    fields = {"id", "final_answer", "gold_answer", "images", "tools"} - set(said.fields)
    expected = dict.fromkeys(fields, 2)
    if not said.observations:
        expected["observation"] = 2
    if name != "native":
        expected |= {"meta.origin": 2, "votes": 2}
    if name == "chat":
        expected["step labels"] = 4
    assert dict(report.unsaid) == expected


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


@pytest.mark.parametrize("name", sorted(set(SAYS) - {"native", "chat"}))
def test_rows_without_labels_are_left_out_and_counted(tmp_path: Path, name: str) -> None:
    report = write_trajectories(tmp_path / "x.jsonl", [replace(LABELLED, step_labels=None)], name)
    assert report.written == 0
    assert sum(report.dropped.values()) == 1


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

    with pytest.raises(UsageError, match="mrben is only read, not written; there are: agentprocessbench, "):
        write_trajectories(tmp_path / "x.jsonl", [], "mrben")
    with pytest.raises(UsageError, match="no format is called 'nothing'; available: agentprocessbench, "):
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
