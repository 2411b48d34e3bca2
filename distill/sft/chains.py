"""Turn judgements into answers to the style's own questions, or say why a judgement is not worth learning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from critic_prm.data.judgement import Judgement, Verdict, first_error_of
from critic_prm.data.label_rows import labelled_from_json
from critic_prm.data.trajectory import Trajectory
from critic_prm.datasets.filters import FilterOptions, JudgementRule, judgement_rules
from critic_prm.datasets.rows import Row
from critic_prm.providers.provider import Message, Reply
from critic_prm.styles.prompt import Question, Style, expect, open_style, questions
from critic_prm.styles.reader import read_reply, write_reply
from distill.settings import ChainOptions

Stored: TypeAlias = Callable[[str], Reply | None]
"""Looks up the stored reply of a key; None if there is none."""
Count: TypeAlias = Callable[[str], int]
"""Counts the tokens of a text."""

STAGES = ("readable", "label", "complete", "critiques", "format", "length", "chains a solution")
"""The filters that a chain must pass, in this order: ThinkPRM's conditions (arXiv 2504.16828) and further defects."""


@dataclass(frozen=True, slots=True)
class Chat:
    """One question of a style and the answer to learn. `step` is None if it is about all steps; `words` are its verdicts."""

    messages: tuple[Message, ...]
    step: int | None
    words: tuple[str, ...]

    @property
    def kind(self) -> str:
        """Return the class of the answer: "erroneous" if it finds an error, else "correct"."""
        return "erroneous" if "incorrect" in self.words else "correct"


@dataclass(frozen=True, slots=True)
class Candidate:
    """The result of filtering one judgement: the stage that stopped it and the reason, or its chats with a `stage` of ""."""

    stage: str
    reason: str
    chats: tuple[Chat, ...] = ()


def style_of(row: Row) -> str | None:
    """Return the style that judged a label file's row, from its critic card; None if no prompt was used."""
    card = row.data.get("critic") if row.shape == "label file" else None
    if not isinstance(card, dict):
        return None
    named = card.get("style") or next((one.get("style") for one in card.get("judges") or () if isinstance(one, dict)), None)
    return None if named is None else str(named)


@dataclass(frozen=True, slots=True)
class Judged:
    """A row with its judgements.

    `wanted` is the first error that a chain must name (-1: none), or the reason why there is none. `unchecked` is true if it
    rests on a single judgement.
    """

    row: Row
    judgements: tuple[Judgement, ...]
    wanted: int | str
    unchecked: bool = False

    @property
    def kind(self) -> str:
        """Return the class of the solution."""
        return "unlabelled" if isinstance(self.wanted, str) else "erroneous" if self.wanted >= 0 else "correct"


def judged(row: Row, options: ChainOptions) -> Judged:
    """Read the judgements of a row; for a combined judgement, those of its judges. Raises InputError."""
    gold = None if options.against == "votes" else row.trajectory.first_error()
    if row.shape != "label file":
        return Judged(row, tuple(_published(row)), "no gold label" if gold is None else gold)
    whole = labelled_from_json(row.data, row.where).label.judgements
    judgements = tuple(part for judgement in whole for part in judgement.parts or (judgement,))
    if gold is not None:
        return Judged(row, judgements, gold)
    if options.against == "gold" or row.first_error is None:
        return Judged(row, judgements, "no gold label" if options.against == "gold" else "no first error")
    firsts = [judgement.first_error for judgement in whole if judgement.status == "ok"]
    agreed = firsts.count(row.first_error) >= options.min_agreement * len(firsts) - 1e-12
    return Judged(row, judgements, row.first_error if agreed else "low agreement", len(judgements) == 1)


def candidates(
    labelled: Judged, style: Style, options: ChainOptions, count: Count, stored: Stored | None = None
) -> Iterator[Candidate]:
    """Turn every judgement of a row into chats of `style`, or give the stage that stopped it.

    Without `stored`, the answer is written from the critiques in the format of the style. With `stored`, it is the original
    reply up to its last verdict.
    """
    row, rules = labelled.row, _rules(options)
    shows_reference = bool((row.data.get("critic") or {}).get("reference"))
    for judgement in labelled.judgements:
        if judgement.status != "ok":
            yield Candidate("readable", judgement.status)
        elif isinstance(labelled.wanted, str):
            yield Candidate("label", labelled.wanted)
        elif options.against != "votes" and (fault := rules["matches gold"](row, judgement)):
            yield Candidate("label", fault)
        elif judgement.first_error != labelled.wanted:
            yield Candidate("label", "differs from the label")
        elif fault := rules["complete"](row, judgement):
            yield Candidate("complete", fault)
        elif fault := _unsound(row, judgement, style, rules, shows_reference):
            yield Candidate("critiques", fault)
        else:
            chats = _chats(judgement, style, row.trajectory, stored)
            if isinstance(chats, str):
                yield Candidate("format", chats)
            elif any(count(chat.messages[-1].content) > options.max_tokens for chat in chats):
                yield Candidate("length", "reply too long")
            else:
                yield Candidate("", "", chats)


