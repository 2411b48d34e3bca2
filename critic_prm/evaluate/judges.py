"""Compare judges and styles on benchmarks by score and cost, pairwise on the same solutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any

from critic_prm.errors import UsageError
from critic_prm.evaluate.run import Evaluation, evaluation_to_json
from critic_prm.evaluate.settings import EvaluationSettings
from critic_prm.metrics.scorecard import Comparison, compare
from critic_prm.providers.models import Prices, abilities
from critic_prm.providers.provider import Usage, stated_usage


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
    """Score and cost of a judge with a style. Tokens and USD are means per solution, None if the server or model table has no
    value."""

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
                "style": one.style,
                **evaluation_to_json(one.evaluation),
                "how": dict(one.how),
                "statuses": dict(one.statuses),
                "per_solution": {"input_tokens": one.input_tokens, "output_tokens": one.output_tokens, "cost_usd": one.usd},
            }
            for one in scores
        ],
        "pairs": [
            {"a": [a.judge, a.style], "b": [b.judge, b.style], "f1_difference": asdict(comparison)}
            for a, b, comparison in pairs
        ],
    }
