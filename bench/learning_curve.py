"""Measure what labels buy: the linear student against the number of labelled solutions and the origin of the labels.

    python -m bench.learning_curve --data DIR --work FOLDER [--test 'processbench_*'] [--seeds 3] [--shares 0.05 0.1 0.3 1]

DIR holds `<source>.jsonl` files of trajectories with gold labels. The sources that match --test are set aside and their
problems removed from the others, which become a training set (`dataset build --gold`). Per seed, a random share of its
solutions gets labels; a larger share contains the smaller ones. The labels are gold; those of simulated judges with the error
rates of recorded ones (bench/recorded_judges.py); those on which two such judges agree; or those of the critic `rules`.

The student is trained with five groups of sources left out in turn, as `distill` does it. The main table holds means over the
left-out sources with at least 30 solutions of each kind: step AUROC, and first-error F1 at the decision chosen on the labels of
the other groups, and with the threshold that `calibrate` takes without labels. Models, decisions and calibration see the given
labels only, the figures are by gold labels. --measure-test adds the same of the test sources.

Runs are kept in --work, and a second run does what is missing. --trees 50 trains a student that takes a fourth of the time.
--plot FILE draws the curves, if matplotlib is there.
"""

from __future__ import annotations

import argparse
import json
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from bench.recorded_judges import EXAMPLES, Judge, read_all, recorded
from bench.transfer import UNLABELLED, command, decontaminated
from critic_prm.arithmetic.claims import judge_one
from critic_prm.data.judgement import Judgement, Verdict, combine
from critic_prm.data.trajectory import trajectory_from_json
from critic_prm.datasets.build import from_label
from critic_prm.metrics.scores import auroc, first_error_f1
from distill.calibration import Calibration, Floats
from distill.data import Row, TrainingSet, read_training_set
from distill.decision import Decision, choose_decision
from distill.profile import ERROR_RATE, adapt, best_share
from distill.run import calibrate
from distill.students.linear import Features, Linear, LinearScorer, LinearSettings, features_of
from distill.transfer import Unseen, leave_out_groups, pairs, parts_of, unseen_sources
from distill.types import Item