def _rules(options: ChainOptions) -> dict[str, JudgementRule]:
    """Return the rules of `dataset filter` that a chain must pass, by stage."""
    rules = FilterOptions(complete=True, matches_gold=True, critiques=options.critiques, min_words=options.min_words)
    return judgement_rules(rules)


def _published(row: Row) -> Iterator[Judgement]:
    """Parse the verification chain that a row of ThinkPRM's data brings, which is in the format of the `stepwise` style."""
    if isinstance(chain := row.trajectory.meta.get("cot"), str):
        style = open_style("stepwise")
        reading = read_reply(style, expect(style, row.trajectory), Reply(chain, "stop", {}))
        first = first_error_of(reading.verdicts, len(row.trajectory.steps))
        yield Judgement(reading.status, reading.verdicts, first if reading.status == "ok" else None)


def _unsound(row: Row, judgement: Judgement, style: Style, rules: dict[str, JudgementRule], shows_reference: bool) -> str:
    if "critiques" in rules and (fault := rules["critiques"](row, judgement)):
        return fault
    if shows_reference and any("reference" in verdict.critique.casefold() for verdict in judgement.verdicts):
        return "speaks of the reference answer"  # the student never sees the reference answer
    for word in ("neutral", "corrected"):
        if word not in style.source and any(verdict.value == word for verdict in judgement.verdicts):
            return f"{word} verdict"
    return ""


def _chats(judgement: Judgement, style: Style, trajectory: Trajectory, stored: Stored | None) -> tuple[Chat, ...] | str:
    """Return the questions of the style with the judgement's answers, or the reason why one of them is unusable."""
    if trajectory.images:
        return "shows images"
    first = judgement.first_error
    stop = first + 1 if style.stops and first is not None and first >= 0 else len(trajectory.steps)
    verdicts = [verdict for verdict in judgement.verdicts if verdict.step < stop]
    asked = [one for one in questions(style, trajectory) if one.expect.step is None or one.expect.step < stop]
    replies = None if stored is None else _replies(judgement, len(asked), stored)
    if isinstance(replies, str):
        return replies
    chats = []
    for place, question in enumerate(asked):
        step = question.expect.step
        expected_verdicts = [verdict for verdict in verdicts if step is None or verdict.step == step]
        if replies is None:
            text = write_reply(style, question.expect, expected_verdicts)
            if text is None:
                return "its reader cannot write"
        else:
            text = replies[place].text
        answer = _answer(text, question, expected_verdicts)
        if answer is None:
            return "not read back as it was meant"
        messages = (*question.messages, Message("assistant", answer))
        chats.append(Chat(messages, step, tuple(verdict.value for verdict in expected_verdicts)))
    return tuple(chats)


def _replies(judgement: Judgement, asked: int, stored: Stored) -> list[Reply] | str:
    """Return the last reply to each question; if a question took several turns, the last reply must be complete by itself."""
    turns = judgement.turns or (1,) * len(judgement.keys)
    if len(turns) < asked:
        return "asked in another way than the style does"
    keys = iter(judgement.keys)
    replies = [stored([next(keys) for _ in range(count)][-1]) for count in turns[:asked]]
    complete = [reply for reply in replies if reply is not None]
    return complete if len(complete) == len(replies) else "its reply is not in the cache"


def _answer(text: str, question: Question, expected_verdicts: Sequence[Verdict]) -> str | None:
    """Return the text, cut after its last verdict if the rest is redundant; None if it does not parse as intended."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        return None
    style, expected = question.style, question.expect
    wanted = [(verdict.step, verdict.value) for verdict in expected_verdicts]
    whole = read_reply(style, expected, Reply(text, "stop", {}))
    if whole.status != "ok" or [(verdict.step, verdict.value) for verdict in whole.verdicts] != wanted:
        return None
    end = max((verdict.span[1] for verdict in whole.verdicts if verdict.span), default=len(text))
    cut = read_reply(style, expected, Reply(text[:end], "stop", {}))
    return (
        text[:end].strip() if replace(cut, notes=whole.notes) == whole and set(cut.notes) <= set(whole.notes) else text.strip()
    )
