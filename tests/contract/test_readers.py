"""Every reader of the registry parses what it writes, never fails on other text, and imputes nothing."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from critic_prm.critics.conversation import matches_schema
from critic_prm.data.judgement import Verdict
from critic_prm.registry import load, names
from critic_prm.styles.reader import Expect, Reading

READERS = names("reader")
VALUES = ("correct", "incorrect")


def expected(name: str) -> Expect:
    """What a reply contains: one step for a reader of single verdicts, else three."""
    return Expect(3, step=1) if getattr(load("reader", name), "PER", "") == "step" else Expect(3)


def read(name: str, text: str, expect: Expect) -> Reading:
    reading = load("reader", name).read(text, expect)
    assert isinstance(reading, Reading)
    return reading


def written(name: str, values: list[str], expect: Expect) -> tuple[str, list[Verdict]]:
    """A reply with these verdicts, and the verdicts that it holds: an index implies that judging ended at the first error."""
    steps = range(expect.steps) if expect.step is None else [expect.step]
    verdicts: list[Any] = [Verdict(step, value, f"Step by step: {step}.") for step, value in zip(steps, values, strict=False)]  # type: ignore[arg-type]
    if name == "boxed-index" and "incorrect" in values:
        verdicts = verdicts[: values.index("incorrect") + 1]
    return load("reader", name).write(verdicts, expect), verdicts


@pytest.mark.parametrize("name", READERS)
@given(values=st.lists(st.sampled_from(VALUES), min_size=3, max_size=3))
def test_a_written_reply_is_read_back(name: str, values: list[str]) -> None:
    expect = expected(name)
    text, verdicts = written(name, values, expect)
    reading = read(name, text, expect)
    assert reading.status == "ok", reading.notes
    assert [(v.step, v.value) for v in reading.verdicts] == [(v.step, v.value) for v in verdicts]
    assert all(v.span is not None and 0 <= v.span[0] < v.span[1] <= len(text) for v in reading.verdicts)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    "text", ["", " \n", "I like this solution.", "{", "\\boxed{", "Step 1:", "Verdict:", "\x00", "正", "]" * 50]
)
def test_text_without_verdicts_gives_none(name: str, text: str) -> None:
    reading = read(name, text, expected(name))
    assert (reading.status, reading.verdicts) == ("unparseable", ())
    assert reading.notes


@pytest.mark.parametrize("name", READERS)
def test_damaged_replies_never_raise_and_keep_to_the_steps_asked_about(name: str) -> None:
    rng, expect = random.Random(0), expected(name)
    for _ in range(300):
        text, _ = written(name, [rng.choice(VALUES) for _ in range(3)], expect)
        place = rng.randrange(len(text))
        damaged = rng.choice((text[:place], text[place:], text[:place] + rng.choice('{}[]"\\\n<>:1') + text[place:], text * 2))
        reading = read(name, damaged, expect)
        steps = [verdict.step for verdict in reading.verdicts]
        assert steps == sorted(set(steps))
        assert set(steps) <= (set(range(3)) if expect.step is None else {expect.step})


@pytest.mark.parametrize("name", [name for name in READERS if hasattr(load("reader", name), "schema")])
@pytest.mark.parametrize("step", [None, 1])
def test_a_written_reply_matches_the_schema(name: str, step: int | None) -> None:
    expect = Expect(3, step=step)
    text, _ = written(name, ["correct", "correct", "incorrect"], expect)
    schema = load("reader", name).schema(expect)
    assert matches_schema(text, schema)
    assert json.dumps(schema)
