"""Explain one row of a label file: what was asked and replied, how the reply was read, and why there is no label."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any

import orjson

from critic_prm.data.judgement import Judgement, Verdict
from critic_prm.data.label_rows import LabelledTrajectory, labelled_from_json
from critic_prm.data.records.reading import OnError, read_records
from critic_prm.engine.cache import Cache
from critic_prm.errors import CriticPrmError, UsageError
from critic_prm.label.reasons import explained
from critic_prm.label.reread import conversation_of, style_named
from critic_prm.providers.models import abilities
from critic_prm.providers.provider import Usage
from critic_prm.styles.prompt import questions

SHOWN_IDS = 5


@dataclass(frozen=True, slots=True)
class Turn:
    """One request and its reply."""

    key: str
    messages: Sequence[tuple[str, str]] = ()
    """(role, text) of each message."""
    source: str = ""
    """Where the messages come from: "sent" or "rendered now"; "" without messages."""
    reply: str | None = None
    """The reply as it came; None if this cache has none."""
    finish: str = ""
    attempts: Sequence[Mapping[str, Any]] = ()
    """Failed attempts at this request."""


@dataclass(frozen=True, slots=True)
class Read:
    """A verdict, and the line of the replies in which it was read."""

    step: int
    verdict: str
    p_correct: float | None
    critique: str
    line: int | None
    """1-based, in the replies of its question."""
    text: str | None
    """What was read there."""


@dataclass(frozen=True, slots=True)
class Part:
    """One judgement: of a sample, and with several judges of one of them."""

    name: str
    status: str
    reason: str
    advice: str
    notes: Sequence[str]
    how: Sequence[str]
    first_error: int | None
    verdicts: Sequence[Read]
    turns: Sequence[Turn]
    usage: Usage
    cost_usd: float | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything that is known about one row."""

    file: str
    row: int
    id: str
    status: str
    first_error: int | None
    problem: str
    steps: Sequence[str]
    p_correct: Sequence[float | None]
    critic: Mapping[str, Any]
    cache: str
    parts: Sequence[Part] = field(default_factory=tuple)

    def to_json(self) -> dict[str, Any]:
        """The explanation as a JSON object."""
        return asdict(self)


def find_row(
    file: str, id: str | None = None, row: int | None = None, status: str | None = None
) -> tuple[int, LabelledTrajectory]:
    """Find a row by its id or the beginning of it, by its number (1-based), or as the first one with a status. Without any of
    these: the first row without a usable label.

    Returns the number and the row. Raises UsageError if no row or several rows fit, and InputError.
    """
    begun: list[tuple[int, Any, str]] = []
    on_error: OnError = "skip" if file.endswith(".part") else "stop"  # of a run that goes on, the last line may be incomplete
    for number, record in enumerate(read_records(file, on_error=on_error), 1):
        data = record.data if isinstance(record.data, dict) else {}
        fits = (row is None or number == row) and (status is None or data.get("status") == status)
        if id is None:
            if fits and (row is not None or status is not None or data.get("status") != "ok"):
                return number, labelled_from_json(record.data, record.where)
        elif fits and str(data.get("id")) == id:
            return number, labelled_from_json(record.data, record.where)
        elif fits and str(data.get("id", "")).startswith(id) and len(begun) <= SHOWN_IDS:
            begun.append((number, record.data, record.where))
    if len(begun) == 1:
        number, data, where = begun[0]
        return number, labelled_from_json(data, where)
    raise UsageError(_not_found(file, id, row, status, [str(data["id"]) for _, data, _ in begun]))


def _not_found(file: str, id: str | None, row: int | None, status: str | None, begun: Sequence[str]) -> str:
    if begun:
        more = ", ..." if len(begun) > SHOWN_IDS else ""
        return f"the ids of several rows of {file} begin with {id!r}: {', '.join(begun[:SHOWN_IDS])}{more}; write more of it"
    wanted = [f"with the status {status}"] if status else []
    wanted += [f"number {row}"] if row is not None else []
    wanted += [f"whose id begins with {id!r}"] if id is not None else []
    if not wanted:
        return f"every row of {file} has a label; name a row by its id, or by its number with --row"
    first = [str(record.data.get("id")) for record in islice(read_records(file), 3) if isinstance(record.data, dict)]
    return f"{file} has no row {' and '.join(wanted)}; its ids are {', '.join(first)}, ..."


def explain(file: str, number: int, row: LabelledTrajectory, cache: Cache | None, style: str | None = None) -> Explanation:
    """Explain a row with the replies in `cache`; None if there is no cache. `style` is the file of a custom prompt."""
    trajectory, label = row.trajectory, row.label
    explainer = _Explainer(row, cache, style)
    return Explanation(
        file=file,
        row=number,
        id=trajectory.id,
        status=label.status,
        first_error=label.first_error,
        problem=trajectory.problem,
        steps=[step.text for step in trajectory.steps],
        p_correct=label.p_correct,
        critic=row.critic,
        cache="" if cache is None else str(cache.path),
        parts=[part for judgement in label.judgements for part in explainer.parts(judgement, row.critic)],
    )


