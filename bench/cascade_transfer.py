"""Measure cascades on a benchmark that the verifier has never seen, and the fewest calls that its scores allow.

    python -m bench.transfer --data DIR --work WORK
    python -m bench.cascade_transfer WORK --data DIR [--draws 5]

The first command trains one verifier per seed, and scores the benchmark. Per source, the hundred solutions that it put aside
are judged by a simulated judge; `cascade tune` chooses a band in ranks on them; the cascade is measured on the other solutions.

The judges have a mean first-error F1 of 82. "recorded" errs like the replies in `frontier_first_error.jsonl`: on 24 erroneous
solutions 18 exact, 5 too early, 1 too late; 22 of 24 correct ones accepted. "strict" exchanges its two accuracies, "even" has
0.82 for both. By step, a judge has the same accuracy on correct solutions and the same F1.

The bounds use gold labels: the band that is best in hindsight for each source, and the best that any ranking of solutions with
the same AUROC could do.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from scipy.optimize import brentq

from critic_prm.critics.cascade import Band, By, RankBand, in_doubt, solution_score
from critic_prm.data.hashing import unit
from critic_prm.evaluate.cascade_ranks import LOSS, Goal, choose_shares, flagged_step, run_ranks
from critic_prm.evaluate.cascade_tuning import CascadeCase, CaseArrays, referred
from critic_prm.metrics.scores import Array, auroc
from distill.verifier import load_verifier

F1 = 0.82
CORRECT = 1 - (1 - 22 / 24) * 1.027
"""Accuracy on correct solutions of the recorded judge, its errors scaled so that its F1 is 82."""
ERRONEOUS = 1 - (1 - 18 / 24) * 1.027
JUDGES = {"recorded": (ERRONEOUS, CORRECT), "even": (F1, F1), "strict": (CORRECT, ERRONEOUS)}
EARLY = 5 / 6
"""Part of the wrong first errors that are too early."""
ALLOWED = 0.01
"""Loss of F1 in the bounds."""
PROMISED = 0.5


@dataclass(frozen=True)
class Source:
    """One source of a benchmark, scored: solutions to tune on, and solutions to measure on."""

    name: str
    tuning: Sequence[CascadeCase]
    held_out: Sequence[CascadeCase]

    def quantiles(self, by: By) -> Sequence[float]:
        return tuple(np.quantile(scores_of(self.tuning, by), np.linspace(0, 1, 101)).tolist())


def scores_of(rows: Sequence[CascadeCase], by: By) -> list[float]:
    if by == "step":
        return [p for row in rows for p in row.p_correct if p is not None]
    return [score for row in rows if (score := solution_score(row.p_correct)) is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="the folder that bench.transfer wrote (--work)")
    parser.add_argument("--data", type=Path, required=True, help="folder of <source>.jsonl")
    parser.add_argument("--draws", type=int, default=5, help="simulated judges per verifier")
    args = parser.parse_args()
    folders = [folder for folder in sorted(args.work.glob("seed-*")) if complete(folder)]
    seeds = [read(folder, args.data) for folder in folders]
    print(f"{len(seeds)} verifiers, {args.draws} judges each; means over {', '.join(one.name for one in seeds[0])}")
    shift(folders, seeds)
    bounds(seeds)
    headings = f"{'judge':10}{'by':>10}{'reference':>11}{'judge F1':>10}{'cascade':>9}"
    print(f"\n{headings}{'gap (over verifiers)':>30}{'calls (over verifiers)':>24}")
    for name, accuracies in JUDGES.items():
        for by in ways(name):
            for reference in ("judge", "gold"):
                found = [measure(one, accuracies, by, reference, args.draws) for one in seeds]
                print(line(name, by, reference, found), flush=True)


def ways(judge: str) -> tuple[By, ...]:
    """A strict judge has no equal by step: it would have to find more errors than there are."""
    return ("solution",) if judge == "strict" else ("solution", "step")


def bounds(seeds: Sequence[Sequence[Source]]) -> None:
    """Print the fewest calls that the scores allow, and those of any ranking with a given AUROC."""
    print(f"\nFewest calls at F1 less {100 * ALLOWED:g} points, chosen in hindsight")
    for name, (erroneous, correct) in JUDGES.items():
        found = {"solution": [bound([hindsight(one, erroneous, correct) for one in seed], F1 - ALLOWED) for seed in seeds]}
        if "step" in ways(name):
            found["step"] = [bound(hindsight_by_step(seed, correct), F1 - ALLOWED) for seed in seeds]
        print(f"{name:10} {', '.join(f'by {by} {summary(values)}' for by, values in found.items())}", flush=True)
    same = [[of_solutions(one) for one in seed] for seed in seeds]
    print(f"\nAny ranking of solutions with a given AUROC (here {summary([float(np.mean(row)) for row in same], 3)})")
    for name, (erroneous, correct) in JUDGES.items():
        own = summary([ideal(seed, row, erroneous, correct) for seed, row in zip(seeds, same, strict=True)])
        levels = (0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
        fewest = [np.mean([ideal(seed, [level] * len(seed), erroneous, correct) for seed in seeds]) for level in levels]
        needs = ", ".join(f"{level:.2f} {share:.0%}" for level, share in zip(levels, fewest, strict=True))
        print(f"{name:10} the same {own}; {needs}", flush=True)


def of_solutions(source: Source) -> float:
    rows = all_of(source)
    return auroc([row.gold < 0 for row in rows], scores_of(rows, "solution")) or 0.5


def complete(folder: Path) -> bool:
    return (folder / "verifier").is_dir() and len(list(folder.glob("*/none.json"))) == len(
        list(folder.glob("*/rest.jsonl"))
    ) > 0


def read(folder: Path, data: Path) -> list[Source]:
    verifier = load_verifier(folder / "verifier", profile="none")
    sources = []
    for report in sorted(folder.glob("*/none.json")):
        rows = lines(report.with_suffix(".jsonl"))
        gold = {row["id"]: row["label"] for row in lines(data / f"{report.parent.name}.jsonl")}
        few = lines(report.parent / "unlabelled.jsonl")
        scores = verifier.score_many([(row["problem"], row["steps"]) for row in few])
        judged = [case(row, p, gold[row["id"]], verifier) for row, p in zip(few, scores, strict=True)]
        sources.append(
            Source(report.parent.name, judged, [case(row, row["p_correct"], row["label"], verifier) for row in rows])
        )
    return sources


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in path.read_text("utf-8").splitlines()]


def case(row: Mapping[str, Any], p_correct: Sequence[float | None], gold: int, verifier: Any) -> CascadeCase:
    return CascadeCase(row["id"], gold, tuple(p_correct), verifier.decision.first_error(p_correct))


def all_of(source: Source) -> list[CascadeCase]:
    return [*source.tuning, *source.held_out]


# ------------------------------------------------------------------------------------------- simulated judges


def judged(rows: Sequence[CascadeCase], accuracies: tuple[float, float], seed: int) -> list[CascadeCase]:
    """The rows with the verdict of a judge that is asked about whole solutions."""
    out = []
    for row in rows:
        random, (erroneous, correct) = Random(f"{seed} {row.problem}"), accuracies
        steps = len(row.p_correct)
        if row.gold < 0:
            verdict = -1 if random.random() < correct else random.randrange(steps)
        elif random.random() < erroneous:
            verdict = row.gold
        else:
            early = random.random() < EARLY
            others = [step for step in range(steps) if (step < row.gold) == early and step != row.gold]
            verdict = random.choice(others) if others else -1
        out.append(replace(row, verdict=verdict))
    return out


def judged_by_step(rows: Sequence[CascadeCase], alarm: float, sense: float, seed: int) -> list[CascadeCase]:
    """The rows with the verdicts of a judge on each step: it rejects a correct one with P = `alarm`, the first error with P =
    `sense`, and later steps with P = 0.5."""
    out = []
    for row in rows:
        chance = [0.5 if 0 <= row.gold < step else sense if step == row.gold else alarm for step in range(len(row.p_correct))]
        right = tuple(unit(f"{seed} {step}", row.problem) >= p for step, p in enumerate(chance))
        stop = next((step for step, ok in enumerate(right) if not ok), len(right) - 1)
        out.append(replace(row, judged=right, calls=stop + 1))
    return out


def step_rates(sources: Sequence[Source], correct: float) -> tuple[float, float]:
    """P(alarm) and P(sense) of a judge by step with this accuracy on correct solutions, mean F1 over the sources as F1."""
    everything = [Steps(all_of(source), np.inf) for source in sources]
    alarm = brentq(lambda p: np.mean([each.outcome(p, 1.0)[1] for each in everything]) - correct, 1e-6, 0.5)
    sense = brentq(lambda s: np.mean([harmonic(*each.outcome(alarm, s)[:2]) for each in everything]) - F1, 0.05, 1.0)
    return float(alarm), float(sense)


class Steps:
    """Expected outcomes of a judge by step that is asked about the steps whose score is at most `high`."""

    def __init__(self, rows: Sequence[CascadeCase], high: float) -> None:
        self.gold = np.array([row.gold for row in rows])
        asked = [np.array([p is None or p <= high for p in row.p_correct]) for row in rows]
        ends = [len(row.p_correct) if row.gold < 0 else row.gold for row in rows]
        self.before = np.array([mask[:end].sum() for mask, end in zip(asked, ends, strict=True)])
        self.at = np.array([end < len(mask) and bool(mask[end]) for mask, end in zip(asked, ends, strict=True)])
        self.after = np.array([mask[end + 1 :].sum() for mask, end in zip(asked, ends, strict=True)])

    def outcome(self, alarm: float, sense: float) -> tuple[float, float, float]:
        """Accuracy on erroneous and on correct solutions, and the number of calls."""
        bad, left = self.gold >= 0, (1 - alarm) ** self.before
        calls = (1 - left) / alarm + np.where(self.at, left, 0)
        calls += np.where(bad, left * np.where(self.at, 1 - sense, 1) * 2 * (1 - 0.5**self.after), 0)
        return float((left * self.at * sense)[bad].mean()), float(left[~bad].mean()), float(calls.sum())


def harmonic(a: float, b: float) -> float:
    return 2 * a * b / (a + b) if a + b else 0.0


# ------------------------------------------------------------------------------------------- what tuning gives


def measure(
    sources: Sequence[Source], accuracies: tuple[float, float], by: By, reference: str, draws: int
) -> tuple[float, float, float]:
    """F1 of the judge and of the cascade, and the cascade's share of the calls: means over draws of the judge."""
    results = []
    rates = step_rates(sources, accuracies[1]) if by == "step" else (0.0, 0.0)
    for seed in range(draws):
        f1, calls, alone = [], 0.0, 0
        for source in sources:
            tuning, rest = (
                judged_by_step(rows, *rates, seed) if by == "step" else judged(rows, accuracies, seed)
                for rows in (source.tuning, source.held_out)
            )
            used = referred(tuning) if reference == "judge" else tuning
            quantiles = source.quantiles(by)
            shares, _ = choose_shares(used, quantiles, Goal(loss=LOSS[reference]))
            flat = CaseArrays(rest)
            first, spent = run_ranks(flat, RankBand(shares.flag, shares.accept, quantiles))
            f1.append((flat.f1([row.alone for row in rest]), flat.f1(first)))
            calls, alone = calls + float(spent.sum()), alone + sum(row.calls for row in rest)
        results.append((*np.mean(f1, axis=0), calls / alone))
    judge, cascade, share = np.mean(results, axis=0)
    return float(judge), float(cascade), float(share)


