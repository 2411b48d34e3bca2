"""Run a cheap critic first and send the steps in doubt to one judge after another, then to a person."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from critic_prm.critics.combined import Composite, Consensus, CriticCosts, parse_ruling
from critic_prm.critics.open import (
    ACCESS,
    check_keys,
    check_one_server,
    critic_in_file,
    judge_options,
    kind_of,
    open_critic,
    share_of,
)
from critic_prm.data.aggregate import log_product, spread
from critic_prm.data.critic import Critic, CriticStats
from critic_prm.data.human import BLANK, HUMAN, answer_key, answer_rows
from critic_prm.data.judgement import Judgement, Label, Verdict, combine, first_error_of
from critic_prm.data.label_rows import without_labels
from critic_prm.data.records.reading import encode
from critic_prm.data.trajectory import Trajectory, trajectory_from_json, trajectory_to_json
from critic_prm.data.trust import Origin
from critic_prm.engine.concurrency import gather_all
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import InputError, UsageError
from critic_prm.providers.provider import Usage
from critic_prm.styles.prompt import style_names

By = Literal["step", "solution"]
BYS: tuple[By, ...] = get_args(By)
SHIFT = 0.1
"""Smallest difference from the promised share of solutions in doubt that is reported."""


@dataclass(frozen=True, slots=True)
class Band:
    """The range of P(error) = 1 - P(correct) that counts as in doubt: `low` to `high`, inclusive. Below it a step is good,
    above it bad. With `spread`, a step is also in doubt if the standard deviation of its ensemble scores is larger."""

    low: float
    high: float
    spread: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high <= 1:
            raise UsageError(f"a band goes from {self.low} to {self.high}; it needs 0 <= low <= high <= 1, on P(error)")
        if self.spread is not None and self.spread < 0:
            raise UsageError(f"the spread is {self.spread}; it is a standard deviation, at least 0")

    def call(self, p_correct: float | None, spread: float | None = None) -> Literal["good", "ask", "bad"]:
        """Classify one step as good, bad, or to be asked about. A step without a score is in doubt."""
        if p_correct is None or (self.spread is not None and spread is not None and spread > self.spread):
            return "ask"
        error = 1 - p_correct
        return "good" if error < self.low else "bad" if error > self.high else "ask"


@dataclass(frozen=True, slots=True)
class RankBand:
    """A band of ranks: on data like that of the `quantiles`, the share 1 - `flag` - `accept` counts as in doubt.

    The items with the highest scores, a share of `accept`, are good, and those with the lowest, a share of `flag`, are bad. The
    scores are P(correct) of steps, or the logarithm of their product for whole solutions.
    """

    flag: float
    accept: float
    quantiles: Sequence[float]
    """Evenly spaced quantiles of the scores, from the lowest to the highest."""

    def __post_init__(self) -> None:
        if min(self.flag, self.accept) < 0 or self.flag + self.accept > 1:
            raise UsageError(f"flag is {self.flag}, accept {self.accept}; they are shares, at least 0, and at most 1 together")

    @property
    def asked(self) -> float:
        """The share that counts as in doubt."""
        return max(1 - self.flag - self.accept, 0.0)

    @property
    def low(self) -> float:
        """The score below which an item is bad."""
        return self._quantile(self.flag) if self.flag else -math.inf

    @property
    def high(self) -> float:
        """The score above which an item is good."""
        return self._quantile(1 - self.accept) if self.accept else math.inf

    def call(self, score: float | None, spread: float | None = None) -> Literal["good", "ask", "bad"]:
        """Classify one item as good, bad, or to be asked about. An item without a score is in doubt."""
        if score is None:
            return "ask"
        return "good" if score > self.high else "bad" if score < self.low else "ask"

    def _quantile(self, share: float) -> float:
        place = share * (len(self.quantiles) - 1)
        below = min(int(place), len(self.quantiles) - 2)
        return self.quantiles[below] + (place - below) * (self.quantiles[below + 1] - self.quantiles[below])


def solution_score(p_correct: Sequence[float | None]) -> float | None:
    """The score by which a `RankBand` ranks solutions: the logarithm of the product of P(correct), that is of the probability
    that no step is wrong. None if a step has no score."""
    known = [p for p in p_correct if p is not None]
    return log_product(known) if known and len(known) == len(p_correct) else None


def settled(first: Judgement, call: Literal["good", "bad"]) -> Judgement:
    """The first critic's judgement of a solution that is accepted, or flagged at its first error or else its lowest step."""
    if call == "good":
        verdicts = tuple(replace(one, value="correct") if one.value == "incorrect" else one for one in first.verdicts)
        return replace(first, verdicts=verdicts, first_error=-1)
    if first.first_error is not None and first.first_error >= 0:
        return first
    step = lowest_step({one.step: one.p_correct for one in first.verdicts})
    verdicts = tuple(replace(one, value="incorrect") if one.step == step else one for one in first.verdicts)
    return replace(first, verdicts=verdicts, first_error=step)


