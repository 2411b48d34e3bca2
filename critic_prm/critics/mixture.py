"""Combine critics and rules by weight, gate and floor into one judgement per trajectory."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from critic_prm.critics.consensus import CriticCosts
from critic_prm.critics.open import check, critic_in_file, open_critic
from critic_prm.data.critic import Critic, CriticStats
from critic_prm.data.judgement import Judgement, Verdict, all_ways, combine, first_error_of
from critic_prm.data.trajectory import Trajectory
from critic_prm.data.trust import Origin
from critic_prm.engine.options import JudgeOptions
from critic_prm.engine.together import gather_all
from critic_prm.errors import UsageError
from critic_prm.providers.provider import Usage
from critic_prm.styles.prompt import style_names

Weighed = Sequence[tuple[float, float]]
"""(P(correct), weight) of every part that scores a step."""


def _mean(said: Weighed) -> float:
    return math.fsum(p * w for p, w in said) / math.fsum(w for _, w in said)


def _geometric(said: Weighed) -> float:
    if any(p == 0 for p, _ in said):
        return 0.0
    return math.exp(math.fsum(w * math.log(p) for p, w in said) / math.fsum(w for _, w in said))


HOWS: dict[str, Callable[[Weighed], float]] = {
    "mean": _mean,
    "geometric_mean": _geometric,
    "product": lambda said: math.prod(p**w for p, w in said),
    "min": lambda said: min(p for p, _ in said),
    "max": lambda said: max(p for p, _ in said),
}
"""Functions that combine the parts' P(correct) for a step."""


@dataclass(frozen=True, slots=True)
class MixturePart:
    """One critic of a mixture."""

    name: str
    critic: Critic
    weight: float = 1.0
    """Weight in the combination."""
    gate: float | None = None
    """If this part's P(correct) for a step is below `gate`, the combined P(correct) is at most this part's value."""
    floor: float = 0.0
    """Lower limit of this part's P(correct) in the combination, so that it cannot reject a step alone."""
    problems: str | None = None
    """Regular expression; the part is asked only about trajectories whose problem matches. None: all."""
    steps: str | None = None
    """Regular expression; the part scores only steps whose text matches. None: all."""
    required: bool = False
    """If this part has no usable judgement, the mixture has none either."""

    def __post_init__(self) -> None:
        if self.weight < 0 or not 0 <= self.floor <= 1 or (self.gate is not None and not 0 <= self.gate <= 1):
            raise UsageError(
                f"part {self.name}: weight {self.weight}, floor {self.floor}, gate {self.gate};"
                " a weight is at least 0, the others are P(correct), 0 to 1"
            )
        if not self.weight and self.gate is None:
            raise UsageError(f"part {self.name} has the weight 0 and no gate: it can change nothing; leave it out")
        for name in ("problems", "steps"):
            try:
                re.compile(getattr(self, name) or "")
            except re.error as error:
                raise UsageError(f"part {self.name}: {name} is no regular expression: {error}") from None

    def has_say(self, trajectory: Trajectory) -> bool:
        return self.problems is None or re.search(self.problems, trajectory.problem) is not None


