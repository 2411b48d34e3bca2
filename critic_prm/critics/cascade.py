"""Run a cheap critic first and send the steps in doubt to one judge after another, then to a person."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from critic_prm.critics.consensus import CriticCosts
from critic_prm.critics.doubt_band import Band, in_doubt
from critic_prm.critics.escalation import Escalations
from critic_prm.critics.open import critic_in_file, open_critic
from critic_prm.data.aggregate import spread
from critic_prm.data.critic import Critic, CriticStats
from critic_prm.data.judgement import Judgement, Label, Verdict, combine, first_error_of
from critic_prm.data.trajectory import Trajectory
from critic_prm.data.trust import Origin
from critic_prm.engine.options import JudgeOptions
from critic_prm.engine.together import gather_all
from critic_prm.errors import UsageError
from critic_prm.providers.provider import Usage
from critic_prm.styles.prompt import style_names

By = Literal["step", "solution"]
BYS: tuple[By, ...] = get_args(By)


@dataclass
class CascadeStats(CriticStats):
    """Counts how many solutions and steps the first critic decided alone, how often each judge was asked, and the outcomes."""

    counts: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    name: str = "cascade"

    def restart(self) -> None:
        escalated = self.counts["escalated"]
        self.counts.clear()
        self.asked.clear()
        self.counts["escalated"] += escalated

    def report(self) -> dict[str, Any]:
        return {**self.counts, "asked": dict(self.asked)}

    def lines(self) -> list[str]:
        counts = self.counts
        asked = ", ".join(f"{name} {count:,} times" for name, count in self.asked.items()) or "no judge"
        line = f"cascade: {counts['solutions']:,} solutions, {counts['without a judge']:,} decided by the first critic alone"
        line += f"; asked {asked}"
        if counts["undecided"]:
            line += f"; {counts['undecided']:,} left undecided by all, {counts['escalated']:,} new ones written for a person"
        return [line]


@dataclass(frozen=True)
class Cascade(Critic):
    """A critic that asks more expensive critics only where the first one is in doubt.

    `by` sets what a judge is asked about: each "step" in doubt, or the whole "solution".

    If nothing is in doubt, the result of the first critic stands. With "solution", the judgement of the asked judge replaces
    it. With "step", the judge decides only the steps in the band; steps whose P(error) is above the band are incorrect and
    those below it are correct, without a request. A reply that cannot be parsed, or whose first error is unknown, passes the
    question to the next judge. If no judge decides, the result of the first critic stands and the trajectory is written to
    `escalations`.
    """

    first: Critic
    others: tuple[tuple[str, Critic], ...]
    band: Band
    by: By = "solution"
    escalations: Escalations | None = None
    traffic: CascadeStats = field(default_factory=CascadeStats)

    @property
    def judges(self) -> tuple[tuple[str, Critic], ...]:
        """All critics of the cascade, by name."""
        return (("first", self.first), *self.others)

    @property
    def stats(self) -> Sequence[CriticStats]:
        return (self.traffic, CriticCosts(self.judges))

    @property
    def batch(self) -> int:
        """The batch size of the first critic: solutions in doubt wait for the network, so they are processed together."""
        return self.first.batch

    @property
    def stochastic(self) -> bool:
        return any(critic.stochastic for _, critic in self.judges)

    @property
    def card(self) -> Mapping[str, Any]:
        band = {"low": self.band.low, "high": self.band.high, "spread": self.band.spread}
        others = [{"judge": name, **critic.card} for name, critic in self.others]
        return {"cascade": self.by, "band": band, "first": dict(self.first.card), "judges": others}

    async def judge(self, trajectories: Sequence[Trajectory], sample: int = 0) -> list[Judgement]:
        firsts = await self.first.judge(trajectories, sample if self.first.stochastic else 0)
        settle = self._by_step if self.by == "step" else self._by_solution
        return await gather_all(settle(t, first, sample) for t, first in zip(trajectories, firsts, strict=True))

    async def close(self) -> None:
        await asyncio.gather(*(critic.close() for _, critic in self.judges))

    async def _by_solution(self, trajectory: Trajectory, first: Judgement, sample: int) -> Judgement:
        self.traffic.counts["solutions"] += 1
        doubted = self._doubted(trajectory, first)
        if not doubted:
            self.traffic.counts["without a judge"] += 1
            return replace(first, judge="first")
        tried: list[Judgement] = []
        for name, critic in self.others:
            self.traffic.asked[name] += 1
            tried.append(replace((await critic.judge([trajectory], sample))[0], judge=name))
            if tried[-1].status == "ok" and tried[-1].first_error is not None:
                return _whole(tried[-1], [first, *tried], sample, (f"{len(doubted)} steps in doubt",))
        self._escalate(trajectory, first, tried, doubted)
        return _whole(first, [first, *tried], sample, ("no judge decided: the first critic's word stands",))

    async def _by_step(self, trajectory: Trajectory, first: Judgement, sample: int) -> Judgement:
        """Judge step by step up to the first error. A judge that sees a prefix may find an error before the step in
        question."""
        self.traffic.counts["solutions"] += 1
        label, deviations = _scores(first, len(trajectory.steps))
        own = {verdict.step: verdict for verdict in first.verdicts}
        verdicts: list[Verdict] = []
        tried: list[Judgement] = []
        undecided: list[int] = []
        for step, p in enumerate(label.p_correct):
            call = self.band.call(p, deviations[step])
            if call == "ask":
                verdict = await self._ask(trajectory, step, sample, tried)
                if verdict is None:
                    undecided.append(step)
                    verdict = own.get(step) or Verdict(step, "neutral")
            else:
                verdict = replace(own.get(step) or Verdict(step, "correct"), value="incorrect" if call == "bad" else "correct")
            verdicts = [*verdicts[: verdict.step], verdict]
            if verdict.value == "incorrect":
                break
        if not tried:
            self.traffic.counts["without a judge"] += 1
        if undecided:
            self._escalate(trajectory, first, tried, undecided)
        # A span is an offset into one reply, but several replies are behind this judgement.
        found = Judgement(
            status="ok",
            verdicts=tuple(replace(verdict, span=None) for verdict in verdicts),
            first_error=first_error_of(verdicts, len(trajectory.steps)),
            keys=tuple(key for one in tried for key in one.keys),
        )
        notes = (f"no judge decided on step {step}: the first critic's word stands" for step in undecided)
        return _whole(found, [first, *tried], sample, tuple(notes))

    async def _ask(self, trajectory: Trajectory, step: int, sample: int, tried: list[Judgement]) -> Verdict | None:
        """Return the first usable verdict, asking the judges in order; None if no judge gives one."""
        for name, critic in self.others:
            self.traffic.asked[name] += 1
            tried.append(replace(await critic.judge_step(trajectory, step, sample), judge=name))
            verdict = verdict_on(tried[-1], step)
            if verdict is not None:
                return verdict
        return None

    def _doubted(self, trajectory: Trajectory, first: Judgement) -> list[int]:
        if first.status != "ok":
            self.traffic.counts["first unusable"] += 1
            return list(range(len(trajectory.steps)))
        label, deviations = _scores(first, len(trajectory.steps))
        return in_doubt(self.band, label.p_correct, first.first_error, deviations)

    def _escalate(self, trajectory: Trajectory, first: Judgement, tried: Sequence[Judgement], steps: Sequence[int]) -> None:
        self.traffic.counts["undecided"] += 1
        if self.escalations is None:
            return
        said = [{"judge": one.judge, "status": one.status, "first_error": one.first_error} for one in tried]
        label, _ = _scores(first, len(trajectory.steps))
        facts = {"steps": list(steps), "first_critic": first.first_error, "p_correct": list(label.p_correct), "judges": said}
        self.traffic.counts["escalated"] += self.escalations.add(trajectory, facts)


def verdict_on(judgement: Judgement, step: int) -> Verdict | None:
    """The verdict of a judgement on a step: an earlier error, correct or incorrect, or None if it does not cover the step."""
    if judgement.status != "ok":
        return None
    verdict = next((v for v in judgement.verdicts if v.value == "incorrect" and v.step <= step), None)
    verdict = verdict or next((v for v in judgement.verdicts if v.step == step), None)
    return None if verdict is None or verdict.value == "neutral" else verdict


def _scores(first: Judgement, steps: int) -> tuple[Label, list[float | None]]:
    """P(correct) per step and, for an ensemble, the standard deviation across its members."""
    label = combine([first], steps)
    members = [combine([part], steps).p_correct for part in first.parts if part.status == "ok"]
    found = spread(members) if len(members) > 1 else [None] * steps
    return label, [None if one is None else one[1] for one in found]


def _whole(found: Judgement, parts: Sequence[Judgement], sample: int, notes: tuple[str, ...]) -> Judgement:
    return replace(
        found,
        sample=sample,
        notes=(*found.notes, *notes),
        usage=sum((part.usage for part in parts), Usage()),
        parts=tuple(replace(part, judge=part.judge or "first") for part in parts),
    )


def from_table(table: Mapping[str, Any], origin: Origin, judging: JudgeOptions) -> Cascade:
    """Build the cascade from the TOML table `[cascade]`.

    Keys: `first` (a critic, or several, which are combined into their mean and spread), `judges`, `low` and `high`; optional:
    `spread`, `by`, `style`, `escalate`, and `tuned` (a record of the tuning, ignored here). Raises UsageError.
    """
    from critic_prm.critics.open import check

    check(table, "cascade", {"first", "judges", "low", "high"}, {"spread", "by", "style", "escalate", "tuned"})
    by = table.get("by", "solution")
    if by not in BYS:
        raise UsageError(f"[cascade] by is {by!r}; it is {' or '.join(BYS)}")
    asked = replace(judging, style=origin.name("style", table["style"], style_names())) if "style" in table else judging
    names = table["judges"] if isinstance(table["judges"], list) else [table["judges"]]
    share = max(len(names), 1)
    each = replace(
        asked,
        budget_usd=None if asked.budget_usd is None else asked.budget_usd / share,
        max_requests=None if asked.max_requests is None else max(asked.max_requests // share, 1),
    )
    escalate = table.get("escalate")
    return Cascade(
        first=open_first(table["first"], judging, origin),
        others=tuple((name, open_critic(critic_in_file(name, origin), each)) for name in names),
        band=Band(float(table["low"]), float(table["high"]), table.get("spread")),
        by="step" if by == "step" else "solution",
        escalations=Escalations(origin.output("escalate", escalate)) if escalate else None,
    )


def open_first(named: str | Sequence[str], judging: JudgeOptions, origin: Origin | None = None) -> Critic:
    """Open the first critic: a single one, or several as a consensus whose spread measures their uncertainty. `origin` is the
    file that names it, None for the command line."""
    from critic_prm.critics.consensus import Consensus, parse_ruling

    names = list(named) if isinstance(named, Sequence) and not isinstance(named, str) else [named]
    opened = tuple((name, open_critic(name if origin is None else critic_in_file(name, origin), judging)) for name in names)
    return opened[0][1] if len(opened) == 1 else Consensus(opened, parse_ruling("majority", names))
