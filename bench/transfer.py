"""Measure how a verifier transfers to a benchmark it has never seen, by the commands that a user runs.

    python -m bench.transfer --data DIR [--test 'processbench_*'] [--student linear] [--seeds 5] [--work FOLDER]

DIR holds `<source>.jsonl` files of trajectories with gold labels. The sources that match --test are measured on; their problems
are removed from the others (`dataset decontaminate`). Per seed: `dataset build --gold`, `distill`, and per test source
`calibrate` on 100 solutions without labels and `evaluate` on the others, before and after. --work keeps all files, so that
a second run resumes the first.

The figures are means over the test sources: step AUROC, and first-error F1 at the decision that `distill` wrote, after
`calibrate`, and at the best threshold: one for all sources, and one for each (both chosen on the labels, so upper bounds).
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np

from critic_prm.cli import main as run_command
from critic_prm.metrics.scores import first_below, first_error_f1

UNLABELLED = 100
"""Solutions per test source that `calibrate` sees, without labels."""
COLUMNS = ("AUROC", "decision", "calibrated", "best", "best each")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of <source>.jsonl")
    parser.add_argument("--test", default="processbench_*", help="which sources to measure on (a shell pattern)")
    parser.add_argument("--train", default="*", help="which other sources to train on (a shell pattern)")
    parser.add_argument(
        "--extra", type=Path, nargs="*", default=[], help="further files to train on, such as generated families"
    )
    parser.add_argument("--student", default="linear")
    parser.add_argument("--option", action="append", default=[], help="option of the student, KEY=VALUE")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--work", type=Path, help="keep all files here")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        work = args.work or Path(scratch)
        tests = sorted(path for path in args.data.glob("*.jsonl") if fnmatch(path.stem, args.test))
        sources = [path for path in sorted(args.data.glob("*.jsonl")) if path not in tests and fnmatch(path.stem, args.train)]
        train = decontaminated(sources, tests, work / "train")
        rows = []
        print(f"{'seed':8}{''.join(f'{name:>12}' for name in COLUMNS)}  in the card's intervals")
        for seed in range(args.seeds):
            figures, inside = one_seed([*train, *args.extra], tests, work / f"seed-{seed}", seed, args.student, args.option)
            rows.append([figures[name] for name in COLUMNS])
            print(f"{seed:<8}{''.join(f'{value:12.3f}' for value in rows[-1])}  {inside}", flush=True)
        for name, of in (("mean", np.mean), ("lowest", np.min), ("highest", np.max)):
            print(f"{name:8}{''.join(f'{value:12.3f}' for value in of(rows, axis=0))}")


def command(*arguments: object) -> None:
    """Run critic-prm in this process. Raises SystemExit if it fails; a verifier no better than chance is measured, too."""
    try:
        run_command([str(argument) for argument in arguments])
    except SystemExit as end:
        if end.code not in (None, 0, 3):
            raise


def decontaminated(sources: Sequence[Path], tests: Sequence[Path], folder: Path) -> list[Path]:
    """The sources with labelled solutions, without the problems of the tests."""
    folder.mkdir(parents=True, exist_ok=True)
    against = [part for test in tests for part in ("--against", test)]
    out = []
    for source in sources:
        labelled = [line for line in source.read_text("utf-8").splitlines() if json.loads(line).get("label") is not None]
        if not labelled:
            continue
        out.append(folder / source.name)
        if not out[-1].exists():
            plain = folder / f"{source.stem}.all"
            plain.with_suffix(".jsonl.in").write_text("\n".join(labelled) + "\n")
            command("dataset", "decontaminate", plain.with_suffix(".jsonl.in"), *against, "-o", out[-1])
    return out


def one_seed(
    train: Sequence[Path], tests: Sequence[Path], work: Path, seed: int, student: str, options: Sequence[str]
) -> tuple[dict[str, float], str]:
    """Train, calibrate and evaluate; returns the figures and whether the card's intervals hold them."""
    data, verifier = work / "data", work / "verifier"
    work.mkdir(parents=True, exist_ok=True)
    if not (verifier / "verifier.json").exists():
        command("dataset", "build", "--gold", *train, "-o", data, "--seed", seed)
        started = time.process_time()
        given = [part for option in options for part in ("--option", option)]
        command("distill", data, "-o", verifier, "--student", student, "--seed", seed, *given)
        print(f"distill took {time.process_time() - started:.0f} s of CPU", file=sys.stderr)
    results: dict[str, list[float]] = {name: [] for name in COLUMNS if name != "best"}
    pool = []
    for test in tests:
        unlabelled, rest = split(test, work / test.stem, seed)
        command("calibrate", verifier, unlabelled, "--profile", test.stem)
        rows = {}
        for profile in ("none", test.stem):
            predictions, report = (work / test.stem / f"{profile}.{kind}" for kind in ("jsonl", "json"))
            if not report.exists():
                command("evaluate", verifier, rest, "--profile", profile, "--save", predictions, "-o", report, "--overwrite")
            rows[profile] = json.loads(report.read_text())[0]["mean"]
        results["AUROC"].append(rows["none"]["auroc"]["value"])
        results["decision"].append(100 * rows["none"]["f1"]["value"])
        results["calibrated"].append(100 * rows[test.stem]["f1"]["value"])
        pool.append([json.loads(line) for line in (work / test.stem / "none.jsonl").read_text().splitlines()])
        results["best each"].append(max(curve(pool[-1])))
    figures = {name: float(np.mean(values)) for name, values in results.items()}
    figures["best"] = max(np.mean([curve(rows) for rows in pool], axis=0))
    expected = json.loads((verifier / "verifier.json").read_text())["unseen"]["expected"]
    compared = {"auroc": figures["AUROC"], "f1": figures["decision"] / 100, "f1_calibrated": figures["calibrated"] / 100}
    inside = ", ".join(
        f"{name} {'yes' if expected[name]['low'] <= value <= expected[name]['high'] else 'NO'}"
        f" [{expected[name]['low']:.2f}, {expected[name]['high']:.2f}]"
        for name, value in compared.items()
        if name in expected
    )
    return figures, inside


def split(test: Path, folder: Path, seed: int) -> tuple[Path, Path]:
    """Write UNLABELLED random solutions without labels, and the others with them."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in test.read_text("utf-8").splitlines()]
    random.Random(seed).shuffle(rows)
    unlabelled, rest = folder / "unlabelled.jsonl", folder / "rest.jsonl"
    few = [{"id": row["id"], "problem": row["problem"], "steps": row["steps"]} for row in rows[:UNLABELLED]]
    for path, part in ((unlabelled, few), (rest, rows[UNLABELLED:])):
        path.write_text("".join(json.dumps(row) + "\n" for row in part))
    return unlabelled, rest


def curve(rows: Sequence[dict[str, Any]]) -> list[float]:
    """First-error F1 at 400 thresholds on P(correct)."""
    gold = [row["label"] for row in rows]
    return [
        100 * (first_error_f1(gold, [first_below(row["p_correct"], threshold) for row in rows]).f1 or 0.0)
        for threshold in np.linspace(0.0025, 1, 400)
    ]


if __name__ == "__main__":
    main()