@dataclass(frozen=True)
class Mixture(Critic):
    """A critic that combines other critics, which may themselves be mixtures. A step is incorrect if its P(correct) is below
    `threshold`."""

    parts: tuple[MixturePart, ...]
    how: str = "mean"
    threshold: float = 0.5

    @property
    def judges(self) -> tuple[tuple[str, Critic], ...]:
        return tuple((part.name, part.critic) for part in self.parts)

    @property
    def stats(self) -> Sequence[CriticStats]:
        return (CriticCosts(self.judges),)

    @property
    def batch(self) -> int:
        return min(part.critic.batch for part in self.parts)

    @property
    def stochastic(self) -> bool:
        return any(part.critic.stochastic for part in self.parts)

    @property
    def causal(self) -> bool:
        return all(part.critic.causal for part in self.parts)

    @property
    def card(self) -> Mapping[str, Any]:
        fields = ("weight", "gate", "floor", "problems", "steps", "required")
        parts = [
            {
                "part": part.name,
                **{name: value for name in fields if (value := getattr(part, name))},
                "critic": dict(part.critic.card),
            }
            for part in self.parts
        ]
        return {"mixture": self.how, "threshold": self.threshold, "parts": parts}

    async def judge(self, trajectories: Sequence[Trajectory], sample: int = 0) -> list[Judgement]:
        found = await gather_all(_ask(part, trajectories, sample) for part in self.parts)
        return [self.merge(trajectory, [row[i] for row in found], sample) for i, trajectory in enumerate(trajectories)]

    async def close(self) -> None:
        await asyncio.gather(*(part.critic.close() for part in self.parts))

    def merge(self, trajectory: Trajectory, said: Sequence[Judgement | None], sample: int = 0) -> Judgement:
        """Combine the judgements of the parts on one trajectory; None for a part that was not asked."""
        asked = [(part, one) for part, one in zip(self.parts, said, strict=True) if one is not None]
        kept = tuple(replace(one, judge=part.name) for part, one in asked)
        failed = [(part, one) for part, one in asked if one.status != "ok"]
        needed = next((one for part, one in failed if part.required), None)
        notes = tuple(f"{part.name}: {one.status}" for part, one in failed)
        whole = Judgement(
            status="ok",
            sample=sample,
            keys=tuple(key for one in kept for key in one.keys),
            notes=notes if asked else ("no part has a say on this problem",),
            how=all_ways(one.how for one in kept),
            usage=sum((one.usage for one in kept), Usage()),
            parts=kept,
        )
        if needed is not None or (failed and len(failed) == len(asked)):
            return replace(whole, status=(needed or failed[0][1]).status)
        verdicts = self._verdicts(trajectory, [(part, one) for part, one in asked if one.status == "ok"])
        return replace(whole, verdicts=verdicts, first_error=first_error_of(verdicts, len(trajectory.steps)))

    def _verdicts(self, trajectory: Trajectory, asked: Sequence[tuple[MixturePart, Judgement]]) -> tuple[Verdict, ...]:
        steps = len(trajectory.steps)
        scores = [(part, combine([one], steps).p_correct, {v.step: v for v in one.verdicts}) for part, one in asked]
        verdicts = []
        for step, text in enumerate(trajectory.texts):
            said = [
                (part, p[step], own.get(step))
                for part, p, own in scores
                if part.steps is None or re.search(part.steps, text) is not None
            ]
            known = [(part, p) for part, p, _ in said if p is not None]
            if not known:
                if any(verdict is not None for _, _, verdict in said):
                    verdicts.append(Verdict(step, "neutral", "no part has an opinion"))
                continue
            weighed = [(max(p, part.floor), part.weight) for part, p in known if part.weight]
            shut = [p for part, p in known if part.gate is not None and p < part.gate]
            if not weighed and not shut:
                verdicts.append(Verdict(step, "neutral", "it passes the gates, and no part weighs it"))
                continue
            p = min([HOWS[self.how](weighed), *shut]) if weighed else min(shut)
            value = "incorrect" if p < self.threshold else "correct"
            critiques = [
                f"{part.name}: {v.critique}" for part, _, v in said if v is not None and v.critique and v.value == value
            ]
            verdicts.append(Verdict(step, "incorrect" if value == "incorrect" else "correct", "\n".join(critiques), p))
        return tuple(verdicts)


async def _ask(part: MixturePart, trajectories: Sequence[Trajectory], sample: int) -> list[Judgement | None]:
    wanted = [place for place, trajectory in enumerate(trajectories) if part.has_say(trajectory)]
    found: list[Judgement | None] = [None] * len(trajectories)
    if wanted:
        own = sample if part.critic.stochastic else 0
        for place, judgement in zip(wanted, await part.critic.judge([trajectories[i] for i in wanted], own), strict=True):
            found[place] = judgement
    return found


def from_table(table: Mapping[str, Any], origin: Origin, judging: JudgeOptions) -> Mixture:
    """Build the mixture from the TOML table `[mixture]`: `part` (an array of tables with `critic` and the fields of
    `MixturePart`) and, optionally, `how` and `threshold`. Raises UsageError."""
    check(table, "mixture", {"part"}, {"how", "threshold"})
    how, threshold = table.get("how", "mean"), float(table.get("threshold", 0.5))
    if how not in HOWS:
        raise UsageError(f"[mixture] how is {how!r}; it is {', '.join(HOWS)}")
    if not isinstance(table["part"], list) or not table["part"]:
        raise UsageError("[mixture] has no parts; write [[mixture.part]] for each")
    share = len(table["part"])
    each = replace(
        judging,
        budget_usd=None if judging.budget_usd is None else judging.budget_usd / share,
        max_requests=None if judging.max_requests is None else max(judging.max_requests // share, 1),
    )
    parts = []
    for row in table["part"]:
        check(row, "mixture.part", {"critic"}, {"name", "weight", "gate", "floor", "problems", "steps", "required", "style"})
        asked = replace(each, style=origin.name("style", row["style"], style_names())) if "style" in row else each
        parts.append(
            MixturePart(
                name=str(row.get("name", row["critic"])),
                critic=open_critic(critic_in_file(row["critic"], origin), asked),
                weight=float(row.get("weight", 1.0)),
                gate=row.get("gate"),
                floor=float(row.get("floor", 0.0)),
                problems=row.get("problems"),
                steps=row.get("steps"),
                required=bool(row.get("required", False)),
            )
        )
    return Mixture(tuple(parts), how, threshold)
