"""Parse the stored replies behind label rows again with the current readers, and report what changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from critic_prm.critics.combined import Ruling, merge
from critic_prm.critics.conversation import Conversation
from critic_prm.critics.llm import QuestionResult, as_judgement, is_enough, used_chances
from critic_prm.data.judgement import Judgement, Label, combine
from critic_prm.data.label_rows import LabelledTrajectory
from critic_prm.data.trajectory import Trajectory
from critic_prm.engine.cache import Cache
from critic_prm.errors import UsageError
from critic_prm.providers.provider import read_stored
from critic_prm.registry import names
from critic_prm.styles.prompt import Style, expectations, open_style, style_in_data
from critic_prm.styles.reader import read_reply


@dataclass
class Changes:
    """Changes by style: counts of (before, after) statuses and verdicts, and the number of judgements compared.

    `missing` judgements have replies that are not in the cache; they are left unchanged.
    """

    compared: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)
    statuses: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    verdicts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    missing: int = 0
    labels: int = 0

    def compare(self, style: str, before: Judgement, after: Judgement) -> None:
        self.compared[style] += 1
        old, new = ({verdict.step: verdict.value for verdict in one.verdicts} for one in (before, after))
        differing = [(old.get(step, "none"), new.get(step, "none")) for step in old | new if old.get(step) != new.get(step)]
        self.changed[style] += bool(differing) or before.status != after.status
        self.verdicts.update((style, *pair) for pair in differing)
        if before.status != after.status:
            self.statuses[style, before.status, after.status] += 1

    def lines(self) -> list[str]:
        lines = []
        for style, total in self.compared.most_common():
            lines.append(f"{style}: {total:,} judgements read again, {self.changed[style]:,} changed")
            for what, counts in (("status", self.statuses), ("verdict", self.verdicts)):
                lines += [f"  {what} {old} -> {new}: {n:,}" for (where, old, new), n in counts.most_common() if where == style]
        if self.missing:
            lines.append(f"{self.missing:,} judgements stay as they were: their replies are not in the cache")
        lines.append(f"{self.labels:,} labels changed")
        return lines


def reread(
    rows: Iterable[LabelledTrajectory], cache: Cache, changes: Changes, own_style: str | None = None
) -> Iterator[tuple[Trajectory, Label, Mapping[str, Any]]]:
    """Yield each row's trajectory, its label parsed again from the stored replies, and its card. Sends no requests.

    Replies are found by the keys in the judgements, so later changes of a prompt do not matter. `own_style` is the file of a
    custom prompt, for rows whose card names one. Raises UsageError if a style cannot be found.
    """
    reader = _Rereader(cache, changes, own_style)
    for row in rows:
        steps = len(row.trajectory.steps)
        judgements = [reader.judgement(judgement, row.trajectory, row.critic) for judgement in row.label.judgements]
        label = combine(judgements, steps, row.critic.get("prior", "none")) if judgements else row.label
        changes.labels += (label.first_error, label.votes, label.status) != (
            row.label.first_error,
            row.label.votes,
            row.label.status,
        )
        yield row.trajectory, label, row.critic


@dataclass(frozen=True)
class _Rereader:
    cache: Cache
    changes: Changes
    own_style: str | None

    def judgement(self, before: Judgement, trajectory: Trajectory, card: Mapping[str, Any]) -> Judgement:
        if before.parts:
            return self._consensus(before, trajectory, card)
        if not before.keys or "style" not in card:
            return before
        style = style_named(str(card["style"]), self.own_style)
        asked = self._asked(before, trajectory, style)
        if not asked:
            self.changes.missing += before.status != "provider_error"
            return before
        after = replace(as_judgement(asked, style, len(trajectory.steps), before.sample), judge=before.judge)
        if len(asked) < len(expectations(style, trajectory)) and not is_enough(asked, style):
            note = f"steps from {len(asked)} on were never judged; label again to resume"
            after = replace(after, status="count_mismatch", first_error=None, notes=(*after.notes, note))
        self.changes.compare(style.name, before, after)
        return after

    def _consensus(self, before: Judgement, trajectory: Trajectory, card: Mapping[str, Any]) -> Judgement:
        cards = {one["judge"]: one for one in card.get("judges", ())}
        parts = [self.judgement(part, trajectory, cards.get(part.judge, {})) for part in before.parts]
        weights = tuple(card.get("weights") or [1.0] * len(parts))
        return merge(parts, len(trajectory.steps), Ruling(card["consensus"], weights), before.sample)

    def _asked(self, before: Judgement, trajectory: Trajectory, style: Style) -> list[QuestionResult]:
        """Parse the replies of each question again, up to the question after which no other is needed; empty if a reply is
        missing."""
        asked: list[QuestionResult] = []
        keys = iter(before.keys)
        turns = before.turns or (1,) * len(before.keys)
        for expected, count in zip(expectations(style, trajectory), turns, strict=False):
            mine = [key for _, key in zip(range(count), keys, strict=False)]
            talk = conversation_of(self.cache, mine)
            if talk is None:
                return []
            reading = read_reply(style, expected, talk.reply)
            how = (*(word for word in before.how if word != "logprobs"), *used_chances(reading))
            asked.append(QuestionResult(reading, tuple(mine), how, talk.reply.usage))
            if is_enough(asked, style):
                break
        return asked


def conversation_of(cache: Cache, keys: Sequence[str]) -> Conversation | None:
    """Rebuild the conversation whose replies have these keys, including the text between them; None if a reply is missing."""
    talk = Conversation(())
    for place, key in enumerate(keys):
        reply = cache.reply(key)
        if reply is None:
            return None
        if place:
            sent = (cache.request(key) or {}).get("messages") or [{}]
            talk = talk.resumed(sent[-1]["content"]) if sent[-1].get("role") == "assistant" else talk.with_question("")
        talk = talk.with_reply(reply)
    return talk


def stored_text(provider: str, raw: Mapping[str, Any]) -> str | None:
    """The text of a stored response body; "" if the body is not a reply, None for a custom provider whose format is unknown
    here."""
    if provider not in names("provider"):
        return None
    reply = read_stored(provider, raw)
    return "" if reply is None else reply.text


@lru_cache(maxsize=64)
def style_named(name: str, own: str | None = None) -> Style:
    """Return the style that a label file names: a packaged one, or the file `own` with that name. Raises UsageError."""
    if own is not None and Path(own).stem == name:
        return open_style(own)
    try:
        return style_in_data(name, "a label")
    except UsageError as error:
        raise UsageError(f"{error}; to read labels of a custom prompt again, give its file with --style") from None
