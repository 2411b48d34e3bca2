"""Judgements (one parsed reply) and labels (the aggregate of one trajectory's judgements)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from critic_prm.providers.provider import Usage, stated_usage

VerdictValue = Literal["correct", "incorrect", "corrected", "neutral"]
"""A corrected step is wrong, but the solution itself withdraws or repairs it later; it is never the first error. A neutral step
neither helps nor harms."""
Status = Literal["ok", "truncated", "count_mismatch", "unparseable", "refused", "provider_error"]
STATUSES: tuple[Status, ...] = get_args(Status)
Origin = Literal["logprobs", "scores", "votes", "mixed"]
"""Source of a label's probabilities: log-probabilities of a verdict token, scores computed by a critic, the fraction of votes,
or a mixture of these."""
Prior = Literal["none", "jeffreys"]
"""What is added to k votes of n: nothing, or half a vote on each side, (k + 0.5) / (n + 1)."""
SHOWN = 20
"""Number of steps in the repr of a label."""
HOW = ("plain", "schema", "schema ignored", "re-asked", "forced", "thought again", "logprobs")
"""Methods by which verdicts may be obtained, in the order in which they are applied; see `Judgement`."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A critic's verdict on one step."""

    step: int
    """0-based step index."""
    value: VerdictValue
    critique: str = ""
    """The critic's explanation; empty if there is none."""
    p_correct: float | None = None
    """P(the step is correct) in [0, 1]; None if only the word is known."""
    span: tuple[int, int] | None = None
    """The (start, end) range of the reply text that contains the verdict."""
    votes: tuple[int, int] | None = None
    """(k, n) if several judges are combined: k of n said correct. None for a single judge."""
    spread: float | None = None
    """Standard deviation of P(correct) over the heads of a verifier; None for other critics."""

    @property
    def vote(self) -> bool | None:
        """What the verdict says of the question whether the step is the first error: False if it is incorrect, True if it is
        correct or corrected later, None if it is neutral."""
        return None if self.value == "neutral" else self.value != "incorrect"


@dataclass(frozen=True, slots=True)
class Judgement:
    """One judgement of one trajectory."""

    status: Status
    """`ok`, or the reason there is no usable judgement."""
    verdicts: tuple[Verdict, ...] = ()
    """Verdicts in step order. Steps after the first error may be missing; they are never guessed."""
    first_error: int | None = None
    """0-based; -1 if every step is correct, None if it cannot be determined."""
    sample: int = 0
    keys: tuple[str, ...] = ()
    """Cache keys of the replies used, in the order of the requests; empty for local critics. If one question took several
    replies, spans index into their concatenated texts."""
    notes: tuple[str, ...] = ()
    """Deviations from the requested format that the reader tolerated."""
    how: tuple[str, ...] = ()
    """How the verdicts were obtained: "plain", "schema" (requested and obeyed) or "schema ignored"; then any further methods
    used, "re-asked", "forced", "thought again"; and "logprobs" if probabilities came with them."""
    turns: tuple[int, ...] = ()
    """Number of keys per question, if any question took several replies."""
    usage: Usage = Usage()
    """Tokens of the replies, including replies served from the cache."""
    judge: str = ""
    """Name of the judge, if there are several."""
    parts: tuple[Judgement, ...] = ()
    """The individual judgements, if this one combines several judges."""


@dataclass(frozen=True, slots=True)
class Label:
    """The aggregate of one trajectory's judgements.

    `p_correct` has one entry per step, None if no judgement covers it. `votes` are (k, n): k of n judgements said correct or
    corrected; neutral verdicts count in neither. `first_error` is the most frequent one, None on a tie or if no judgement was
    readable. `p_from` is the source of `p_correct`, None if there are no probabilities.
    """

    p_correct: tuple[float | None, ...]
    votes: tuple[tuple[int, int], ...]
    first_error: int | None
    status: Status
    judgements: tuple[Judgement, ...]
    p_from: Origin | None = None

    def __repr__(self) -> str:
        scores = ", ".join("-" if p is None else f"{p:.2f}" for p in self.p_correct[:SHOWN])
        more = f", ... {len(self.p_correct) - SHOWN} more" if len(self.p_correct) > SHOWN else ""
        return f"Label({self.status}, first_error={self.first_error}, p_correct=[{scores}{more}])"

    def _repr_html_(self) -> str:
        from critic_prm.data.html import label_html

        return label_html(self)


def all_ways(ways: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Union of the methods used by several parts of a judgement, in the order of `HOW`."""
    words = {word for way in ways for word in way}
    return tuple(word for word in HOW if word in words)


def first_error_of(verdicts: Sequence[Verdict], steps: int) -> int | None:
    """The first incorrect step; -1 if all `steps` were judged and none is incorrect; None if steps are missing."""
    for verdict in verdicts:
        if verdict.value == "incorrect":
            return verdict.step
    return -1 if len({v.step for v in verdicts}) == steps else None


def combine(judgements: Sequence[Judgement], steps: int, prior: Prior = "none") -> Label:
    """Aggregate the judgements of one trajectory with `steps` steps. Only judgements with status `ok` count.

    A corrected verdict is a vote for correct, because such a step is not an error of the solution.

    P(correct) of a step is the mean over its verdicts; a verdict without a probability counts as 1 or 0. Without any
    probabilities this is the vote fraction k / n, or with Jeffreys' prior (k + 0.5) / (n + 1), which is never exactly 0 or 1.
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
    """Running totals for one step: `good` of `total` votes are correct, `mass` is the sum of P(correct), `scored` counts votes
    with a probability."""

    good: int = 0
    total: int = 0
    mass: float = 0.0
    scored: int = 0

    def add(self, verdict: Verdict) -> None:
        if verdict.votes is None and verdict.vote is None:
            return
        good, total = verdict.votes or (int(verdict.vote is True), 1)
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
    """The JSON object of a verdict. Optional fields are omitted if they are None."""
    row: dict[str, Any] = {"step": verdict.step, "verdict": verdict.value, "critique": verdict.critique}
    for name in ("p_correct", "span", "votes", "spread"):
        if (value := getattr(verdict, name)) is not None:
            row[name] = list(value) if isinstance(value, tuple) else value
    return row


def judgement_to_json(judgement: Judgement) -> dict[str, Any]:
    """The JSON object of a judgement. Empty optional fields are omitted."""
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
        **{name: tuple(row.get(name, ())) for name in ("keys", "notes", "how", "turns")},
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
