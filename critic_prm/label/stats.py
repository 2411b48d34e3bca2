"""Statistics of a labelling run: counts and cost, judgements requested, and agreement of several judges."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import combinations
from typing import TYPE_CHECKING, Any, get_args

from critic_prm.data.critic import CriticStats
from critic_prm.data.judgement import Label
from critic_prm.errors import Failure
from critic_prm.label.sampling import Samples

if TYPE_CHECKING:
    from critic_prm.engine.client import Client

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


REPLIES = ("cached", "shared", "paid", "incomplete", "reasked", "missing", "abandoned")
"""The reply counts of a client that are written to run.json."""


@dataclass
class RunStats:
    """Statistics of a run so far, for the progress line, the summary and run.json."""

    total: int | None = None
    rows: int = 0
    skipped: int = 0
    judgements: Counter[str] = field(default_factory=Counter)
    labels: Counter[str] = field(default_factory=Counter)
    how: Counter[str] = field(default_factory=Counter)
    started: float = field(default_factory=time.time)
    stopping: bool = False
    waiting: str = ""
    """What the whole run is waiting for, as text."""

    def add(self, labelled: Label) -> None:
        self.rows += 1
        self.labels[labelled.status] += 1
        self.judgements.update(judgement.status for judgement in labelled.judgements)
        self.how.update(word for judgement in labelled.judgements for word in judgement.how)

    @property
    def failed(self) -> int:
        """Rows without a usable label, including skipped rows."""
        return self.rows - self.labels["ok"] + self.skipped

    @property
    def seconds(self) -> float:
        return time.time() - self.started

    def report(self, client: Client | None) -> dict[str, Any]:
        """The run as JSON: rows and judgements by status, requests, tokens, cost (null: unknown), seconds."""
        began = datetime.fromtimestamp(self.started, UTC)
        report: dict[str, Any] = {
            "rows": self.rows,
            "rows_skipped": self.skipped,
            "rows_in_input": self.total,
            "labels": dict(self.labels),
            "judgements": dict(self.judgements),
            "how": dict(self.how),
            "started_at": began.isoformat(timespec="seconds"),
            "seconds": round(self.seconds, 3),
            "rows_per_second": round(self.rows / self.seconds, 3) if self.seconds > 0 else None,
        }
        if client is not None:
            usage, cost, counts = client.money.usage, client.money.cost(), client.counts
            report |= {
                "requests": client.money.requests,
                "replies": {name: counts[name] for name in REPLIES},
                "failures": {name: counts[name] for name in get_args(Failure)},
                "connections": {"ceiling": client.gate.most, "limit": int(client.gate.limit)},
                "tokens": {
                    "input": usage.input,
                    "cached": usage.cached,
                    "written": usage.written,
                    "output": usage.output,
                    "reasoning": usage.reasoning,
                },
                "cost_usd": cost,
                "cost_usd_per_label": cost / self.labels["ok"] if cost is not None and self.labels["ok"] else None,
            }
        return report


@dataclass
class SamplingStats(CriticStats):
    """Number of judgements requested, and the maximum, for the run report."""

    policy: Samples
    asked: int = 0
    rows: int = 0
    open: int = 0
    name: str = "samples"

    def add(self, label: Label) -> None:
        self.asked += len(label.judgements)
        self.rows += 1
        self.open += label.status == "ok" and label.first_error is None

    def report(self) -> dict[str, int | str]:
        most = self.policy.most * self.rows
        return {"rule": self.policy.rule, "asked": self.asked, "at_most": most, "saved": most - self.asked, "open": self.open}

    def lines(self) -> list[str]:
        found = self.report()
        if not self.rows or self.policy.rule == "all":
            return []
        share = f"{1 - self.asked / (self.policy.most * self.rows):.0%}"
        undecided = f"; the first error of {self.open:,} trajectories stays open" if self.open else ""
        return [f"samples: asked for {self.asked:,} judgements of at most {found['at_most']:,}, {share} saved{undecided}"]
