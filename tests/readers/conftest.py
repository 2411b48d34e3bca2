"""What the reader tests share: reading a text as a reply to a style."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from critic_prm.providers.provider import Finish, Reply, TokenLogprob
from critic_prm.styles.prompt import open_style
from critic_prm.styles.reader import Expect, Reading, read_reply

Read = Callable[..., Reading]


def _read(
    style: str,
    text: str,
    steps: int = 3,
    step: int | None = None,
    finish: Finish = "stop",
    quotable: tuple[str, ...] = (),
    logprobs: tuple[TokenLogprob, ...] = (),
) -> Reading:
    opened = open_style(style)
    if opened.per == "step" and step is None:
        step = 0
    expected = Expect(steps, opened.base, opened.stops, step, quotable)
    return read_reply(opened, expected, Reply(text, finish, {}, logprobs=logprobs))


@pytest.fixture(scope="session")
def read() -> Read:
    """`read(style, text, steps=3, step=None, finish="stop", quotable=(), logprobs=())`."""
    return _read


@pytest.fixture(scope="session")
def words() -> Callable[[Reading], list[str]]:
    """The verdicts' words, which must be those of steps 0, 1, 2, ... without a gap."""

    def words_of(reading: Reading) -> list[str]:
        assert [v.step for v in reading.verdicts] == list(range(len(reading.verdicts))), reading
        return [v.value for v in reading.verdicts]

    return words_of
