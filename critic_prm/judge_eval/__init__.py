"""Judges, styles and benchmarks in; what each pair is worth and costs out, with the pairs compared on the same solutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any

from critic_prm.errors import UsageError
from critic_prm.evaluate import Evaluation, evaluation_to_json
from critic_prm.metrics.compare import Comparison, compare
from critic_prm.models import Prices, abilities
from critic_prm.provider import Usage


@dataclass
class Bill:
    """What judging costs, from the label rows of an evaluation: whether a reply was bought now or long ago, it has a price."""

    rows: int = 0
    judgements: int = 0
    usage: Usage = field(default_factory=Usage)
    how: dict[str, int] = field(default_factory=dict)

    def add(self, row: Mapping[str, Any]) -> None:
        """One row of a label file."""
        self.rows += 1
        for judgement in row["judgements"]:
            self.judgements += 1
            self.usage += Usage(**judgement.get("usage", {}))
            for word in judgement.get("how", ()):
                self.how[word] = self.how.get(word, 0) + 1


@dataclass(frozen=True, slots=True)
class Worth:
    """What a judge with a style is worth. Tokens and USD are means a solution, None where a server or table says nothing."""

    judge: str
    style: str
    evaluation: Evaluation
    how: Mapping[str, int]
    statuses: Mapping[str, float]
    input_tokens: float | None
    output_tokens: float | None
    usd: float | None


def worth(judge: str, style: str, evaluation: Evaluation, bill: Bill, prices: Prices | None = None) -> Worth:
    """Add a bill to an evaluation. `prices` come before those of the model table; `statuses` are shares of judgements."""
    card = evaluation.card
    known = bill.usage != Usage() and bill.rows > 0
    prices = prices or abilities(str(card.get("provider", "")), str(card.get("model", ""))).prices
    judged: Mapping[str, int] = evaluation.run["judgements"]
    total = sum(judged.values())
    return Worth(
        judge=judge,
        style=style,
        evaluation=evaluation,
        how=dict(bill.how),
        statuses={status: count / total for status, count in judged.items()} if total else {},
        input_tokens=bill.usage.input / bill.rows if known else None,
        output_tokens=bill.usage.output / bill.rows if known else None,
        usd=prices.cost(bill.usage) / bill.rows if known and prices else None,
    )


def side_by_side(worths: Sequence[Worth], replicates: int, seed: int) -> list[tuple[Worth, Worth, Comparison]]:
    """Every pair on the solutions that both judged. A pair with nothing to compare is left out."""
    pairs = []
    for a, b in combinations(worths, 2):
        try:
            found = compare(a.evaluation.cases, b.evaluation.cases, replicates=replicates, seed=seed)
        except UsageError:
            continue
        pairs.append((a, b, found))
    return pairs


def worths_to_json(worths: Sequence[Worth], pairs: Sequence[tuple[Worth, Worth, Comparison]]) -> dict[str, Any]:
    """One JSON object: an entry a judge and style, and one a pair of them."""
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
            for one in worths
        ],
        "pairs": [{"a": [a.judge, a.style], "b": [b.judge, b.style], "f1_difference": asdict(found)} for a, b, found in pairs],
    }