@dataclass(frozen=True)
class _Explainer:
    row: LabelledTrajectory
    cache: Cache | None
    style: str | None

    def parts(self, judgement: Judgement, card: Mapping[str, Any]) -> Iterator[Part]:
        """The judgement itself or, if it combines several judges, theirs."""
        if judgement.parts:
            cards = {one.get("judge"): one for one in card.get("judges", ())}
            for part in judgement.parts:
                yield from self.parts(replace(part, sample=judgement.sample), cards.get(part.judge, {}))
            return
        name = f"sample {judgement.sample}" + (f" of {judgement.judge}" if judgement.judge else "")
        reason, advice = ("", "") if judgement.status == "ok" else explained(judgement.status, judgement.notes)
        asked = self._asked(judgement)
        prompts = self._rendered(card) if any(self._missing(key) for key in judgement.keys) else []
        turns = [
            self._turn(key, prompts[index] if not place and index < len(prompts) else ())
            for index, keys in enumerate(asked)
            for place, key in enumerate(keys)
        ]
        prices = abilities(str(card.get("provider")), str(card.get("model"))).prices
        yield Part(
            name=name,
            status=judgement.status,
            reason=reason,
            advice=advice,
            notes=judgement.notes,
            how=judgement.how,
            first_error=judgement.first_error,
            verdicts=self._read(judgement, asked, card),
            turns=turns,
            usage=judgement.usage,
            cost_usd=prices.cost(judgement.usage) if prices else None,
        )

    def _asked(self, judgement: Judgement) -> list[Sequence[str]]:
        """The keys of each question."""
        keys = iter(judgement.keys)
        return [list(islice(keys, count)) for count in judgement.turns or (1,) * len(judgement.keys)]

    def _missing(self, key: str) -> bool:
        return self.cache is None or self.cache.request(key) is None

    def _turn(self, key: str, rendered: Sequence[tuple[str, str]]) -> Turn:
        if self.cache is None:
            return Turn(key, rendered, "rendered now" if rendered else "")
        wire, reply = self.cache.request(key), self.cache.reply(key)
        messages = rendered if wire is None else messages_in(wire)
        source = "sent" if wire is not None else "rendered now" if rendered else ""
        text, finish = (None, "") if reply is None else (reply.text, reply.finish)
        return Turn(key, messages, source, text, finish, self.cache.attempts(key))

    def _rendered(self, card: Mapping[str, Any]) -> list[list[tuple[str, str]]]:
        """The prompts of all questions, rendered again; none if the style is not there or has changed since."""
        with suppress(CriticPrmError):
            style = style_named(str(card.get("style")), self.style)
            if card.get("fingerprint") in (None, style.fingerprint):
                asked = questions(style, self.row.trajectory, reference=bool(card.get("reference")))
                return [[(message.role, message.content) for message in each.messages] for each in asked]
        return []

    def _read(self, judgement: Judgement, asked: Sequence[Sequence[str]], card: Mapping[str, Any]) -> list[Read]:
        talks = [None if self.cache is None else conversation_of(self.cache, keys) for keys in asked]
        per_step = len(talks) > 1
        found = []
        for place, verdict in enumerate(judgement.verdicts):
            talk = talks[min(place if per_step else 0, len(talks) - 1)] if talks else None
            found.append(_where(verdict, "" if talk is None else talk.reply.text))
        return found


def _where(verdict: Verdict, text: str) -> Read:
    line = shown = None
    if verdict.span is not None and 0 <= verdict.span[0] < verdict.span[1] <= len(text):
        line, shown = text.count("\n", 0, verdict.span[0]) + 1, text[verdict.span[0] : verdict.span[1]]
    return Read(verdict.step, verdict.value, verdict.p_correct, verdict.critique, line, shown)


def messages_in(wire: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(role, text) of each message of a request body in the format of OpenAI or Anthropic; else the whole body as JSON."""
    messages = wire.get("messages")
    if not isinstance(messages, list):
        return [("request", orjson.dumps(wire, option=orjson.OPT_INDENT_2).decode())]
    found = [("system", _text(wire["system"]))] if "system" in wire else []
    return found + [(str(one.get("role")), _text(one.get("content"))) for one in messages if isinstance(one, dict)]


def _text(content: Any) -> str:
    """The text of a message's content, which may be a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    named = [part if isinstance(part, dict) else {"text": str(part)} for part in parts]
    return "\n".join(str(part["text"]) if "text" in part else f"[{part.get('type')}]" for part in named)
