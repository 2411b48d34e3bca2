r"""The index of the first error in \boxed{}: what is the conclusion, and what a number that happens to be boxed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from critic_prm.styles.reader import Reading

Read = Callable[..., Reading]
Words = Callable[[Reading], list[str]]

BODY = "Paragraph 0: fine.\n\nParagraph 1: 3 + 4 is not 8.\n\n"


@pytest.mark.parametrize(
    ("ending", "first"),
    [
        ("\\boxed{1}", 1),
        ("$\\boxed{1}$", 1),
        ("$$\\boxed{\\text{1}}$$", 1),
        ("**\\boxed{1}**", 1),
        ("The index of the earliest error is \\boxed{1}.", 1),
        ("Final answer: \\boxed{1}", 1),
        ("The earliest error is in paragraph 1, so the answer is $\\boxed{1}$, as said.", 1),
        ("\\boxed{paragraph 1}", 1),
        ("\\boxed{\\text{paragraph\\_1}}", 1),
        ("\\boxed{-1}", -1),
        ("\\boxed{−1}", -1),
        ("\\boxed{-1 }", -1),
        ("\\boxed{none}", -1),
        ("\\boxed{无}", -1),
        ("The index is 1.", 1),
        ("Final answer: -1", -1),
        ("**Answer:** 1", 1),
    ],
)
def test_the_conclusion_may_look_like_this(read: Read, words: Words, ending: str, first: int) -> None:
    reading = read("first-error", BODY + ending)
    assert reading.status == "ok", reading
    assert words(reading) == (["correct"] * 3 if first < 0 else ["correct"] * first + ["incorrect"])


@pytest.mark.parametrize(
    "ending",
    [
        "",
        "That is all.",
        "\\boxed{3}",
        "\\boxed{7}",
        "\\boxed{1.5}",
        "\\boxed{x=1}",
        "\\boxed{1, 2}",
        "\\boxed{}",
        "\\boxed{1",
        'It says "the index is \\boxed{1}" itself, without reason.',
        "There is no error in 1 of the paragraphs.",
    ],
)
def test_this_is_no_conclusion(read: Read, ending: str) -> None:
    reading = read("first-error", BODY + ending)
    assert (reading.status, reading.verdicts) == ("unparseable", ())
    assert reading.notes


def test_a_result_boxed_in_a_critique_is_no_index(read: Read, words: Words) -> None:
    text = "Paragraph 0: it finds $\\boxed{1}$.\n\nParagraph 1: the answer\n\n\\boxed{2}\n\nis right.\n\nParagraph 2: fine."
    assert read("first-error", text).status == "unparseable"
    assert words(read("first-error", text + "\n\n\\boxed{-1}")) == ["correct"] * 3


def test_the_last_conclusion_counts(read: Read, words: Words) -> None:
    assert words(read("first-error", BODY + "\\boxed{0}\n\nWait, that was wrong.\n\n\\boxed{1}")) == ["correct", "incorrect"]


def test_more_than_ten_paragraphs(read: Read, words: Words) -> None:
    assert words(read("first-error", BODY + "\\boxed{12}", steps=15)) == ["correct"] * 12 + ["incorrect"]


def test_an_index_outside_says_what_there_is(read: Read) -> None:
    reading = read("first-error", BODY + "\\boxed{3}")
    assert "0 to 2" in reading.notes[0]


def test_a_result_that_the_last_step_boxes_is_no_conclusion(read: Read) -> None:
    text = BODY + "Paragraph 2: it concludes that the answer is \\boxed{2}, and so it is"
    assert read("first-error", text, quotable=("So the answer is \\boxed{2}.",)).status == "unparseable"


def test_critiques_go_with_their_paragraphs(read: Read) -> None:
    text = BODY + "\\boxed{1}"
    reading = read("first-error", text)
    assert [v.critique for v in reading.verdicts] == ["fine.", "3 + 4 is not 8."]
    assert {text[slice(*v.span)] for v in reading.verdicts if v.span} == {"\\boxed{1}"}


@pytest.mark.parametrize("text", [BODY + "So far the result is\n\\boxed{1}", BODY + "The index is 1", BODY + "\\boxed{1}"])
def test_in_a_cut_reply_a_box_must_be_said_to_be_the_index(read: Read, text: str) -> None:
    assert read("first-error", text, finish="length").status == "truncated"


def test_a_reply_cut_after_its_conclusion_is_read(read: Read, words: Words) -> None:
    reading = read("first-error", BODY + "The earliest error is in paragraph 1.\n\n\\boxed{1}\n\nIn other wor", finish="length")
    assert (reading.status, words(reading)) == ("ok", ["correct", "incorrect"])
