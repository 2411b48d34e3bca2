"""Every packaged style asks about all steps, shows everything, and names a reader that understands its replies."""

from __future__ import annotations

import pytest

from critic_prm.data.judgement import Verdict
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.providers.provider import Reply
from critic_prm.registry import names
from critic_prm.styles.prompt import Question, expectations, open_style, questions, style_names
from critic_prm.styles.reader import read_reply, write_reply

SOLUTION = Trajectory(
    "t",
    "What is 6 * 7?",
    (Step("6 * 7 = 41."), Step("I look it up.", "6 * 7 = 42"), Step("So it is 42.")),
    gold_answer="golden",
)


def asked(name: str, reference: bool = False) -> list[Question]:
    return list(questions(open_style(name), SOLUTION, reference=reference))


@pytest.mark.parametrize("name", style_names())
def test_the_first_line_names_a_reader_and_the_style_describes_itself(name: str) -> None:
    style = open_style(name)
    assert style.reader in names("reader")
    assert style.about
    assert len(style.fingerprint) == 12


@pytest.mark.parametrize("name", style_names())
def test_the_questions_cover_every_step_once(name: str) -> None:
    steps = [question.expect.step for question in asked(name)]
    assert steps == ([None] if open_style(name).per == "trajectory" else [0, 1, 2])
    assert [question.expect for question in asked(name)] == expectations(open_style(name), SOLUTION)


@pytest.mark.parametrize("name", style_names())
def test_a_question_ends_with_a_user_message_and_shows_what_it_asks_about(name: str) -> None:
    for question in asked(name):
        assert question.messages[-1].role == "user"
        text = "\n".join(message.content for message in question.messages)
        shown = SOLUTION.steps if question.expect.step is None else SOLUTION.steps[: question.expect.step + 1]
        assert all(part in text for part in (SOLUTION.problem, *(step.text for step in shown)))
        assert "golden" not in text


@pytest.mark.parametrize("name", style_names())
def test_equal_content_gives_equal_messages_whatever_its_id(name: str) -> None:
    other = Trajectory("another", SOLUTION.problem, SOLUTION.steps)
    assert [q.messages for q in questions(open_style(name), other)] == [q.messages for q in asked(name)]


@pytest.mark.parametrize("name", style_names())
def test_a_reply_in_the_styles_own_format_is_read(name: str) -> None:
    for question in asked(name):
        steps = range(3) if question.expect.step is None else [question.expect.step]
        verdicts = [Verdict(step, "correct", "It follows.") for step in steps]
        text = write_reply(question.style, question.expect, verdicts)
        assert text is not None
        reading = read_reply(question.style, question.expect, Reply(text, "stop", {}))
        assert reading.status == "ok", reading.notes
        assert [verdict.value for verdict in reading.verdicts] == ["correct"] * len(verdicts)