AGREEMENT = 0.35
"""Excess agreement of the two judges of a consensus (see bench/recorded_judges.py): the mean over the six pairs of the four
best recorded judges of the same solutions is 0.36."""
FIGURES = ("auroc", "f1", "f1_calibrated")
Labels: TypeAlias = tuple[float | None, ...]
Labeller: TypeAlias = Callable[[Row, int], Sequence[Judgement]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of <source>.jsonl")
    parser.add_argument("--test", default="processbench_*", help="which sources to set aside (a shell pattern)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.05, 0.1, 0.3, 1.0])
    parser.add_argument("--labels", nargs="+", help="which labels, by the first column of the table; default: all")
    parser.add_argument("--trees", type=int, help="trees of one forest, for a smaller and faster student")
    parser.add_argument("--replies", type=Path, help="folder of recorded replies, to take the judges' rates from")
    parser.add_argument("--agreement", type=float, default=AGREEMENT, help="excess agreement of the judges of a consensus")
    parser.add_argument("--measure-test", action="store_true", help="also measure on the test sources")
    parser.add_argument("--work", type=Path, required=True, help="folder for training set, features and results")
    parser.add_argument("--plot", type=Path, help="draw the curves into this file")
    args = parser.parse_args()
    judges = EXAMPLES
    if args.replies:
        known = recorded(read_all(args.replies))
        judges = [known[judge.name][0] for judge in EXAMPLES]
    labellers = all_labellers(judges, args.agreement)
    pool = load_pool(args.data, args.test, args.work)
    student = smaller(args.trees) if args.trees else LinearSettings()
    log = args.work / f"results-{student.forests}x{student.trees}.jsonl"
    kept = {key(row): row for row in map(json.loads, log.read_text().splitlines())} if log.exists() else {}
    for seed in range(args.seeds):
        for share in args.shares:
            for name in args.labels or labellers:
                before = kept.get((name, share, seed))
                if before is None or (args.measure_test and not before["test"]):
                    row = one_run(pool, name, labellers[name], share, seed, args.measure_test, student)
                    with log.open("a") as out:
                        out.write(json.dumps(row) + "\n")
                    kept[key(row)] = row
                    print(json.dumps(row), flush=True)
    for where in ("left_out", "test"):
        print("\n".join(table(list(kept.values()), where)))
    if args.plot:
        plot(list(kept.values()), args.plot)


def key(row: Mapping[str, Any]) -> tuple[str, float, int]:
    return row["labels"], row["share"], row["seed"]


def all_labellers(judges: Sequence[Judge], agreement: float) -> dict[str, Labeller | None]:
    """What makes the labels, by name; None: gold."""
    out: dict[str, Labeller | None] = {"gold": None}
    for judge in judges:
        out[judge.short] = one_judge(judge)
    for judge in judges:
        out[f"2 x {judge.short}"] = two_judges(judge, agreement)
    return {**out, "rules": by_rules}


def one_judge(judge: Judge) -> Labeller:
    def label(row: Row, seed: int) -> list[Judgement]:
        return [judgement_of(judge.name_first_error(first_error(row), len(row.steps), luck(row, seed, 0)), len(row.steps))]

    return label


def two_judges(judge: Judge, agreement: float) -> Labeller:
    """Two judges with the same rates: with probability `agreement` the second one says the same as the first, otherwise its
    errors are independent."""

    def label(row: Row, seed: int) -> list[Judgement]:
        gold, steps = first_error(row), len(row.steps)
        first = judge.name_first_error(gold, steps, luck(row, seed, 0))
        generator = luck(row, seed, 1)
        second = first if generator.random() < agreement else judge.name_first_error(gold, steps, generator)
        return [judgement_of(first, steps), judgement_of(second, steps)]

    return label


def by_rules(row: Row, seed: int) -> list[Judgement]:
    return [judge_one(trajectory_from_json({"problem": row.problem, "steps": list(row.steps)}, row.id))]


def judgement_of(first: int, steps: int) -> Judgement:
    """The judgement of a judge that stops at the first error."""
    wrong = [Verdict(first, "incorrect")] if first >= 0 else []
    right = [Verdict(step, "correct") for step in range(first if first >= 0 else steps)]
    return Judgement("ok", (*right, *wrong), first)


def luck(row: Row, seed: int, judge: int) -> np.random.Generator:
    return np.random.default_rng([zlib.crc32(f"{row.source}/{row.id}".encode()), seed, judge])


def first_error(row: Row) -> int:
    """The first error by gold: solutions of which it is not known are not in the pool."""
    first = row.first_error()
    assert first is not None
    return first


def labelled_rows(rows: Sequence[Row], labeller: Labeller | None, share: float, seed: int) -> list[Row]:
    """The rows with the labels that `dataset build` makes of the judgements; None for all steps of the other rows.

    Judges who disagree on the first error leave a row without labels, too.
    """
    order = np.random.default_rng([seed, len(rows)]).permutation(len(rows))
    chosen = set(order[: round(share * len(rows))].tolist())
    return [
        replace(row, labels=(None,) * len(row.steps) if at not in chosen else row.labels if labeller is None
                else targets(labeller(row, seed), len(row.steps)))
        for at, row in enumerate(rows)
    ]  # fmt: skip


def targets(judgements: Sequence[Judgement], steps: int) -> Labels:
    made = from_label(combine(judgements, steps))
    return (None,) * steps if isinstance(made, str) else made.labels


@dataclass(frozen=True, slots=True)
class Pool:
    """A training set with gold labels, the test sources, and the features of their steps."""

    train: Sequence[Row]
    dev: Sequence[Row]
    tests: Sequence[Row]
    features: Mapping[str, Features]
    """By the names of the other fields."""


def load_pool(data: Path, test: str, work: Path) -> Pool:
    """Build the training set, unless `work` has it, and compute the features, unless `work` has them."""
    tests = sorted(path for path in data.glob("*.jsonl") if fnmatch(path.stem, test))
    if not (work / "data" / "dataset.json").exists():
        sources = [path for path in sorted(data.glob("*.jsonl")) if path not in tests]
        files = decontaminated(sources, tests, work / "train")
        command("dataset", "build", "--gold", *files, "-o", work / "data", "--split", "0.85,0.15,0", "--seed", 0)
    built = read_training_set(work / "data")
    rows = {
        "train": [row for row in built.train if row.first_error() is not None],
        "dev": [row for row in built.dev if row.first_error() is not None],
        "tests": [row for path in tests for row in gold_rows(path)],
    }
    return Pool(**rows, features={name: kept_features(work / name, part) for name, part in rows.items()})


def gold_rows(path: Path) -> Iterator[Row]:
    for line in path.read_text("utf-8").splitlines():
        value = json.loads(line)
        if value.get("label") is not None:
            steps, label = value["steps"], value["label"]
            labels = [1.0] * len(steps) if label < 0 else [1.0] * label + [0.0] + [None] * (len(steps) - label - 1)
            yield Row(str(value["id"]), value["problem"], tuple(steps), tuple(labels), source=path.stem)


def kept_features(stem: Path, rows: Sequence[Row]) -> Features:
    from scipy import sparse

    text, dense = stem.with_suffix(".text.npz"), stem.with_suffix(".dense.npy")
    if not dense.exists():
        items: list[Item] = [(row.problem, row.steps) for row in rows]
        features = features_of(items, LinearSettings())
        sparse.save_npz(text, features.text, compressed=False)
        np.save(dense, features.dense)
    return Features(sparse.load_npz(text).tocsr(), np.load(dense))


def smaller(trees: int) -> LinearSettings:
    """One forest of fewer trees that learn faster, in the same proportion."""
    full = LinearSettings()
    return replace(full, forests=1, trees=trees, learning_rate=full.learning_rate * full.trees / trees)


def one_run(
    pool: Pool, name: str, labeller: Labeller | None, share: float, seed: int, test: bool, settings: LinearSettings
) -> dict[str, Any]:
    """Train, calibrate and decide with the given labels, as `distill` does, and measure with gold labels."""
    started = time.process_time()
    train = labelled_rows(pool.train, labeller, share, seed)
    dev = labelled_rows(pool.dev, labeller, share, seed)
    data = TrainingSet("pool", tuple(train), tuple(dev), ())
    groups = leave_out_groups(train)
    trained = Linear(settings=settings, steps=pool.features["train"]).train_leaving_out(
        data, groups, seed=seed, say=lambda line: None
    )
    assert isinstance(trained.scorer, LinearScorer)
    calibration, _ = calibrate(per_row(trained.scorer.score_steps(pool.features["dev"]), dev), dev)
    known = unseen_sources(train, groups, trained.left_out, calibration)
    truth = unseen_sources(pool.train, groups, trained.left_out, calibration)
    row: dict[str, Any] = {
        "labels": name,
        "share": share,
        "seed": seed,
        "solutions": round(share * len(train)) + round(share * len(dev)),
        "kept": sum(any(label is not None for label in each.labels) for each in (*train, *dev)),
        "steps": trained.steps,
        **label_quality([*train, *dev], [*pool.train, *pool.dev]),
        "left_out": left_out(known, truth),
        "test": on_tests(pool, trained.scorer, calibration, known, seed) if test else None,
    }
    return {**row, "cpu": round(time.process_time() - started, 1)}


def per_row(p: Floats, rows: Sequence[Row]) -> list[Floats]:
    return list(np.split(p, np.cumsum([len(row.steps) for row in rows])[:-1]))


def label_quality(rows: Sequence[Row], gold: Sequence[Row]) -> dict[str, float]:
    """Of the labelled steps up to the gold first error: the share of the right and of the wrong ones with the right label."""
    pairs = [
        (y >= 0.5, x >= 0.5)
        for row, truth in zip(rows, gold, strict=True)
        for x, y in zip(row.labels, truth.labels, strict=True)
        if x is not None and y is not None
    ]
    rates = {kind: [x == y for y, x in pairs if y is kind] for kind in (True, False)}
    return {"right_steps": float(np.mean(rates[True])), "wrong_steps": float(np.mean(rates[False]))}


def decide(unseen: Sequence[Unseen]) -> tuple[Decision, float]:
    """The decision and the share of solutions to flag that are best on these sources, as in `distill`."""
    decision = choose_decision(parts_of(unseen)).decision
    return decision, best_share([pairs(each) for each in unseen if each.decides], decision.rule) or ERROR_RATE


def left_out(known: Sequence[Unseen], truth: Sequence[Unseen]) -> dict[str, float]:
    """Mean figures over the sources that decide, each with the decision that the known labels of the other groups give."""
    decisions = {group: decide([each for each in known if each.group != group]) for group in {each.group for each in known}}
    rows = []
    for each in (each for each in truth if each.decides):
        decision, share = decisions[each.group]
        lowest = [decision.lowest(p.tolist()) for p in each.scores]
        rows.append(figures(each.scores, each.labels, decision, replace(decision, threshold=float(np.quantile(lowest, share)))))
    return {name: float(np.mean([row[name] for row in rows])) for name in FIGURES}


def on_tests(
    pool: Pool, scorer: LinearScorer, calibration: Calibration, known: Sequence[Unseen], seed: int
) -> dict[str, float]:
    """Mean figures over the test sources, as bench/transfer.py measures them: without the solutions that calibrate."""
    decision, share = decide(known)
    raw = per_row(scorer.score_steps(pool.features["tests"]), pool.tests)
    rows = []
    for source in sorted({row.source for row in pool.tests}):
        at = np.array([i for i, row in enumerate(pool.tests) if row.source == source])
        np.random.default_rng(seed).shuffle(at)
        few = [raw[i] for i in at[:UNLABELLED]]
        unknown: list[Labels] = [(None,) * len(p) for p in few]
        profile = adapt(few, unknown, [pool.tests[i].problem for i in at[:UNLABELLED]], calibration, decision.rule, share)
        rest = at[UNLABELLED:]
        rows.append(
            figures([calibration(raw[i]) for i in rest], [pool.tests[i].labels for i in rest], decision, profile.decision)
        )
    return {name: float(np.mean([row[name] for row in rows])) for name in FIGURES}


def figures(
    scores: Sequence[Floats], labels: Sequence[Sequence[float | None]], own: Decision, calibrated: Decision
) -> dict[str, float]:
    steps = [(x, y) for p, each in zip(scores, labels, strict=True) for x, y in zip(p, each, strict=True) if y is not None]
    gold = [next((i for i, y in enumerate(each) if y is not None and y < 0.5), -1) for each in labels]
    f1 = [first_error_f1(gold, [decision.first_error(p.tolist()) for p in scores]).f1 for decision in (own, calibrated)]
    area = auroc([y >= 0.5 for _, y in steps], [x for x, _ in steps])
    return dict(zip(FIGURES, (area or 0.0, 100 * (f1[0] or 0.0), 100 * (f1[1] or 0.0)), strict=True))


def summary(rows: Sequence[Mapping[str, Any]], where: str) -> dict[str, dict[float, dict[str, Any]]]:
    """Means over seeds by labels and share, with the number of seeds and the standard deviation of AUROC and F1."""
    cells: dict[str, dict[float, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row[where]:
            cells[row["labels"]][row["share"]].append(row)
    out: dict[str, dict[float, dict[str, Any]]] = {}
    for name, shares in cells.items():
        out[name] = {}
        for share, runs in sorted(shares.items()):
            values = np.array([[run[where][figure] for figure in FIGURES] for run in runs])
            plain = {
                key: float(np.mean([run[key] for run in runs])) for key in ("solutions", "kept", "right_steps", "wrong_steps")
            }
            spread = values.std(axis=0, ddof=1) if len(runs) > 1 else np.full(len(FIGURES), np.nan)
            out[name][share] = {"seeds": len(runs), **plain, **dict(zip(FIGURES, values.mean(axis=0).tolist(), strict=True)),
                                **{f"{f}_sd": float(sd) for f, sd in zip(FIGURES, spread, strict=True)}}  # fmt: skip
    return out


def table(rows: Sequence[Mapping[str, Any]], where: str) -> Iterator[str]:
    yield f"\n{where.replace('_', ' ')}"
    yield (
        "| labels | solutions judged | labelled | right steps labelled right | wrong steps labelled wrong | step AUROC | F1"
        " | F1 after calibrate | seeds |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for name, shares in summary(rows, where).items():
        for cell in shares.values():
            shown = [f"{cell['auroc']:.3f}", f"{cell['f1']:.1f}", f"{cell['f1_calibrated']:.1f}"]
            if cell["seeds"] > 1:
                shown = [
                    f"{value} ± {cell[f + '_sd']:.{3 if f == 'auroc' else 1}f}" for value, f in zip(shown, FIGURES, strict=True)
                ]
            counts = f"{cell['solutions']:,.0f} | {cell['kept']:,.0f} | {cell['right_steps']:.3f} | {cell['wrong_steps']:.3f}"
            yield f"| {name} | {counts} | {' | '.join(shown)} | {cell['seeds']} |"


def plot(rows: Sequence[Mapping[str, Any]], file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    canvas, axes = pyplot.subplots(1, 3, figsize=(13, 4), constrained_layout=True)
    titles = ("step AUROC", "first-error F1, own decision", "first-error F1, after calibrate")
    for axis, figure, title in zip(axes, FIGURES, titles, strict=True):
        for name, shares in summary(rows, "left_out").items():
            x = [cell["solutions"] for cell in shares.values()]
            y = [cell[figure] for cell in shares.values()]
            sd = np.nan_to_num([cell[f"{figure}_sd"] for cell in shares.values()])
            axis.errorbar(x, y, sd, label=name, marker="o", markersize=3, capsize=2, linestyle="--" if "2 x" in name else "-")
        axis.set(xscale="log", xlabel="solutions judged", title=title)
        ticks = sorted({row["solutions"] for row in rows})
        axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    canvas.savefig(file, dpi=110)


if __name__ == "__main__":
    main()