def lowest_step(p_correct: Mapping[int, float | None]) -> int:
    """The first step with the lowest score."""
    return min((p, step) for step, p in p_correct.items() if p is not None)[1]


def in_doubt(
    band: Band, p_correct: Sequence[float | None], first_error: int | None, spread: Sequence[float | None] | None = None
) -> list[int]:
    """The steps in doubt up to the first error of the cheap critic, or among all steps if it finds none. Later steps cannot
    change the position of the first error."""
    last = len(p_correct) if first_error is None or first_error < 0 else first_error + 1
    deviations = spread or [None] * len(p_correct)
    return [i for i in range(last) if band.call(p_correct[i], deviations[i]) == "ask"]


@dataclass
class CascadeStats(CriticStats):
    """Counts how many solutions and steps the first critic decided alone, how often each judge was asked, and the outcomes."""

    counts: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    promised: float | None = None
    """The share of the solutions that a judge should be asked about, None if the band promises none."""
    name: str = "cascade"

    def restart(self) -> None:
        """Reset the counts when labelling starts, but for the trajectories written for a person: each is written once."""
        escalated = self.counts["escalated"]
        self.counts.clear()
        self.asked.clear()
        self.counts["escalated"] += escalated

    def report(self) -> dict[str, Any]:
        return {**self.counts, "asked": dict(self.asked), "share_promised": self.promised}

    @property
    def broken(self) -> bool:
        """Whether the share of solutions in doubt is not the promised one: by SHIFT and more than three standard errors."""
        count = self.counts["solutions"]
        if self.promised is None or not count:
            return False
        gap = abs(1 - self.counts["without a judge"] / count - self.promised)
        return gap > max(SHIFT, 3 * math.sqrt(self.promised * (1 - self.promised) / count))

    def lines(self) -> list[str]:
        counts = self.counts
        asked = ", ".join(f"{name} {count:,} times" for name, count in self.asked.items()) or "no judge"
        line = f"cascade: {counts['solutions']:,} solutions, {counts['without a judge']:,} decided by the first critic alone"
        line += f"; asked {asked}"
        if counts["undecided"]:
            line += f"; {counts['undecided']:,} left undecided by all, {counts['escalated']:,} new ones written for a person"
        if not self.broken:
            return [line]
        share = 1 - counts["without a judge"] / counts["solutions"]
        warning = f"warning: {share:.0%} of the solutions were in doubt, {self.promised:.0%} were promised; their scores are"
        return [line, f"{warning} unlike those of the calibration profile: run critic-prm calibrate VERIFIER on them"]


