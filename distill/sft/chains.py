"""A judged trajectory in, its critiques as answers to the style's own questions out, or why one is not worth learning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

from critic_prm.data.judgement import Judgement, Verdict, first_error_of
from critic_prm.data.label_rows import labelled_from_json
from critic_prm.data.trajectory import Trajectory
from critic_prm.datasets.rows import Row
from critic_prm.datasets.rules import Critiques, FilterOptions, JudgementRule, judgement_rules
from critic_prm.errors import UsageError
from critic_prm.providers.provider import Message, Reply
from critic_prm.styles.prompt import Style, expect, open_style, questions, render
from critic_prm.styles.reader import read_reply, write_reply

Against = Literal["auto", "gold", "votes"]
Stored: TypeAlias = Callable[[str], Reply | None]
"""The reply that is kept under a key, None where there is none."""
Count: TypeAlias = Callable[[str], int]
"""How many tokens a text has."""

STAGES = ("readable", "label", "complete", "critiques", "format", "length", "chains a solution")
"""What a chain has to pass, in this order: ThinkPRM's conditions (arXiv 2504.16828) and what else spoils a chain."""


@dataclass(frozen=True, slots=True)
class ChainOptions:
    """Which judgements are worth learning.

    `against`: the label a chain must equal: "gold", the "votes" of the row's judgements, or "auto", gold where the row has it.
    `min_agreement`: votes count where at least this share of the ok judgements names the first error. `critiques`: whether
    those of "all" steps, of the "error" step or of none ("off") must be sound (not empty, copied, looping, or shorter than
    `min_words`). `max_tokens` is for the answer.
    """

    against: Against = "auto"
    min_agreement: float = 0.5
    critiques: Critiques = "all"
    min_words: int = 3
    max_tokens: int = 4096

    def check(self) -> None:
        """Raises UsageError for a value that does not exist."""
        if self.against not in get_args(Against):
            raise UsageError(f"--against is {self.against!r}; it is one of {', '.join(get_args(Against))}")
        if not 0 <= self.min_agreement <= 1:
            raise UsageError(f"--min-agreement is {self.min_agreement:g}; it is a share of the judgements, from 0 to 1")
        if self.max_tokens < 1:
            raise UsageError(f"--max-tokens is {self.max_tokens}; it must be at least 1")
        self.rules()

    def rules(self) -> dict[str, JudgementRule]:
        """The rules of `dataset filter` that a chain must pass, by stage."""
        options = FilterOptions(complete=True, matches_gold=True, critiques=self.critiques, min_words=self.min_words)
        options.check()
        return judgement_rules(options)


@dataclass(frozen=True, slots=True)
class Chat:
    """One question of a style and the answer to learn. `step` is None where it is about all steps; `words` are its verdicts."""

    messages: tuple[Message, ...]
    step: int | None
    words: tuple[str, ...]

    @property
    def kind(self) -> str:
        """Whether the answer finds an error."""
        return "erroneous" if "incorrect" in self.words else "correct"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One judgement on its way: the stage that stopped it and why, or the chats it became (`stage` is "")."""

    stage: str
    reason: str
    chats: tuple[Chat, ...] = ()


def style_of(row: Row) -> str | None:
    """The style by which a label file's row was judged, as its card says; None where no prompt was."""
    card = row.data.get("critic") if row.shape == "label file" else None
    if not isinstance(card, dict):
        return None
    named = card.get("style") or next((one.get("style") for one in card.get("judges") or () if isinstance(one, dict)), None)
    return None if named is None else str(named)


@dataclass(frozen=True, slots=True)
class Judged:
    """A row with its judgements. `wanted` is the first error that a chain must name (-1: none), or why there is none;
    `unchecked` says that it is only what its one judgement says."""

    row: Row
    judgements: tuple[Judgement, ...]
    wanted: int | str
    unchecked: bool = False

    @property
    def kind(self) -> str:
        """The class of the solution."""
        return "unlabelled" if isinstance(self.wanted, str) else "erroneous" if self.wanted >= 0 else "correct"


