"""A reading that is not good enough -> what to say next, and under which name that goes down; the words are data."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from string import Template
from typing import Any, Literal

from critic_prm.critics.conversation import Conversation
from critic_prm.errors import UsageError
from critic_prm.styles.prompt import Style
from critic_prm.styles.reader import Expect, Reading

Kind = Literal["re-asked", "forced", "thought again"]


@dataclass(frozen=True, slots=True)
class FollowUps:
    """How far to go for a verdict that can be read.

    A reply that cannot be read, or leaves steps out, is followed up to `reask` times by a question that says what was wrong;
    one that was cut is forced to its verdicts once if `force`. After that the judge thinks again for `rounds` rounds. `schema`
    asks for structured outputs where the style has a schema.
    """

    reask: int = 1
    force: bool = True
    rounds: int = 0
    schema: bool = True

    def check(self) -> None:
        """Raises UsageError for more rounds than there are phrases."""
        phrases = len(_words()["again"])
        if not 0 <= self.rounds <= phrases:
            raise UsageError(f"--think-rounds is {self.rounds}; there are phrases for 0 to {phrases} rounds")


def next_turn(
    talk: Conversation, reading: Reading, style: Style, expected: Expect, left: FollowUps, can_continue: bool
) -> Turn | None:
    """What to say after `reading`, and what is `left` to do then; None when it is good enough, or as good as it gets."""
    if reading.status == "ok":
        return _again(talk, left, can_continue) if left.rounds else None
    if not talk.reply.text.strip() or reading.status not in _words()["complaint"]:
        return None
    if reading.status == "truncated":
        return _forced(talk, reading, style, expected, left, can_continue) if left.force else None
    if not left.reask:
        return None
    asked = talk.ask(_request(reading, style, expected))
    return Turn("re-asked", asked, replace(left, reask=left.reask - 1))


@dataclass(frozen=True, slots=True)
class Turn:
    """A conversation ready to be gone on with; `kind` is what that is called in a judgement."""

    kind: Kind
    talk: Conversation
    left: FollowUps


def _again(talk: Conversation, left: FollowUps, can_continue: bool) -> Turn:
    """Another round of thinking, with another phrase each time (ThinkPRM's sequential scaling, arXiv 2504.16828)."""
    done = sum(1 for joint, _ in talk.parts if joint)  # follow-ups of any kind take their turn too: no phrase comes twice
    phrases = _words()["again"]
    phrase = phrases[done % len(phrases)]
    further = talk.go_on(f"{phrase['goes_on']}\n\n") if can_continue else talk.ask(phrase["told"])
    return Turn("thought again", further, replace(left, rounds=left.rounds - 1))


def _forced(talk: Conversation, reading: Reading, style: Style, expected: Expect, left: FollowUps, can_continue: bool) -> Turn:
    left = replace(left, force=False)
    lead = _words()["lead"].get(style.reader) if can_continue else None
    if lead is None:
        return Turn("forced", talk.ask(_request(reading, style, expected)), left)
    missing = _missing(reading, expected)
    if expected.step is None and missing:
        heading = f"Step {missing[0]}:"
        begun = talk.reply.text[max((v.span[1] for v in reading.verdicts if v.span), default=0) :]
        lead = lead if heading in begun or style.reader != "boxed-verdicts" else f"{heading} as far as it was examined.\n{lead}"
    return Turn("forced", talk.go_on(lead), left)


def _request(reading: Reading, style: Style, expected: Expect) -> str:
    """What was wrong, from the facts of the reading alone: its notes may be worded otherwise tomorrow, and the request's key
    must not change with them."""
    words = _words()
    values = {
        "missing": ", ".join(str(number) for number in _missing(reading, expected)),
        "first": str(expected.base),
        "last": str(expected.base + expected.steps - 1),
        "until": words["until"]["stops"] if expected.stops else "",
    }
    texts = (words["complaint"][reading.status], words["wanted"][style.reader])
    return " ".join(Template(text.strip()).substitute(values) for text in texts)


def _missing(reading: Reading, expected: Expect) -> list[int]:
    """The steps without a verdict, by the numbers that the prompt gave them."""
    wanted = range(expected.steps) if expected.step is None else (expected.step,)
    judged = {verdict.step for verdict in reading.verdicts}
    return [step + expected.base for step in wanted if step not in judged]


@cache
def _words() -> Mapping[str, Any]:
    return tomllib.loads(Path(__file__).with_name("phrases.toml").read_text("utf-8"))
