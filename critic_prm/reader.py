"""From a reply's text to verdicts: the words every reader shares. One reply shape a file in `readers/`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from critic_prm.judgement import Status, Verdict
from critic_prm.provider import TokenLogprob


@dataclass(frozen=True, slots=True)
class Expect:
    """What a reply should contain.

    `steps` is how many the trajectory has; `base` the number the prompt gave its first step (0 or 1); `stops` whether the
    style ends at the first error; `step` (0-based) which single step was asked about, None for all of them. `quotable` is all
    text that the trajectory put in front of the judge: what a reply copies from it is a quotation, never a verdict.
    """

    steps: int
    base: int = 1
    stops: bool = False
    step: int | None = None
    quotable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reader found: verdicts in step order, and notes on what it forgave."""

    status: Status
    verdicts: tuple[Verdict, ...] = ()
    notes: tuple[str, ...] = ()


class Reader(Protocol):
    """A module in `readers/` has `read` of this shape, and may have `schema(expect)`, the JSON schema to ask for."""

    def __call__(self, text: str, expect: Expect, logprobs: tuple[TokenLogprob, ...] = ()) -> Reading: ...


Schema = Mapping[str, Any]
