"""Aggregate search results into accuracy and cost, for each selection rule and for the baseline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from critic_prm.search.tree import SearchCost

PICKS = ("best", "vote", "majority", "pass")
NAMES = {"best": "best score", "vote": "weighted majority", "majority": "majority", "pass": "any candidate right"}


@dataclass
class Side:
    """Results of the search or of the baseline. `right` has one entry per problem with a gold answer, for each selection
    rule."""

    right: dict[str, list[bool]] = field(default_factory=lambda: {pick: [] for pick in PICKS})
    problems: int = 0
    candidates: int = 0
    calls: int = 0
    judged: int = 0
    written: int = 0
    read: int = 0
    usd: float | None = 0.0

    def add(self, right: Mapping[str, bool | None], candidates: int, spent: SearchCost) -> None:
        for pick in PICKS:
            if (hit := right[pick]) is not None:
                self.right[pick].append(hit)
        self.problems += 1
        self.candidates += candidates
        self.calls += spent.calls
        self.judged += spent.judged
        self.written += spent.written
        self.read += spent.read
        self.usd = None if self.usd is None or spent.usd is None else self.usd + spent.usd

    def report(self, keys: Sequence[str]) -> dict[str, Any]:
        return {
            "problems": self.problems,
            "candidates": self.candidates,
            "accuracy": {pick: share(self.right[pick], keys) for pick in PICKS},
            "calls": self.calls,
            "judge_calls": self.judged,
            "tokens_written": self.written,
            "tokens_read": self.read,
            "cost_usd": self.usd,
        }


@dataclass
class SearchStats:
    """Accumulates search results. `lines` is the table printed at the end of a run; `report` goes into run.json."""

    method: str
    name: str = "search"
    search: Side = field(default_factory=Side)
    baseline: Side = field(default_factory=Side)
    came: Counter[str] = field(default_factory=Counter)
    keys: list[str] = field(default_factory=list)

    def add(self, found: Any) -> None:
        """Add a `SearchResult`."""
        self.came[found.came] += 1
        if found.task.gold is not None:
            self.keys.append(found.task.problem)
        for side, outcome in ((self.search, found.outcome), (self.baseline, found.baseline)):
            if outcome is not None:
                known = found.task.gold is not None
                right = {pick: outcome.right(pick) if known else None for pick in PICKS}
                side.add(right, len(outcome.group.candidates), outcome.spent)

    def report(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "came": dict(self.came),
            "search": self.search.report(self.keys),
            "baseline": self.baseline.report(self.keys) if self.baseline.problems else None,
            "difference": self.difference(),
        }

    def difference(self) -> dict[str, Any] | None:
        """Accuracy of the search minus that of the baseline, choosing by best score, with its 95% interval over the same
        problems."""
        ours, theirs = self.search.right["best"], self.baseline.right["best"]
        if not ours or len(ours) != len(theirs):
            return None
        from critic_prm.metrics.bootstrap import paired_bootstrap

        rows = [[[1.0, float(hit)] for hit in side] for side in (ours, theirs)]
        found = paired_bootstrap(self.keys, rows[0], rows[1], lambda sums: sums[..., 1] / sums[..., 0])
        return {"value": found.difference, "low": found.interval.low, "high": found.interval.high, "p": found.p}

    def lines(self) -> list[str]:
        sides = [(self.method, self.search)]
        if self.baseline.problems:
            sides.append(("best-of-N, equal tokens", self.baseline))
        lines = []
        for name, side in sides:
            cost = "price unknown" if side.usd is None else f"${side.usd:.4f}"
            each = side.candidates / max(side.problems, 1)
            lines.append(
                f"{name}: {side.problems:,} problems, {each:.1f} candidates each, {side.calls:,} policy and"
                f" {side.judged:,} judge requests, {side.written:,} tokens written, {side.read:,} read, {cost}"
            )
            if side.right["best"]:
                cells = [f"{NAMES[pick]} {percent(share(side.right[pick], self.keys))}" for pick in PICKS]
                lines.append("  right: " + ", ".join(cells))
        if (gap := self.difference()) is not None:
            interval = "" if gap["low"] is None else f" [{100 * gap['low']:+.1f}, {100 * gap['high']:+.1f}]"
            lines.append(f"{self.method} less best-of-N for equal tokens: {100 * gap['value']:+.1f} points{interval}")
        left = {name: count for name, count in self.came.items() if name != "ok"}
        if left:
            lines.append("without a solution: " + ", ".join(f"{count:,} {name}" for name, count in left.items()))
        return lines


def share(hits: Sequence[bool], keys: Sequence[str]) -> dict[str, float | None] | None:
    """The share of hits with its 95% interval over problems; None if there are none."""
    if not hits:
        return None
    from critic_prm.metrics.bootstrap import cluster_bootstrap

    interval = cluster_bootstrap(keys, [[1.0, float(hit)] for hit in hits], lambda sums: sums[..., 1] / sums[..., 0])
    return {"value": sum(hits) / len(hits), "low": interval.low, "high": interval.high}


def percent(value: Mapping[str, float | None] | None) -> str:
    """A share and its interval in percent, "-" if unknown."""
    if value is None or value["value"] is None:
        return "-"
    shown = f"{100 * value['value']:.1f}%"
    if value["low"] is not None and value["high"] is not None:
        shown += f" [{100 * value['low']:.1f}, {100 * value['high']:.1f}]"
    return shown