@dataclass(frozen=True)
class Cascade(Composite):
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
    band: Band | RankBand
    by: By = "solution"
    escalations: Escalations | None = None
    traffic: CascadeStats = field(default_factory=CascadeStats)

    def __post_init__(self) -> None:
        if isinstance(self.band, RankBand) and self.by == "solution":
            self.traffic.promised = self.band.asked

    @property
    def judges(self) -> tuple[tuple[str, Critic], ...]:
        return (("first", self.first), *self.others)

    @property
    def stats(self) -> Sequence[CriticStats]:
        return (self.traffic, CriticCosts(self.judges))

    @property
    def batch(self) -> int:
        """The batch size of the first critic: solutions in doubt wait for the network, so they are processed together."""
        return self.first.batch

    @property
    def causal(self) -> bool:
        return False

    @property
    def card(self) -> Mapping[str, Any]:
        if isinstance(self.band, RankBand):
            band: dict[str, float | None] = {"flag": self.band.flag, "accept": self.band.accept}
        else:
            band = {"low": self.band.low, "high": self.band.high, "spread": self.band.spread}
        others = [{"judge": name, **critic.card} for name, critic in self.others]
        return {"cascade": self.by, "band": band, "first": dict(self.first.card), "judges": others}

    async def judge(self, trajectories: Sequence[Trajectory], sample: int = 0) -> list[Judgement]:
        firsts = await self.first.judge(trajectories, sample if self.first.stochastic else 0)
        settle = self._by_step if self.by == "step" else self._by_solution
        return await gather_all(settle(t, first, sample) for t, first in zip(trajectories, firsts, strict=True))

    async def _by_solution(self, trajectory: Trajectory, first: Judgement, sample: int) -> Judgement:
        self.traffic.counts["solutions"] += 1
        own, doubted = self._doubted(trajectory, first)
        if not doubted:
            self.traffic.counts["without a judge"] += 1
            return replace(own, judge="first")
        tried: list[Judgement] = []
        for name, critic in self.others:
            self.traffic.asked[name] += 1
            tried.append(replace((await critic.judge([trajectory], sample))[0], judge=name))
            if tried[-1].status == "ok" and tried[-1].first_error is not None:
                return _whole(tried[-1], [first, *tried], sample, (f"{len(doubted)} steps in doubt",))
        self._escalate(trajectory, first, tried, doubted)
        return _whole(first, [first, *tried], sample, ("no judge decided: the first critic's result is kept",))

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
        judgement = Judgement(
            status="ok",
            verdicts=tuple(replace(verdict, span=None) for verdict in verdicts),
            first_error=first_error_of(verdicts, len(trajectory.steps)),
            keys=tuple(key for one in tried for key in one.keys),
        )
        notes = (f"no judge decided on step {step}: the first critic's result is kept" for step in undecided)
        return _whole(judgement, [first, *tried], sample, tuple(notes))

    async def _ask(self, trajectory: Trajectory, step: int, sample: int, tried: list[Judgement]) -> Verdict | None:
        """Return the first usable verdict, asking the judges in order; None if no judge gives one."""
        for name, critic in self.others:
            self.traffic.asked[name] += 1
            tried.append(replace(await critic.judge_step(trajectory, step, sample), judge=name))
            if (verdict := verdict_on(tried[-1], step)) is not None:
                return verdict
        return None

    def _doubted(self, trajectory: Trajectory, first: Judgement) -> tuple[Judgement, list[int]]:
        """What the first critic's judgement comes to without a judge, and the steps in doubt: none if it stands."""
        everything = list(range(len(trajectory.steps)))
        if first.status != "ok":
            self.traffic.counts["first unusable"] += 1
            return first, everything
        label, deviations = _scores(first, len(trajectory.steps))
        if isinstance(self.band, Band):
            return first, in_doubt(self.band, label.p_correct, first.first_error, deviations)
        call = self.band.call(solution_score(label.p_correct))
        return (first, everything) if call == "ask" else (settled(first, call), [])

    def _escalate(self, trajectory: Trajectory, first: Judgement, tried: Sequence[Judgement], steps: Sequence[int]) -> None:
        self.traffic.counts["undecided"] += 1
        if self.escalations is None:
            return
        judges = [{"judge": one.judge, "status": one.status, "first_error": one.first_error} for one in tried]
        label, _ = _scores(first, len(trajectory.steps))
        facts = {"steps": list(steps), "first_critic": first.first_error, "p_correct": list(label.p_correct), "judges": judges}
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
    members = [combine([part], steps).p_correct for part in first.parts if part.status == "ok"]
    spreads = spread(members) if len(members) > 1 else [None] * steps
    return combine([first], steps), [None if one is None else one[1] for one in spreads]


def _whole(judgement: Judgement, parts: Sequence[Judgement], sample: int, notes: tuple[str, ...]) -> Judgement:
    return replace(
        judgement,
        sample=sample,
        notes=(*judgement.notes, *notes),
        usage=sum((part.usage for part in parts), Usage()),
        parts=tuple(replace(part, judge=part.judge or "first") for part in parts),
    )


