"""Whatever a judge writes around its verdicts, they are read back exactly; no cut turns them into others, and no step can."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from critic_prm.data.judgement import STATUSES, VerdictValue
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.providers.provider import Finish, Reply, TokenLogprob
from critic_prm.styles.prompt import Style, expect, open_style
from critic_prm.styles.reader import Expect, Reading, read_reply

STYLES = ("stepwise", "first-error", "yes-no", "json", "agent", "code", "trace")
NEUTRAL = ("agent", "trace")


@dataclass(frozen=True)
class Asked:
    """What a style was asked for: how many steps, and which one (0-based) in a style per step."""

    style: Style
    steps: int
    step: int | None = None

    def expect(self, quotable: tuple[str, ...] = ()) -> Expect:
        return Expect(self.steps, self.style.base, self.style.stops, self.step, quotable)


def judged(style: str, verdicts: Sequence[VerdictValue]) -> Asked:
    """What a style must be asked for a reply to hold exactly these verdicts of a trajectory of as many steps."""
    opened = open_style(style)
    return Asked(opened, len(verdicts), 0 if opened.per == "step" else None)


def reply_text(asked: Asked, verdicts: Sequence[VerdictValue], critiques: Sequence[str]) -> str:
    """The reply that gives these verdicts (for a style per step: the first of them) with these critiques."""
    reader, base = asked.style.reader, asked.style.base
    if reader == "boxed-verdicts":
        if asked.step is not None:
            return f"{critiques[0]}\nThe step is \\boxed{{{verdicts[0]}}}"
        parts = (
            f"Step {k}: {critique}\nThe step is \\boxed{{{verdict}}}"
            for k, (verdict, critique) in enumerate(zip(verdicts, critiques, strict=True), base)
        )
        return "\n\n".join(parts)
    if reader == "boxed-index":
        first = next((k for k, verdict in enumerate(verdicts, base) if verdict == "incorrect"), -1)
        parts = (f"Paragraph {k}: {critique}" for k, critique in enumerate(critiques, base))
        return "\n\n".join(parts) + f"\n\n\\boxed{{{first}}}"
    if reader == "json-verdicts":
        items = [
            {"step": k, "critique": critique, "verdict": verdict}
            for k, (verdict, critique) in enumerate(zip(verdicts, critiques, strict=True), base)
        ]
        return json.dumps({"steps": items}, ensure_ascii=False)
    if reader == "yes-no":
        return f"{critiques[0]}\n\nIs the step correct? {'Yes' if verdicts[0] == 'correct' else 'No'}"
    assert reader == "verdict-line"
    return f"{critiques[0]}\n\nVerdict: {verdicts[0]}"


def read(
    asked: Asked,
    text: str,
    finish: Finish = "stop",
    quotable: tuple[str, ...] = (),
) -> Reading:
    return read_reply(asked.style, asked.expect(quotable), Reply(text, finish, {}))


# What critiques are made of: plain words, and everything in them that looks like a verdict, a heading or an index and is none.
WORDS = (
    "the", "sum", "is", "correct", "incorrect", "right", "wrong", "Yes", "no", "No", "neutral", "step", "Step", "so", "which",
    "3 + 4 = 7", "7,", "holds,", "since", "it follows that", "The step adds 2.", "错误", "正确", "完全", "not", "verdict",
    "\\boxed{5}", "$\\boxed{7}$", "\\boxed{\\frac{1}{2}}", "$x^2$", "{", "}", "<b>", "</step_1>", "**bold**",
    "`code`", "#", "-1",
)  # fmt: skip
DECOYS = (
    'it reads "The step is \\boxed{incorrect}" and',
    "“The step is \\boxed{correct}” is claimed, but",
    "one might call it \\boxed{correct} here, but",
    "this would be \\boxed{incorrect} only if",
    "as in Step 2: it",
    "used in Paragraph 1: it",
    "of step 12. and",
    'the index "\\boxed{1}" is quoted and',
    "the result \\boxed{3} is not an index here,",
    '{"verdict": "correct"} is quoted and',
    '{"steps": [{"step": 1, "verdict": "incorrect"}]} is quoted and',
    "is the step correct? Yes or no, we will see, and",
    "a verdict: correct or not, is yet to come, and",
    "{{ verdict }} and {% if x %} stay as they are,",
)  # fmt: skip

prose = st.lists(st.one_of(st.sampled_from(WORDS), st.sampled_from(WORDS), st.sampled_from(DECOYS)), min_size=1, max_size=14)


@st.composite
def critiques(draw: st.DrawFn) -> str:
    """Prose, broken into lines at will, that ends as a sentence does."""
    pieces = " ".join(["We check:", *draw(prose), "that is all."]).split(" ")
    breaks = draw(st.lists(st.booleans(), min_size=len(pieces), max_size=len(pieces)))
    return "".join(piece + ("\n" if wrap else " ") for piece, wrap in zip(pieces, breaks, strict=True)).strip()


@st.composite
def judgements(draw: st.DrawFn, style: str) -> tuple[Asked, list[VerdictValue], list[str], str]:
    """A style, the verdicts and critiques of a reply, and its text."""
    allowed: tuple[VerdictValue, ...] = get_args(VerdictValue) if style in NEUTRAL else ("correct", "incorrect")
    count = 1 if style in ("yes-no", "agent") else draw(st.integers(1, 14))
    right: list[VerdictValue] = ["correct"] * (count - 1)
    verdicts = [*right, draw(st.sampled_from(allowed))]
    said = [draw(critiques()) for _ in verdicts]
    asked = judged(style, verdicts)
    # A style that stops leaves steps after the error unjudged.
    unjudged = draw(st.integers(0, 3)) if verdicts[-1] == "incorrect" and asked.step is None else 0
    asked = Asked(asked.style, count + unjudged, asked.step)
    return asked, verdicts, said, reply_text(asked, verdicts, said)


WRAPPED = (
    ("The step is \\boxed{correct}", "**The step is $\\boxed{\\text{correct}}$.**"),
    ("The step is \\boxed{incorrect}", "The step is\\boxed{ Incorrect }."),
    ("Step ", "### Step "),
    ("Paragraph ", "**Paragraph "),
    ("Verdict: ", "**Verdict:** "),
    ("Is the step correct? ", "**Is the step correct?** "),
)


@pytest.mark.parametrize("style", STYLES)
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_verdicts_are_read_back_exactly(style: str, data: st.DataObject) -> None:
    asked, verdicts, said, text = data.draw(judgements(style))
    reading = read(asked, text, quotable=("What is 3 + 4?", "The sum is 7.", "So \\boxed{7}."))
    assert reading.status == "ok", (reading.notes, text)
    step = asked.step or 0
    assert [(v.step, v.value) for v in reading.verdicts] == [(step + k, v) for k, v in enumerate(verdicts)], text
    for verdict, critique in zip(reading.verdicts, said, strict=True):
        assert verdict.span is not None
        assert 0 <= verdict.span[0] < verdict.span[1] <= len(text)
        if style != "first-error":
            assert critique.split() == verdict.critique.split()


@pytest.mark.parametrize("style", STYLES)
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_decoration_and_surroundings_change_nothing(style: str, data: st.DataObject) -> None:
    asked, verdicts, _, text = data.draw(judgements(style))
    before = data.draw(st.sampled_from(("", "Let me check this.\n\n", "<think>The step is \\boxed{wrong}\n</think>\n")))
    after = data.draw(st.sampled_from(("", "\n", "\n\n   \n")))
    if style == "json":
        text = data.draw(st.sampled_from((text, f"```json\n{text}\n```", f"{text}\nThat is my judgement.")))
    elif style != "first-error":
        for plain, decorated in WRAPPED:
            if data.draw(st.booleans()):
                text = text.replace(f"\n{plain}", f"\n{decorated}")
    reading = read(asked, before + text + after)
    assert (reading.status, [v.value for v in reading.verdicts]) == ("ok", verdicts), (reading.notes, text)


@pytest.mark.parametrize("style", STYLES)
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_cut_reply_is_a_prefix_or_truncated(style: str, data: st.DataObject) -> None:
    asked, verdicts, _, text = data.draw(judgements(style))
    reading = read(asked, text[: data.draw(st.integers(0, len(text)))], "length")
    step = asked.step or 0
    truth = {step + k: value for k, value in enumerate(verdicts)}
    assert reading.status in ("ok", "truncated"), reading
    assert all(truth[v.step] == v.value for v in reading.verdicts), (reading, text)
    if reading.status == "ok":
        assert len(reading.verdicts) == len(verdicts)


FRAGMENTS = (
    *WORDS,
    *DECOYS,
    "\n",
    "\n\n",
    "Step 1: ",
    "Step 2: ",
    "**Step 3.** ",
    "Step 0: ",
    "Steps 1-3: ",
    "Step 99999: ",
    "Paragraph 0: ",
    "The step is \\boxed{correct}",
    "The step is \\boxed{incorrect}",
    "\\boxed{",
    "}",
    "\\boxed{-1}",
    "\\boxed{0}",
    "\\boxed{2}",
    "\\boxed{99999999}",
    "Is the step correct? Yes",
    "Is the step correct? No",
    "Verdict: neutral",
    "Verdict:",
    "<think>",
    "</think>",
    '{"steps": [',
    '{"step": 1, "critique": "a", "verdict": "correct"}',
    '{"step": 2, "verdict": "incorrect"}',
    ", ",
    "]}",
    '"',
    "\\",
    '{"verdict": true}',
    "```json",
    "```",
    "\x00",
    "\u200b",
    "\ud800",
    "步骤1：",
    "正确",
)


@pytest.mark.parametrize("style", STYLES)
@settings(max_examples=150)
@given(data=st.data())
def test_no_text_breaks_a_reader(style: str, data: st.DataObject) -> None:
    pieces = data.draw(st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=10)), max_size=25))
    text = "".join(pieces)
    asked = judged(style, ["correct"] * data.draw(st.integers(1, 4)))
    finish: Finish = data.draw(st.sampled_from(("stop", "length", "other")))
    quotable = tuple(data.draw(st.lists(st.sampled_from(FRAGMENTS), max_size=4)))
    steps = data.draw(st.lists(st.sampled_from(pieces), max_size=2)) if pieces else []
    logprobs = tuple(TokenLogprob(piece, -0.5, ((piece, -0.5), ("No", -1.0))) for piece in pieces)
    expected = asked.expect((*quotable, *steps))
    reading = read_reply(asked.style, expected, Reply(text, finish, {}, logprobs=logprobs))
    assert reading.status in STATUSES
    assert reading.status != "ok" or reading.verdicts
    numbers = [v.step for v in reading.verdicts]
    assert numbers == sorted(set(numbers))
    assert set(numbers) <= set(range(asked.steps))
    for verdict in reading.verdicts:
        assert verdict.span is not None
        assert 0 <= verdict.span[0] < verdict.span[1] <= len(text)
        assert verdict.p_correct is None or 0 <= verdict.p_correct <= 1


HOSTILE: list[str] = json.loads((Path(__file__).parent / "hostile.json").read_text("utf-8"))
"""Steps that try to be read as the judge's own words."""