def line(name: str, by: str, reference: str, found: Sequence[tuple[float, float, float]]) -> str:
    judge, cascade, share = np.mean(found, axis=0)
    gaps, shares = [100 * (c - j) for j, c, _ in found], [s for *_, s in found]
    gap = f"{np.mean(gaps):+.1f} ({min(gaps):+.1f} to {max(gaps):+.1f})"
    calls = f"{share:.0%} ({min(shares):.0%} to {max(shares):.0%})"
    return f"{name:10}{by:>10}{reference:>11}{100 * judge:10.1f}{100 * cascade:9.1f}{gap:>30}{calls:>24}"


def shift(folders: Sequence[Path], seeds: Sequence[Sequence[Source]]) -> None:
    """Print the share of solutions asked about where PROMISED was promised: by a band on P(error) from dev, and by ranks."""
    print(f"\nShare of solutions in doubt, {PROMISED:.0%} promised: a band of P(error) chosen on dev, and a band of ranks")
    fixed: dict[str, list[float]] = {}
    ranked: dict[str, list[float]] = {}
    for folder, sources in zip(folders, seeds, strict=True):
        verifier = load_verifier(folder / "verifier", profile="none")
        dev = lines(folder / "data" / "dev.jsonl")
        scores = verifier.score_many([(row["prompt"], row["completions"]) for row in dev])
        low, high = 0.0, 1.0
        for _ in range(10):  # the share grows with the width
            width = (low + high) / 2
            low, high = (low, width) if asked(scores, verifier, width) > PROMISED else (width, high)
        for source in sources:
            own = [row.p_correct for row in source.held_out]
            fixed.setdefault(source.name, []).append(asked(own, verifier, width))
            band = RankBand(0.0, 1 - PROMISED, source.quantiles("solution"))
            calls = [band.call(solution_score(p)) == "ask" for p in own]
            ranked.setdefault(source.name, []).append(float(np.mean(calls)))
    for name in fixed:
        print(f"{name:32} P(error) {summary(fixed[name])}, ranks {summary(ranked[name])}", flush=True)


