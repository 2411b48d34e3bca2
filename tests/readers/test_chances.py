"""P(correct) from the log-probabilities of the verdict's token: found by its place, summed over spellings, floored and said."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest

from critic_prm.providers.provider import TokenLogprob
from critic_prm.styles.reader import Reading
from critic_prm.styles.readers._chances import YES_NO, Tokens

Read = Callable[..., Reading]

ASK = "It holds.\n\nIs the step correct?"


def tokens(text: str, *last: TokenLogprob) -> tuple[TokenLogprob, ...]:
    """`text` in tokens of up to four characters, sure of themselves, then the given ones."""
    return (*(TokenLogprob(text[k : k + 4], 0.0, ((text[k : k + 4], 0.0),)) for k in range(0, len(text), 4)), *last)


def token(*top: tuple[str, float]) -> TokenLogprob:
    """A token with its alternatives, the sampled one first."""
    return TokenLogprob(top[0][0], top[0][1], top)


def p_correct(read: Read, style: str, text: str, logprobs: Sequence[TokenLogprob]) -> tuple[float | None, tuple[str, ...]]:
    reading = read(style, text, logprobs=tuple(logprobs), steps=1)
    assert reading.status == "ok", reading
    return reading.verdicts[-1].p_correct, reading.notes


def test_the_softmax_over_yes_and_no(read: Read) -> None:
    value, notes = p_correct(read, "yes-no", f"{ASK} Yes", tokens(ASK, token((" Yes", -0.2), (" No", -1.9))))
    assert value == pytest.approx(0.8455347, abs=1e-7)
    assert notes == ()


def test_spellings_of_one_word_are_summed_in_probability(read: Read) -> None:
    top = [(" Yes", 0.3), ("yes", 0.1), (" YES", 0.1), (" No", 0.2), ("no", 0.05), (" Maybe", 0.2)]
    value, _ = p_correct(read, "yes-no", f"{ASK} Yes", tokens(ASK, token(*((word, math.log(p)) for word, p in top))))
    assert value == pytest.approx(0.5 / 0.75)


@pytest.mark.parametrize("shift", [-3.0, -0.5, 0.0])
def test_adding_a_constant_to_both_changes_nothing(shift: float) -> None:
    laid = Tokens("Yes", (token(("Yes", -0.2 + shift), ("No", -1.9 + shift)),))
    assert laid.p_correct(0, YES_NO)[0] == pytest.approx(0.8455347, abs=1e-7)


def test_a_missing_word_is_floored_at_the_smallest_returned_and_said(read: Read) -> None:
    top = token((" Yes", -0.01), (" maybe", -5.0), ("\n", -7.0))
    value, notes = p_correct(read, "yes-no", f"{ASK} Yes", tokens(ASK, top))
    assert value == pytest.approx(1 / (1 + math.exp(-7.0 + 0.01)))
    assert any("floored" in note for note in notes)


def test_little_mass_on_the_two_words_is_said(read: Read) -> None:
    top = token((" Yes", math.log(0.2)), (" No", math.log(0.1)), (" Well", math.log(0.7)))
    value, notes = p_correct(read, "yes-no", f"{ASK} Yes", tokens(ASK, top))
    assert value == pytest.approx(2 / 3)
    assert any("30%" in note for note in notes)


def test_no_alternatives_no_probability(read: Read) -> None:
    value, notes = p_correct(read, "yes-no", f"{ASK} Yes", tokens(ASK, TokenLogprob(" Yes", -0.1)))
    assert value is None
    assert notes


def test_the_place_counts_not_the_word(read: Read) -> None:
    early = "Yes or no? Yes: 3 + 4 = 7.\n\nIs the step correct?"
    laid = (token(("Yes", -0.1), ("No", -9.0)), *tokens(early[3:]), token((" No", -0.2), (" Yes", -1.9)))
    value, _ = p_correct(read, "yes-no", f"{early} No", laid)
    assert value == pytest.approx(1 - 0.8455347, abs=1e-7)


def test_a_verdict_in_several_tokens_is_told_by_the_first(read: Read) -> None:
    start = "Step 1: no.\nThe step is \\boxed{"
    laid = (*tokens(start), token(("in", -0.1), ("correct", -2.5), ("cor", -5.0)), *tokens("correct}"))
    value, _ = p_correct(read, "stepwise", f"{start}incorrect}}", laid)
    right, wrong = math.exp(-2.5) + math.exp(-5.0), math.exp(-0.1)
    assert value == pytest.approx(right / (right + wrong))


def test_a_verdict_within_a_token(read: Read) -> None:
    start = "Step 1: no.\nThe step is \\boxed"
    laid = (*tokens(start), token(("{correct", -0.2), ("{in", -1.9), ("{text", -4.0)), *tokens("}"))
    value, _ = p_correct(read, "stepwise", f"{start}{{correct}}", laid)
    assert value == pytest.approx(0.8455347, abs=1e-7)


def test_every_step_has_its_own(read: Read) -> None:
    one, two = "Step 1: a.\nThe step is \\boxed{", "}\n\nStep 2: b.\nThe step is \\boxed{"
    first, second = token(("correct", -0.1), ("in", -3.0)), token(("in", -0.1), ("correct", -3.0))
    laid = (*tokens(one), first, *tokens(two), second, *tokens("correct}"))
    reading = read("stepwise", f"{one}correct{two}incorrect}}", steps=2, logprobs=laid)
    chances = [v.p_correct for v in reading.verdicts]
    assert chances == pytest.approx([1 / (1 + math.exp(-2.9)), 1 / (1 + math.exp(2.9))])


def test_json_and_neutral_verdicts(read: Read) -> None:
    start = '{"steps": [{"step": 1, "critique": "a", "verdict": "'
    laid = (*tokens(start), token(("correct", -0.2), ("in", -1.9)), *tokens('"}]}'))
    assert p_correct(read, "json", f'{start}correct"}}]}}', laid)[0] == pytest.approx(0.8455347, abs=1e-7)
    start = "It waits.\n\nVerdict:"
    laid = (*tokens(start), token((" neutral", -0.5), (" correct", -1.5), (" incorrect", -3.2)))
    value, notes = p_correct(read, "agent", f"{start} neutral", laid)
    assert value == pytest.approx(1 / (1 + math.exp(-1.7)))
    assert any("%" in note for note in notes)


def test_tokens_that_begin_before_the_visible_text(read: Read) -> None:
    laid = (*tokens("<think>Is the step correct? No</think>"), *tokens(ASK), token((" Yes", -0.2), (" No", -1.9)))
    assert p_correct(read, "yes-no", f"{ASK} Yes", laid)[0] == pytest.approx(0.8455347, abs=1e-7)


def test_thinking_that_is_seen_does_not_move_the_place(read: Read) -> None:
    start = f"<think>Is the step correct? No</think>\n{ASK}"
    laid = tokens(start, token((" Yes", -0.2), (" No", -1.9)))
    assert p_correct(read, "yes-no", f"{start} Yes", laid)[0] == pytest.approx(0.8455347, abs=1e-7)


def test_tokens_of_another_text_are_not_used(read: Read) -> None:
    value, notes = p_correct(read, "yes-no", f"{ASK} Yes", tokens("Something else.", token((" Yes", -0.2), (" No", -1.9))))
    assert value is None
    assert any("do not spell" in note for note in notes)


def test_impossible_values_do_not_break_it() -> None:
    assert Tokens("Yes", (token(("Yes", 0.0), ("No", -math.inf)),)).p_correct(0, YES_NO)[0] == 1.0
    assert Tokens("Yes", (token(("Yes", -9999.0), ("No", -9999.0)),)).p_correct(0, YES_NO)[0] == 0.5
    assert Tokens("Yes", (token(("Yes", math.nan), ("No", math.nan)),)).p_correct(0, YES_NO)[0] is None
