"""Combine critics into one judgement: judges by vote (consensus), or any critics by weight, gate and floor (mixture)."""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, get_args

import orjson

from critic_prm.critics.open import ACCESS, check_keys, check_one_server, critic_in_file, judge_options, open_critic, share_of
from critic_prm.data.critic import Critic, CriticStats
from critic_prm.data.judgement import Judgement, Label, Verdict, VerdictValue, all_ways, combine, first_error_of
from critic_prm.data.trajectory import Trajectory
from critic_prm.data.trust import Origin
from critic_prm.engine.concurrency import gather_all
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import UsageError
from critic_prm.providers.provider import Usage
from critic_prm.styles.prompt import style_names

Rule = Literal["majority", "weighted", "unanimous"]
RULES: tuple[Rule, ...] = get_args(Rule)

HIGHEST_ACCURACY = 0.99
"""Upper limit for a measured accuracy. A higher estimate from few solutions would let one judge outweigh all others."""

Votes = Sequence[tuple[Verdict, float]]
"""Verdicts on one step, each with the weight of its judge."""


class Composite(Critic):
    """Base of critics that combine the critics in `judges`."""

    @property
    def batch(self) -> int:
        return min(critic.batch for _, critic in self.judges)

    @property
    def stochastic(self) -> bool:
        return any(critic.stochastic for _, critic in self.judges)

    @property
    def causal(self) -> bool:
        return all(critic.causal for _, critic in self.judges)

    @property
    def stats(self) -> Sequence[CriticStats]:
        return (CriticCosts(self.judges),)

    async def close(self) -> None:
        await asyncio.gather(*(critic.close() for _, critic in self.judges))


@dataclass(frozen=True)
class CriticCosts(CriticStats):
    """Requests, tokens and cost of each critic that sends requests, for the run report."""

    judges: Sequence[tuple[str, Critic]]
    name: str = "judges"

    def report(self) -> list[dict[str, Any]]:
        """A row per critic; the cost is in USD, null if unknown."""
        clients = [(name, critic.client) for name, critic in self.judges if critic.client is not None]
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
            replies = f"{row['replies']['cached']:,} cached, {row['replies']['paid']:,} paid"
            lines.append(f"{row['judge']}: {replies}, {tokens}, {cost}")
        return lines


Items = Counter[tuple[Any, ...]]
"""Counts of the tuples of values that the judges gave to one item (a step or a solution), in judge order."""


@dataclass
class Agreement(CriticStats):
    """Counts the verdicts of all judges on the same steps and solutions; memory does not grow with the input.

    Only items judged by all of them are compared. `judges` has their names, in order.
    """

    judges: Sequence[str]
    steps: Items = field(default_factory=Counter)
    first_errors: Items = field(default_factory=Counter)
    name: str = "agreement"

    def add(self, label: Label) -> None:
        for judgement in label.judgements:
            parts = judgement.parts
            if len(parts) != len(self.judges) or any(part.status != "ok" for part in parts):
                continue
            self.first_errors[tuple(part.first_error for part in parts)] += 1
            said = [{verdict.step: verdict.value for verdict in part.verdicts} for part in parts]
            for step in set.intersection(*(set(each) for each in said)):
                self.steps[tuple(each[step] for each in said)] += 1

    def report(self) -> dict[str, Any]:
        """Per step and for first errors: number of items, share with full agreement, Cohen's kappa per pair, Fleiss' kappa
        overall."""
        return {"steps": self._of(self.steps), "first_errors": self._of(self.first_errors)}

    def lines(self) -> list[str]:
        """The report as text."""
        lines = []
        for name, found in self.report().items():
            what = name.replace("_", " ")
            if not found["judged_by_all"]:
                lines.append(f"agreement on {what}: none were judged by all")
                continue
            pairs = ", ".join(f"{a} and {b} {_shown(kappa)}" for (a, b), kappa in self._pairs(found))
            everyone = f", all {_shown(found['fleiss_kappa'])} (Fleiss)" if len(self.judges) > 2 else ""
            lines.append(
                f"agreement on {found['judged_by_all']:,} {what}: all alike {found['alike']:.1%}; kappa {pairs}{everyone}"
            )
        return lines

    def _of(self, items: Items) -> dict[str, Any]:
        total = items.total()
        if not total:
            return {"judged_by_all": 0, "alike": None, "cohen_kappa": [], "fleiss_kappa": None}
        from critic_prm.metrics.scores import cohen_kappa, fleiss_kappa

        columns = list(zip(*items.elements(), strict=True))
        return {
            "judged_by_all": total,
            "alike": sum(n for said, n in items.items() if len(set(said)) == 1) / total,
            "cohen_kappa": [cohen_kappa(a, b) for a, b in combinations(columns, 2)],
            "fleiss_kappa": fleiss_kappa(list(_counts(items))),
        }

    def _pairs(self, found: dict[str, Any]) -> Iterable[tuple[tuple[str, str], float | None]]:
        return zip(combinations(self.judges, 2), found["cohen_kappa"], strict=True)


