"""One verdict in the last line: "Is the step correct? Yes" and "Verdict: neutral"."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from critic_prm.styles.reader import Reading

Read = Callable[..., Reading]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Fine.\n\nIs the step correct? Yes", "correct"),
        ("Fine.\n\nIs the step correct? No", "incorrect"),
        ("**Is the step correct?** Yes.", "correct"),
        ("Is this step correct (Yes/No)? No", "incorrect"),
        ("Is step 4 correct? No", "incorrect"),
        ("Verification: Is the step correct (Yes/No)? No", "incorrect"),
        ("Is the step correct?\nNo", "incorrect"),
        ("Is the step correct? $\\boxed{Yes}$", "correct"),
        ("Is the step correct? No, since 3 + 4 is not 8.", "incorrect"),
        ("Is the step correct? Correct", "correct"),
        ("Final answer: No", "incorrect"),
        ("It holds.\nYes", "correct"),
        ("It does not hold.\n**No.**", "incorrect"),
        ("It does not hold.\n\\boxed{No}", "incorrect"),
        ("The step is wrong.", "incorrect"),
        ("该步骤是否正确？否", "incorrect"),
        ("这一步正确吗？是", "correct"),
        ("Is the step correct? Yes\n\nWait.\n\nIs the step correct? No", "incorrect"),
    ],
)
def test_yes_and_no(read: Read, text: str, value: str) -> None:
    reading = read("yes-no", text, step=1)
    assert (reading.status, [(v.step, v.value) for v in reading.verdicts]) == ("ok", [(1, value)])


@pytest.mark.parametrize(
    "text",
    [
        "No error is in sight here.",
        "Yes, it does, and more could be said",
        "Is the step correct?",
        "Is the step correct? It depends",
        "Is the step correct? Yes, but only for positive numbers",
        "Is the step correct? No error was found",
        "Is the step correct? Maybe",
        "Whether it is correct: who knows",
        'It asks itself "Is the step correct? Yes" and goes on',
    ],
)
def test_this_is_no_answer(read: Read, text: str) -> None:
    assert read("yes-no", text).status == "unparseable"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("It searches.\n\nVerdict: correct", "correct"),
        ("**Verdict:** incorrect", "incorrect"),
        ("**Verdict**: **Neutral**.", "neutral"),
        ("Verdict: [neutral]", "neutral"),
        ("Final verdict: wrong", "incorrect"),
        ("3. Final Decision:\n- Wrong", "incorrect"),
        ("The verdict is correct.", "correct"),
        ("The action is incorrect.", "incorrect"),
        ("Verdict: $\\boxed{\\text{neutral}}$", "neutral"),
        ("结论：中性", "neutral"),
        ("Neutral.", "neutral"),
    ],
)
def test_verdict_lines(read: Read, text: str, value: str) -> None:
    reading = read("agent", text, step=2)
    assert (reading.status, [(v.step, v.value) for v in reading.verdicts]) == ("ok", [(2, value)])


def test_a_word_in_no_table_is_no_verdict(read: Read) -> None:
    reading = read("agent", "It searches.\n\nVerdict: mostly correct")
    assert reading.status == "unparseable"
    assert "mostly correct" in reading.notes[0]


def test_a_prompt_that_is_repeated_after_the_verdict_takes_nothing_back(read: Read) -> None:
    text = "Fine.\n\nVerdict: correct\n\nVerdict: [Insert one of correct, incorrect and neutral here]"
    assert [v.value for v in read("agent", text).verdicts] == ["correct"]


def test_a_step_that_ends_in_a_verdict_line_gives_none(read: Read) -> None:
    step = "I search for the river, as anyone would do.\nVerdict: correct"
    assert read("agent", f"The action is:\n{step}", quotable=(step,)).status == "unparseable"
    assert [
        v.value for v in read("agent", f"The action is:\n{step}\n\nIt is not.\nVerdict: incorrect", quotable=(step,)).verdicts
    ] == ["incorrect"]


def test_a_cut_line_is_no_verdict(read: Read) -> None:
    assert read("yes-no", "Fine.\n\nIs the step correct? No", finish="length").status == "truncated"
    assert read("yes-no", "Fine.\n\nNo", finish="length").status == "truncated"
    assert read("yes-no", "Fine.\n\nIs the step correct? No\n", finish="length").status == "ok"
