"""Run a critic on benchmarks without showing it the gold labels, and compute a scorecard."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from critic_prm.data import Critic, Label, Trajectory, blind, label_row, read_labels
from critic_prm.data.critic import CriticStats
from critic_prm.errors import InputError, UsageError
from critic_prm.evaluate.settings import EvaluationSettings
from critic_prm.evaluate.threshold import ChosenThreshold, ThresholdSource, choose, key_of
from critic_prm.evaluate.threshold import Key as SolutionKey
from critic_prm.label.progress import RunStats
from critic_prm.label.run import label
from critic_prm.metrics.scorecard import Case, Scorecard, case_of, has_gold, score


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of evaluating a critic."""

    card: Mapping[str, Any]
    """The card of the critic."""
    scores: Scorecard
    cases: Mapping[str, Sequence[Case]]
    """Predictions with gold, by subset."""
    samples: int
    """Judgements per solution."""
    without_gold: int
    """Number of solutions that were not judged because they have no gold label."""
    run: Mapping[str, Any] = field(default_factory=dict)
    """Counts of judgements, tokens and cost, null where unknown, and the critic's own statistics."""
    chosen: ChosenThreshold | None = None
    """The threshold that was chosen on a subset of a benchmark, if one was."""
    messages: Sequence[str] = ()
    """Lines of the critic's own statistics, such as a warning that a verifier should be calibrated."""

    @property
    def threshold(self) -> str:
        """How the first errors were determined, as text."""
        own, scores = self.card.get("threshold"), self.scores
        if scores.threshold_from == "verdicts":
            if own is None:
                return "the critic's own verdicts"
            chosen = self.card.get("threshold_chosen", True)
            origin = self.card.get("threshold_from") if chosen else "a default, because there was no data to choose it on"
            return f"the verifier's own rule, {self.card.get('rule', 'first-below')}, with threshold {own:.4g} ({origin})"
        if self.chosen is not None:
            return f"threshold {self.chosen.value:.4g}, chosen on {self.chosen.source} ({self.chosen.solutions:,} solutions)"
        origin = (
            "given by hand" if scores.threshold_from == "given" else "chosen on these very solutions, so F1 is an upper bound"
        )
        return f"threshold {scores.threshold:.4g}, {origin}"


Key = TypeVar("Key")
DEFAULTS = EvaluationSettings()


async def predict(
    critic: Critic,
    solutions: Iterable[tuple[Key, Trajectory]],
    *,
    samples: int = 1,
    workers: int = 64,
    tally: RunStats | None = None,
    stats: Sequence[CriticStats] = (),
    judged: Mapping[SolutionKey, Label] = MappingProxyType({}),
) -> AsyncIterator[tuple[Key, Trajectory, Label]]:
    """Yield (key, solution with gold, label) in order. The critic sees the solutions without their gold labels. The key is any
    value that belongs to a solution, such as its subset.

    New labels are counted in `tally`, and all labels in `stats`. `judged` has labels by `key_of`, which are not asked for
    again.
    """
    pending: deque[tuple[Key, Trajectory, Label | None]] = deque()

    def blinded() -> Iterator[Trajectory]:
        for key, trajectory in solutions:
            pending.append((key, trajectory, judged.get(key_of(trajectory)) if judged else None))
            if pending[-1][2] is None:
                yield blind(trajectory)

    async def labels() -> AsyncIterator[tuple[Key, Trajectory, Label]]:
        async for shown, labelled in label(blinded(), critic, samples=samples, workers=workers):
            if tally is not None:
                tally.add(labelled, shown.id)
            new = False
            while not new:
                key, trajectory, known = pending.popleft()
                new = known is None
                yield key, trajectory, labelled if known is None else known
        for key, trajectory, known in pending:
            assert known is not None
            yield key, trajectory, known

    async for key, trajectory, labelled in labels():
        for account in stats:
            account.add(labelled)
        yield key, trajectory, labelled