def _counts(items: Items) -> Iterable[list[int]]:
    """One row per item: how many judges chose each category."""
    categories = sorted({value for said in items for value in said}, key=repr)
    for said, n in items.items():
        row = [said.count(category) for category in categories]
        for _ in range(n):
            yield row


def _shown(kappa: float | None) -> str:
    return "undefined (they never differ)" if kappa is None else f"{kappa:.2f}"


@dataclass(frozen=True, slots=True)
class Ruling:
    """How votes are combined. `weights` has one entry per judge, its log-odds of being right (all 1 if the rule does not use
    weights). For judges with independent errors this weighted vote is optimal (Nitzan and Paroush 1982)."""

    rule: Rule
    weights: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Consensus(Composite):
    """Asks all judges concurrently and combines their judgements."""

    judges: tuple[tuple[str, Critic], ...] = field()
    ruling: Ruling

    @property
    def stats(self) -> Sequence[CriticStats]:
        return (Agreement([name for name, _ in self.judges]), CriticCosts(self.judges))

    @property
    def card(self) -> Mapping[str, Any]:
        card: dict[str, Any] = {"consensus": self.ruling.rule}
        if self.ruling.rule == "weighted":
            card["weights"] = [round(weight, 6) for weight in self.ruling.weights]
        return card | {"judges": [{"judge": name, **critic.card} for name, critic in self.judges]}

    async def judge(self, trajectories: Sequence[Trajectory], sample: int = 0) -> list[Judgement]:
        rows = await gather_all(critic.judge(trajectories, sample) for _, critic in self.judges)
        named = [[replace(one, judge=name) for one in row] for (name, _), row in zip(self.judges, rows, strict=True)]
        return [
            merge(parts, len(trajectory.steps), self.ruling, sample)
            for trajectory, *parts in zip(trajectories, *named, strict=True)
        ]


def connect_all(names: Sequence[str], options: JudgeOptions, ruling: str = "majority") -> Consensus:
    """Open several judges under one `ruling`.

    `ruling` is "majority", "unanimous", "weighted:0.82,0.74" with the measured accuracy of each judge, or "weighted:FILE" with
    the output of `judge-eval -o FILE`. A budget or request limit is divided equally among the judges. Raises UsageError.
    """
    if len(set(names)) < len(names):
        raise UsageError(f"a judge is named twice in {', '.join(names)}; several samples of one judge are --samples")
    providers = {name.partition("/")[0] for name in names if "/" in name}
    if options.base_url and len(providers) > 1:
        raise UsageError(
            f"--base-url names one server, but the judges are of {', '.join(sorted(providers))};"
            " name each server in its own variable, such as OPENAI_BASE_URL and ANTHROPIC_BASE_URL"
        )
    check_one_server(names, options)
    parsed, each = parse_ruling(ruling, names, options.style), share_of(options, len(names))
    return Consensus(tuple((name, open_critic(name, each)) for name in names), parsed)


def parse_ruling(text: str, names: Sequence[str], style: str = "") -> Ruling:
    """Parse the `ruling` argument of `connect_all`. Raises UsageError, also if a judge is no better than chance."""
    name, _, rest = text.partition(":")
    rule = next((rule for rule in RULES if rule == name), None)
    if rule is None or (rule == "weighted") != bool(rest):
        raise UsageError(f"--consensus is {text!r}; it is majority, unanimous, weighted:0.82,0.74 or weighted:FILE")
    if rule != "weighted":
        return Ruling(rule, (1.0,) * len(names))
    accuracies = _measured(Path(rest), names, style) if Path(rest).is_file() else _numbers(rest, text)
    if len(accuracies) != len(names):
        raise UsageError(f"--consensus gives {len(accuracies)} accuracies for {len(names)} judges; give one each, in order")
    for judge, accuracy in zip(names, accuracies, strict=True):
        if not 0.5 < accuracy <= 1:
            raise UsageError(f"the accuracy of {judge} is {accuracy:g}; a weight needs one above 0.5, and at most 1")
    bounded = [min(accuracy, HIGHEST_ACCURACY) for accuracy in accuracies]
    return Ruling(rule, tuple(math.log(accuracy / (1 - accuracy)) for accuracy in bounded))


