"""Error rates of recorded LLM judges, and simulated judges that make errors at these rates.

    python -m bench.recorded_judges --replies DIR

DIR holds `*.jsonl` files of recorded replies with gold labels, as for bench/read_replies.py. A judge names the first wrong step
of a solution, or none. Of the erroneous solutions it misses some (names none) and names an earlier or a later step in others;
of the correct ones it rejects some (false alarms). Replies that cannot be read are counted and left out of the rates. Below the
table is the agreement of two judges on the same solutions beyond what their rates explain (see `excess_agreement`).
"""

from __future__ import annotations

import argparse
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.read_replies import READ, records

FEWEST = 20
"""Fewest erroneous and fewest correct solutions of a judge whose rates can be simulated."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one judge said of one solution."""

    judge: str
    """File and model, separated by a slash."""
    solution: str
    gold: int
    """The first error, -1 for none."""
    said: int | None
    """The same as the judge has it, None if its reply could not be read."""


@dataclass(frozen=True, slots=True)
class Judge:
    """A judge by its error rates."""

    name: str
    miss: float
    """Share of the erroneous solutions in which it names no error."""
    early: float
    """Share of the erroneous solutions in which it names an earlier step."""
    late: float
    """Share of the erroneous solutions in which it names a later step."""
    false_alarm: float
    """Share of the correct solutions in which it names an error."""
    erroneous: int = 0
    """Number of erroneous solutions that the rates come from."""
    correct: int = 0
    """Number of correct solutions that the rates come from."""

    @property
    def short(self) -> str:
        """The model alone."""
        return self.name.rpartition("/")[2]

    @property
    def f1(self) -> float:
        """First-error F1 of the rates."""
        hit, accepted = 1 - self.miss - self.early - self.late, 1 - self.false_alarm
        return 2 * hit * accepted / (hit + accepted) if hit + accepted else 0.0

    def answers(self, gold: int, steps: int) -> NDArray[np.float64]:
        """P(it names step i), shape (steps + 1,); the last is P(it names none).

        A wrong step is equally likely to be any earlier (or any later) one. If there is no earlier one, the share of earlier
        answers goes to the later ones, and the reverse; if there is one step alone, to the right answer.
        """
        p = np.zeros(steps + 1)
        if gold < 0:
            p[:steps], p[steps] = self.false_alarm / steps, 1 - self.false_alarm
            return p
        before, after = gold, steps - gold - 1
        early, late = (self.early, self.late) if before and after else (0.0, self.early + self.late)
        if before and not after:
            early, late = late, early
        p[:gold] = early / max(before, 1)
        p[gold + 1 : steps] = late / max(after, 1)
        p[steps] = self.miss
        p[gold] = 1 - p.sum()
        return p

    def name_first_error(self, gold: int, steps: int, generator: np.random.Generator) -> int:
        """Draw an answer: the index of a step, or -1."""
        drawn = int(generator.choice(steps + 1, p=self.answers(gold, steps)))
        return drawn if drawn < steps else -1


EXAMPLES: Sequence[Judge] = (
    Judge("frontier_first_error/frontier-judge-2026-11", 0 / 24, 5 / 24, 1 / 24, 2 / 24, 24, 24),
    Judge("agentprocessbench_hotpotqa_judges/GPT-5.2", 9 / 27, 0 / 27, 2 / 27, 4 / 43, 27, 43),
    Judge("mr_math_gpt/gpt4", 1 / 47, 5 / 47, 16 / 47, 27 / 50, 47, 50),
)
"""Three recorded judges that err in different ways: a strong one; one that misses a third of the errors; one that rejects half
of the correct solutions."""


def confusion(name: str, answers: Iterable[tuple[int, int | None]]) -> tuple[Judge, int]:
    """The rates of a judge from pairs of (gold, said), and the number of pairs that could not be read."""
    count = Counter(
        "unread" if said is None else "erroneous" if said == gold >= 0 else "correct" if said == gold
        else "false alarm" if gold < 0 else "miss" if said < 0 else "early" if said < gold else "late"
        for gold, said in answers
    )  # fmt: skip
    wrong = {kind: count[kind] for kind in ("miss", "early", "late")}
    erroneous, correct = count["erroneous"] + sum(wrong.values()), count["correct"] + count["false alarm"]
    rates = {kind: number / max(erroneous, 1) for kind, number in wrong.items()}
    alarm = count["false alarm"] / max(correct, 1)
    return Judge(name, **rates, false_alarm=alarm, erroneous=erroneous, correct=correct), count["unread"]