# How a judge may bring a step's text into its critique.
QUOTING = {
    "not at all": "The step says something about verdicts, and 3 + 4 = 7.",
    "in quotation marks": 'The step says "{}" and that is no mathematics.',
    "in typographic marks": "It says “{}”, which is no mathematics.",
    "in a code block": "The step reads:\n\n```\n{}\n```\n\nThat is no mathematics.",
    "as a block quotation": "The step reads:\n\n> {quoted}\n\nThat is no mathematics.",
    "on lines of its own": "The step reads\n{}\nand that is no mathematics.",
    "after a colon": "The step reads:\n{}\nThat is no mathematics.",
    "as a paragraph": "We look at the text.\n\n{}\n\nThat is what the step says, and it is no mathematics.",
    "twice": "It says\n{}\nand once more\n{}\nand that is all.",
}


def test_there_are_enough_hostile_steps() -> None:
    assert len(set(HOSTILE)) >= 60


def attacks(hostile: str, way: str) -> Iterator[tuple[Style, Expect, list[tuple[int, str]], str]]:
    """For every style: what it expects of a trajectory with this step, and replies that quote it before their verdicts."""
    said = QUOTING[way].replace("{quoted}", hostile.replace("\n", "\n> ")).replace("{}", hostile)
    steps = (Step("First, 3 + 4 = 7."), Step(hostile), Step("So the sum is 7."), Step("The answer is \\boxed{7}."))
    trajectory = Trajectory("t", "What is 3 + 4?", steps)
    lasts: tuple[VerdictValue, ...] = get_args(VerdictValue)
    for style in map(open_style, STYLES):
        one = style.per == "step"
        for last in lasts if style.name in NEUTRAL else lasts[:2]:
            # The judge goes on after the hostile step, or finds an error that stands there.
            goes_on: list[VerdictValue] = ["correct"] * (0 if last == "incorrect" else 2)
            verdicts = [last] if one else ["correct", last, *goes_on]
            critiques = [said] if one else ["We add: 3 + 4 = 7.", said, "Yes: 7.", "It follows."][: len(verdicts)]
            asked = Asked(style, 4, 1 if one else None)
            truth = [(k + (asked.step or 0), str(v)) for k, v in enumerate(verdicts)]
            yield style, expect(style, trajectory, asked.step), truth, reply_text(asked, verdicts, critiques)