def asked(scores: Sequence[Sequence[float | None]], verifier: Any, width: float) -> float:
    """The share of solutions with a step in the band of P(error) around the threshold."""
    middle = 1 - verifier.threshold
    band = Band(max(middle - width, 0.0), min(middle + width, 1.0))
    return float(np.mean([bool(in_doubt(band, p, verifier.decision.first_error(p))) for p in scores]))


# ------------------------------------------------------------------------------------------- bounds

Curve = tuple[Array, Array, float]
"""Expected calls and F1 of the bands of one source, and the calls of the judge alone."""


def hindsight(source: Source, erroneous: float, correct: float) -> Curve:
    """All bands of two ends on the scores of the solutions."""
    rows = sorted(all_of(source), key=lambda row: solution_score(row.p_correct) or 0.0)
    bad = np.array([row.gold >= 0 for row in rows])
    named = np.array([flagged_step(row) == row.gold for row in rows])
    n = len(rows)
    sums = [np.concatenate([[0], np.cumsum(v)]) for v in (bad, ~bad, bad & named)]
    flag, top = np.triu_indices(n + 1)
    hit_bad = (sums[2][flag] + erroneous * (sums[0][top] - sums[0][flag])) / sums[0][-1]
    hit_good = (correct * (sums[1][top] - sums[1][flag]) + sums[1][-1] - sums[1][top]) / sums[1][-1]
    return cheapest((top - flag).astype(float), 2 * hit_bad * hit_good / np.maximum(hit_bad + hit_good, 1e-12), float(n))


