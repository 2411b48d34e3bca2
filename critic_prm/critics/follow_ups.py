"""Choose the follow-up to a reply without a usable verdict. The wording is kept in a data file."""

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
    """How to obtain a verdict that can be parsed."""

    reask: int = 1
    """How often to ask again, stating what was wrong, when a reply cannot be parsed or omits steps."""
    force: bool = True
    """Make the judge state its verdicts, once, if its reply was cut off."""
    rounds: int = 0
    """Additional rounds of thinking after a usable verdict."""
    schema: bool = True
    """Request structured outputs if the style has a schema."""

    def check(self) -> None:
        """Raise UsageError if there are more rounds than phrases."""
        phrases = len(_words()["again"])
        if not 0 <= self.rounds <= phrases:
            raise UsageError(f"--think-rounds is {self.rounds}; there are phrases for 0 to {phrases} rounds")


def next_turn(
    talk: Conversation, reading: Reading, style: Style, expected: Expect, left: FollowUps, can_continue: bool
) -> Turn | None:
    """The next turn after `reading`, with the follow-ups that are then left; None if the reading is usable or cannot be
    improved."""
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
    """A conversation ready to be continued. `kind` names the follow-up in the judgement."""

    kind: Kind
    talk: Conversation
    left: FollowUps


def _again(talk: Conversation, left: FollowUps, can_continue: bool) -> Turn:
    """Request another round of thinking, with a new phrase each time (sequential scaling in ThinkPRM, arXiv 2504.16828)."""
    done = sum(1 for joint, _ in talk.parts if joint)  # counts follow-ups of every kind, so no phrase is repeated
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
    """State what was wrong, from the status and verdicts of the reading only. Its notes may be reworded later, and that must
    not change the key of the request."""
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
    """The steps without a verdict, numbered as in the prompt."""
    wanted = range(expected.steps) if expected.step is None else (expected.step,)
    judged = {verdict.step for verdict in reading.verdicts}
    return [step + expected.base for step in wanted if step not in judged]


@cache
def _words() -> Mapping[str, Any]:
    return tomllib.loads(Path(__file__).with_name("phrases.toml").read_text("utf-8"))
