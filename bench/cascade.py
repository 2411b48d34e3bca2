"""Measure what a cascade saves: a verifier distilled from a folder of records, then a simulated judge of known accuracy.

    python -m bench.cascade ../shared/data/open
    python -m bench.cascade ../shared/data/open --sources 'eic_*' 'bbm_*' 'planbench_*' --sensitivity 0.7 --specificity 0.95

The folder holds `<source>.jsonl` files of trajectories with gold labels. Half of the problems train the verifier, a fifth are
its dev; of the rest, one half chooses the band and the other measures it. The judge is asked step by step; it finds the first
error with P = sensitivity and accepts a right step with P = specificity, independently of the verifier. `--draws` judges are
simulated, each with a band chosen for its own F1, and the results are means over them.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from hashlib import blake2b
from pathlib import Path
from typing import Any

from bench.sources import Shares, first_error, matching, read, source_of, split, train, write_training_set
from critic_prm.critics.combined import Mixture, MixturePart
from critic_prm.critics.rules import RuleCritic
from critic_prm.data.critic import Critic
from critic_prm.data.judgement import Judgement, Verdict
from critic_prm.data.trajectory import Trajectory
from critic_prm.evaluate.cascade_tuning import CascadeCases, TuningResult, collect_cases, tune

GROUPS: dict[str, tuple[str, ...]] = {
    "formal": ("eic_*", "bbm_*", "planbench_*"),
    "injected": ("eic_*", "bbm_*", "planbench_*", "perturbed_*", "prmbench_*"),
    "all": ("*",),
}
"""Sources by how well a verifier can know them: arithmetic, puzzles and plans; those and injected errors; everything."""

LEFT_OUT = ("outcome_*", "processbench_*")
"""No step labels, and a benchmark that may choose nothing."""

SHARES: Shares = (0.5, 0.2, 0.3)
"""Problems that train the verifier, those of its dev, and those held out."""


@dataclass
class Judge(Critic):
    """A judge of known accuracy: the same judge says the same of the same step."""

    gold: Mapping[tuple[str, tuple[str, ...]], int]
    sensitivity: float
    specificity: float
    seed: int
    batch: int = 1
    stochastic: bool = False

    @property
    def card(self) -> Mapping[str, Any]:
        return {"provider": "simulated"}

    async def judge(self, trajectories: Sequence[Trajectory], sample: int = 0) -> list[Judgement]:
        return [self.one(trajectory) for trajectory in trajectories]

    def one(self, trajectory: Trajectory) -> Judgement:
        """What it says of the last step: the question is about that one alone."""
        step = len(trajectory.steps) - 1
        gold = self.gold[trajectory.problem, tuple(trajectory.texts)]
        luck = self.luck(trajectory)
        if gold < 0 or step < gold:
            wrong = luck >= self.specificity
        elif step == gold:
            wrong = luck < self.sensitivity
        else:
            wrong = luck < 0.5  # after an error that was missed; it no longer matters
        return Judgement("ok", (Verdict(step, "incorrect" if wrong else "correct"),), step if wrong else None)

    def luck(self, trajectory: Trajectory) -> float:
        text = "\x00".join([str(self.seed), trajectory.problem, *trajectory.texts])
        return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") / 2**64

    async def close(self) -> None: ...


@dataclass
class Remembering(Critic):
    """A critic that judges a solution once, however many judges it is combined with."""

    critic: Critic
    kept: dict[tuple[str, tuple[str, ...]], Judgement] = field(default_factory=dict)

    @property
    def card(self) -> Mapping[str, Any]:
        return self.critic.card

    @property
    def batch(self) -> int:
        return self.critic.batch

    async def judge(self, trajectories: Sequence[Trajectory], sample: int = 0) -> list[Judgement]:
        new = [one for one in trajectories if keyed(one) not in self.kept]
        self.kept |= zip(map(keyed, new), await self.critic.judge(new), strict=True)
        return [self.kept[keyed(one)] for one in trajectories]


def keyed(trajectory: Trajectory) -> tuple[str, tuple[str, ...]]:
    return trajectory.problem, tuple(trajectory.texts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sources", nargs="*", help="patterns; without them all groups are measured")
    parser.add_argument("--sensitivity", type=float, nargs="*", default=[0.6, 0.7, 0.8])
    parser.add_argument("--specificity", type=float, nargs="*", default=[0.95, 0.95, 0.97])
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    groups = {"chosen": tuple(args.sources)} if args.sources else GROUPS
    rows = [t for path in matching(args.folder, but=LEFT_OUT) for t in read(path)]
    if not rows:
        sys.exit(f"{args.folder}: no <source>.jsonl with step labels")
    held_out = split(rows, args.seed, SHARES)["test"]
    with tempfile.TemporaryDirectory() as scratch:
        data = write_training_set(rows, Path(scratch) / "training-set", args.seed, SHARES)
        first = first_of(train(data, Path(scratch) / "verifier", args.seed))
        print(
            f"{'sources':10} {'judge':>12} {'solutions':>9} {'verifier':>8} {'judge':>7} {'cascade':>8} {'gap':>6} {'calls':>6}"
        )
        for name, patterns in groups.items():
            for sensitivity, specificity in zip(args.sensitivity, args.specificity, strict=True):
                held = [t for t in held_out if any(fnmatch(source_of(t), pattern) for pattern in patterns)]
                found = [measure(held, first, sensitivity, specificity, seed) for seed in range(args.draws)]
                print(line(name, sensitivity, specificity, found))


def first_of(verifier: Any) -> Critic:
    """Arithmetic that can be checked need not be guessed: where the rules find a false equation, they have the last word."""
    parts = (MixturePart("verifier", verifier), MixturePart("rules", RuleCritic(), weight=0, gate=0.5))
    return Remembering(Mixture(parts, threshold=verifier.threshold))


def measure(
    trajectories: Sequence[Trajectory], first: Critic, sensitivity: float, specificity: float, seed: int
) -> TuningResult:
    gold: dict[tuple[str, tuple[str, ...]], int] = {}
    for trajectory in trajectories:
        for length in range(1, len(trajectory.steps) + 1):
            gold[trajectory.problem, tuple(trajectory.texts[:length])] = first_error(trajectory)
    judge = Judge(gold, sensitivity, specificity, seed)
    heard: CascadeCases = asyncio.run(collect_cases(trajectories, first, judge, "step"))
    return tune(heard.rows, seed=seed, replicates=200)


def line(name: str, sensitivity: float, specificity: float, found: Sequence[TuningResult]) -> str:
    def mean(values: Sequence[float | None]) -> float:
        known = [value for value in values if value is not None]
        return sum(known) / len(known)

    student, judge, cascade = (100 * mean([getattr(one, side).f1 for one in found]) for side in ("student", "judge", "cascade"))
    share = mean([one.share for one in found])
    solutions = sum(found[0].solutions)
    return (
        f"{name:10} {sensitivity:5.2f} /{specificity:5.2f} {solutions:9,} {student:8.1f} {judge:7.1f} {cascade:8.1f}"
        f" {cascade - judge:+6.1f} {share:6.0%}"
    )


if __name__ == "__main__":
    main()
