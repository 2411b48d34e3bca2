"""What holds for replies of every shape: refusals, thinking, loops, cuts, and reading in linear time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from critic_prm.providers.provider import Finish, Reply
from critic_prm.styles.prompt import open_style, style_names
from critic_prm.styles.reader import Expect, Reading, loops, read_reply, without_thinking
from tests.effort import times_as_long

GOOD = "Step 1: 3 + 4 = 7.\nThe step is \\boxed{correct}\n\nStep 2: 7 + 1 = 9.\nThe step is \\boxed{incorrect}"


def read(text: str, finish: Finish = "stop", steps: int = 2, quotable: tuple[str, ...] = ()) -> Reading:
    style = open_style("stepwise")
    return read_reply(style, Expect(steps, style.base, style.stops, None, quotable), Reply(text, finish, {}))


@pytest.mark.parametrize("finish", ["refusal", "filter"])
def test_a_refusal_is_refused_whatever_it_says(finish: Finish) -> None:
    assert read(GOOD, finish).status == "refused"


def test_a_reply_that_declines_is_refused() -> None:
    assert read("I'm sorry, but I can't help with that.").status == "refused"


@pytest.mark.parametrize(
    "text",
    [
        "I apologize, but I am not able to provide that information.",
        "I cannot fulfill your request. I am just an AI, it is not within my guidelines.",
        "I’m unable to assist with this problem.",
        "I must respectfully decline to evaluate this material.",
        "I'm not able to help with that, as I'm only a language model.",
        "I'm sorry, I can't continue with this conversation.",
        "抱歉，我无法回答这个问题。",
        "对不起，我不能提供帮助。",
    ],
)
def test_models_own_words_for_declining_are_refusals(text: str) -> None:
    assert read(text).status == "refused"


@pytest.mark.parametrize(
    "text",
    [
        "I am not able to decide whether the second step follows.",
        "I'm not able to decide.",
        "I cannot verify the second step without the figure.",
        "I can't determine the first error.",
        "I'm unable to judge the solution, since the problem is incomplete.",
        "I cannot answer this without the missing table.",
        "I can't provide any verdict on step 2.",
        "I cannot find an error in the solution.",
        "I won't repeat the steps; all of them look fine.",
        "Sorry, my previous reply had no verdicts.",
        "I'm sorry for the confusion. Let me look again.",
        "抱歉，我无法判断。",
    ],
)
def test_a_judge_that_cannot_decide_has_not_refused(text: str) -> None:
    """A refusal is not asked about again; this reply is."""
    assert read(text).status == "unparseable"
    assert read("I can't see an error.\n\n" + GOOD).status == "ok"


@pytest.mark.parametrize(("finish", "status"), [("stop", "unparseable"), ("length", "truncated"), ("other", "unparseable")])
@pytest.mark.parametrize("text", ["", " \n\n\t", "\n" * 800])
def test_nothing_is_not_a_verdict(text: str, finish: Finish, status: str) -> None:
    reading = read(text, finish)
    assert (reading.status, reading.verdicts) == (status, ())


def test_a_cut_reply_with_all_its_verdicts_is_read() -> None:
    reading = read(GOOD + "\n\nAll in all, the sol", "length")
    assert reading.status == "ok"
    assert any("cut" in note for note in reading.notes)


def test_a_cut_reply_without_them_keeps_what_it_has() -> None:
    reading = read(GOOD[: GOOD.index("\\boxed{inc") + 9], "length")
    assert (reading.status, [v.value for v in reading.verdicts]) == ("truncated", ["correct"])


@pytest.mark.parametrize("tag", ["think", "thinking", "THINK", "reasoning"])
def test_thinking_is_not_read(tag: str) -> None:
    thinking = f"<{tag}>\nStep 1: hm.\nThe step is \\boxed{{incorrect}}\n</{tag}>\n\n"
    reading = read(thinking + GOOD)
    assert [v.value for v in reading.verdicts] == ["correct", "incorrect"]
    assert reading.verdicts[0].span is not None
    assert (thinking + GOOD)[slice(*reading.verdicts[0].span)] == "The step is \\boxed{correct}"


def test_thinking_that_the_prompt_opened_is_not_read() -> None:
    assert [v.value for v in read("The step is \\boxed{incorrect}\n</think>\n\n" + GOOD).verdicts] == ["correct", "incorrect"]


def test_thinking_that_never_ends_is_truncated() -> None:
    for finish in ("stop", "length"):
        reading = read("<think>\n" + GOOD, finish)
        assert (reading.status, reading.verdicts) == ("truncated", ())


def test_a_step_cannot_end_the_thinking() -> None:
    step = "So it is done and closed.</think>\nStep 1: fine.\nThe step is \\boxed{correct}"
    thinking = f"<think>The step says: {step}\nThat is a trick.</think>\n"
    assert [v.value for v in read(thinking + GOOD, quotable=(step,)).verdicts] == ["correct", "incorrect"]
    assert without_thinking(f"It says </think>.\n{GOOD}", ("a </think> b",)) == (f"It says </think>.\n{GOOD}", False)


@pytest.mark.parametrize(
    ("text", "looping"),
    [
        ("The sum is 7. " * 40, True),
        ("Start.\n" + "## 260\n" * 200, True),
        ("It follows. " + "Wait, let me check the sum again: 3 + 4 = 7, and so 7 + 1 = 8.\n" * 12 + "Wait, let", True),
        ("-" * 500, True),
        ("The sum is 7. " * 5, False),
        (GOOD * 2, False),
        (" ".join(f"{k} + {k} = {2 * k}," for k in range(200)), False),
        ("", False),
    ],
)
def test_loops_are_recognised(text: str, looping: bool) -> None:
    assert loops(text) is looping


def test_a_loop_is_said() -> None:
    reading = read("Step 1: so.\n" + "The sum is 7. " * 100, "length")
    assert reading.status == "truncated"
    assert any("repeats" in note for note in reading.notes)


def test_a_loop_after_the_verdicts_does_no_harm() -> None:
    assert read(GOOD + "\n\n" + "## 260\n" * 300, "length").status == "ok"


@pytest.mark.parametrize("style", style_names())
@pytest.mark.parametrize(
    "piece",
    [
        "\\boxed{",
        "\\boxed{correct}",
        "\\boxed{1}\n",
        "The step is \\boxed{correct}\n",
        "Step 1:",
        "Step 1: \n",
        "Step 1 ((",
        "Correct.\n",
        "*",
        "#",
        " ",
        "\n",
        ":",
        "{",
        "[",
        '{"steps":[',
        '{"steps":[{"step":1,"verdict":"correct"},',
        '"',
        "\\",
        '{"a":',
        "<think>",
        "</think>",
        "Verdict:",
        "Verdict: \n",
        "Is the step correct? ",
        "Is the step correct? Yes\n",
        "The index is ",
        "第",
        "1. ",
        "> ",
        "```json\n[",
        "boxed",
    ],
)
def test_no_text_takes_more_than_linear_time(style: str, piece: str) -> None:
    opened = open_style(style)
    quotable = ("</think> The step is \\boxed{correct} so Verdict: correct and \\boxed{1} Step 1: " * 20, "a")
    expected = Expect(6, opened.base, opened.stops, 0 if opened.per == "step" else None, quotable)

    def reading(size: int) -> Callable[[], object]:
        reply = Reply("x " + piece * (size // len(piece)), "stop", {})
        return lambda: read_reply(opened, expected, reply)

    # Twenty times the text: twenty times as long, and five times that for a noisy machine. Quadratic would be 400 times.
    assert times_as_long(reading(60_000), reading(3_000), enough=100) <= 100
