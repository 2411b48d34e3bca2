"""Inter-judge agreement of a consensus: pairwise and overall kappa, per step and for first errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from critic_prm.data.critic import CriticStats
from critic_prm.data.judgement import Label
from critic_prm.metrics.scores import cohen_kappa, fleiss_kappa

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
