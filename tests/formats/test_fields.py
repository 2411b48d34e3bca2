"""Fields under other names: --map reads them, and a row that no format fits is answered with the --map that would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from critic_prm.data.formats.convert import Options, Report, detect, read_trajectories
from critic_prm.data.formats.fields import parse_map
from critic_prm.data.records.reading import write_records
from critic_prm.data.trajectory import Trajectory
from critic_prm.errors import InputError, UsageError
from tests.command import invoke

OWN = {"uid": "u1", "prompt": "15 * 16 - 1?", "reasoning": ["15 * 16 = 241.", "So 240."], "first_bad": 0, "model": "m"}


def read(tmp_path: Path, *rows: Any, map: str | tuple[str, ...] = (), format: str = "auto", **options: Any) -> list[Trajectory]:
    write_records(tmp_path / "x.jsonl", rows)
    names = (map,) if isinstance(map, str) else map
    return list(read_trajectories(tmp_path / "x.jsonl", format, Options(map=names, **options)))


def error(tmp_path: Path, *rows: Any, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        read(tmp_path, *rows, **options)
    return f"{caught.value.problem}; {caught.value.fix}"


def test_fields_are_renamed_and_the_others_carried_through(tmp_path: Path) -> None:
    (found,) = read(tmp_path, OWN, map=("problem=prompt, steps=reasoning", "label=first_bad,id=uid"))
    assert (found.id, found.problem, found.texts, found.label) == ("u1", OWN["prompt"], OWN["reasoning"], 0)
    assert (dict(found.extra), dict(found.meta)) == ({"model": "m"}, {})


def test_nested_fields_are_named_with_dots(tmp_path: Path) -> None:
    row = {"request": {"prompt": "p", "model": "m"}, "trace": [{"thought": "a"}, {"thought": "b"}], "log": {"out": {"t": "c"}}}
    (found,) = read(tmp_path, row, map="problem=request.prompt,steps=trace.thought")
    assert (found.problem, found.texts) == ("p", ["a", "b"])
    assert dict(found.extra) == {"request": {"model": "m"}, "trace": row["trace"], "log": row["log"]}
    (found,) = read(tmp_path, row, map="problem=trace.1.thought,steps=log.out.t")
    assert (found.problem, found.texts) == ("b", ["c"])
    assert "log" not in found.extra
    (found,) = read(tmp_path, {"a.b": "p", "steps": ["s"]}, map="problem=a.b")
    assert found.problem == "p"


@pytest.mark.parametrize("steps", [["a", "b"], '["a", "b"]', "a\n\nb", "  Step 1: a\nStep 2: b"])
def test_steps_are_a_list_the_json_of_one_or_a_text(tmp_path: Path, steps: Any) -> None:
    (found,) = read(tmp_path, {"q": "p", "s": steps}, map="problem=q,steps=s")
    assert [text[-1] for text in found.texts] == ["a", "b"]


@pytest.mark.parametrize(("label", "base", "first"), [("1", 0, 1), (1.0, 0, 1), (" 2.0", 1, 1), ("-1", 1, -1), ("", 0, None)])
def test_a_label_is_also_read_from_a_text(tmp_path: Path, label: Any, base: int, first: int | None) -> None:
    row = {"problem": "p", "steps": ["a", "b"], "first_bad": label}
    (found,) = read(tmp_path, row, map="label=first_bad", index_base=base)
    assert found.label == first


def test_a_field_in_the_way_goes_to_meta_and_an_empty_name_moves_it_there(tmp_path: Path) -> None:
    row = {"problem": "p", "steps": 2, "label": "algebra", "work": ["a", "b"]}
    (found,) = read(tmp_path, row, map="steps=work,label=")
    assert (found.texts, found.label, dict(found.meta)) == (["a", "b"], None, {"steps": 2, "label": "algebra"})
    (found,) = read(tmp_path, {"problem": "work", "steps": "p"}, map="problem=steps,steps=problem")
    assert (found.problem, found.texts, dict(found.meta)) == ("p", ["work"], {})


def test_the_fields_of_a_named_format_can_be_set(tmp_path: Path) -> None:
    row = {"q": "p", "a": ["s"], "l": [True]}
    (found,) = read(tmp_path, row, map="prompt=q,completions=a,labels=l", format="trl")
    assert found.step_labels == (1.0,)
    chat = {"log": {"turns": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "s"}]}}
    (found,) = read(tmp_path, chat, map="messages=log.turns")
    assert (found.problem, found.texts) == ("p", ["s"])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("problm=q", "--map cannot set 'problm'; did you mean problem=q? it sets problem, steps, label, step_labels, id, "),
        ("answer=q", "--map cannot set 'answer'; did you mean "),
        ("problem", "--map 'problem' has no '='; write TARGET=FIELD, such as --map problem=prompt,steps=reasoning"),
        ("problem=a,problem=b", "--map sets 'problem' twice, from 'a' and from 'b'"),
    ],
)
def test_a_wrong_map_is_refused(given: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_map([given])
    assert str(caught.value).startswith(says)


def test_a_name_may_contain_a_comma() -> None:
    assert parse_map(["problem=Question, in full,steps=Step 1, text"]) == {
        "problem": "Question, in full",
        "steps": "Step 1, text",
    }


def test_a_missing_field_is_named_with_those_that_are_there(tmp_path: Path) -> None:
    assert error(tmp_path, OWN, map="problem=prompt,steps=resoning") == (
        "--map takes steps from 'resoning', which this row lacks; did you mean --map steps=reasoning?"
        " it has uid, prompt, reasoning, first_bad, model"
    )
    assert "--map takes label from 'frist_bad'" in error(tmp_path, OWN, map="problem=prompt,steps=reasoning,label=frist_bad")
    later = {**OWN, "uid": "u2"}
    del later["first_bad"]  # only the first row must have what is optional
    found = read(tmp_path, OWN, later, map="problem=prompt,steps=reasoning,label=first_bad,id=uid")
    assert [t.label for t in found] == [0, None]
    del later["reasoning"]
    assert "--map takes steps from 'reasoning'" in error(tmp_path, OWN, later, map="problem=prompt,steps=reasoning")


def test_a_null_cell_of_a_table_is_not_a_missing_field(tmp_path: Path) -> None:
    path, names = tmp_path / "x.csv", Options(map=("problem=q,steps=s,label=l",))
    path.write_text("q,s,l\np,a,\np,b,0\n")
    assert [t.label for t in read_trajectories(path, options=names)] == [None, 0]
    path.write_text("q,s,l\np,,0\n")
    with pytest.raises(InputError, match=r"x\.csv:2: 's', which --map takes as steps, is empty in this row"):
        list(read_trajectories(path, options=names))


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"problem": "p", "Steps": ["a"]}, "did you mean --map steps=Steps?"),
        ({"problem": "p", "solution_steps": ["a", "b"]}, "did you mean --map steps=solution_steps?"),
        (OWN, "did you mean --map problem=prompt,steps=reasoning,label=first_bad,id=uid?"),
        ({"Problem Text": "p", "chain-of-thought": "a"}, "did you mean --map 'problem=Problem Text,steps=chain-of-thought'?"),
        ({"problme": "p", "steps": "a"}, "did you mean --map problem=problme?"),
        ({"data": {"question": "p", "cot": ["a"]}}, "did you mean --map problem=data.question,steps=data.cot?"),
        (
            {"task": "p", "trace": [{"thought": "a", "n": 1}, {"thought": "b"}]},
            "did you mean --map problem=task,steps=trace.thought?",
        ),
        ({"log": {"turns": [{"role": "user", "content": "p"}]}}, "did you mean --map messages=log.turns?"),
        (
            {"question": "p", "subject": "algebra"},
            "which field holds the solution? Name it: --map problem=question,steps=FIELD",
        ),
        (
            {"work": "w", "solution_steps": ["a"]},
            "which field holds the problem? Name it: --map steps=solution_steps,problem=FIELD",
        ),
        ({"a": 1}, "name its fields with --map problem=FIELD,steps=FIELD, or write"),
    ],
)
def test_the_map_that_the_names_suggest_is_shown(tmp_path: Path, row: dict[str, Any], says: str) -> None:
    assert says in error(tmp_path, row)


def test_what_is_suggested_works(tmp_path: Path) -> None:
    text = error(tmp_path, {"task": "p", "trace": [{"thought": "a", "n": 1}, {"thought": "b", "n": 2}]})
    (found,) = read(
        tmp_path, {"task": "p", "trace": [{"thought": "a"}, {"thought": "b"}]}, map=text.partition("--map ")[2][:-1]
    )
    assert (found.problem, found.texts) == ("p", ["a", "b"])


@pytest.mark.parametrize("name", ["question", "prompt", "query", "instruction", "input"])
def test_a_usual_name_of_the_problem_beside_a_list_of_steps_is_read_with_a_note(tmp_path: Path, name: str) -> None:
    path, report = tmp_path / "x.jsonl", Report()
    write_records(path, [{name: "p", "steps": ["a", "b"], "label": 1}] * 2)
    found = list(read_trajectories(path, report=report))
    assert [(t.problem, t.texts, t.label) for t in found] == [("p", ["a", "b"], 1)] * 2
    assert report.notes == [f'"{name}" is read as the problem']
    assert detect(path) == "native"
    result = invoke("label", path, "--judge", "rules", "-o", tmp_path / "out.jsonl")
    assert result.stderr.count(f'x.jsonl: "{name}" is read as the problem\n') == 1


def test_given_steps_are_preferred_to_the_text_of_a_solution(tmp_path: Path) -> None:
    (found,) = read(tmp_path, {"question": "p", "solution": "a\n\nb\n\nc", "steps": ["a", "b and c"]})
    assert (found.problem, found.texts) == ("p", ["a", "b and c"])


@pytest.mark.parametrize("command", ["label FILE --judge rules", "score rules FILE", "convert FILE"])
def test_rows_are_written_with_the_names_of_this_package(tmp_path: Path, command: str) -> None:
    path = tmp_path / "own.jsonl"
    write_records(path, [OWN])
    words = command.replace("FILE", str(path)).split()
    result = invoke(*words, "--map", "problem=prompt,steps=reasoning", "--map", "id=uid")
    assert result.exit_code == 0, result.stderr
    row = orjson.loads(result.stdout)
    assert (row["id"], row["problem"], row["steps"]) == ("u1", OWN["prompt"], OWN["reasoning"])


@pytest.mark.parametrize(
    "command",
    [
        "rank FILE --critic rules",
        "cascade tune FILE --first rules --judge rules",
        "analyze credit rules FILE --limit 2",
        "prompts render stepwise --input FILE",
        "evaluate rules FILE",
        "judge-eval rules FILE",
        "dataset build FILE --gold -o SET",
    ],
)
def test_every_command_that_reads_trajectories_takes_names(tmp_path: Path, command: str) -> None:
    path = tmp_path / "own.jsonl"
    write_records(path, [{**OWN, "uid": f"u{n}", "prompt": f"{n}?", "first_bad": n % 2 - 1} for n in range(8)])
    words = command.replace("FILE", str(path)).replace("SET", str(tmp_path / "set")).split()
    result = invoke(*words, "--map", "problem=prompt,steps=reasoning,label=first_bad,id=uid")
    assert result.exit_code == 0, result.stderr
    with pytest.raises(InputError, match="--map takes problem from 'promt', which this row lacks; did you mean --map problem="):
        invoke(*words, "--map", "problem=promt,steps=reasoning")


def test_labels_that_count_from_one_are_read_by_every_command(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    write_records(path, [{**OWN, "first_bad": 2}])
    for command in ("label FILE --judge rules", "evaluate rules FILE"):
        words = command.replace("FILE", str(path)).split()
        names = ("--map", "problem=prompt,steps=reasoning,label=first_bad")
        with pytest.raises(InputError, match=r"label.* is the number 2; it is the first wrong step, 0 to 1, -1 or null"):
            invoke(*words, *names)
        result = invoke(*words, *names, "--index-base", 1)
        assert result.exit_code == 0, result.stderr
        if command.startswith("label"):
            assert orjson.loads(result.stdout)["label"] == 1


def test_names_without_gold_labels_are_refused_where_nothing_would_use_them(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--map names fields of trajectories with gold labels; add --gold"):
        invoke("dataset", "build", tmp_path / "x", "-o", tmp_path / "set", "--map", "problem=prompt")


def test_a_field_far_down_in_lists_is_refused(tmp_path: Path) -> None:
    """The lists of a row are followed one by one; a thousand of them ended the command with a traceback."""
    row = b'{"a":' + b"[" * 950 + b'{"b":"x"}' + b"]" * 950 + b',"steps":["y"]}'
    (tmp_path / "in.jsonl").write_bytes(row)
    with pytest.raises(InputError, match=r"in.jsonl:1: 'a.b' leads too deep into the row"):
        list(read_trajectories(tmp_path / "in.jsonl", options=Options(map=("problem=a.b",))))