def from_table(table: Mapping[str, Any], origin: Origin, options: JudgeOptions) -> Cascade:
    """Build the cascade from the TOML table `[cascade]`.

    Keys: `first` (a critic, or several, which are combined into their mean and spread), `judges` (names, or tables with
    `critic` and, in trusted files, `base_url`, `header` and `api_key_env`), and the band: `low` and `high`, or `flag` and
    `accept` with a verifier as the first critic; optional: `profile` (of the verifier), `spread`, `by`, `style`, `escalate`,
    and `tuned` (a record of the tuning, ignored here). Raises UsageError.
    """
    ranked = bool({"flag", "accept"} & table.keys())
    allowed = {"profile", "by", "style", "escalate", "tuned"} | (set() if ranked else {"spread"})
    check_keys(table, "cascade", {"first", "judges", *(("flag", "accept") if ranked else ("low", "high"))}, allowed)
    by = table.get("by", "solution")
    if by not in BYS:
        raise UsageError(f"[cascade] by is {by!r}; it is {' or '.join(BYS)}")
    profile = options.profile or table.get("profile")
    if not isinstance(profile, str | None):
        raise UsageError(f"[cascade] profile is {profile!r}; it is the name of a calibration profile")
    asked = replace(options, profile=None)
    if "style" in table:
        asked = replace(asked, style=origin.name("style", table["style"], style_names()))
    listed = table["judges"] if isinstance(table["judges"], list) else [table["judges"]]
    judges = [one if isinstance(one, dict) else {"critic": one} for one in listed]
    for one in judges:
        check_keys(one, "cascade judges", {"critic"}, ACCESS)
    check_one_server([str(one["critic"]) for one in judges if not ACCESS & one.keys()], options)
    each = share_of(asked, len(judges))
    escalate = table.get("escalate")
    first = open_first(table["first"], replace(options, profile=profile), origin)
    band: Band | RankBand
    if ranked:
        _, quantiles = ranks_of(table["first"], profile, by, origin)
        band = RankBand(float(table["flag"]), float(table["accept"]), quantiles)
    else:
        band = Band(float(table["low"]), float(table["high"]), table.get("spread"))
    return Cascade(
        first=first,
        others=tuple(
            (
                one["critic"],
                open_critic(critic_in_file(one["critic"], origin), judge_options(one, one["critic"], origin, each)),
            )
            for one in judges
        ),
        band=band,
        by="step" if by == "step" else "solution",
        escalations=Escalations(origin.output("escalate", escalate)) if escalate else None,
    )


def ranks_of(
    named: str | Sequence[str], profile: str | None, by: str, origin: Origin | None = None
) -> tuple[str, Sequence[float]]:
    """The calibration profile of a verifier that is the only first critic, and its quantiles per step or solution. Raises
    UsageError for other critics and without a profile."""
    from distill.store import read_ranks

    names = [named] if isinstance(named, str) else list(named)
    name = names[0] if origin is None else critic_in_file(names[0], origin)
    if len(names) > 1 or kind_of(name) != "verifier":
        raise UsageError(f"the first critic is {', '.join(names)}; a band of shares needs a single verifier, with a profile")
    return read_ranks(Path(name), profile, by)


def open_first(named: str | Sequence[str], options: JudgeOptions, origin: Origin | None = None) -> Critic:
    """Open the first critic: a single one, or several as a consensus whose spread measures their uncertainty. `origin` is the
    file that names it, None for the command line."""
    names = [named] if isinstance(named, str) or not isinstance(named, Sequence) else list(named)
    opened = tuple((name, open_critic(name if origin is None else critic_in_file(name, origin), options)) for name in names)
    return opened[0][1] if len(opened) == 1 else Consensus(opened, parse_ruling("majority", names))


@dataclass
class Escalations:
    """Appends trajectories for a person to decide to `path`. A trajectory that is already there, perhaps answered, is kept."""

    path: Path
    _keys: set[str] | None = None

    def add(self, trajectory: Trajectory, facts: Mapping[str, Any]) -> bool:
        """Add a trajectory; return whether it was new. `facts` records why it was escalated."""
        if self._keys is None:
            filled = self.path.exists() and self.path.stat().st_size
            self._keys = (
                {answer_key(trajectory_from_json(row, where)) for row, where in answer_rows(self.path)} if filled else set()
            )
        clean = without_labels(trajectory)
        if (key := answer_key(clean)) in self._keys:
            return False
        self._keys.add(key)
        row = trajectory_to_json(clean) | {"escalated": dict(facts), HUMAN: dict(BLANK)}
        try:
            with self.path.open("ab") as stream:
                stream.write(encode(row, str(self.path)))
        except OSError as error:
            raise InputError(
                str(self.path), f"cannot be written: {error.strerror}", "name another file to escalate to"
            ) from None
        return True