def hindsight_by_step(sources: Sequence[Source], correct: float) -> list[Curve]:
    """All shares of steps that are accepted, in hundredths."""
    alarm, sense = step_rates(sources, correct)
    curves = []
    for source in sources:
        rows = all_of(source)
        ends = [np.inf, *np.quantile(scores_of(rows, "step"), np.linspace(1, 0.1, 91))]
        found = np.array([Steps(rows, high).outcome(alarm, sense) for high in ends])
        curves.append((found[:, 2], np.array([harmonic(a, b) for a, b, _ in found]), float(found[0, 2])))
    return curves


def ideal(sources: Sequence[Source], aurocs: Sequence[float], erroneous: float, correct: float) -> float:
    """The fewest calls of any ranking with these AUROCs: the ROC curve is any concave one with that area.

    With a part e of the erroneous and c of the correct solutions accepted, and a part f of the erroneous ones and no correct
    ones flagged, the area is at least that of the polygon through (e, c) and (1 - f, 1).
    """
    curves = []
    for source, area in zip(sources, aurocs, strict=True):
        rows = sorted(all_of(source), key=lambda row: solution_score(row.p_correct) or 0.0)
        named = np.array([flagged_step(row) == row.gold for row in rows if row.gold >= 0])
        few = max(len(named) // 10, 1)
        surest = float((np.cumsum(named) / np.arange(1, len(named) + 1))[few - 1 :].max())
        e, f = np.meshgrid(np.linspace(0, 0.6, 241), np.linspace(0, 0.9, 181), indexing="ij")
        c = np.minimum((2 * area - 1 - f + e) / (1 - f), 1.0)
        fits = (c >= e) & (e + f <= 1)
        share = float(np.mean([row.gold >= 0 for row in rows]))
        calls = share * (1 - e - f) + (1 - share) * (1 - c)
        hit_bad, hit_good = erroneous * (1 - e - f) + surest * f, c + correct * (1 - c)
        f1 = 2 * hit_bad * hit_good / np.maximum(hit_bad + hit_good, 1e-12)
        curves.append(cheapest(np.round(calls[fits] * len(rows)), f1[fits], float(len(rows))))
    return bound(curves, F1 - ALLOWED)


def cheapest(calls: Array, f1: Array, alone: float) -> Curve:
    """The best F1 for each whole number of calls."""
    best = np.full(int(alone) + 1, -1.0)
    np.maximum.at(best, calls.astype(int), f1)
    return np.arange(len(best), dtype=float)[best >= 0], best[best >= 0], alone


def bound(curves: Sequence[Curve], target: float) -> float:
    """The fewest calls, as a share, with which the mean F1 over sources reaches the target (by Lagrange multipliers)."""
    fewest = 1.0
    for price in np.geomspace(1e1, 1e6, 400):
        places = [int((calls - price * f1).argmin()) for calls, f1, _ in curves]
        if np.mean([f1[at] for at, (_, f1, _) in zip(places, curves, strict=True)]) >= target:
            spent = sum(calls[at] for at, (calls, _, _) in zip(places, curves, strict=True))
            fewest = min(fewest, float(spent) / sum(alone for *_, alone in curves))
    return fewest


def summary(values: Sequence[float], digits: int = 0) -> str:
    """Mean and range over the verifiers."""
    if digits:
        return f"{np.mean(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"
    return f"{np.mean(values):.0%} ({min(values):.0%} to {max(values):.0%})"


if __name__ == "__main__":
    main()