def read_all(folder: Path) -> list[Reading]:
    """The readings of all replies that name a first error or judge the steps of a whole solution one by one."""
    profiles = tomllib.loads((Path(__file__).parent / "profiles.toml").read_text("utf-8"))
    out = []
    stepwise: dict[tuple[str, str], dict[int, tuple[bool, str | None]]] = defaultdict(dict)
    for path, record in records(folder):
        profile = profiles.get(record["prompt_style"])
        if profile is None:
            continue
        judge, gold = f"{path.stem}/{record['model']}", record["gold"]
        reading = READ[profile["kind"]](profile, record)
        fields = [how["first_error"] for how in profile.get("scores", ()) if how["name"] == "F1 of first errors"]
        if fields:
            out.append(Reading(judge, record["problem_ref"], gold[fields[0]], reading.first_error))
        elif "labels" in profile:
            steps = [reading.steps.get(key) for key in sorted(gold["step_labels"], key=int)]
            out.append(Reading(judge, record["problem_ref"], gold["label"], _first(steps)))
        elif "step_correct" in gold:
            stepwise[judge, record["problem_ref"]][gold["step_index"]] = gold["step_correct"], reading.verdict
    for (judge, solution), given in stepwise.items():
        if set(given) == set(range(len(given))):  # a part of a solution says nothing about its first error
            truth = next((step for step in range(len(given)) if not given[step][0]), -1)
            out.append(Reading(judge, solution, truth, _first([given[step][1] for step in range(len(given))])))
    return out


def _first(verdicts: Sequence[str | None]) -> int | None:
    """The first incorrect step, -1 if there is none, None if an earlier verdict could not be read."""
    for step, verdict in enumerate(verdicts):
        if verdict is None:
            return None
        if verdict == "incorrect":
            return step
    return -1


def recorded(readings: Iterable[Reading]) -> dict[str, tuple[Judge, int]]:
    """The judges by name, with the number of unreadable replies of each."""
    answers: dict[str, list[tuple[int, int | None]]] = defaultdict(list)
    for reading in readings:
        answers[reading.judge].append((reading.gold, reading.said))
    return {name: confusion(name, pairs) for name, pairs in sorted(answers.items())}


def usable(judge: Judge) -> bool:
    """Whether there are enough solutions of both kinds for its rates."""
    return min(judge.erroneous, judge.correct) >= FEWEST


def excess_agreement(readings: Sequence[Reading], a: str, b: str) -> float | None:
    """Agreement of two judges beyond chance, (observed - expected) / (1 - expected), where the expected agreement is that of
    independent judges with the same answers to solutions of the same kind: first error found, missed, placed elsewhere; correct
    solutions accepted, rejected.

    1: the same answers; 0: errors are independent. Two wrong positions agree if they are the same step. None if they have fewer
    than FEWEST solutions of a kind in common.
    """
    answers: dict[str, dict[str, Reading]] = {name: {r.solution: r for r in readings if r.judge == name} for name in (a, b)}
    both = [(answers[a][key], answers[b][key]) for key in sorted(answers[a].keys() & answers[b].keys())]
    both = [(x, y) for x, y in both if x.said is not None and y.said is not None]
    observed, expected, total = 0.0, 0.0, 0
    for erroneous in (True, False):
        pairs = [(x.said, y.said, x.gold) for x, y in both if (x.gold >= 0) is erroneous]
        if len(pairs) < FEWEST:
            return None
        shares = [Counter(_outcome(pair[who], pair[2]) for pair in pairs) for who in (0, 1)]
        total += len(pairs)
        observed += sum(x == y for x, y, _ in pairs)
        expected += sum(shares[0][kind] * shares[1][kind] for kind in ("right", "miss")) / len(pairs)
    return (observed - expected) / (total - expected)


def _outcome(said: Any, gold: int) -> str:
    return "right" if said == gold else "miss" if said < 0 else "elsewhere"


def pairs_of(readings: Sequence[Reading], judges: Mapping[str, tuple[Judge, int]]) -> dict[tuple[str, str], float]:
    """The excess agreement of the pairs of usable judges, of different models, on the same solutions."""
    usable_ones = [judge for judge, _ in judges.values() if usable(judge)]
    found = {
        (a.name, b.name): excess_agreement(readings, a.name, b.name)
        for a, b in combinations(usable_ones, 2)
        if a.short != b.short
    }
    return {pair: value for pair, value in found.items() if value is not None}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replies", type=Path, required=True, help="folder of recorded replies")
    args = parser.parse_args()
    readings = read_all(args.replies)
    judges = recorded(readings)
    print("| judge | erroneous | found | missed | earlier step | later step | correct | false alarms | F1 | not readable |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, (judge, unread) in judges.items():
        hit = 1 - judge.miss - judge.early - judge.late
        rates = [f"{100 * rate:.0f}%" if judge.erroneous else "" for rate in (hit, judge.miss, judge.early, judge.late)]
        alarm, f1 = (f"{100 * judge.false_alarm:.0f}%", f"{100 * judge.f1:.0f}") if judge.correct else ("", "")
        if judge.erroneous + judge.correct:
            print(f"| {name} | {judge.erroneous} | {' | '.join(rates)} | {judge.correct} | {alarm} | {f1} | {unread} |")
    pairs = pairs_of(readings, judges)
    for (a, b), value in pairs.items():
        print(f"{a} and {b}: excess agreement {value:.2f}")
    if pairs:
        print(f"mean of {len(pairs)} pairs: {np.mean(list(pairs.values())):.2f}")


if __name__ == "__main__":
    main()
