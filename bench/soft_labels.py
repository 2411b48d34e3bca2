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
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from bench.linear import DEV_SHARE, normal, official, read, weighted_auroc, without_problems_of

Vote: TypeAlias = tuple[int, int]
Record: TypeAlias = dict[str, Any]

ARMS: Mapping[str, Callable[[Vote], float]] = {
    "soft": lambda vote: vote[0] / vote[1],
    "majority": lambda vote: float(2 * vote[0] >= vote[1]),
}
OTHER = ("processbench_", "outcome_", "bbm_", "planbench_", "who_and_when", "prm800k_redundant")
"""Sources that the drawn trial leaves out: the test's, those without step labels, and those without mathematics in prose."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder with open/ and judge_outputs/")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--bootstrap", type=int, default=1000)
    args = parser.parse_args()
    tests = {path.stem: read(path) for path in sorted((args.data / "open").glob("processbench_*.jsonl"))}
    problems = [row["problem"] for rows in tests.values() for row in rows]
    judged = without_problems_of(judged_solutions(args.data), problems)
    natural = [
        row for path in sorted((args.data / "open").glob("*.jsonl")) if not path.stem.startswith(OTHER) for row in read(path)
    ]
    natural = without_problems_of(natural, problems)
    pools = votes_by_truth(judged)
    for truth, pool in pools.items():
        share = np.mean([k / n for k, n in pool])
        print(f"{truth} steps of the judged solutions: {len(pool)}, mean share of votes for correct {share:.3f}")
    for name, make in (("judged", lambda seed: judged), ("drawn", lambda seed: drawn(natural, pools, seed))):
        compare(name, make, tests, args.seeds, args.bootstrap)


def judged_solutions(data: Path) -> list[Record]:
    """The solutions that several judges judged, each with `votes` per step: (k, n), k of n say correct."""
    found: list[Record] = []
    for source, file, verdicts in (
        ("eic_gsm8k", "eic_step_judges", first_wrong_verdicts),
        ("agentprocessbench_hotpotqa", "agentprocessbench_hotpotqa_judges", step_verdicts),
    ):
        records = {row["id"]: row for row in read(data / "open" / f"{source}.jsonl")}
        votes: dict[str, list[list[int]]] = defaultdict(list)
        with (data / "judge_outputs" / f"{file}.jsonl").open(encoding="utf-8") as lines:
            for reply in map(json.loads, lines):
                record = records.get(reply["problem_ref"])
                given = None if record is None else verdicts(reply, len(record["steps"]))
                if given is not None:
                    votes[reply["problem_ref"]].append(given)
        for key, all_given in votes.items():
            tally = [(sum(v[s] == 1 for v in all_given), sum(v[s] >= 0 for v in all_given)) for s in range(len(all_given[0]))]
            if len(all_given) >= 3:
                found.append({**records[key], "votes": tally})
    return found


def first_wrong_verdicts(reply: Record, steps: int) -> list[int] | None:
    """1, 0 or -1 (no vote) per step of a judge that names the first wrong step; None for what cannot be read or cannot be."""
    if reply["prompt_style"] != "eic_step_simple_json":
        return None
    said = json.loads(reply["response_text"])["pred_wrong_step"]
    if said == "none":
        return [1] * steps
    at = int(said) - 1
    return [1] * at + [0] + [-1] * (steps - at - 1) if 0 <= at < steps else None


def step_verdicts(reply: Record, steps: int) -> list[int] | None:
    """The same of a judge that calls each step right (1), neutral (0, which is no error) or wrong (-1)."""
    text = reply["response_text"]
    try:
        labels = json.loads(text[text.index("{") : text.rindex("}") + 1])["step_labels"]
        values = [int(labels[key]) for key in sorted(labels, key=int)]
    except (ValueError, KeyError, TypeError):
        return None
    return [int(value >= 0) for value in values] if len(values) == steps else None


def votes_by_truth(judged: Sequence[Record]) -> dict[str, list[Vote]]:
    """The votes of the right and of the (first) wrong steps."""
    pools: dict[str, list[Vote]] = {"right": [], "wrong": []}
    for row in judged:
        for step, (k, n) in enumerate(row["votes"]):
            if n >= 3 and (row["label"] < 0 or step <= row["label"]):
                pools["wrong" if step == row["label"] else "right"].append((k, n))
    return pools


def drawn(rows: Sequence[Record], pools: Mapping[str, Sequence[Vote]], seed: int) -> list[Record]:
    """`rows` with the votes of judged steps of the same truth; the steps after the first error get none."""
    pick = random.Random(seed)
    return [
        {
            **row,
            "votes": [
                (0, 0) if 0 <= row["label"] < step else pick.choice(pools["wrong" if step == row["label"] else "right"])
                for step in range(len(row["steps"]))
            ],
        }
        for row in rows
    ]


def training_row(row: Record, arm: str) -> Any:
    from distill.data import Row

    labels: list[float | None] = []
    open_still = True
    for k, n in row["votes"]:
        labels.append(ARMS[arm]((k, n)) if n and open_still else None)
        open_still = open_still and n > 0 and 2 * k >= n
    return Row(f"{row['source']}/{row['id']}", row["problem"], tuple(row["steps"]), tuple(labels), source=row["source"])


def compare(
    name: str, make: Callable[[int], Sequence[Record]], tests: Mapping[str, Sequence[Record]], seeds: int, replicates: int
) -> None:
    from distill.data import TrainingSet
    from distill.run import distill
    from distill.verifier import load_verifier

    scores: dict[str, list[dict[str, Any]]] = {arm: [] for arm in ARMS}
    for seed in range(seeds):
        rows = make(seed)
        problems = sorted({normal(row["problem"]) for row in rows})
        random.Random(seed).shuffle(problems)
        dev = set(problems[: int(DEV_SHARE * len(problems))])
        for arm in ARMS:
            split: dict[bool, list[Any]] = {True: [], False: []}
            for row in rows:
                split[normal(row["problem"]) in dev].append(training_row(row, arm))
            with tempfile.TemporaryDirectory() as scratch:
                distill(TrainingSet(name, tuple(split[False]), tuple(split[True]), ()), Path(scratch) / "verifier", seed=seed)
                verifier = load_verifier(Path(scratch) / "verifier")
                found = {
                    source: verifier.score_many([(row["problem"], row["steps"]) for row in rows_of])
                    for source, rows_of in tests.items()
                }
            scores[arm].append({"scores": found, "threshold": verifier.threshold})
    print(f"{name}: {len(rows)} solutions, {seeds} seeds; mean of {len(tests)} sources [95%]")
    figures = {arm: np.mean([means(tests, run, replicates) for run in runs], axis=0) for arm, runs in scores.items()}
    for arm, table in figures.items():
        print(f"  {arm:10} step AUROC {interval(table[0])}   first-error F1 {interval(100 * table[1])}")
    gap = figures["soft"] - figures["majority"]
    print(f"  {'difference':10} step AUROC {interval(gap[0])}   first-error F1 {interval(100 * gap[1])}", flush=True)


def means(tests: Mapping[str, Sequence[Record]], run: Mapping[str, Any], replicates: int) -> Any:
    """(AUROC or F1, the figure and then its replicates), the mean over sources; the same draws for every run."""
    from critic_prm.metrics.scores import first_below

    tables = []
    for source, rows in tests.items():
        given = run["scores"][source]
        gold = np.array([row["label"] for row in rows])
        judged = [s[: g + 1 if g >= 0 else None] for s, g in zip(given, gold, strict=True)]
        hit = np.array([first_below(s, run["threshold"]) == g for s, g in zip(given, gold, strict=True)])
        p = np.concatenate(judged)
        y = np.concatenate([np.arange(len(s)) != g for s, g in zip(judged, gold, strict=True)])
        names, problem = np.unique([normal(row["problem"]) for row in rows], return_inverse=True)
        owner = np.repeat(problem, [len(s) for s in judged])
        generator = np.random.default_rng(0)
        draws = [np.ones(len(names))] + [
            np.bincount(generator.integers(len(names), size=len(names)), minlength=len(names)) for _ in range(replicates)
        ]
        tables.append([[weighted_auroc(p, y, w[owner]) for w in draws], [official(gold, hit, w[problem])[0] for w in draws]])
    return np.mean(tables, axis=0)


def interval(values: Any) -> str:
    low, high = np.percentile(values[1:], [2.5, 97.5])
    return f"{values[0]:.3f} [{low:.3f}, {high:.3f}]"


if __name__ == "__main__":
    main()
