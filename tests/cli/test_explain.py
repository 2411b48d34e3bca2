"""critic-prm explain: one row of a label file, with what was asked, replied and read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from critic_prm.data.records.reading import write_records
from critic_prm.engine.cache import Cache
from critic_prm.errors import UsageError
from tests.command import invoke

GOOD = "Step 1: it holds.\nThe step is \\boxed{correct}\n\nStep 2: 3 is wrong.\nThe step is \\boxed{incorrect}"
ROWS = [{"id": f"row-{i}", "problem": f"What is {i} + 1?", "steps": ["We add.", f"It is {i + 2}."]} for i in range(12)]
ROWS[7]["id"] = "sum-7: a long id"


@pytest.fixture
def labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eleven rows with a verdict, and one that the judge does not judge."""
    monkeypatch.chdir(tmp_path)
    write_records("in.jsonl", ROWS)
    unable = {"text": "I am not able to decide.", "usage": {"prompt_tokens": 9, "completion_tokens": 3}}
    good = [{"contains": f"What is {i} + 1?", "text": GOOD} for i in range(12) if i != 4]
    write_records("replies.jsonl", [{**unable, "contains": "What is 4 + 1?"}, {**unable, "contains": "Your reply"}, *good])
    return labelled("labels.jsonl", "--judge", "scripted/replies.jsonl")


def labelled(out: str, *words: str, code: int = 3) -> Path:
    done = invoke("label", "in.jsonl", "-o", out, *words)
    assert done.exit_code == code, done.output
    return Path(out)


def explained(*words: object) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(invoke("explain", *words, "--json").stdout)
    return found


def test_a_row_without_a_label_is_shown_with_prompt_reply_and_reason(labels: Path) -> None:
    text = invoke("explain", labels, "--status", "unparseable").stdout
    assert text.startswith("row 5 of labels.jsonl, id row-4\nstatus: unparseable\n")
    for part in (
        "reason: no verdict was found",
        "what to do: use another style",
        "18 tokens in, 6 out",
        "[system]\nYou examine solutions.",
        "What is 4 + 1?",
        "-- reply, finish reason stop\nI am not able to decide.",
    ):
        assert part in text
    assert text == invoke("explain", labels).stdout  # the first row without a usable label


def test_the_follow_up_is_shown_without_the_messages_before_it(labels: Path) -> None:
    text = invoke("explain", labels, "row-4").stdout
    assert text.count("You examine solutions.") == 1
    assert "[the first 2 messages are those of the request before]\n[assistant]\nI am not able to decide.\n[user]" in text


def test_verdicts_come_with_the_line_they_were_read_in(labels: Path) -> None:
    found = explained(labels, "row-1")  # exact, although row-10 and row-11 begin with it
    (part,) = found["parts"]
    read = [(verdict["step"], verdict["verdict"], verdict["line"]) for verdict in part["verdicts"]]
    assert read == [(0, "correct", 2), (1, "incorrect", 5)]
    assert part["verdicts"][1]["text"] == "The step is \\boxed{incorrect}"
    assert [turn["source"] for turn in part["turns"]] == ["sent"]
    text = invoke("explain", labels, "row-1").stdout
    assert 'step 1: incorrect, read in line 5: "The step is \\boxed{incorrect}"\n    3 is wrong.\n' in text
    assert "first error: step 1" in text


@pytest.mark.parametrize(
    ("words", "id"), [(("#3",), "row-2"), (("--row", 3), "row-2"), (("row-11",), "row-11"), (("sum",), "sum-7: a long id")]
)
def test_a_row_is_found_by_number_and_by_the_beginning_of_its_id(labels: Path, words: tuple[object, ...], id: str) -> None:
    assert explained(labels, *words)["id"] == id


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("row",), "begin with 'row': row-0, row-1, row-2, row-3, row-4, ...; write more"),
        (("other",), "no row whose id begins with 'other'; its ids are row-0, row-1, row-2"),
        (("--row", 99), "no row number 99"),
        (("--status", "refused"), "no row with the status refused"),
        (("--status", "bad"), "--status is 'bad'; it must be one of ok, truncated"),
    ],
)
def test_what_fits_no_row_is_refused(labels: Path, words: tuple[object, ...], problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        invoke("explain", labels, *words)
    assert problem in str(refused.value)


def test_without_the_replies_the_prompt_is_rendered_again(labels: Path, tmp_path: Path) -> None:
    Cache("other.db").close()
    found = explained(labels, "row-1", "--db", "other.db")
    (turn,) = found["parts"][0]["turns"]
    assert (turn["source"], turn["reply"]) == ("rendered now", None)
    assert "What is 1 + 1?" in turn["messages"][1][1]
    text = invoke("explain", labels, "row-1", "--db", "other.db").stdout
    assert "its reply is not in this cache; name the cache with --db" in text


def test_a_style_that_asks_per_step_shows_each_question(labels: Path) -> None:
    write_records("replies.jsonl", [{"text": "Fine.\nVerdict: Yes"}])
    out = labelled("steps.jsonl", "--judge", "scripted/replies.jsonl", "--style", "yes-no", code=0)
    (part,) = explained(out, "row-0")["parts"]
    assert [len(turn["messages"]) for turn in part["turns"]] == [2, 2]
    assert [(read["verdict"], read["line"]) for read in part["verdicts"]] == [("correct", 2), ("correct", 2)]


def test_several_judges_are_shown_one_by_one(labels: Path) -> None:
    write_records("other.jsonl", [{"text": GOOD}])
    out = labelled("both.jsonl", "--judge", "scripted/replies.jsonl", "--judge", "scripted/other.jsonl")
    found = explained(out, "row-4")
    assert [(part["name"], part["status"]) for part in found["parts"]] == [
        ("sample 0 of scripted/replies.jsonl", "unparseable"),
        ("sample 0 of scripted/other.jsonl", "ok"),
    ]


def test_a_critic_without_replies_shows_its_verdicts(labels: Path) -> None:
    out = labelled("rules.jsonl", "--judge", "rules", code=0)
    text = invoke("explain", out, "row-3").stdout
    assert "critic: provider rules" in text
    assert "step 1: " in text
    assert "-- request" not in text


def test_a_run_that_goes_on_can_be_looked_into(labels: Path) -> None:
    Path(".labels.jsonl.0123456789abcdef.part").write_bytes(labels.read_bytes() + b'{"id": "half')
    assert explained(".labels.jsonl.0123456789abcdef.part", "sum")["row"] == 8


def test_control_characters_of_a_row_reach_no_pipe(labels: Path) -> None:
    """`explain | head` ends at the terminal, which carried out the sequences of a file."""
    rows = [orjson.loads(line) for line in labels.read_bytes().splitlines()]
    write_records(labels, [row | {"problem": "\x1b]0;title\x07"} for row in rows])
    text = invoke("explain", labels, "--row", "1").stdout
    assert "\\u001b]0;title\\u0007" in text
    assert "\x1b" not in text
