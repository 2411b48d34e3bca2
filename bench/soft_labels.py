"""Compare soft and majority labels from the same votes: train the linear student on both and test it on human labels.

    python -m bench.soft_labels --data ../shared/data [--seeds 3]

Two trials. In "judged" the votes are those that LLM judges of several makers really gave on the same solutions
(`judge_outputs/` of --data): few solutions. In "drawn" every step of natural solutions that people or programs labelled
(`open/`) gets the votes of a step, picked at random, of the same truth among the judged ones: many solutions, and the noise of
real judges, whose errors go together. Both arms see the same steps: up to the first one that most votes call wrong. The test
sources are ProcessBench's; their problems leave the training set first. What is compared is the step AUROC and the first-error
F1, threshold and calibration from the dev split's votes, with intervals over problems, drawn for both arms alike.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from bench.sources import decontaminated, figures, first_error, matching, read, score, source_of, split, train
from critic_prm.data.trajectory import Trajectory
from distill.data import Row, TrainingSet
from distill.verifier import Verifier

Vote: TypeAlias = tuple[int, int]

ARMS: Mapping[str, Callable[[Vote], float]] = {
    "soft": lambda vote: vote[0] / vote[1],
    "majority": lambda vote: float(2 * vote[0] >= vote[1]),
}
OTHER = ("processbench_*", "outcome_*", "bbm_*", "planbench_*", "who_and_when", "prm800k_redundant")
"""Sources that the drawn trial leaves out: the test's, those without step labels, and those without mathematics in prose."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder with open/ and judge_outputs/")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--bootstrap", type=int, default=1000)
    args = parser.parse_args()
    tests = {path.stem: read(path) for path in matching(args.data / "open", ["processbench_*"])}
    judged = decontaminated(judged_solutions(args.data), tests)
    natural = decontaminated([t for path in matching(args.data / "open", but=OTHER) for t in read(path)], tests)
    pools = votes_by_truth(judged)
    for truth, pool in pools.items():
        share = np.mean([k / n for k, n in pool])
        print(f"{truth} steps of the judged solutions: {len(pool)}, mean share of votes for correct {share:.3f}")
    for name, make in (("judged", lambda seed: judged), ("drawn", lambda seed: drawn(natural, pools, seed))):
        compare(name, make, tests, args.seeds, args.bootstrap)


def judged_solutions(data: Path) -> list[Trajectory]:
    """The solutions that several judges judged, each with `votes` per step: (k, n), k of n say correct."""
    found: list[Trajectory] = []
    for source, file, verdicts in (
        ("eic_gsm8k", "eic_step_judges", first_wrong_verdicts),
        ("agentprocessbench_hotpotqa", "agentprocessbench_hotpotqa_judges", step_verdicts),
    ):
        solutions = {t.id.removeprefix(f"{source}/"): t for t in read(data / "open" / f"{source}.jsonl")}
        votes: dict[str, list[list[int]]] = defaultdict(list)
        with (data / "judge_outputs" / f"{file}.jsonl").open(encoding="utf-8") as lines:
            for reply in map(json.loads, lines):
                solution = solutions.get(reply["problem_ref"])
                given = None if solution is None else verdicts(reply, len(solution.steps))
                if given is not None:
                    votes[reply["problem_ref"]].append(given)
        for key, all_given in votes.items():
            tally = [(sum(v[s] == 1 for v in all_given), sum(v[s] >= 0 for v in all_given)) for s in range(len(all_given[0]))]
            if len(all_given) >= 3:
                found.append(with_votes(solutions[key], tally))
    return found


def with_votes(t: Trajectory, votes: Sequence[Vote]) -> Trajectory:
    return replace(t, extra={**t.extra, "votes": votes})


def votes_of(t: Trajectory) -> Sequence[Vote]:
    """(k, n) per step."""
    votes: Sequence[Vote] = t.extra["votes"]
    return votes


