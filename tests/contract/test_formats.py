"""What every format must do: detect its sample, read it, name malformed rows, and write what it says it can write."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import critic_prm.data.formats
from critic_prm import registry
from critic_prm.cli import main
from critic_prm.data.formats import convert
from critic_prm.data.formats.convert import (
    Format,
    Options,
    Report,
    detect,
    names,
    open_format,
    read_trajectories,
    writable,
    write_trajectories,
)
from critic_prm.data.records.reading import read_records, write_records
from critic_prm.data.trajectory import KNOWN, Step, StepLabel, Trajectory
from critic_prm.errors import InputError

QUICK = settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
KEEP = Options(segment="none", after_error="keep")
NEEDS = {"thinkprm": {"cot": "Step 1: fine."}}
"""Meta data without which a format writes no row."""
ALPHABET = st.characters(exclude_categories=["Cs"]) | st.sampled_from(
    [" ", "\n", "\u2028", "к", "и", " ки", "+", "-", "Step 1: ", "2."]
)
TEXT = st.lists(ALPHABET, max_size=12).map("".join)
FULL = TEXT.filter(str.strip)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "id": FULL,
    "final_answer": FULL,
    "gold_answer": FULL,
    "images": st.lists(FULL, max_size=2).map(tuple),
    "tools": st.lists(st.dictionaries(TEXT, TEXT, max_size=2), max_size=2).map(tuple),
    "meta": st.dictionaries(TEXT, TEXT, max_size=2),
    "extra": st.dictionaries(TEXT.map("x".__add__), TEXT, max_size=2),
}


def sample(name: str) -> dict[str, Any]:
    return dict(open_format(name).sample)


def written(path: Path, *rows: Any) -> Path:
    write_records(path, rows)
    return path


@pytest.mark.parametrize("name", names())
def test_the_sample_is_detected_and_read(tmp_path: Path, name: str) -> None:
    path, report = written(tmp_path / "x.jsonl", sample(name)), Report()
    assert detect(path) == name
    assert len(list(read_trajectories(path, report=report))) == (2 if name == "preferences" else 1)
    assert (report.source, report.read) == (name, 1)


def test_no_other_format_claims_a_row_with_native_fields_alone() -> None:
    """Detection does not ask the other formats about such a row."""
    optional = sorted(KNOWN - {"problem", "steps"})
    row = dict.fromkeys(optional) | sample("native")
    for size in range(len(optional) + 1):
        for left_out in combinations(optional, size):
            some = {name: value for name, value in row.items() if name not in left_out}
            assert max(names(), key=lambda name: open_format(name).matches(some)) == "native", some


@pytest.mark.parametrize("name", names())
def test_a_wrong_format_is_an_error_that_names_the_right_one(tmp_path: Path, name: str) -> None:
    wrong = "trl" if name != "trl" else "prmbench"
    with pytest.raises(InputError) as caught:
        list(read_trajectories(written(tmp_path / "x.jsonl", sample(name)), wrong))
    assert caught.value.problem == f"this is not a {wrong} row; it looks like {name}"
    assert caught.value.fix == f"use --from {name}"


ODD: list[Any] = [None, True, False, 0, 1, -1, 7, 0.5, 1e300, "", " ", "N/A", "7", " ки"]
ODD += [[], [[]], [None], [0], {}, {"a": []}, [{}], [{"role": 1}]]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value within a row."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [*([path] if path else []), *(place for key, item in inner for place in places(item, (*path, key)))]


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


@pytest.mark.parametrize("name", names())
@QUICK
@given(drawing=st.data())
def test_a_malformed_row_is_read_or_named_with_its_line(tmp_path: Path, name: str, drawing: st.DataObject) -> None:
    row: Any = sample(name)
    for _ in range(drawing.draw(st.integers(1, 2))):
        if spots := places(row):
            row = changed(row, drawing.draw(st.sampled_from(spots)), drawing.draw(st.sampled_from(ODD)))
    path = written(tmp_path / "x.jsonl", sample(name), row)
    options = drawing.draw(st.sampled_from([Options(neutral="good"), Options(neutral="good", alternatives="all")]))
    complaints: list[InputError] = []
    trajectories = list(read_trajectories(path, name, options, on_error="skip", complain=complaints.append))
    assert trajectories
    assert all("\n" not in str(error) and str(path) in error.where for error in complaints)
    write_trajectories(tmp_path / "out.jsonl", trajectories, drawing.draw(st.sampled_from(writable())))


@st.composite
def trajectories(draw: st.DrawFn, format: Format, needs: dict[str, str]) -> Trajectory:
    texts = draw(st.lists(TEXT, min_size=1, max_size=5))
    observed = st.none() | TEXT if "observation" in format.keeps else st.none()
    labels = draw(st.tuples(*(st.sampled_from(format.step_labels) for _ in texts))) if format.step_labels else None
    fields = {name: draw(values) for name, values in FIELDS.items() if name in format.keeps}
    return Trajectory(
        problem=draw(FULL),
        steps=tuple(Step(text, draw(observed)) for text in texts),
        label=None if labels else draw(st.integers(-1, len(texts) - 1)),
        step_labels=labels,
        **{"id": "", "meta": needs, **fields},
    )


@pytest.mark.parametrize("name", writable())
@QUICK
@given(drawing=st.data())
def test_what_a_format_keeps_survives_a_round_trip(tmp_path: Path, name: str, drawing: st.DataObject) -> None:
    format = open_format(name)
    before = drawing.draw(trajectories(format, NEEDS.get(name, {})))
    assume(name != "prm800k" or "# Answer" not in before.texts[-1])
    path = tmp_path / "x.jsonl"
    report = write_trajectories(path, [before], name, KEEP)
    if report.dropped:
        (reason,) = report.dropped
        assert "contains" in reason or all(label is None for label in before.gold()), reason
        return
    (after,) = read_trajectories(path, name, KEEP)
    assert (after.problem, after.steps) == (before.problem, before.steps)
    assert after.first_error() == before.first_error()
    if format.step_labels:
        assert after.gold() == before.gold()
    for field in FIELDS.keys() & set(format.keeps):
        assert getattr(after, field) == getattr(before, field), field
    assert set(report.unsaid) <= {"id"}


@pytest.mark.parametrize("name", writable())
def test_what_a_format_does_not_keep_is_counted(tmp_path: Path, name: str) -> None:
    format = open_format(name)
    full = Trajectory(
        id="t",
        problem="What is 6*7?",
        steps=(Step("6*7=42", "42"), Step("So 43")),
        final_answer="43",
        gold_answer="42",
        step_labels=(1.0, 0.0),
        images=("a.png",),
        tools=({"name": "calculator"},),
        meta={"origin": "made up", **NEEDS.get(name, {})},
        extra={"votes": [[4, 4], [0, 4]]},
    )
    report = write_trajectories(tmp_path / "x.jsonl", [full, replace(full, id="u")], name)
    assert report.written == 2
    lost = {"id", "observation", "final_answer", "gold_answer", "images", "tools"} - set(format.keeps)
    lost |= {"meta.origin", "votes"} if "meta" not in format.keeps else set()
    expected = dict.fromkeys(lost, 2)
    if format.step_labels == (None,):
        expected["step labels"] = 4
    assert dict(report.unsaid) == expected


LABELS: tuple[StepLabel, ...] = (1.0, "neutral", 1.0, 0.0, 1.0)
LABELLED = Trajectory("t", "p", tuple(Step(f"s{n}") for n in range(5)), step_labels=LABELS)


@pytest.mark.parametrize("name", sorted(set(writable()) - {"native", "chat"}))
def test_rows_without_labels_are_left_out_and_counted(tmp_path: Path, name: str) -> None:
    report = write_trajectories(tmp_path / "x.jsonl", [replace(LABELLED, step_labels=None)], name)
    assert report.written == 0
    assert sum(report.dropped.values()) == 1


TOY = Path(__file__).parent / "toy"


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the folder with one more format."""
    monkeypatch.setattr(critic_prm.data.formats, "__path__", [*critic_prm.data.formats.__path__, str(TOY)])
    monkeypatch.setattr(registry, "_packaged", registry._packaged.__wrapped__)
    monkeypatch.setattr(convert, "formats", convert.formats.__wrapped__)
    monkeypatch.setattr(critic_prm.data.formats.__spec__, "submodule_search_locations", critic_prm.data.formats.__path__)


@pytest.mark.usefixtures("toy")
def test_a_new_format_is_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "marked" in names()
    assert convert.formats()["marked"].about.startswith("Marked lines: a question")
    row = {"question": "What is 6 * 7?", "lines": ["6 * 7 = 41.", "So 41."], "wrong_line": 1}
    source = written(tmp_path / "marked.jsonl", row)
    native, back, labels = tmp_path / "native.jsonl", tmp_path / "back.jsonl", tmp_path / "labels.jsonl"
    for arguments in (
        ["convert", str(source), "-o", str(native)],
        ["convert", str(native), "-o", str(back), "--to", "marked"],
        ["label", str(source), "-o", str(labels), "--judge", "rules"],
    ):
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        assert not stopped.value.code, capsys.readouterr().err
    (read,) = read_trajectories(native)
    assert (read.label, read.texts) == (0, row["lines"])
    assert next(read_records(back)).data == row
    assert json.loads(labels.read_text("utf-8"))["first_error"] == 0
