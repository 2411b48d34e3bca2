"""One reply read (a judgement: a verdict per step), and what the judgements of one trajectory add up to (a label)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from critic_prm.errors import UsageError
from critic_prm.providers.provider import Usage, stated_usage

VerdictValue = Literal["correct", "incorrect", "neutral"]
Status = Literal["ok", "truncated", "count_mismatch", "unparseable", "refused", "provider_error"]
STATUSES: tuple[Status, ...] = get_args(Status)
Origin = Literal["logprobs", "scores", "votes", "mixed"]
"""Where a label's probabilities come from: a verdict token's log-probabilities, a critic that computes its scores, the share of
votes, or some of the one and some of the other."""
Prior = Literal["none", "jeffreys"]
"""What is added to k votes of n: nothing, or half a vote for either side, (k + 0.5) / (n + 1)."""
PRIORS: tuple[Prior, ...] = get_args(Prior)
HOW = ("plain", "schema", "schema ignored", "re-asked", "forced", "thought again", "logprobs")
"""How verdicts may be got, in the order in which it happens; see `Judgement`."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a critic says of one step.

    `step` is 0-based. `p_correct` is P(the step is correct) in [0, 1], None where only the word is known. `span` is the
    part of the reply's text, as (start, end), that the reading rests on. `votes` are (k, n) where several judges stand behind
    the verdict: k of n said correct; None for one judge's word. `spread` is how far the heads of a verifier disagree, the
    standard deviation of their P(correct), None for other critics.
    """

    step: int
    value: VerdictValue
    critique: str = ""
    p_correct: float | None = None
    span: tuple[int, int] | None = None
    votes: tuple[int, int] | None = None
    spread: float | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """One judgement of one trajectory.

    `verdicts` are in step order; steps after the first error may be missing, never guessed. `first_error` is 0-based, -1 when
    every step is right, None when that cannot be told. `keys` name the stored replies it rests on, in the order they were asked
    for, none for local critics; where one question took several replies, spans count in their texts put together.
    `notes` say what the reading had to forgive.

    `how` says how the verdicts were got: "plain", "schema" (asked for and obeyed) or "schema ignored"; then what else was
    needed, "re-asked", "forced", "thought again"; and "logprobs" where probabilities came with them. `turns` says how many of
    the keys belong to each question, where one took several. `usage` is what the replies cost in tokens, whenever they were
    paid. `judge` names who judged where several did, and a judgement that adds
    theirs up has them in `parts`.
    """

    status: Status
    verdicts: tuple[Verdict, ...] = ()
    first_error: int | None = None
    sample: int = 0
    keys: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    how: tuple[str, ...] = ()
    turns: tuple[int, ...] = ()
    usage: Usage = Usage()
    judge: str = ""
    parts: tuple[Judgement, ...] = ()


@dataclass(frozen=True, slots=True)
class Label:
    """What the judgements of one trajectory add up to.

    `p_correct` has one entry per step, None where no judgement reached it. `votes` are (k, n): k of n judgements said correct;
    neutral verdicts are in neither. `first_error` is the most frequent one, None on a tie or when nothing could be read.
    `p_from` says where `p_correct` comes from, None where there is none.
    """

    p_correct: tuple[float | None, ...]
    votes: tuple[tuple[int, int], ...]
    first_error: int | None
    status: Status
    judgements: tuple[Judgement, ...]
    p_from: Origin | None = None


def parse_prior(text: str) -> Prior:
    """Raises UsageError."""
    for prior in PRIORS:
        if prior == text:
            return prior
    raise UsageError(f"--prior is {text!r}; it is {' or '.join(PRIORS)}")


def all_ways(ways: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """How several parts of a judgement were got, as one."""
    words = {word for way in ways for word in way}
    return tuple(word for word in HOW if word in words)


def first_error_of(verdicts: Sequence[Verdict], steps: int) -> int | None:
    """The first incorrect step; -1 when all `steps` were judged and none is incorrect; None when steps are missing."""
    for verdict in verdicts:
        if verdict.value == "incorrect":
            return verdict.step
    return -1 if len({v.step for v in verdicts}) == steps else None


def combine(judgements: Sequence[Judgement], steps: int, prior: Prior = "none") -> Label:
    """Add up the judgements of one trajectory with `steps` steps; only those with status `ok` count.

    A step's P(correct) is the mean of its verdicts, where a verdict without a probability counts as 1 or 0: without any
    probabilities that is the vote fraction k / n, or with Jeffreys' prior (k + 0.5) / (n + 1), which is never quite 0 or 1.
    """
    ok = [j for j in judgements if j.status == "ok"]
    tallies = [_Step() for _ in range(steps)]
    for judgement in ok:
        for verdict in judgement.verdicts:
            tallies[verdict.step].add(verdict)
    return Label(
        p_correct=tuple(tally.p_correct(prior) for tally in tallies),
        votes=tuple((tally.good, tally.total) for tally in tallies),
        first_error=_mode([j.first_error for j in ok if j.first_error is not None]),
        status="ok" if ok else _worst(judgements),
        judgements=tuple(judgements),
        p_from=_origin(ok, tallies),
    )


@dataclass(slots=True)
class _Step:
    """The votes on one step: `good` of `total` say correct, `mass` is the sum of their P(correct), `scored` have one."""

    good: int = 0
    total: int = 0
    mass: float = 0.0
    scored: int = 0

    def add(self, verdict: Verdict) -> None:
        right = verdict.value == "correct"
        if verdict.votes is None and verdict.value == "neutral":
            return
        good, total = verdict.votes or (int(right), 1)
        self.good += good
        self.total += total
        if verdict.p_correct is None:
            self.mass += good
        else:
            self.mass += verdict.p_correct * total
            self.scored += total

    def p_correct(self, prior: Prior) -> float | None:
        if not self.total:
            return None
        if prior == "jeffreys" and not self.scored:
            return (self.mass + 0.5) / (self.total + 1)
        return self.mass / self.total


def _origin(judgements: Sequence[Judgement], tallies: Sequence[_Step]) -> Origin | None:
    total, scored = sum(tally.total for tally in tallies), sum(tally.scored for tally in tallies)
    if not total:
        return None
    if not scored:
        return "votes"
    if scored < total:
        return "mixed"
    return "logprobs" if all("logprobs" in j.how for j in judgements if j.verdicts) else "scores"


def _mode(values: Sequence[int]) -> int | None:
    ranked = Counter(values).most_common(2)
    if not ranked or (len(ranked) == 2 and ranked[0][1] == ranked[1][1]):
        return None
    return ranked[0][0]


def _worst(judgements: Sequence[Judgement]) -> Status:
    return Counter(j.status for j in judgements).most_common(1)[0][0] if judgements else "provider_error"


def verdict_to_json(verdict: Verdict) -> dict[str, Any]:
    row: dict[str, Any] = {"step": verdict.step, "verdict": verdict.value, "critique": verdict.critique}
    if verdict.p_correct is not None:
        row["p_correct"] = verdict.p_correct
    if verdict.span is not None:
        row["span"] = list(verdict.span)
    if verdict.votes is not None:
        row["votes"] = list(verdict.votes)
    if verdict.spread is not None:
        row["spread"] = verdict.spread
    return row


def judgement_to_json(judgement: Judgement) -> dict[str, Any]:
    row: dict[str, Any] = {
        "sample": judgement.sample,
        "status": judgement.status,
        "first_error": judgement.first_error,
        "keys": list(judgement.keys),
        "verdicts": [verdict_to_json(v) for v in judgement.verdicts],
    }
    for name in ("notes", "how", "turns"):
        if getattr(judgement, name):
            row[name] = list(getattr(judgement, name))
    if judgement.usage != Usage():
        row["usage"] = {name: n for name in Usage.__slots__ if (n := getattr(judgement.usage, name))}
    if judgement.judge:
        row["judge"] = judgement.judge
    if judgement.parts:
        row["parts"] = [judgement_to_json(part) for part in judgement.parts]
    return row


def judgement_from_json(row: dict[str, Any]) -> Judgement:
    """The inverse of `judgement_to_json`. Raises KeyError or TypeError for rows it did not write."""
    return Judgement(
        status=row["status"],
        verdicts=tuple(_verdict_from_json(v) for v in row["verdicts"]),
        first_error=row.get("first_error"),
        sample=row.get("sample", 0),
        keys=tuple(row.get("keys", ())),
        notes=tuple(row.get("notes", ())),
        how=tuple(row.get("how", ())),
        turns=tuple(row.get("turns", ())),
        usage=stated_usage(**row.get("usage", {})),
        judge=row.get("judge", ""),
        parts=tuple(judgement_from_json(part) for part in row.get("parts", ())),
    )


def _verdict_from_json(row: Mapping[str, Any]) -> Verdict:
    return Verdict(
        step=row["step"],
        value=row["verdict"],
        critique=row.get("critique", ""),
        p_correct=row.get("p_correct"),
        span=tuple(row["span"]) if "span" in row else None,
        votes=tuple(row["votes"]) if "votes" in row else None,
        spread=row.get("spread"),
    )