async def evaluate(
    critic: Critic,
    benchmark: Iterable[tuple[str, Trajectory]],
    settings: EvaluationSettings = DEFAULTS,
    *,
    workers: int = 64,
    tally: RunStats | None = None,
    each: Callable[[Mapping[str, Any]], None] | None = None,
    threshold_from: ThresholdSource | None = None,
) -> Evaluation:
    """Judge solutions with gold labels, given as (subset, trajectory), and score the critic.

    First errors are the critic's own verdicts (for a verifier: by its decision), unless the settings have a threshold on its
    P(correct), or select the best threshold on these solutions, or `threshold_from` has solutions to choose it on; those that
    are also in the benchmark are judged once. `each` is called with a label-file row per solution, with its subset under
    "benchmark". An unusable judgement counts as wrong. Raises InputError if no solution has a gold label, UsageError for
    contradictory options, and whatever stops the critic (ConfigError, BudgetError).
    """
    if threshold_from is not None and (settings.threshold is not None or settings.oracle_threshold):
        raise UsageError("--threshold-from, --threshold and --oracle-threshold exclude each other; give one")
    tally, card, stats = tally or RunStats(), dict(critic.card), tuple(critic.stats)
    chosen, judged = None, dict[SolutionKey, Label]()
    if threshold_from is not None:
        examples: dict[str, list[Case]] = {}
        rows = predict(critic, threshold_from.solutions, samples=settings.samples, workers=workers, tally=tally)
        async for subset, trajectory, labelled in rows:
            judged[key_of(trajectory)] = labelled
            examples.setdefault(subset, []).append(case_of(trajectory, labelled))
        chosen = choose(threshold_from, examples)
    cases: dict[str, list[Case]] = {}
    without_gold = 0

    def with_gold() -> Iterator[tuple[str, Trajectory]]:
        nonlocal without_gold
        for subset, trajectory in benchmark:
            if has_gold(trajectory):
                yield subset, trajectory
            else:
                without_gold += 1

    predictions = predict(
        critic, with_gold(), samples=settings.samples, workers=workers, tally=tally, stats=stats, judged=judged
    )
    async for subset, trajectory, labelled in predictions:
        cases.setdefault(subset, []).append(case_of(trajectory, labelled))
        if each is not None:
            each({**label_row(trajectory, labelled, card), "benchmark": subset})
    if not cases:
        raise InputError(
            "the benchmark", f"none of its {without_gold} solutions has a gold label", "add label or step_labels to its rows"
        )
    scores = score(
        cases,
        threshold=settings.threshold if chosen is None else chosen.value,
        own=card.get("threshold"),
        oracle=settings.oracle_threshold,
        replicates=settings.resamples,
        seed=settings.seed,
    )
    if chosen is not None:
        scores = replace(scores, threshold_from="benchmark")
    samples = settings.samples if critic.stochastic else 1
    run = {**tally.report(critic.client), **{part.name: part.report() for part in stats}}
    messages = [line for part in stats for line in part.lines()]
    return Evaluation(card, scores, cases, samples, without_gold, run, chosen, messages)


def evaluation_to_json(evaluation: Evaluation) -> dict[str, Any]:
    """The evaluation as a JSON object: critic, threshold, subsets and mean, each metric with value and 95% interval."""
    scores = evaluation.scores
    return {
        "critic": dict(evaluation.card),
        "samples": evaluation.samples,
        "threshold": {
            "value": scores.threshold,
            "from": scores.threshold_from,
            "words": evaluation.threshold,
            **({} if evaluation.chosen is None else {"chosen": asdict(evaluation.chosen)}),
        },
        "intervals": {
            "level": 0.95,
            "method": "cluster bootstrap by problem",
            "replicates": scores.replicates,
            "seed": scores.seed,
        },
        "without_gold": evaluation.without_gold,
        "subsets": [asdict(subset) for subset in scores.subsets],
        "mean": {name: asdict(metric) for name, metric in scores.mean.items()},
        "run": dict(evaluation.run),
    }


def read_predictions(path: str | Path) -> dict[str, list[Case]]:
    """Read the predictions of an earlier evaluation, by subset, from the label file it saved. Raises InputError."""
    cases: dict[str, list[Case]] = {}
    for row in read_labels(path):
        subset = row.trajectory.extra.get("benchmark")
        if not isinstance(subset, str):
            raise InputError(str(path), "its rows do not name a benchmark", "write it with critic-prm evaluate --save")
        cases.setdefault(subset, []).append(case_of(row.trajectory, row.label))
    return cases