def first_wrong_verdicts(reply: Mapping[str, Any], steps: int) -> list[int] | None:
    """1, 0 or -1 (no vote) per step of a judge that names the first wrong step; None for what cannot be read or cannot be."""
    if reply["prompt_style"] != "eic_step_simple_json":
        return None
    said = json.loads(reply["response_text"])["pred_wrong_step"]
    if said == "none":
        return [1] * steps
    at = int(said) - 1
    return [1] * at + [0] + [-1] * (steps - at - 1) if 0 <= at < steps else None


def step_verdicts(reply: Mapping[str, Any], steps: int) -> list[int] | None:
    """The same of a judge that calls each step right (1), neutral (0, which is no error) or wrong (-1)."""
    text = reply["response_text"]
    try:
        labels = json.loads(text[text.index("{") : text.rindex("}") + 1])["step_labels"]
        values = [int(labels[key]) for key in sorted(labels, key=int)]
    except (ValueError, KeyError, TypeError):
        return None
    return [int(value >= 0) for value in values] if len(values) == steps else None


def votes_by_truth(judged: Sequence[Trajectory]) -> dict[str, list[Vote]]:
    """The votes of the right and of the (first) wrong steps."""
    pools: dict[str, list[Vote]] = {"right": [], "wrong": []}
    for t in judged:
        label = first_error(t)
        for step, (k, n) in enumerate(votes_of(t)):
            if n >= 3 and (label < 0 or step <= label):
                pools["wrong" if step == label else "right"].append((k, n))
    return pools


def drawn(rows: Sequence[Trajectory], pools: Mapping[str, Sequence[Vote]], seed: int) -> list[Trajectory]:
    """`rows` with the votes of judged steps of the same truth; the steps after the first error get none."""
    pick = random.Random(seed)

    def vote(step: int, label: int) -> Vote:
        return (0, 0) if 0 <= label < step else pick.choice(pools["wrong" if step == label else "right"])

    return [with_votes(t, [vote(step, first_error(t)) for step in range(len(t.steps))]) for t in rows]


def training_row(t: Trajectory, arm: str) -> Row:
    labels: list[float | None] = []
    open_still = True
    for k, n in votes_of(t):
        labels.append(ARMS[arm]((k, n)) if n and open_still else None)
        open_still = open_still and n > 0 and 2 * k >= n
    return Row(t.id, t.problem, tuple(t.texts), tuple(labels), source=source_of(t))


def compare(
    name: str,
    make: Callable[[int], Sequence[Trajectory]],
    tests: Mapping[str, Sequence[Trajectory]],
    seeds: int,
    replicates: int,
) -> None:
    runs: dict[str, list[Any]] = {arm: [] for arm in ARMS}
    for seed in range(seeds):
        parts = split(make(seed), seed)
        for arm in ARMS:
            rows, dev = (tuple(training_row(t, arm) for t in parts[part]) for part in ("train", "dev"))
            with tempfile.TemporaryDirectory() as scratch:
                verifier = train(TrainingSet(name, rows, dev, ()), Path(scratch) / "verifier", seed)
            runs[arm].append(means(tests, verifier, replicates))
    print(f"{name}: {sum(map(len, parts.values()))} solutions, {seeds} seeds; mean of {len(tests)} sources [95%]")
    tables = {arm: np.mean(each, axis=0) for arm, each in runs.items()}
    for arm, table in tables.items():
        print(f"  {arm:10} step AUROC {interval(table[0])}   first-error F1 {interval(100 * table[1])}")
    gap = tables["soft"] - tables["majority"]
    print(f"  {'difference':10} step AUROC {interval(gap[0])}   first-error F1 {interval(100 * gap[1])}", flush=True)


def means(tests: Mapping[str, Sequence[Trajectory]], verifier: Verifier, replicates: int) -> Any:
    """AUROC and F1, averaged over the sources: the value, then its bootstrap replicates, shape (2, 1 + replicates).

    Every verifier gets the same resamples.
    """
    table = np.mean([figures(rows, score(verifier, rows), verifier.decision, replicates) for rows in tests.values()], axis=0)
    return np.column_stack([table[:2], table[4:].reshape(2, -1)])


def interval(values: Any) -> str:
    low, high = np.percentile(values[1:], [2.5, 97.5])
    return f"{values[0]:.3f} [{low:.3f}, {high:.3f}]"


if __name__ == "__main__":
    main()