def judged(row: Row, options: ChainOptions) -> Judged:
    """Read the judgements of a row; where one adds several judges up, theirs. Raises InputError."""
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
    one: Judged, style: Style, options: ChainOptions, count: Count, stored: Stored | None = None
) -> Iterator[Candidate]:
    """Every judgement of a row as chats of `style`, or where it stopped.

    The answer is written anew from the critiques, in the form that the style asks for; with `stored`, it is the reply itself,
    up to its last verdict.
    """
    row, rules = one.row, options.rules()
    shown = bool((row.data.get("critic") or {}).get("reference"))
    for judgement in one.judgements:
        if judgement.status != "ok":
            yield Candidate("readable", judgement.status)
        elif isinstance(one.wanted, str):
            yield Candidate("label", one.wanted)
        elif options.against != "votes" and (fault := rules["matches gold"](row, judgement)):
            yield Candidate("label", fault)
        elif judgement.first_error != one.wanted:
            yield Candidate("label", "differs from the label")
        elif fault := rules["complete"](row, judgement):
            yield Candidate("complete", fault)
        elif fault := _unsound(row, judgement, style, rules, shown):
            yield Candidate("critiques", fault)
        else:
            chats = _chats(judgement, style, row.trajectory, stored)
            if isinstance(chats, str):
                yield Candidate("format", chats)
            elif any(count(chat.messages[-1].content) > options.max_tokens for chat in chats):
                yield Candidate("length", "reply too long")
            else:
                yield Candidate("", "", chats)


def _published(row: Row) -> Iterator[Judgement]:
    """A verification chain that the row came with (ThinkPRM's data), in the form of our stepwise style."""
    if isinstance(chain := row.trajectory.meta.get("cot"), str):
        style = open_style("stepwise")
        reading = read_reply(style, expect(style, row.trajectory), Reply(chain, "stop", {}))
        first = first_error_of(reading.verdicts, len(row.trajectory.steps))
        yield Judgement(reading.status, reading.verdicts, first if reading.status == "ok" else None)


def _unsound(row: Row, judgement: Judgement, style: Style, rules: dict[str, JudgementRule], shown: bool) -> str:
    if "critiques" in rules and (fault := rules["critiques"](row, judgement)):
        return fault
    if shown and any("reference" in verdict.critique.casefold() for verdict in judgement.verdicts):
        return "speaks of the reference answer"  # which the student will never be shown
    if "neutral" not in style.source and any(verdict.value == "neutral" for verdict in judgement.verdicts):
        return "neutral verdict"
    return ""


def _chats(judgement: Judgement, style: Style, trajectory: Trajectory, stored: Stored | None) -> tuple[Chat, ...] | str:
    """The questions of the style with the judgement's answers, or why one of them would not be read as it was meant."""
    if trajectory.images:
        return "shows images"
    first = judgement.first_error
    upto = first + 1 if style.stops and first is not None and first >= 0 else len(trajectory.steps)
    verdicts = [verdict for verdict in judgement.verdicts if verdict.step < upto]
    asked = [step for step in questions(style, trajectory) if step is None or step < upto]
    replies = None if stored is None else _replies(judgement, len(asked), stored)
    if isinstance(replies, str):
        return replies
    chats = []
    for place, step in enumerate(asked):
        meant = [verdict for verdict in verdicts if step is None or verdict.step == step]
        if replies is None:
            text = write_reply(style, expect(style, trajectory, step), meant)
            if text is None:
                return "its reader cannot write"
        else:
            text = replies[place].text
        answer = _answer(text, style, trajectory, step, meant)
        if answer is None:
            return "not read back as it was meant"
        messages = (*render(style, trajectory, step), Message("assistant", answer))
        chats.append(Chat(messages, step, tuple(verdict.value for verdict in meant)))
    return tuple(chats)


def _replies(judgement: Judgement, asked: int, stored: Stored) -> list[Reply] | str:
    """The last reply to each question: where it took several, that one must say everything by itself."""
    turns = judgement.turns or (1,) * len(judgement.keys)
    if len(turns) < asked:
        return "asked in another way than the style does"
    keys = iter(judgement.keys)
    replies = [stored([next(keys) for _ in range(count)][-1]) for count in turns[:asked]]
    found = [reply for reply in replies if reply is not None]
    return found if len(found) == len(replies) else "its reply is not in the cache"


def _answer(text: str, style: Style, trajectory: Trajectory, step: int | None, meant: Sequence[Verdict]) -> str | None:
    """The text, without what follows its last verdict where it is read as well without; None if it is not read as meant."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        return None
    expected = expect(style, trajectory, step)
    wanted = [(verdict.step, verdict.value) for verdict in meant]
    whole = read_reply(style, expected, Reply(text, "stop", {}))
    if whole.status != "ok" or [(verdict.step, verdict.value) for verdict in whole.verdicts] != wanted:
        return None
    end = max((verdict.span[1] for verdict in whole.verdicts if verdict.span), default=len(text))
    cut = read_reply(style, expected, Reply(text[:end], "stop", {}))
    return (
        text[:end].strip() if replace(cut, notes=whole.notes) == whole and set(cut.notes) <= set(whole.notes) else text.strip()
    )
