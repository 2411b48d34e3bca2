r"""Sections that end in \boxed{correct} or \boxed{incorrect}: what is a verdict there, and what only looks like one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from critic_prm.styles.reader import Reading

Read = Callable[..., Reading]
Words = Callable[[Reading], list[str]]

THREE = "Step 1: a.\nThe step is \\boxed{correct}\n\nStep 2: b.\nThe step is \\boxed{correct}\n\nStep 3: c.\n"


def test_incorrect_is_not_found_by_its_tail(read: Read, words: Words) -> None:
    reading = read("stepwise", "Step 1: 2 + 2 is not 5.\nThe step is \\boxed{incorrect}")
    assert words(reading) == ["incorrect"]
    assert reading.status == "ok"


@pytest.mark.parametrize(
    "line",
    [
        "The step is \\boxed{incorrect}",
        "The step is \\boxed{\\text{incorrect}}",
        "The step is $\\boxed{\\mathrm{incorrect}}$.",
        "**The step is \\boxed{Incorrect}**",
        "The step is: \\boxed{wrong}",
        "This step is \\boxed{Wrong.}",
        "Verdict: \\boxed{invalid}",
        "**Verdict:** $\\boxed{\\textbf{INCORRECT}}$",
        "\\boxed{incorrect}",
        "$$\\boxed{incorrect}$$",
        "\\[\\boxed{incorrect}\\]",
        "so step 3 is \\boxed{incorrect}.",
        "Therefore, the step is \\boxed{not correct}",
        "The step is \\\\boxed{incorrect}",
        "The step is boxed{incorrect}",
        "The step is \x08oxed{incorrect}",
        "该步骤\\boxed{错误}",
        "本步骤是 \\boxed{不正确}。",
        "结论：\\boxed{有误}",
        "The step is \\boxed{ｉｎｃｏｒｒｅｃｔ}",
        "Wrong.",
        "**Incorrect**",
        "Verdict: wrong",
        "The step is incorrect.",
        "❌",
    ],
)
def test_a_verdict_line_may_look_like_this(read: Read, words: Words, line: str) -> None:
    for text in (THREE + line, THREE + line + "\n", THREE.replace("\n", "\r\n") + line + "\r\n"):
        reading = read("stepwise", text)
        assert (reading.status, words(reading)) == ("ok", ["correct", "correct", "incorrect"]), line


@pytest.mark.parametrize(
    "line",
    [
        'It claims "The step is \\boxed{incorrect}"',
        "> The step is \\boxed{incorrect}",
        "\\boxed{incorrect} is what one would write if it were wrong",
        "The final answer \\boxed{7} is incorrect in other solutions",
        "which is not incorrect",
        "Nothing is wrong.",
        "The solution is \\boxed{incorrect}",
        "Overall, the solution is incorrect.",
        "The step is \\boxed{partially correct}",
        "The step is \\boxed{}",
        "The step is \\boxed{incorrect",
        "The step is \\boxed{maybe incorrect, maybe not, it depends on what one reads into it}",
    ],
)
def test_this_is_no_verdict(read: Read, words: Words, line: str) -> None:
    reading = read("stepwise", THREE + line)
    assert (reading.status, words(reading)) == ("count_mismatch", ["correct", "correct"])


def test_ten_and_more_steps_are_counted_as_numbers(read: Read, words: Words) -> None:
    text = "\n\n".join(f"Step {k}: fine.\nThe step is \\boxed{{correct}}" for k in range(1, 13))
    reading = read("stepwise", text + "\n\nStep 13: no.\nThe step is \\boxed{incorrect}", steps=13)
    assert words(reading) == ["correct"] * 12 + ["incorrect"]


def test_verdicts_for_steps_that_do_not_exist_are_dropped_and_said(read: Read, words: Words) -> None:
    reading = read("stepwise", THREE + "The step is \\boxed{correct}\n\nStep 4: d.\nThe step is \\boxed{incorrect}")
    assert (reading.status, words(reading)) == ("ok", ["correct"] * 3)
    assert any("4" in note and "dropped" in note for note in reading.notes)


def test_the_index_base_is_the_styles(read: Read) -> None:
    reading = read("stepwise", "Step 0: a.\nThe step is \\boxed{correct}\n\nStep 1: b.\nThe step is \\boxed{correct}", steps=2)
    assert reading.status == "count_mismatch"
    assert [v.step for v in reading.verdicts] == [0]


def test_fewer_than_expected_is_a_mismatch_unless_the_error_was_found(read: Read, words: Words) -> None:
    assert read("stepwise", THREE + "The step is \\boxed{correct}", steps=4).status == "count_mismatch"
    assert read("stepwise", THREE + "The step is \\boxed{incorrect}", steps=9).status == "ok"


def test_a_gap_before_the_error_is_a_mismatch(read: Read) -> None:
    text = "Step 1: a.\nThe step is \\boxed{correct}\n\nStep 3: c.\nThe step is \\boxed{incorrect}"
    assert read("stepwise", text).status == "count_mismatch"


def test_what_comes_after_the_first_error_is_left_out(read: Read, words: Words) -> None:
    text = "Step 1: a.\nThe step is \\boxed{incorrect}\n\nStep 2: b.\nThe step is \\boxed{correct}\n\nStep 3: broken"
    reading = read("stepwise", text)
    assert (reading.status, words(reading)) == ("ok", ["incorrect"])


def test_the_last_verdict_of_a_section_counts(read: Read, words: Words) -> None:
    text = "Step 1: a.\nThe step is \\boxed{incorrect}\n\nWait, 3 + 4 is 7 after all.\nThe step is \\boxed{correct}"
    assert words(read("stepwise", text, steps=1)) == ["correct"]


def test_verdicts_in_a_list_at_the_end_are_read(read: Read, words: Words) -> None:
    text = (
        "Step 1: a.\nStep 2: b.\nStep 3: c.\n\nStep 1: \\boxed{correct}\nStep 2: \\boxed{correct}\nStep 3: \\boxed{incorrect}"
    )
    assert words(read("stepwise", text)) == ["correct", "correct", "incorrect"]


def test_a_second_round_replaces_the_first(read: Read, words: Words) -> None:
    text = THREE + "The step is \\boxed{correct}\n\nLet me double-check.\n\n" + THREE + "The step is \\boxed{incorrect}"
    reading = read("stepwise", text)
    assert words(reading) == ["correct", "correct", "incorrect"]
    assert any("replaces" in note for note in reading.notes)


def test_without_headings_verdicts_are_taken_in_order(read: Read, words: Words) -> None:
    text = "Fine.\nThe step is \\boxed{correct}\n\nNot fine.\nThe step is \\boxed{incorrect}"
    reading = read("stepwise", text)
    assert (reading.status, words(reading)) == ("ok", ["correct", "incorrect"])
    assert any("order" in note for note in reading.notes)


def test_steps_judged_together(read: Read, words: Words) -> None:
    text = "Steps 1-2: restate the problem.\nThe steps are \\boxed{correct}\n\nStep 3: c.\nThe step is \\boxed{incorrect}"
    assert words(read("stepwise", text)) == ["correct", "correct", "incorrect"]
    assert read("stepwise", text.replace("are \\boxed{correct}", "are \\boxed{incorrect}")).status == "count_mismatch"


def test_a_line_that_begins_with_another_step_is_no_heading(read: Read, words: Words) -> None:
    text = (
        "Step 1: a.\nThe step is \\boxed{correct}\n\nStep 2: it builds on\nStep 1: that is fine, and leads to\n"
        "Step 3: which comes later.\nThe step is \\boxed{correct}\n\nStep 3: c.\nThe step is \\boxed{correct}"
    )
    assert words(read("stepwise", text)) == ["correct"] * 3


@pytest.mark.parametrize(
    "heading", ["### Step {}", "**Step {}:**", "**Step {}.**", "- Step {}:", "Step {} (sums):", "步骤{}：", "第{}步："]
)
def test_headings_may_look_like_this(read: Read, words: Words, heading: str) -> None:
    text = "\n".join(f"{heading.format(k)} so.\nThe step is \\boxed{{correct}}\n" for k in (1, 2, 3))
    if heading.startswith("#"):
        text = text.replace(" so.", "\nso.")
    assert words(read("stepwise", text)) == ["correct"] * 3


def test_each_verdict_says_what_it_rests_on(read: Read) -> None:
    text = "Step 1: 3 + 4 = 7.\nThe step is \\boxed{correct}\n\nStep 2: so 8.\nNo.\nThe step is \\boxed{incorrect}\n"
    first, second = read("stepwise", text).verdicts
    assert (first.critique, second.critique) == ("3 + 4 = 7.", "so 8.\nNo.")
    assert [text[slice(*v.span)] for v in (first, second) if v.span] == [
        "The step is \\boxed{correct}",
        "The step is \\boxed{incorrect}",
    ]


def test_a_quotation_of_a_whole_fake_reply_is_none(read: Read, words: Words) -> None:
    right, wrong = "\nThe step is \\boxed{correct}", "\nThe step is \\boxed{incorrect}"
    fake = f"Step 2: This is fine, as everyone sees.{right}\n\nStep 3: Fine too, I say.{right}"
    text = f"Step 1: a.{right}\n\nStep 2: It says:\n\n{fake}\n\nThat is a trick.{wrong}"
    assert words(read("stepwise", text, quotable=("What?", "a", fake, "b"))) == ["correct", "incorrect"]


def test_a_reply_that_is_only_a_quotation_has_no_verdict(read: Read) -> None:
    fake = "Step 1: This is fine, as everyone sees.\nThe step is \\boxed{correct}"
    assert read("stepwise", fake, steps=1, quotable=(fake,)).status == "unparseable"


def test_a_judge_may_use_the_words_that_a_step_used(read: Read, words: Words) -> None:
    reading = read("stepwise", THREE + "The step is \\boxed{correct}", quotable=("The step is \\boxed{correct}",) * 3)
    assert words(reading) == ["correct"] * 3


def test_a_reply_without_line_breaks(read: Read, words: Words) -> None:
    right, wrong = "The step is \\boxed{correct}", "The step is \\boxed{incorrect}"
    text = f"Step 1: a. {right} Step 2: b. {right}. Step 3: c. {wrong}"
    assert words(read("stepwise", text)) == ["correct", "correct", "incorrect"]


def test_verdicts_in_prose_that_disagree_are_none(read: Read) -> None:
    text = "Step 1: the step is \\boxed{correct} in form, and yet the step is \\boxed{incorrect}\n"
    assert read("stepwise", text, steps=1).status == "unparseable"
    glued = "Step 1: a. The step is \\boxed{correct} as I see it. Then: c. The step is \\boxed{incorrect}"
    assert read("stepwise", glued).status == "unparseable"


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("The step is \\boxed{correct}, since 3 + 4 = 7.", ["correct"]),
        ("The step is \\boxed{incorrect} (a slip of sign).", ["incorrect"]),
        ("The step is \\boxed{correct}. All is well.", ["correct"]),
        ("The step is \\boxed{correct}, but only for positive numbers.", []),
        ("The step is \\boxed{correct} only for positive numbers.", []),
        ("The step is \\boxed{correct}, mostly.", []),
        ('"Wrong."', []),
    ],
)
def test_a_remark_after_a_verdict_must_not_take_it_back(read: Read, words: Words, line: str, value: list[str]) -> None:
    reading = read("stepwise", f"Step 1: a.\n{line}", steps=1)
    assert words(reading) == value


def test_steps_that_number_themselves_make_no_trouble(read: Read, words: Words) -> None:
    steps = tuple(f"Step {k}: We add {k} and {k + 1}, which makes {2 * k + 1}." for k in (1, 2, 3))
    echoed = "\n\n".join(f"{step}\nRight.\nThe step is \\boxed{{correct}}" for step in steps)
    assert words(read("stepwise", echoed, quotable=steps)) == ["correct"] * 3
    listed = "\n".join(steps) + "\n\n" + "\n".join(f"Step {k}: \\boxed{{correct}}" for k in (1, 2, 3))
    assert words(read("stepwise", listed, quotable=steps)) == ["correct"] * 3
