"""Label trajectories with a critic, in input order, with as many judgements of each as can still change its label."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Annotated, Any, Literal, Protocol

from critic_prm.data.critic import Critic, CriticStats
from critic_prm.data.judgement import Judgement, Label, Prior, combine
from critic_prm.data.label_rows import label_row, without_labels
from critic_prm.data.trajectory import Trajectory
from critic_prm.engine.concurrency import gather_all, ordered_map
from critic_prm.errors import UsageError
from critic_prm.label.progress import RunStats
from critic_prm.option import Option

Rule = Literal["all", "majority", "bayes"]

CONFIDENT = 0.95
"""Posterior P(the majority is on this side), under a uniform prior, at which "bayes" stops. Since it is checked after every
vote, it bounds the error averaged over tasks drawn from the prior, not for each task."""

_SPEC = re.compile(r"(auto|bayes)(?::(\d{1,4})-(\d{1,4}))?")

WINDOW = 4096
"""Maximum number of trajectories in flight or waiting for a slower one before them."""


@dataclass(frozen=True, slots=True)
class Samples:
    """How many judgements to request per trajectory: at least `least`, at most `most`.

    "all" requests `most`. "majority" stops when no remaining vote can change the first error or the majority on any step up to
    it, so the result equals that of all `most` (curtailed sampling). "bayes" stops earlier, when the majorities are probably
    correct (Beta posterior; Adaptive-Consistency, arXiv 2305.11860).
    """

    least: int
    most: int
    rule: Rule = "all"

    def more(self, judgements: Sequence[Judgement]) -> int:
        """The number of judgements to request next, concurrently; 0 to stop. It is the smallest number after which the rule
        could stop, so none of them is wasted.

        If all of the first `least` are unusable, no more are requested, since the others would fail as well.
        """
        left = self.most - len(judgements)
        if left <= 0:
            return 0
        if self.rule == "all":
            return left
        if len(judgements) < self.least:
            return min(left, max(self.least - len(judgements), _WAVES[self.rule](0, 0, left)))
        readable = [judgement for judgement in judgements if judgement.status == "ok"]
        if not readable:
            return 0
        return max(_WAVES[self.rule](ahead, behind, left) for ahead, behind in _races(readable))


def parse_samples(text: str) -> Samples:
    """Parse "4", "auto", "auto:3-9", "bayes" or "bayes:3-16". The default range is 3 to 9, with an odd maximum because an even
    number of votes can tie. Raises UsageError."""
    if text.isascii() and text.isdigit() and int(text) > 0:
        return Samples(int(text), int(text))
    match = _SPEC.fullmatch(text)
    if match is None:
        raise UsageError(f"--samples is {text!r}; write a number, auto, auto:3-9, bayes or bayes:3-9")
    least, most = int(match.group(2) or 3), int(match.group(3) or 9)
    if not 1 <= least <= most:
        raise UsageError(f"--samples is {text!r}; the first number must be at least 1 and at most the second")
    return Samples(least, most, "majority" if match.group(1) == "auto" else "bayes")


@dataclass(frozen=True, slots=True)
class LabelOptions:
    """How many judgements a label rests on, and how their votes become probabilities."""

    samples: Annotated[Samples, Option(parse=parse_samples, metavar="N|auto|bayes")] = Samples(1, 1)
    """Judgements per trajectory: a number (default: 1), or auto or bayes (auto:3-9) to stop when votes are decided."""
    prior: Prior = "none"
    """P(correct) from k of n votes: none is k/n, jeffreys is (k+0.5)/(n+1)."""


ONE_SAMPLE = LabelOptions()


def favoured(k: int, n: int) -> float:
    """P(p > 1/2) given k of n votes and a uniform prior: the exact tail of Beta(1 + k, 1 + n - k)."""
    return sum(comb(n + 1, i) for i in range(k + 1)) / (1 << (n + 1))


def _races(readable: Sequence[Judgement]) -> Iterator[tuple[int, int]]:
    """Yield (votes ahead, votes behind) for the first error and for every step up to the leading candidate for it."""
    firsts = Counter(judgement.first_error for judgement in readable)
    ranked = firsts.most_common(2)
    yield ranked[0][1], ranked[1][1] if len(ranked) > 1 else 0
    leading = ranked[0][0]
    good: Counter[int] = Counter()
    bad: Counter[int] = Counter()
    for judgement in readable:
        for verdict in judgement.verdicts:
            if verdict.vote is not None:
                (good if verdict.vote else bad)[verdict.step] += 1
    for step in sorted(good.keys() | bad.keys()):
        if leading is None or leading < 0 or step <= leading:
            yield max(good[step], bad[step]), min(good[step], bad[step])


def _majority(ahead: int, behind: int, left: int) -> int:
    """The smallest number of further votes after which the lead could be decided; 0 if it already is."""
    lead = ahead - behind
    return 0 if lead > left else (left - lead) // 2 + 1


def _bayes(ahead: int, behind: int, left: int) -> int:
    if _majority(ahead, behind, left) == 0:
        return 0
    enough = (w for w in range(left + 1) if favoured(ahead + w, ahead + behind + w) >= CONFIDENT)
    return min(next(enough, left), _majority(ahead, behind, left))


_WAVES: dict[Rule, Callable[[int, int, int], int]] = {"majority": _majority, "bayes": _bayes}


@dataclass
class SamplingStats(CriticStats):
    """Number of judgements requested, and the maximum, for the run report."""

    policy: Samples
    asked: int = 0
    rows: int = 0
    open: int = 0
    name: str = "samples"

    def add(self, label: Label) -> None:
        self.asked += len(label.judgements)
        self.rows += 1
        self.open += label.status == "ok" and label.first_error is None

    def report(self) -> dict[str, int | str]:
        most = self.policy.most * self.rows
        return {"rule": self.policy.rule, "asked": self.asked, "at_most": most, "saved": most - self.asked, "open": self.open}

    def lines(self) -> list[str]:
        found = self.report()
        if not self.rows or self.policy.rule == "all":
            return []
        share = f"{1 - self.asked / (self.policy.most * self.rows):.0%}"
        undecided = f"; the first error of {self.open:,} trajectories stays open" if self.open else ""
        return [f"samples: asked for {self.asked:,} judgements of at most {found['at_most']:,}, {share} saved{undecided}"]


async def label(
    trajectories: Iterable[Trajectory],
    critic: Critic,
    *,
    samples: int | Samples = 1,
    prior: Prior = "none",
    workers: int | Callable[[], int] = 64,
    stop: asyncio.Event | None = None,
) -> AsyncIterator[tuple[Trajectory, Label]]:
    """Yield each trajectory with its label, in input order, with memory use independent of the input size.

    `samples` is the number of judgements per trajectory, or a rule that sets it; a deterministic critic gives one. `prior` is
    added to their votes. `workers` is the number of trajectories in flight; if it is a function, it is called again as labels
    are produced, so the number may change. Setting `stop` lets the trajectories in flight finish and skips the rest.
    ConfigError, BudgetError and input errors are raised after all preceding labels.
    """
    policy = samples if isinstance(samples, Samples) else Samples(samples, samples)

    async def work(part: Sequence[Trajectory]) -> list[Label]:
        rows = await judgements(critic, part, policy)
        return [combine(row, len(trajectory.steps), prior) for row, trajectory in zip(rows, part, strict=True)]

    def crew() -> int:
        if critic.batch > 1:
            # A local critic does not wait for the network, so one batch at a time is enough unless it runs on other machines.
            return critic.parallel_batches
        return workers if isinstance(workers, int) else workers()

    pairs = ordered_map(trajectories, work, workers=crew, batch=critic.batch, window=WINDOW, stop=stop)
    async for trajectory, labelled in pairs:
        yield trajectory, labelled


async def judgements(critic: Critic, part: Sequence[Trajectory], policy: Samples) -> Sequence[Sequence[Judgement]]:
    """All judgements of each trajectory of `part` that `policy` requires."""
    if policy.rule == "all" or not critic.stochastic:
        rounds = await _judge(critic, part, range(policy.most if critic.stochastic else 1))
        return list(zip(*rounds, strict=True))
    return [await _until_decided(critic, trajectory, policy) for trajectory in part]


async def _judge(critic: Critic, part: Sequence[Trajectory], samples: range) -> list[list[Judgement]]:
    """The judgements of `part`, one list per sample, requested concurrently."""
    if len(samples) == 1:
        return [await critic.judge(part, samples[0])]
    return await gather_all(critic.judge(part, sample) for sample in samples)


async def _until_decided(critic: Critic, trajectory: Trajectory, policy: Samples) -> list[Judgement]:
    judgements: list[Judgement] = []
    while more := policy.more(judgements):
        wave = range(len(judgements), len(judgements) + more)
        judgements += [row[0] for row in await _judge(critic, [trajectory], wave)]
    return judgements


class RowSink(Protocol):
    """Destination of label rows, such as a RecordWriter."""

    def write(self, row: dict[str, Any]) -> None: ...


def card_of(critic: Critic, prior: Prior) -> Mapping[str, Any]:
    """What identifies a critic in the rows of a label file, with the prior if there is one."""
    return critic.card if prior == "none" else {**critic.card, "prior": prior}


async def label_into(
    sink: RowSink,
    trajectories: Iterable[Trajectory],
    critic: Critic,
    tally: RunStats,
    options: LabelOptions = ONE_SAMPLE,
    *,
    workers: int | Callable[[], int] = 64,
    stop: asyncio.Event | None = None,
    stats: Sequence[CriticStats] = (),
) -> None:
    """Label trajectories, write the rows of a label file, and count them in `tally` and `stats`. Labels in the input are
    replaced."""
    samples, prior = options.samples, options.prior
    card = card_of(critic, prior)
    clean = (without_labels(trajectory) for trajectory in trajectories)
    async for trajectory, labelled in label(clean, critic, samples=samples, prior=prior, workers=workers, stop=stop):
        sink.write(label_row(trajectory, labelled, card))
        tally.add(labelled, trajectory.id)
        for account in stats:
            account.add(labelled)
