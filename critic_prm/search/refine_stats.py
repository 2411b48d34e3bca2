"""Aggregate refined solutions: scores, accuracy before and after, and cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from critic_prm.providers.provider import Usage
from critic_prm.search.refine import Refined


@dataclass
class RefineStats:
    """Accumulates refined solutions. `lines` is the table printed at the end of a run; `report` goes into run.json."""

    name: str = "refine"
    why: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    scores: list[tuple[float, float]] = field(default_factory=list)
    right: list[tuple[bool, bool]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    usage: Usage = Usage()
    judge_usage: Usage = Usage()

    def add(self, found: Refined) -> None:
        self.why[found.why] += 1
        self.counts["solutions"] += 1
        self.counts["changed"] += found.changed
        self.counts["rounds"] += len(found.rounds)
        self.counts["endings"] += sum(len(one.scores) + len(one.failed) for one in found.rounds)
        if found.score_before is not None and found.score_after is not None:
            self.scores.append((found.score_before, found.score_after))
        if found.right_before is not None and found.right_after is not None:
            self.right.append((found.right_before, found.right_after))
            self.problems.append(found.before.problem)
        self.usage += found.usage
        self.judge_usage += found.judge_usage

    def report(self) -> dict[str, Any]:
        gained, lost = (self.right.count(change) for change in ((False, True), (True, False)))
        return {
            **self.counts,
            "ended": dict(self.why),
            "score": {"before": _mean([b for b, _ in self.scores]), "after": _mean([a for _, a in self.scores])},
            "right": {
                "known": len(self.right),
                "before": _mean([float(b) for b, _ in self.right]),
                "after": _mean([float(a) for _, a in self.right]),
                "wrong_to_right": gained,
                "right_to_wrong": lost,
                "difference": self.difference(),
            },
            "tokens_written": {"policy": self.usage.output, "critic": self.judge_usage.output},
            "tokens_read": {"policy": self.usage.input, "critic": self.judge_usage.input},
        }

    def difference(self) -> dict[str, float | None] | None:
        """Accuracy after refinement minus accuracy before, with its 95% interval over problems."""
        if not self.right:
            return None
        from critic_prm.metrics.bootstrap import paired_bootstrap

        before, after = ([[1.0, float(pair[side])] for pair in self.right] for side in (0, 1))
        gap = paired_bootstrap(self.problems, after, before, lambda sums: sums[..., 1] / sums[..., 0])
        return {"value": gap.difference, "low": gap.interval.low, "high": gap.interval.high}

    def lines(self) -> list[str]:
        counts, said = self.counts, self.report()
        lines = [
            f"refine: {counts['changed']:,} of {counts['solutions']:,} solutions changed, in {counts['rounds']:,} rounds with"
            f" {counts['endings']:,} new endings; " + ", ".join(f"{count:,} {why}" for why, count in self.why.most_common()),
            f"tokens written: {self.usage.output:,} by the policy, {self.judge_usage.output:,} by the critic",
        ]
        if self.scores:
            lines.append(f"{'':14}{'before':>8}{'after':>8}")
            lines.append(f"{'mean score':14}{said['score']['before']:8.3f}{said['score']['after']:8.3f}")
        if self.right:
            right, gap = said["right"], said["right"]["difference"]
            interval = "" if gap["low"] is None else f" [{100 * gap['low']:+.1f}, {100 * gap['high']:+.1f}]"
            lines.append(
                f"{'right answers':14}{right['before']:8.1%}{right['after']:8.1%}  {100 * gap['value']:+.1f} points{interval}:"
                f" {right['wrong_to_right']:,} corrected, {right['right_to_wrong']:,} broken, of {right['known']:,} with gold"
            )
        return lines


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
