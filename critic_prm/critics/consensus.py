"""Combine several judges into one judgement by majority, weighted or unanimous vote, keeping each judgement."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import orjson

from critic_prm.critics.open import open_critic
from critic_prm.data.critic import Critic, CriticStats
from critic_prm.data.judgement import Judgement, Verdict, VerdictValue, all_ways
from critic_prm.data.trajectory import Trajectory
from critic_prm.engine.client import Client
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import UsageError
from critic_prm.providers.provider import Usage

Rule = Literal["majority", "weighted", "unanimous"]
RULES: tuple[Rule, ...] = get_args(Rule)

SUREST = 0.99
"""Upper limit for a measured accuracy. A higher estimate from few solutions would let one judge outweigh all others."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """How votes are combined. `weights` has one entry per judge, its log-odds of being right (all 1 if the rule does not use
    weights). For judges with independent errors this weighted vote is optimal (Nitzan and Paroush 1982)."""

    rule: Rule
    weights: tuple[float, ...]


def connect_all(names: Sequence[str], judging: JudgeOptions, ruling: str = "majority") -> Consensus:
    """Open several judges under one `ruling`.

    `ruling` is "majority", "unanimous", "weighted:0.82,0.74" with the measured accuracy of each judge, or "weighted:FILE" with
    the output of `judge-eval -o FILE`. A budget or request limit is divided equally among the judges. Raises UsageError.
    """
    if len(set(names)) < len(names):
        raise UsageError(f"a judge is named twice in {', '.join(names)}; several samples of one judge are --samples")
    kinds = {name.partition("/")[0] for name in names if "/" in name}
    if judging.base_url and len(kinds) > 1:
        raise UsageError(
            f"--base-url names one server, but the judges are of {', '.join(sorted(kinds))};"
            " name each server in its own variable, such as OPENAI_BASE_URL and ANTHROPIC_BASE_URL"
        )
    share = len(names)
    each = replace(
        judging,
        budget_usd=None if judging.budget_usd is None else judging.budget_usd / share,
        max_requests=None if judging.max_requests is None else max(judging.max_requests // share, 1),
    )
    read = parse_ruling(ruling, names, judging.style)
    return Consensus(tuple((name, open_critic(name, each)) for name in names), read)


@dataclass(frozen=True, slots=True)
class Consensus(Critic):
    """Asks all judges concurrently and combines their judgements."""

    judges: tuple[tuple[str, Critic], ...] = field()
    ruling: Ruling

    @property
    def stats(self) -> Sequence[CriticStats]:
        return (CriticCosts(self.judges),)

    @property
    def batch(self) -> int:
        return min(critic.batch for _, critic in self.judges)

    @property
    def stochastic(self) -> bool:
        return any(critic.stochastic for _, critic in self.judges)

    @property
    def card(self) -> Mapping[str, Any]:
        card: dict[str, Any] = {"consensus": self.ruling.rule}
        if self.ruling.rule == "weighted":
            card["weights"] = [round(weight, 6) for weight in self.ruling.weights]
        return card | {"judges": [{"judge": name, **critic.card} for name, critic in self.judges]}

    async def judge(self, trajectories: Sequence[Trajectory], sample: int = 0) -> list[Judgement]:
        # If one judge stops the run, still wait for the replies of the others: they are paid for.
        rows = await asyncio.gather(*(critic.judge(trajectories, sample) for _, critic in self.judges), return_exceptions=True)
        named: list[list[Judgement]] = []
        for (name, _), row in zip(self.judges, rows, strict=True):
            if isinstance(row, BaseException):
                raise row
            named.append([replace(judgement, judge=name) for judgement in row])
        return [
            merge([row[i] for row in named], len(trajectory.steps), self.ruling, sample)
            for i, trajectory in enumerate(trajectories)
        ]

    async def close(self) -> None:
        await asyncio.gather(*(critic.close() for _, critic in self.judges))


@dataclass(frozen=True)
class CriticCosts(CriticStats):
    """Usage per judge of a consensus, for the run report."""

    judges: Sequence[tuple[str, Critic]]
    name: str = "judges"

    def report(self) -> list[dict[str, Any]]:
        """Requests, tokens and USD (null if unknown) per judge. Critics that send no requests are left out."""
        clients: list[tuple[str, Client]] = [(name, critic.client) for name, critic in self.judges if critic.client is not None]
        return [
            {
                "judge": name,
                "requests": client.money.requests,
                "replies": {kind: client.counts[kind] for kind in ("cached", "paid", "incomplete", "missing")},
                "tokens": {"input": client.money.usage.input, "output": client.money.usage.output},
                "cost_usd": client.money.cost(),
            }
            for name, client in clients
        ]

    def lines(self) -> list[str]:
        lines = []
        for row in self.report():
            cost = "price unknown" if row["cost_usd"] is None else f"${row['cost_usd']:.4f}"
            tokens = f"{row['tokens']['input']:,} tokens in, {row['tokens']['output']:,} out"
            lines.append(
                f"{row['judge']}: {row['replies']['cached']:,} cached, {row['replies']['paid']:,} paid, {tokens}, {cost}"
            )
        return lines


def parse_ruling(text: str, names: Sequence[str], style: str = "") -> Ruling:
    """Parse the `ruling` argument of `connect_all`. Raises UsageError, also if a judge is no better than chance."""
    name, _, rest = text.partition(":")
    if name not in RULES or (name == "weighted") != bool(rest):
        raise UsageError(f"--consensus is {text!r}; it is majority, unanimous, weighted:0.82,0.74 or weighted:FILE")
    if name != "weighted":
        return Ruling(next(rule for rule in RULES if rule == name), (1.0,) * len(names))
    accuracies = _measured(Path(rest), names, style) if Path(rest).is_file() else _numbers(rest, text)
    if len(accuracies) != len(names):
        raise UsageError(f"--consensus gives {len(accuracies)} accuracies for {len(names)} judges; give one each, in order")
    for judge, accuracy in zip(names, accuracies, strict=True):
        if not 0.5 < accuracy <= 1:
            raise UsageError(f"the accuracy of {judge} is {accuracy:g}; a weight needs one above 0.5, and at most 1")
    return Ruling("weighted", tuple(math.log(a / (1 - a)) for a in (min(accuracy, SUREST) for accuracy in accuracies)))


def merge(parts: Sequence[Judgement], steps: int, ruling: Ruling, sample: int = 0) -> Judgement:
    """Combine the judgements of several judges on a trajectory with `steps` steps.

    More than half of the judgements must be `ok` (all of them for a unanimous ruling); otherwise the result has the most common
    status of the failed ones. Each step is decided by the judges that judged it. Without sufficient agreement the verdict is
    neutral and carries its votes, a note says so, and the first error is unknown unless an earlier step was already found
    incorrect.
    """
    readable = [(part, weight) for part, weight in zip(parts, ruling.weights, strict=True) if part.status == "ok"]
    quorum = len(parts) if ruling.rule == "unanimous" else len(parts) // 2 + 1
    whole = Judgement(
        status="ok",
        sample=sample,
        keys=tuple(key for part in parts for key in part.keys),
        how=all_ways(part.how for part in parts),
        usage=sum((part.usage for part in parts), Usage()),
        parts=tuple(parts),
    )
    if len(readable) < quorum:
        status = Counter(part.status for part in parts if part.status != "ok").most_common(1)[0][0]
        return replace(whole, status=status, notes=(f"{len(readable)} of {len(parts)} judges could be read",))
    verdicts: list[Verdict] = []
    notes: list[str] = []
    first, decided = None, True
    for step in range(steps):
        said = [(v, weight) for part, weight in readable for v in part.verdicts if v.step == step]
        if not said:
            break
        value, verdict = _decide(step, said, ruling.rule)
        verdicts.append(verdict)
        if value is None:
            decided = False
            k, n = verdict.votes or (0, 0)
            notes.append(f"step {step}: the judges do not agree ({k} of {n} say correct)")
        if value == "incorrect" and first is None and decided:
            first = step
            # After this step, only judges that called it incorrect and continued are counted; the others judge the later steps
            # under a different assumption.
            readable = [(part, weight) for part, weight in readable if _calls(part, step) == "incorrect"]
    if decided and first is None and len(verdicts) == steps:
        first = -1
    return replace(whole, verdicts=tuple(verdicts), first_error=first, notes=tuple(notes))


def _decide(step: int, said: Sequence[tuple[Verdict, float]], rule: Rule) -> tuple[VerdictValue | None, Verdict]:
    """The value with the largest total weight (None on a tie, or without unanimity) and the verdict that records it."""
    weights: dict[VerdictValue, float] = {}
    for verdict, weight in said:
        weights[verdict.value] = weights.get(verdict.value, 0.0) + weight
    ranked = sorted(weights.items(), key=lambda item: -item[1])
    agreed = len(ranked) == 1 or (rule != "unanimous" and ranked[0][1] - ranked[1][1] > 1e-9)
    value = ranked[0][0] if agreed else None
    sided = [(verdict, weight) for verdict, weight in said if verdict.value != "neutral"]
    if value == "neutral" or not sided:
        return value, Verdict(step, "neutral", _critique(said, value))
    votes = (sum(verdict.value == "correct" for verdict, _ in sided), len(sided))
    return value, Verdict(step, value or "neutral", _critique(said, value), _CHANCES[rule](sided), votes=votes)


def _calls(part: Judgement, step: int) -> VerdictValue | None:
    return next((verdict.value for verdict in part.verdicts if verdict.step == step), None)


def _critique(said: Sequence[tuple[Verdict, float]], value: VerdictValue | None) -> str:
    return next((verdict.critique for verdict, _ in said if verdict.value == value and verdict.critique), "")


def _mean(sided: Sequence[tuple[Verdict, float]]) -> float | None:
    """The mean of the judges' P(correct), or None if no judge gives one; the votes then carry the same information."""
    if all(verdict.p_correct is None for verdict, _ in sided):
        return None
    return sum(float(v.value == "correct") if v.p_correct is None else v.p_correct for v, _ in sided) / len(sided)


