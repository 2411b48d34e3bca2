"""JSON as models write it: fenced, with prose around it, with NaN, with LaTeX, cut in the middle."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.styles.prompt import open_style, question
from critic_prm.styles.reader import Reading

Read = Callable[..., Reading]
Words = Callable[[Reading], list[str]]

GOOD = '{"steps": [{"step": 1, "critique": "a", "verdict": "correct"}, {"step": 2, "critique": "b", "verdict": "incorrect"}]}'
ALL = GOOD.replace("incorrect", "correct").replace("]}", ', {"step": 3, "critique": "c", "verdict": "correct"}]}')


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"```json\n{GOOD}\n```",
        f"Here is my judgement:\n```\n{GOOD}\n```\nI hope that this {{helps}}.",
        GOOD.replace('"critique"', '"score": NaN, "critique"'),
        GOOD.replace('"a"', '"\\\\(x\\\\) is \\(y\\) and \\frac{1}{2}"'),
        GOOD.replace('"a"', '"two\nlines"'),
        GOOD.replace('"step": 1', '"step": "Step 1"').replace('"step": 2', '"step": "2"'),
        GOOD.replace('"step": 1, ', "").replace('"step": 2, ', ""),
        GOOD.replace('"correct"', "true").replace('"incorrect"', "false"),
        GOOD.replace('"incorrect"', '"Wrong."').replace('"correct"', '"正确"'),
        GOOD.replace("verdict", "judgement"),
        GOOD[len('{"steps": ') : -1],
        GOOD.replace("incorrect", "correct") + "\n\nNo, again:\n\n" + GOOD,
        GOOD.replace('"a"', '"it says {\\"verdict\\": \\"incorrect\\"}]} and more"'),
        GOOD.replace("]}", ', {"step": 3, "critique": "after the error", "verdict": "correct"}]}'),
        GOOD.replace("]}", ', {"step": 3, "criti'),
    ],
)
def test_json_may_look_like_this(read: Read, words: Words, text: str) -> None:
    reading = read("json", text)
    assert (reading.status, words(reading)) == ("ok", ["correct", "incorrect"]), reading.notes


@pytest.mark.parametrize(
    ("text", "status", "count"),
    [
        ("no JSON at all", "unparseable", 0),
        ('{"steps": []}', "unparseable", 0),
        ('{"steps": "none"}', "unparseable", 0),
        ('{"verdict": "correct"}', "unparseable", 0),
        (ALL.replace('"c", "verdict": "correct"', '"c", "verdict": "unsure"'), "count_mismatch", 2),
        (ALL.replace('"c", "verdict": "correct"', '"c", "verdict": 0.5'), "count_mismatch", 2),
        (ALL.replace('"c", "verdict": "correct"', '"c"'), "count_mismatch", 2),
        (ALL.replace('"step": 3', '"step": 7'), "count_mismatch", 2),
        (ALL[:-30], "truncated", 2),
        (ALL[:100], "truncated", 1),
        (ALL[:40], "unparseable", 0),
    ],
)
def test_what_cannot_be_read_is_said(read: Read, text: str, status: str, count: int) -> None:
    reading = read("json", text)
    assert (reading.status, len(reading.verdicts)) == (status, count), reading.notes
    assert reading.notes


def test_an_item_is_what_a_verdict_rests_on(read: Read) -> None:
    reading = read("json", f"```json\n{GOOD}\n```")
    text = f"```json\n{GOOD}\n```"
    assert [json.loads(text[slice(*v.span)])["critique"] for v in reading.verdicts if v.span] == ["a", "b"]
    assert [v.critique for v in reading.verdicts] == ["a", "b"]


def test_json_that_a_step_brought_is_not_the_judges(read: Read, words: Words) -> None:
    text = f"The step says {GOOD}, which is no mathematics.\n{ALL}"
    assert words(read("json", text, quotable=(GOOD,))) == ["correct"] * 3
    assert words(read("json", f"{ALL}\nThe step says {GOOD}.", quotable=(GOOD,))) == ["correct"] * 3
    assert read("json", GOOD, quotable=(GOOD,)).status == "unparseable"


def test_the_schema_puts_the_critique_first_and_allows_nothing_else() -> None:
    trajectory = Trajectory("t", "p", (Step("a"), Step("b")))
    wanted = question(open_style("json"), trajectory).schema
    assert wanted is not None
    item = wanted["properties"]["steps"]["items"]
    assert list(item["properties"]) == item["required"] == ["step", "critique", "verdict"]
    assert item["properties"]["verdict"]["enum"] == ["correct", "incorrect"]
    assert item["additionalProperties"] is wanted["additionalProperties"] is False
    assert question(open_style("stepwise"), trajectory).schema is None
