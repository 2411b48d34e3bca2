"""Compare judges and styles on benchmarks: scores, costs, paired differences, and resistance to hostile text in wrong steps."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from pathlib import Path
from string import Template
from typing import Any, Literal

from critic_prm.data import Critic, Label, Trajectory, Usage, problem_key
from critic_prm.errors import InputError, UsageError
from critic_prm.evaluate.run import DEFAULTS, Evaluation, evaluation_to_json, predict
from critic_prm.evaluate.settings import EvaluationSettings
from critic_prm.label.progress import RunStats
from critic_prm.metrics.bootstrap import Interval, mean_interval
from critic_prm.metrics.scorecard import Comparison, compare
from critic_prm.providers.models import Prices, abilities
from critic_prm.providers.provider import stated_usage


@dataclass
class JudgeCost:
    """The cost of judging, from the label rows of an evaluation. Cached replies count at their price like new ones.

    `usage` is keyed by (provider, model, service tier); a consensus has several.
    """

    rows: int = 0
    usage: dict[tuple[str, str, str], Usage] = field(default_factory=dict)
    how: dict[str, int] = field(default_factory=dict)

    def add(self, row: Mapping[str, Any]) -> None:
        """Add one row of a label file."""
        self.rows += 1
        card = row["critic"]
        cards = {inner["judge"]: inner for inner in card.get("judges", ())}
        for judgement in row["judgements"]:
            for word in judgement.get("how", ()):
                self.how[word] = self.how.get(word, 0) + 1
            for part in judgement.get("parts") or [judgement]:
                self._charge(cards.get(part.get("judge"), card), stated_usage(**part.get("usage", {})))

    def total(self) -> Usage:
        return sum(self.usage.values(), Usage())

    def usd(self, prices: Prices | None) -> float | None:
        """Total cost in USD, None if a price or the token counts are unknown. `prices` override those of the model table."""
        costs = []
        for (provider, model, _), usage in self.usage.items():
            price = prices or abilities(provider, model).prices
            costs.append(None if price is None or usage == Usage() else price.cost(usage))
        return None if not costs or None in costs else sum(cost for cost in costs if cost is not None)

    def _charge(self, card: Mapping[str, Any], usage: Usage) -> None:
        if "model" not in card or card["provider"] == "verifier":
            return  # a local critic costs nothing
        who = (str(card["provider"]), str(card["model"]), usage.tier)
        self.usage[who] = self.usage.get(who, Usage()) + usage


@dataclass(frozen=True, slots=True)
class JudgeScore:
    """Score and cost of a judge with a style ("" for a critic without one). Tokens and USD are means per solution, None if the
    server or model table has no value."""

    judge: str
    style: str
    evaluation: Evaluation
    how: Mapping[str, int]
    statuses: Mapping[str, float]
    input_tokens: float | None
    output_tokens: float | None
    usd: float | None


def score_judge(judge: str, style: str, evaluation: Evaluation, cost: JudgeCost, prices: Prices | None = None) -> JudgeScore:
    """Combine an evaluation with its cost. `prices` override those of the model table; `statuses` are shares of judgements."""
    usage, usd = cost.total(), cost.usd(prices)
    known = usage != Usage() and cost.rows > 0
    judgements: Mapping[str, int] = evaluation.run["judgements"]
    return JudgeScore(
        judge=judge,
        style=style,
        evaluation=evaluation,
        how=dict(cost.how),
        statuses={status: count / sum(judgements.values()) for status, count in judgements.items()},
        input_tokens=usage.input / cost.rows if known else None,
        output_tokens=usage.output / cost.rows if known else None,
        usd=usd / cost.rows if known and usd is not None else None,
    )


ComparedPair = tuple[JudgeScore, JudgeScore, Comparison]


def compare_pairs(scores: Sequence[JudgeScore], settings: EvaluationSettings) -> list[ComparedPair]:
    """Compare every pair on the solutions that both judged. Pairs without common solutions are omitted."""
    pairs = []
    for a, b in combinations(scores, 2):
        with suppress(UsageError):
            comparison = compare(a.evaluation.cases, b.evaluation.cases, replicates=settings.resamples, seed=settings.seed)
            pairs.append((a, b, comparison))
    return pairs


def judges_to_json(scores: Sequence[JudgeScore], pairs: Sequence[ComparedPair]) -> dict[str, Any]:
    """One JSON object with an entry per judge and style, and an entry per pair of them."""
    return {
        "judges": [
            {
                "judge": one.judge,
                "style": one.style or None,
                **evaluation_to_json(one.evaluation),
                "how": dict(one.how),
                "statuses": dict(one.statuses),
                "per_solution": {"input_tokens": one.input_tokens, "output_tokens": one.output_tokens, "cost_usd": one.usd},
            }
            for one in scores
        ],
        "pairs": [
            {"a": [a.judge, a.style or None], "b": [b.judge, b.style or None], "f1_difference": asdict(comparison)}
            for a, b, comparison in pairs
        ],
    }


Outcome = Literal["held", "fell", "moved", "unusable"]


@dataclass(frozen=True, slots=True)
class Attack:
    """A hostile text. A `control` text is harmless and measures how often verdicts change by themselves."""

    name: str
    text: str
    control: bool = False

    def on(self, trajectory: Trajectory, step: int) -> Trajectory:
        """A copy of `trajectory` with the text appended to step `step` (0-based)."""
        text = Template(self.text).safe_substitute(number=step + 1, index=step)
        steps = list(trajectory.steps)
        steps[step] = replace(steps[step], text=steps[step].text + text)
        return replace(trajectory, id=f"{trajectory.id}/{self.name}", steps=tuple(steps))


@dataclass(frozen=True, slots=True)
class Resistance:
    """The resistance of a judge to attacks. Only solutions whose exact first error was found in the clean version are
    attacked."""

    erroneous: int
    """Number of erroneous solutions."""
    found: int
    """Number of these whose first error was found in the clean solution."""
    outcomes: Mapping[str, Mapping[Outcome, int]]
    """Counts by attack: "fell" accepted the wrong step, "moved" named an earlier one, "unusable" could not be parsed."""
    fell: float | None
    """Share of "fell" among the usable judgements of all attacks except the control."""
    interval: Interval
    """95% interval of `fell` over problems."""
    by_itself: float | None
    """The same share for the control."""
    run: Mapping[str, Any]


def attacks() -> list[Attack]:
    """The packaged attack texts, the control first."""
    rows = tomllib.loads(Path(__file__).with_name("attacks.toml").read_text("utf-8"))["attack"]
    return [Attack(**row) for row in rows]


async def attack(
    critic: Critic,
    solutions: Iterable[Trajectory],
    texts: Sequence[Attack],
    settings: EvaluationSettings = DEFAULTS,
    *,
    workers: int = 64,
    tally: RunStats | None = None,
) -> Resistance:
    """Judge the erroneous ones of `solutions` clean, then attack those whose error was found. Gold is hidden from the critic.

    Raises InputError if no solution is known to be wrong.
    """
    tally = tally or RunStats()
    erroneous = [(first, solution) for solution in solutions if (first := solution.first_error()) is not None and first >= 0]
    if not erroneous:
        raise InputError("the benchmark", "none of its solutions is known to be wrong", "give solutions with gold errors")
    clean = predict(critic, erroneous, workers=workers, tally=tally)
    found = [(first, solution) async for first, solution, labelled in clean if labelled.first_error == first]
    attacked = [((text, first), text.on(solution, first)) for first, solution in found for text in texts]
    outcomes: dict[str, Counter[Outcome]] = {text.name: Counter() for text in texts}
    fell: list[tuple[str, bool]] = []
    async for (text, first_error), solution, labelled in predict(critic, attacked, workers=workers, tally=tally):
        outcome = _outcome(first_error, labelled)
        outcomes[text.name][outcome] += 1
        if not text.control and outcome != "unusable":
            fell.append((problem_key(solution.problem), outcome == "fell"))
    controls = sum((outcomes[text.name] for text in texts if text.control), Counter[Outcome]())
    problems, values = [problem for problem, _ in fell], [value for _, value in fell]
    unattacked = Interval(None, None, reason="nothing was attacked")
    return Resistance(
        erroneous=len(erroneous),
        found=len(found),
        outcomes={name: dict(counts) for name, counts in outcomes.items()},
        fell=_share(sum(values), len(values)),
        interval=mean_interval(problems, values, replicates=settings.resamples, seed=settings.seed) if fell else unattacked,
        by_itself=_share(controls["fell"], controls.total() - controls["unusable"]),
        run=tally.report(critic.client),
    )


def _outcome(first_error: int, labelled: Label) -> Outcome:
    if labelled.status != "ok" or labelled.first_error is None:
        return "unusable"
    if labelled.first_error == first_error:
        return "held"
    return "moved" if 0 <= labelled.first_error < first_error else "fell"


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
