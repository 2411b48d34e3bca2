"""Count chains at every filter, by class and reason, and derive warnings from the counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from critic_prm.errors import UsageError
from critic_prm.styles.prompt import Style, style_in_data
from distill.sft.chains import STAGES


@dataclass(slots=True)
class Funnel:
    """Counts of the chains: how many of each class were examined, and how many each stage stopped, by reason and class."""

    came: Counter[str] = field(default_factory=Counter)
    stopped: dict[str, dict[str, Counter[str]]] = field(default_factory=dict)

    def stop(self, stage: str, reason: str, kind: str) -> None:
        self.stopped.setdefault(stage, {}).setdefault(reason, Counter())[kind] += 1

    def report(self) -> list[dict[str, Any]]:
        here, stages = Counter(self.came), []
        for stage in STAGES:
            reasons = self.stopped.get(stage, {})
            entry: dict[str, Any] = {"stage": stage, "in": here.total()}
            here = here - sum(reasons.values(), Counter[str]())
            entry |= {"out": here.total(), "erroneous": here["erroneous"], "correct": here["correct"]}
            stages.append({**entry, "stopped": {reason: kinds.total() for reason, kinds in sorted(reasons.items())}})
        return stages


def warnings(
    summary: Mapping[str, Any], style: Style, others: Mapping[str, int], *, written: bool, with_dev: bool
) -> Iterator[str]:
    """Yield the warnings that the statistics give rise to.

    `others` counts rows by the style they were judged in. `written` says that answers were written from critiques, `with_dev`
    that the split reserves a share for dev.
    """
    train = summary["splits"]["train"]
    if unchecked := summary["solutions"].get("unchecked"):
        yield (
            f"{unchecked:,} solutions have one judgement and no gold label, so nothing checked it;"
            " label with --samples 4, or put gold labels or a consensus in"
        )
    if not train["erroneous"] or not train["correct"]:
        yield f"{train['erroneous']} answers of train find an error and {train['correct']} do not; a judge needs both"
    if with_dev and not summary["splits"]["dev"]["chats"]:
        yield "dev is empty: give it a larger share with --split"
    if written:
        shifted = [name for name in others if name != style.name and _base(name) not in (None, style.base)]
        if shifted:
            yield (
                f"critiques of the style {', '.join(shifted)} count steps from another number than {style.name};"
                " where they name a step, they name the wrong one"
            )


def _base(name: str) -> int | None:
    try:
        return style_in_data(name, "a label").base
    except UsageError:
        return None
