"""Rows that cannot be read are named with file, line and fix; the rest of the file is kept as asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from critic_prm.data.formats.convert import Options, Report, detect, names, open_format, read_trajectories, write_trajectories
from critic_prm.data.formats.convert import _Ids as Ids
from critic_prm.data.records.reading import read_records, write_records
from critic_prm.errors import InputError, UsageError

GOOD = {name: dict(open_format(name).sample) for name in names()}


def rows(path: Path, *found: Any) -> Path:
    write_records(path, found)
    return path


def error_of(path: Path, format: str = "auto") -> InputError:
    with pytest.raises(InputError) as caught:
        list(read_trajectories(path, format))
    assert "\n" not in str(caught.value)
    return caught.value


BAD: list[tuple[str, Callable[[dict[str, Any]], dict[str, Any]], str]] = [
    ("native", lambda row: {**row, "steps": [1]}, "step 0 is the number 1"),
    ("native", lambda row: {**row, "steps": []}, '"steps" is empty'),
    ("native", lambda row: {**row, "problem": " "}, '"problem" is the text'),
    ("native", lambda row: {**row, "label": 2}, '"label" is the number 2'),
    ("native", lambda row: {**row, "step_labels": [1]}, "one entry for each of the 2 steps"),
    ("processbench", lambda row: {**row, "label": 1}, "are its steps counted from 1? (--index-base 1)"),
    ("processbench", lambda row: {**row, "label": None}, '"label" is missing'),
    ("processbench", lambda row: {**row, "label": True}, '"label" is True'),
    ("processbench", lambda row: {**row, "steps": "s"}, "\"steps\" is 's'; it must be a list"),
    ("bigbench-mistake", lambda row: {**row, "mistake_index": 7}, '"mistake_index" is 7, but there are 1 steps counted from 0'),
    ("trl", lambda row: {**row, "labels": [True]}, '"labels" is 1, but there are 2 steps'),
    ("trl", lambda row: {**row, "labels": [True, 2]}, "label 1 of 'labels' is 2; it must be one of null, a number from 0 to 1"),
    ("trl", lambda row: {**row, "completions": [1, 2]}, '"completions" contains 1 at step 0'),
    ("math-shepherd", lambda row: {**row, "label": row["label"][:-2]}, "part ways after 1 steps"),
    ("math-shepherd", lambda row: {**row, "label": row["label"].replace("t -", "u -")}, "part ways after 1 steps"),
    ("math-shepherd", lambda row: {**row, "input": "p s ки", "label": "p s +"}, '"input" has no "Step 1:"'),
    ("prmbench", lambda row: {**row, "error_steps": [0]}, "it must list step numbers from 1 to 1"),
    ("prmbench", lambda row: {**row, "error_steps": "1"}, "\"error_steps\" is '1'"),
    ("prm800k", lambda row: {**row, "label": {"steps": {"a": 1}}}, '"label.steps" is '),
    ("prm800k", lambda row: {**row, "label": {"steps": [{"completions": 3}]}}, "the completions of step 0 are 3"),
    (
        "prm800k",
        lambda row: {**row, "label": {"steps": [{"completions": [{"text": "s", "rating": 5}]}]}},
        "a rating of step 0 is 5; it must be one of 1, 0, -1, null",
    ),
    ("mrben", lambda row: {"u": [{**row["u"][0], "Model_Solution_First_Error_Step": "two"}]}, "is 'two'"),
    ("mrben", lambda row: {"u": [{**row["u"][0], "Model_Solution_First_Error_Step": "0"}]}, "the steps are counted from 1"),
    ("reasoneval", lambda row: {**row, "model_output_solution_first_error_step": 0}, "the steps are counted from 1"),
    ("bigbench-mistake", lambda row: {**row, "mistake_index": -2}, "is -2, but the steps are counted from 0; -1 or null means"),
    (
        "parc",
        lambda row: {**row, "error_annotation": {"error_annotations": {"step_level": [{"step_number": 0, "has_error": True}]}}},
        "a step_number is 0, but there are 1 steps",
    ),
    ("agentprocessbench", lambda row: {**row, "step_labels": {"0": 1}}, "step label '0' belongs to no assistant message"),
    ("agentprocessbench", lambda row: {**row, "step_labels": {"1": 2}}, "the label of message 1 is 2"),
    ("chat", lambda row: {"messages": [{"role": "user", "content": "p"}]}, "has no assistant turn"),
    ("chat", lambda row: {"messages": [{"role": "boss", "content": "p"}]}, "message 0 has the role 'boss'"),
    (
        "chat",
        lambda row: {"messages": [{"role": "assistant", "content": "s"}]},
        "nothing is said before the first assistant turn",
    ),
    ("openr", lambda row: {**row, "labels": [1, 0]}, '"labels" is 2, but there are 1 steps'),
    ("openr", lambda row: {"question": "p", "reasoning_steps": [{"solution_prefix": "p s", "mc_value": 2}]}, '"mc_value" is 2'),
    ("rlhflow", lambda row: {"conversations": [{"role": "user", "content": "p"}, row["conversations"][1]]}, 'no "Step 1:"'),
    ("parc", lambda row: {**row, "error_annotation": []}, "it must hold error_annotations.step_level"),
    ("who-and-when", lambda row: {**row, "history": "h"}, "\"history\" is 'h'"),
    ("fover", lambda row: {**row, "error_labels": [True, True]}, '"error_labels" is 2, but there are 1 steps'),
    ("fover", lambda row: {**row, "error_labels": [0.5]}, "label 0 of 'error_labels' is 0.5"),
    ("qwen-prm", lambda row: {**row, "labels": [1]}, '"labels" is 1, but there are 2 steps'),
    ("qwen-prm", lambda row: {**row, "labels": [1, 2]}, "label 1 of 'labels' is 2"),
    ("qwen-prm", lambda row: {**row, "messages": row["messages"][1:]}, "it needs a user's turn and an answer"),
    ("openrlhf", lambda row: {**row, "labels": ["+"]}, '"labels" is 1, but there are 2 steps'),
    ("openrlhf", lambda row: {**row, "labels": ["+", "?"]}, "label 1 of 'labels' is '?'; it must be one of +, -"),
    ("openrlhf", lambda row: {**row, "inputs": "p s ки t ки"}, '"inputs" has no "Step 1:"'),
    ("openrlhf", lambda row: {**row, "inputs": "p Step 1: s ки and ки on"}, '"inputs" goes on behind its last placeholder'),
    ("thinkprm", lambda row: {**row, "gt_step_labels": ["+"]}, '"gt_step_labels" is 1, but there are 2 steps'),
    ("thinkprm", lambda row: {**row, "gt_step_labels": ["+", "x"]}, "label 1 of 'gt_step_labels' is 'x'"),
]


@pytest.mark.parametrize(("name", "spoil", "said"), BAD, ids=[f"{name}-{said[:24]}" for name, _, said in BAD])
def test_a_bad_row_names_line_field_and_fix_and_can_be_skipped(
    tmp_path: Path, name: str, spoil: Callable[[dict[str, Any]], dict[str, Any]], said: str
) -> None:
    good = [{**GOOD[name], "id": f"r{n}"} if name != "mrben" else GOOD[name] for n in range(2)]
    path = rows(tmp_path / "x.jsonl", good[0], spoil(dict(GOOD[name])), good[1])
    error = error_of(path, name)
    assert error.where.startswith(f"{path}:2")
    assert error.fix
    assert said in str(error)
    report, complaints = Report(), list[InputError]()
    found = list(read_trajectories(path, name, on_error="skip", complain=complaints.append, report=report))
    assert len(found) == 2
    assert len(complaints) == report.dropped["unreadable"] == 1


@pytest.mark.parametrize("name", ["native", "processbench"])
def test_step_0_is_refused_when_steps_are_counted_from_1(tmp_path: Path, name: str) -> None:
    path = rows(tmp_path / "x.jsonl", {**GOOD[name], "id": "a", "label": 1}, {**GOOD[name], "id": "b", "label": 0})
    with pytest.raises(InputError, match=r'x.jsonl:2: "label" is 0, but the steps are counted from 1; .*--index-base 0'):
        list(read_trajectories(path, name, Options(index_base=1)))


def test_steps_that_no_annotation_names_leave_the_row_out(tmp_path: Path) -> None:
    path, report = rows(tmp_path / "x.jsonl", {**GOOD["prmbench"], "error_steps": [9]}), Report()
    assert list(read_trajectories(path, report=report)) == []
    assert report.dropped == {"error_steps name a step that does not exist": 1}


def test_equal_ids_name_both_lines(tmp_path: Path) -> None:
    path = rows(tmp_path / "x.jsonl", *({**GOOD["native"], "id": name} for name in "abca"))
    assert str(error_of(path)) == f"{path}:4: the id 'a' was already used on line 1; ids must be unique in a file"
    complaints: list[InputError] = []
    assert [t.id for t in read_trajectories(path, on_error="skip", complain=complaints.append)] == ["a", "b", "c"]
    assert len(complaints) == 1


def test_a_missing_id_comes_from_the_content_and_stays_unique(tmp_path: Path) -> None:
    row = {key: value for key, value in GOOD["native"].items() if key != "id"}
    path = rows(tmp_path / "x.jsonl", row, {**row, "problem": "q"}, row, row)
    ids = [t.id for t in read_trajectories(path)]
    assert ids[2:] == [f"{ids[0]}-3", f"{ids[0]}-4"]
    assert [len(identity) for identity in ids[:2]] == [16, 16]
    assert [t.id for t in read_trajectories(path)] == ids


def test_the_table_of_ids_grows_and_remembers_lines() -> None:
    seen = Ids()
    assert not any(seen.add(f"row {n}", n) for n in range(1, 50_001))
    assert [seen.add(f"row {n}", 99_999) for n in (1, 777, 50_000)] == [1, 777, 50_000]
    assert seen.add("another", 60_000) == 0


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"a": 1, "b": 2}, "no known format has the fields a, b"),
        ([1], "a row of this file is not an object but '[1]'"),
        ({"custom_id": "a", "response": {}}, "a batch's result file"),
    ],
)
def test_other_files_are_named_as_far_as_can_be_known(tmp_path: Path, row: Any, said: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"id": 1}\n'.replace('{"id": 1}', str(row).replace("'", '"')))
    if isinstance(row, list):
        path.write_text('"[1]"\n')
        assert "a row of this file is not an object" in str(error_of(path))
    else:
        assert said in str(error_of(path))


def test_rows_that_are_no_objects_are_named_also_later(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"id": "a", "problem": "p", "steps": ["s"]}\n42\n')
    assert str(error_of(path)) == f"{path}:2: this row is '42'; a row is a JSON object"


def test_an_unknown_format_lists_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no format 'nope'; available: agentprocessbench, anthropic-log, big"):
        list(read_trajectories(rows(tmp_path / "x.jsonl", GOOD["native"]), "nope"))


def test_a_conversion_that_fails_keeps_the_rows_before(tmp_path: Path) -> None:
    good = [{**GOOD["native"], "id": str(n)} for n in range(6)]
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    write_records(source, good)
    with source.open("a") as stream:
        stream.write('{"id": "bad",\n')
    with pytest.raises(InputError, match=r"in.jsonl:7: "):
        write_trajectories(out, read_trajectories(source))
    assert len(list(read_records(out))) == 6


TEXTS = [
    ("What is 6*7?\n\n6*7=42.\n\nSo 42.\n", ["6*7=42.", "So 42."]),
    ("Problem: What is 6*7?\nSolution: 6*7=42.\n\nSo 42.", ["6*7=42.", "So 42."]),
    (
        "# Problem\nWhat is 6*7?\n\n## Solution\n\nStep 1: 6*7=42.\nIt is.\nStep 2: So 42.",
        ["Step 1: 6*7=42.\nIt is.", "Step 2: So 42."],
    ),
    ("What is 6*7?\r\n\r\n1. 6*7=42.\r\n2. So 42.", ["1. 6*7=42.", "2. So 42."]),
]


@pytest.mark.parametrize(("content", "steps"), TEXTS)
@pytest.mark.parametrize("name", ["x.txt", "x.md"])
def test_plain_text_is_split_into_problem_and_steps(tmp_path: Path, name: str, content: str, steps: list[str]) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode())
    (read,) = read_trajectories(path)
    assert (read.problem, read.texts, read.label) == ("What is 6*7?", steps, None)


def test_a_text_file_that_holds_records_is_read_as_such(tmp_path: Path) -> None:
    path = rows(tmp_path / "x.txt", GOOD["trl"])
    assert detect(path) == "trl"


def test_gsm8k_answers_are_steps_by_line(tmp_path: Path) -> None:
    path = rows(tmp_path / "x.jsonl", {"question": "What is 6*7?", "answer": "6*7 = <<6*7=42>>42\nIt is 42.\n#### 42"})
    (read,) = read_trajectories(path)
    assert (read.texts, read.final_answer) == (["6*7 = <<6*7=42>>42", "It is 42."], "42")


def test_text_without_a_solution_and_templates_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("What is 6*7?")
    assert "a problem but no solution; write the problem, a blank line" in str(error_of(path))
    path.write_text("Judge this.\n\n{problem}\n\nThen $\\frac{abc}{def}$ and \\text{really}.")
    assert "a prompt template with the open slot {problem}" in str(error_of(path))
    path.write_bytes(b"What?\n\n\xff")
    assert "invalid UTF-8 at byte 8" in str(error_of(path))


CALLS: list[tuple[list[dict[str, Any]], list[str], list[str | None]]] = [
    (
        [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": "6*7?"},
            {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "calc", "arguments": '{"x": 1}'}}]},
            {"role": "tool", "content": "42"},
            {"role": "user", "content": "Sure?"},
            {"role": "assistant", "content": "Yes."},
        ],
        ['Tool call: calc {"x": 1}', "Yes."],
        ["42\nUser: Sure?", None],
    ),
    (
        [
            {"role": "user", "content": [{"type": "text", "text": "6*7?"}]},
            {
                "role": "assistant",
                "content": [{"type": "text", "text": "Let me see."}, {"type": "tool_use", "name": "calc", "input": {"x": "ä"}}],
            },
            {"role": "user", "content": [{"type": "tool_result", "content": [{"type": "text", "text": "42"}]}]},
        ],
        ['Let me see.\nTool call: calc {"x": "ä"}'],
        ["42"],
    ),
    ([{"from": "human", "value": "6*7?"}, {"from": "gpt", "value": "42"}], ["42"], [None]),
]


@pytest.mark.parametrize(("messages", "steps", "seen"), CALLS, ids=["openai", "anthropic", "sharegpt"])
def test_messages_of_every_house_are_readable_and_come_back(
    tmp_path: Path, messages: list[dict[str, Any]], steps: list[str], seen: list[str | None]
) -> None:
    path, back = rows(tmp_path / "x.jsonl", {"id": "a", "messages": messages}), tmp_path / "back.jsonl"
    (read,) = read_trajectories(path)
    assert (read.problem, read.texts, [step.observation for step in read.steps]) == ("6*7?", steps, seen)
    write_trajectories(back, [read], "chat")
    assert next(read_records(back)).data["messages"] == messages


def test_phase_one_paths_go_through_alternatives_and_peoples_steps(tmp_path: Path) -> None:
    def step(chosen: int | None, human: Any, *ratings: int | None) -> dict[str, Any]:
        completions = [{"text": f"c{n}", "rating": rating} for n, rating in enumerate(ratings)]
        return {"completions": completions, "human_completion": human, "chosen_completion": chosen}

    label = {
        "steps": [
            step(1, None, -1, 1),
            step(None, "by hand", -1, 0),
            step(None, {"text": "h", "rating": 1}),
            step(None, None, -1),
        ]
    }
    path = rows(tmp_path / "x.jsonl", {"question": {"problem": "p"}, "label": label})
    (read,) = read_trajectories(path)
    assert (read.texts, read.step_labels) == (["c1", "by hand", "h"], (1.0, None, 1.0))
    (read,) = read_trajectories(path, options=Options(human_steps="good"))
    assert read.step_labels == (1.0, 1.0, 1.0)
    others = list(read_trajectories(path, options=Options(alternatives="all", human_steps="good")))
    assert [(t.texts, t.step_labels) for t in others[1:]] == [
        (["c0"], (0.0,)),
        (["c1", "c0"], (1.0, 0.0)),
        (["c1", "c1"], (1.0, "neutral")),
        (["c1", "by hand", "h", "c0"], (1.0, 1.0, 1.0, 0.0)),
    ]


def test_trees_become_one_trajectory_a_leaf(tmp_path: Path) -> None:
    def node(text: str, value: float, *children: Any) -> dict[str, Any]:
        return {"text": text, "mc_value": value, "children": list(children)}

    tree = node("p", 0.5, node("a", 0.75, node("b", 1.0), node("c", 0.25)), node("d", 0.0))
    path = rows(tmp_path / "x.jsonl", {"question": "p", "reasoning_steps": tree, "final_answer": "1"})
    found = [(t.texts, t.step_labels) for t in read_trajectories(path)]
    assert found == [(["a", "b"], (0.75, 1.0)), (["a", "c"], (0.75, 0.25)), (["d"], (0.0,))]
    flat = [{"solution_prefix": text, "mc_value": 0.5} for text in ("p", "p\n\na", "p\n\na\n\nb", "p\n\nc")]
    path = rows(tmp_path / "y.jsonl", {"question": "p", "reasoning_steps": flat, "final_answer": "1"})
    assert [t.texts for t in read_trajectories(path)] == [["a", "b"], ["c"]]