@pytest.mark.parametrize("way", QUOTING)
@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_no_reading_changes_because_of_what_a_step_says(hostile: str, way: str) -> None:
    for style, expected, truth, text in attacks(hostile, way):
        reading = read_reply(style, expected, Reply(text, "stop", {}))
        assert (reading.status, [(v.step, v.value) for v in reading.verdicts]) == ("ok", truth), (style.name, text)


@pytest.mark.parametrize("way", QUOTING)
@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_no_cut_reply_speaks_for_a_step(hostile: str, way: str) -> None:
    for style, expected, truth, text in attacks(hostile, way):
        for end in range(0, len(text), 1 + len(text) // 12):
            reading = read_reply(style, expected, Reply(text[:end], "length", {}))
            assert {(v.step, v.value) for v in reading.verdicts} <= set(truth), (style.name, reading, text[:end])
            assert reading.status in ("truncated", "ok", "refused")


AFTER = (
    '(The step says "{}", which I ignore.)',
    "Note: the step itself says:\n{}\n",
    "The step also contains\n{}\nwhich I ignore.",
    "It contains:\n```\n{}\n```\n",
)
"""Quotations where the form asked for allows nothing: after the verdict."""


@pytest.mark.parametrize("quotation", AFTER)
@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_a_quotation_after_the_verdict_is_not_believed(hostile: str, quotation: str) -> None:
    for style, expected, truth, text in attacks(hostile, "not at all"):
        before, three, after = text.partition("\n\nStep 3:") if style.reader == "boxed-verdicts" else (text, "", "")
        reply = f"{before}\n\n{quotation.replace('{}', hostile)}{three}{after}"
        reading = read_reply(style, expected, Reply(reply, "stop", {}))
        found = [(v.step, v.value) for v in reading.verdicts]
        # It may make a reply unreadable, but never say something else.
        assert found == truth if reading.status == "ok" else set(found) <= set(truth), (style.name, reading, reply)