def _posterior(sided: Sequence[tuple[Verdict, float]]) -> float:
    """Posterior P(correct) from a uniform prior, assuming that judges err independently."""
    return 1 / (1 + math.exp(-sum(weight if verdict.value == "correct" else -weight for verdict, weight in sided)))


_CHANCES: Mapping[Rule, Callable[[Sequence[tuple[Verdict, float]]], float | None]] = {
    "majority": _mean,
    "unanimous": _mean,
    "weighted": _posterior,
}


def _numbers(text: str, whole: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--consensus is {whole!r}: {text!r} is neither numbers nor a file that exists") from None


def _measured(path: Path, names: Sequence[str], style: str) -> list[float]:
    """The step accuracy of each judge from a `judge-eval -o` file, for this style if the file covers several."""
    try:
        said = orjson.loads(path.read_bytes())
        rows = (said[0] if isinstance(said, list) else said)["judges"]
        measured = [(row["judge"], row["style"], row["mean"]["step_accuracy"]["value"]) for row in rows]
        known = sorted((row for row in measured if row[2] is not None), key=lambda row: row[1] == style)
        found = {judge: float(accuracy) for judge, _, accuracy in known}
        return [found[name] for name in names]
    except (orjson.JSONDecodeError, KeyError, TypeError, IndexError) as error:
        raise UsageError(
            f"{path} does not say how accurate {', '.join(names)} are ({error}); make it with judge-eval -o"
        ) from None