def _numbers(text: str, whole: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--consensus is {whole!r}: {text!r} is neither numbers nor a file that exists") from None


def _measured(path: Path, names: Sequence[str], style: str) -> list[float]:
    """The step accuracy of each judge from a `judge-eval -o` file, for this style if the file covers several."""
    try:
        data = orjson.loads(path.read_bytes())
        rows = (data[0] if isinstance(data, list) else data)["judges"]
        measured = [(row["judge"], row["style"], row["mean"]["step_accuracy"]["value"]) for row in rows]
        measured = sorted((row for row in measured if row[2] is not None), key=lambda row: row[1] == style)
        accuracies = {judge: float(accuracy) for judge, _, accuracy in measured}
        return [accuracies[name] for name in names]
    except (orjson.JSONDecodeError, KeyError, TypeError, IndexError) as error:
        raise UsageError(
            f"{path} does not say how accurate {', '.join(names)} are ({error}); make it with judge-eval -o"
        ) from None


def merge(parts: Sequence[Judgement], steps: int, ruling: Ruling, sample: int = 0) -> Judgement:
    """Combine the judgements of several judges on a trajectory with `steps` steps.

    More than half of the judgements must be `ok` (all of them for a unanimous ruling); otherwise the result has the most common
    status of the failed ones. Each step is decided by the judges that judged it. Without sufficient agreement the verdict is
    neutral and carries its votes, a note says so, and the first error is unknown unless an earlier step was already found
    incorrect.
    """
    readable = [(part, weight) for part, weight in zip(parts, ruling.weights, strict=True) if part.status == "ok"]
    quorum = len(parts) if ruling.rule == "unanimous" else len(parts) // 2 + 1
    whole = _whole(parts, sample)
    if len(readable) < quorum:
        status = Counter(part.status for part in parts if part.status != "ok").most_common(1)[0][0]
        return replace(whole, status=status, notes=(f"{len(readable)} of {len(parts)} judges could be read",))
    verdicts: list[Verdict] = []
    notes: list[str] = []
    first, decided = None, True
    for step in range(steps):
        votes = [(verdict, weight) for part, weight in readable for verdict in part.verdicts if verdict.step == step]
        if not votes:
            break
        value, verdict = _decide(step, votes, ruling.rule)
        verdicts.append(verdict)
        if value is None:
            decided = False
            k, n = verdict.votes or (0, 0)
            notes.append(f"step {step}: the judges do not agree ({k} of {n} say correct)")
        if value == "incorrect" and first is None and decided:
            first = step
            # After this step, only judges that called it incorrect and continued are counted; the others judge the later steps
            # under a different assumption.
            readable = [(part, weight) for part, weight in readable if _value_at(part, step) == "incorrect"]
    if decided and first is None and len(verdicts) == steps:
        first = -1
    return replace(whole, verdicts=tuple(verdicts), first_error=first, notes=tuple(notes))


def _whole(parts: Sequence[Judgement], sample: int) -> Judgement:
    """A judgement with the replies, methods and usage of all parts, without verdicts."""
    return Judgement(
        status="ok",
        sample=sample,
        keys=tuple(key for part in parts for key in part.keys),
        how=all_ways(part.how for part in parts),
        usage=sum((part.usage for part in parts), Usage()),
        parts=tuple(parts),
    )


def _decide(step: int, votes: Votes, rule: Rule) -> tuple[VerdictValue | None, Verdict]:
    """The value with the largest total weight (None on a tie, or without unanimity) and the verdict that records it."""
    weights: dict[VerdictValue, float] = {}
    for verdict, weight in votes:
        weights[verdict.value] = weights.get(verdict.value, 0.0) + weight
    ranked = sorted(weights.items(), key=lambda item: -item[1])
    agreed = len(ranked) == 1 or (rule != "unanimous" and ranked[0][1] - ranked[1][1] > 1e-9)
    value = ranked[0][0] if agreed else None
    critique = next((verdict.critique for verdict, _ in votes if verdict.value == value and verdict.critique), "")
    sided = [(verdict, weight) for verdict, weight in votes if verdict.vote is not None]
    if value == "neutral" or not sided:
        return value, Verdict(step, "neutral", critique)
    count = (sum(verdict.vote is True for verdict, _ in sided), len(sided))
    p_correct = _posterior(sided) if rule == "weighted" else _mean_p(sided)
    return value, Verdict(step, value or "neutral", critique, p_correct, votes=count)


def _value_at(part: Judgement, step: int) -> VerdictValue | None:
    return next((verdict.value for verdict in part.verdicts if verdict.step == step), None)


def _mean_p(votes: Votes) -> float | None:
    """The mean of the judges' P(correct), or None if no judge gives one; the votes then carry the same information."""
    if all(verdict.p_correct is None for verdict, _ in votes):
        return None
    return sum(float(v.vote is True) if v.p_correct is None else v.p_correct for v, _ in votes) / len(votes)


def _posterior(votes: Votes) -> float:
    """Posterior P(correct) from a uniform prior, assuming that judges err independently."""
    return 1 / (1 + math.exp(-sum(weight if verdict.vote else -weight for verdict, weight in votes)))


Weighted = Sequence[tuple[float, float]]
"""(P(correct), weight) of every part that scores a step."""


def _mean(scores: Weighted) -> float:
    return math.fsum(p * w for p, w in scores) / math.fsum(w for _, w in scores)


def _geometric(scores: Weighted) -> float:
    if any(p == 0 for p, _ in scores):
        return 0.0
    return math.exp(math.fsum(w * math.log(p) for p, w in scores) / math.fsum(w for _, w in scores))


COMBINATIONS: dict[str, Callable[[Weighted], float]] = {
    "mean": _mean,
    "geometric_mean": _geometric,
    "product": lambda scores: math.prod(p**w for p, w in scores),
    "min": lambda scores: min(p for p, _ in scores),
    "max": lambda scores: max(p for p, _ in scores),
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
            raise UsageError(f"part {self.name} has the weight 0 and no gate, so it has no effect; leave it out")
        for name, pattern in (("problems", self.problems), ("steps", self.steps)):
            try:
                re.compile(pattern or "")
            except re.error as error:
                raise UsageError(f"part {self.name}: {name} is not a regular expression: {error}") from None

    def scores_problem(self, problem: str) -> bool:
        return self.problems is None or re.search(self.problems, problem) is not None

    def scores_step(self, text: str) -> bool:
        return self.steps is None or re.search(self.steps, text) is not None


@dataclass(frozen=True)
class Mixture(Composite):
    """A critic that combines other critics, which may themselves be mixtures. A step is incorrect if its P(correct) is below
    `threshold`."""

    parts: tuple[MixturePart, ...]
    how: str = "mean"
    threshold: float = 0.5

    @property
    def judges(self) -> tuple[tuple[str, Critic], ...]:
        return tuple((part.name, part.critic) for part in self.parts)

    @property
    def card(self) -> Mapping[str, Any]:
        names = ("weight", "gate", "floor", "problems", "steps", "required")
        parts = [
            {
                "part": part.name,
                **{name: value for name in names if (value := getattr(part, name))},
                "critic": dict(part.critic.card),
            }
            for part in self.parts
        ]
        return {"mixture": self.how, "threshold": self.threshold, "parts": parts}

    async def judge(self, trajectories: Sequence[Trajectory], sample: int = 0) -> list[Judgement]:
        rows = await gather_all(_ask(part, trajectories, sample) for part in self.parts)
        return [self.merge(trajectory, row, sample) for trajectory, *row in zip(trajectories, *rows, strict=True)]

    def merge(self, trajectory: Trajectory, judgements: Sequence[Judgement | None], sample: int = 0) -> Judgement:
        """Combine the judgements of the parts on one trajectory; None for a part that was not asked."""
        asked = [(part, one) for part, one in zip(self.parts, judgements, strict=True) if one is not None]
        whole = _whole([replace(one, judge=part.name) for part, one in asked], sample)
        failed = [(part, one) for part, one in asked if one.status != "ok"]
        notes = tuple(f"{part.name}: {one.status}" for part, one in failed)
        whole = replace(whole, notes=notes if asked else ("no part is asked about this problem",))
        required = next((one for part, one in failed if part.required), None)
        if required is not None or (failed and len(failed) == len(asked)):
            return replace(whole, status=(required or failed[0][1]).status)
        verdicts = self._verdicts(trajectory, [(part, one) for part, one in asked if one.status == "ok"])
        return replace(whole, verdicts=verdicts, first_error=first_error_of(verdicts, len(trajectory.steps)))

    def _verdicts(self, trajectory: Trajectory, judged: Sequence[tuple[MixturePart, Judgement]]) -> tuple[Verdict, ...]:
        count = len(trajectory.steps)
        scores = [(part, combine([one], count).p_correct, {v.step: v for v in one.verdicts}) for part, one in judged]
        verdicts = []
        for step, text in enumerate(trajectory.texts):
            here = [(part, p[step], own.get(step)) for part, p, own in scores if part.scores_step(text)]
            scored = [(part, p) for part, p, _ in here if p is not None]
            if not scored:
                if any(verdict is not None for _, _, verdict in here):
                    verdicts.append(Verdict(step, "neutral", "no part scores this step"))
                continue
            weighted = [(max(p, part.floor), part.weight) for part, p in scored if part.weight]
            gated = [p for part, p in scored if part.gate is not None and p < part.gate]
            if not weighted and not gated:
                verdicts.append(Verdict(step, "neutral", "it passes the gates, and no part with a weight scores it"))
                continue
            p = min([COMBINATIONS[self.how](weighted), *gated]) if weighted else min(gated)
            value: VerdictValue = "incorrect" if p < self.threshold else "correct"
            critiques = [f"{part.name}: {v.critique}" for part, _, v in here if v and v.critique and v.value == value]
            verdicts.append(Verdict(step, value, "\n".join(critiques), p))
        return tuple(verdicts)


async def _ask(part: MixturePart, trajectories: Sequence[Trajectory], sample: int) -> list[Judgement | None]:
    wanted = [place for place, trajectory in enumerate(trajectories) if part.scores_problem(trajectory.problem)]
    judgements: list[Judgement | None] = [None] * len(trajectories)
    if wanted:
        own = sample if part.critic.stochastic else 0
        for place, judgement in zip(wanted, await part.critic.judge([trajectories[i] for i in wanted], own), strict=True):
            judgements[place] = judgement
    return judgements


def from_table(table: Mapping[str, Any], origin: Origin, options: JudgeOptions) -> Mixture:
    """Build the mixture from the TOML table `[mixture]`: `part` (an array of tables with `critic`, the fields of `MixturePart`
    and, in trusted files, `base_url`, `header` and `api_key_env`) and, optionally, `how` and `threshold`. Raises UsageError."""
    check_keys(table, "mixture", {"part"}, {"how", "threshold"})
    how, threshold = table.get("how", "mean"), float(table.get("threshold", 0.5))
    if how not in COMBINATIONS:
        raise UsageError(f"[mixture] how is {how!r}; it is {', '.join(COMBINATIONS)}")
    if not isinstance(table["part"], list) or not table["part"]:
        raise UsageError("[mixture] has no parts; write [[mixture.part]] for each")
    each = share_of(options, len(table["part"]))
    own = {part.name for part in fields(MixturePart)} - {"name", "critic"}
    parts = []
    check_one_server([str(row.get("critic")) for row in table["part"] if not ACCESS & row.keys()], options)
    for row in table["part"]:
        check_keys(row, "mixture.part", {"critic"}, own | ACCESS | {"name", "style"})
        asked = replace(each, style=origin.name("style", row["style"], style_names())) if "style" in row else each
        asked = judge_options(row, row["critic"], origin, asked)
        critic = open_critic(critic_in_file(row["critic"], origin), asked)
        values: dict[str, Any] = {name: row[name] for name in own & row.keys()}
        values |= {name: float(row[name]) for name in ("weight", "floor") if name in row}
        parts.append(MixturePart(str(row.get("name", row["critic"])), critic, **values))
    return Mixture(tuple(parts), how, threshold)
