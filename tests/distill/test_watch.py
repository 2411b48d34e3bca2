"""The watch over a verifier's scores: its distance, what runs say about it, and `analyze drift` from a verifier."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from critic_prm.critics import remote
from critic_prm.data.judgement import Label
from critic_prm.data.records.reading import write_records
from critic_prm.engine.options import JudgeOptions, RayOptions
from critic_prm.errors import InputError, UsageError
from critic_prm.evaluate.analyze.drift import NUMBERS
from distill.decision import Decision
from distill.profile import QUANTILES
from distill.store import read_watch
from distill.watch import FEW, ScoreWatch
from tests import command
from tests.distill.tiny import apples


def quantiles(scores: Any) -> list[float]:
    return [float(q) for q in np.quantile(scores, np.linspace(0, 1, QUANTILES))]


def labelled(p: float, threshold: float = 0.5) -> Label:
    return Label(p_correct=(1.0, p), votes=((0, 0),) * 2, first_error=1 if p < threshold else -1, status="ok", judgements=())


def watched(reference: Any, scores: Iterable[float], **given: Any) -> ScoreWatch:
    watch = ScoreWatch(quantiles(reference), Decision(0.5), **given)
    for p in scores:
        watch.add(labelled(float(p)))
    return watch


@pytest.mark.parametrize("digits", [6, 1, 0])
@pytest.mark.parametrize("power", [1.0, 1.5, 4.0])
def test_the_distance_is_that_of_kolmogorov_and_smirnov(digits: int, power: float) -> None:
    """Also where many solutions have the same score: 11 different ones, or 2. Those were taken for a shift."""
    from scipy.stats import ks_2samp

    generator = np.random.default_rng(0)
    reference, scores = generator.uniform(size=900).round(digits), (generator.uniform(size=700) ** power).round(digits)
    watch = watched(reference, scores)
    assert watch.distance == pytest.approx(ks_2samp(reference, scores).statistic, abs=0.013)
    assert watch.shifted == (power > 1)


def test_how_sure_a_verifier_is_does_not_matter() -> None:
    """A verifier with scores of 0.000001 and 0.999999 was told to calibrate when it became a little surer."""
    reference, scores = [1e-5, 1 - 1e-5] * 100, [1e-6, 1 - 1e-6] * 100
    assert watched(reference, scores).distance == pytest.approx(0, abs=0.011)


def test_what_is_reported() -> None:
    watch = watched(np.linspace(0, 1, 1001), [*np.linspace(0, 0.5, 85, endpoint=False), *np.linspace(0.51, 1, 15)] * 2)
    report = watch.report()
    assert (report["solutions"], report["flagged"], report["flagged_expected"]) == (200, 0.85, pytest.approx(0.5, abs=0.01))
    assert (report["ks_distance"], report["shifted"]) == (pytest.approx(0.35, abs=0.01), True)
    assert watch.lines() == [
        "warning: these 200 solutions score differently from those the threshold was chosen on"
        " (KS distance 0.35; 85% flagged, 50% expected); run: critic-prm calibrate VERIFIER FILE"
    ]
    watch.restart()
    assert (watch.solutions, watch.share, watch.distance, watch.lines()) == (0, None, None, [])


def test_little_is_no_shift() -> None:
    reference = np.linspace(0, 1, 1001)
    assert not watched(reference, [0.01] * (FEW - 1)).shifted
    assert watched(reference, [0.01] * FEW).shifted
    assert not watched(reference, np.linspace(0, 0.87, 500)).shifted  # a distance of 0.13
    unknown = ScoreWatch((), Decision(0.5))
    for _ in range(100):
        unknown.add(labelled(0.1))
    assert (unknown.share, unknown.expected, unknown.distance, unknown.shifted) == (1.0, None, None, False)


def test_labels_without_a_score_do_not_count() -> None:
    watch = ScoreWatch(quantiles([0.1, 0.9]), Decision(0.5))
    watch.add(Label((None,), ((0, 0),), None, "unparseable", ()))
    watch.add(replace(labelled(0.3), first_error=None))
    assert watch.solutions == 0


def test_a_window_forgets() -> None:
    """A server that runs for weeks notices a change of the last thousand solutions."""
    generator = np.random.default_rng(0)
    same, other = generator.uniform(size=5000), generator.uniform(size=400) ** 6
    watch = watched(generator.uniform(size=1000), [*same, *other], window=500)
    assert (watch.solutions, watch.shifted) == (500, True)
    last = watched(generator.uniform(size=1000), [*same[-100:], *other])
    assert watch.flagged == last.flagged
    assert not watched(generator.uniform(size=1000), [*same, *other]).shifted
    for p in same[:500]:
        watch.add(labelled(float(p)))
    assert not watch.shifted


@pytest.fixture(scope="module")
def shifted(verifier_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A verifier whose threshold was chosen on solutions that all had scores near 0."""
    folder = Path(shutil.copytree(verifier_folder, tmp_path_factory.mktemp("shifted") / "v"))
    info = json.loads((folder / "verifier.json").read_text())
    (folder / "verifier.json").write_text(json.dumps(info | {"quantiles": [i * 1e-5 for i in range(QUANTILES)]}))
    return folder


@pytest.fixture(scope="module")
def solutions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("solutions") / "gsm8k.jsonl"
    rows = apples(60, 9)
    write_records(
        path,
        [
            {"id": row["id"], "problem": row["prompt"], "steps": row["completions"], "label": _first(row["labels"])}
            for row in rows
        ],
    )
    return path


def _first(labels: list[float | None]) -> int:
    return labels.index(0.0) if 0.0 in labels else -1


WARNING = "warning: these 60 solutions score differently"


@pytest.mark.parametrize(
    "argv",
    [
        ("score", "VERIFIER", "FILE", "-o", "OUT"),
        ("label", "FILE", "--judge", "VERIFIER", "-o", "OUT"),
        ("evaluate", "VERIFIER", "FILE", "--resamples", "100", "-o", "OUT"),
        ("rank", "FILE", "--critic", "VERIFIER", "--json"),
    ],
    ids=lambda argv: argv[0],
)
def test_every_command_warns_once(argv: tuple[str, ...], shifted: Path, solutions: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    names = {"VERIFIER": str(shifted), "FILE": str(solutions), "OUT": str(out)}
    result = command.invoke(*(names.get(word, word) for word in argv))
    assert result.exit_code == 0
    assert result.stderr.count(WARNING) == 1
    report = tmp_path / "out.jsonl.run.json"
    if report.exists():
        scores = json.loads(report.read_text())["scores"]
    else:
        scores = json.loads(out.read_text() if out.exists() else result.stdout)["run"]["scores"]
    assert (scores["solutions"], scores["shifted"], scores["flagged_expected"]) == (60, True, 1.0)
    assert scores["ks_distance"] > 0.15


def test_a_threshold_by_hand_is_not_the_verifiers(shifted: Path, solutions: Path) -> None:
    result = command.invoke("evaluate", shifted, solutions, "--resamples", "100", "--threshold", "0.5")
    assert WARNING not in result.stderr
    chosen = ("--threshold-from", f"processbench:{solutions.parent}#gsm8k")
    result = command.invoke("evaluate", shifted, solutions, "--resamples", "100", *chosen, columns=200)
    assert WARNING not in result.stderr
    assert "chosen on gsm8k (60 solutions)" in result.stdout


def test_drift_from_a_verifier(verifier_folder: Path, shifted: Path, solutions: Path, tmp_path: Path) -> None:
    scored = tmp_path / "scored.jsonl"
    command.invoke("score", verifier_folder, solutions, "-o", scored)
    report = json.loads((tmp_path / "scored.jsonl.run.json").read_text())["scores"]
    calm = command.invoke("analyze", "drift", verifier_folder, scored, "--json")
    row = json.loads(calm.stdout)
    assert (calm.exit_code, row["analysis"], row["findings"]) == (0, "drift", [])
    assert row["numbers"].keys() == NUMBERS.keys()
    assert row["numbers"]["score_ks"] == report["ks_distance"]
    assert row["numbers"]["accepted_shift"] == pytest.approx(report["flagged_expected"] - report["flagged"])
    assert row["numbers"]["flips"] is None
    shown = command.invoke("analyze", "drift", shifted, scored, "--profile", "none")
    assert shown.exit_code == 0
    assert "! these 60 solutions score differently" in shown.stdout
    assert "critic-prm calibrate VERIFIER FILE" in " ".join(shown.stdout.split())
    bounds = tmp_path / "bounds.toml"
    bounds.write_text("[drift]\nscore_ks = {max = 0.15}\n")
    assert command.invoke("analyze", "drift", shifted, scored, "--bounds", bounds).exit_code == 3


def test_drift_refuses_what_cannot_be_compared(verifier_folder: Path, shifted: Path, solutions: Path, tmp_path: Path) -> None:
    scored, others = tmp_path / "scored.jsonl", tmp_path / "rules.jsonl"
    command.invoke("score", verifier_folder, solutions, "-o", scored)
    command.invoke("score", "rules", solutions, "-o", others)
    with pytest.raises(InputError, match="the fingerprint of its critic is 'rules-1'"):
        command.invoke("analyze", "drift", verifier_folder, others)
    with pytest.raises(UsageError, match="is not a verifier and has no profiles"):
        command.invoke("analyze", "drift", scored, others, "--profile", "x")
    with pytest.raises(UsageError, match="has no profile 'x'"):
        command.invoke("analyze", "drift", verifier_folder, scored, "--profile", "x")
    copy = Path(shutil.copytree(verifier_folder, tmp_path / "copy"))
    command.invoke("calibrate", copy, solutions, "--profile", "new", "--error-rate", "0.5")
    with pytest.raises(InputError, match="the profile of its critic is None"):
        command.invoke("analyze", "drift", copy, scored)
    assert command.invoke("analyze", "drift", copy, scored, "--profile", "none").exit_code == 0
    info = json.loads((copy / "verifier.json").read_text())
    (copy / "verifier.json").write_text(json.dumps(info | {"quantiles": []}))
    with pytest.raises(InputError, match="does not know the scores"):
        command.invoke("analyze", "drift", copy, scored, "--profile", "none")


def test_copies_and_workers_keep_the_watch(shifted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Ray, `--profile` was ignored and nothing was watched."""
    from distill.verifier import load_verifier

    verifier = load_verifier(shifted)
    assert verifier.with_prefix_cache().stats == verifier.stats
    opened: list[Any] = []
    monkeypatch.setattr(remote, "Pool", lambda ray, work, needs: opened.append(work))
    critic = remote.connect(str(shifted), JudgeOptions(profile="none", cluster=RayOptions()))
    assert isinstance(critic.stats[0], ScoreWatch)
    assert opened[0].args[1].profile == "none"
    with pytest.raises(UsageError, match="has no profile 'gone'"):
        remote.connect(str(shifted), JudgeOptions(profile="gone", cluster=RayOptions()))


def test_the_watch_is_read_without_weights(shifted: Path, tmp_path: Path) -> None:
    folder = tmp_path / "v"
    folder.mkdir()
    shutil.copyfile(shifted / "verifier.json", folder / "verifier.json")
    watch, made = read_watch(folder)
    assert (len(watch.quantiles), made["profile"]) == (QUANTILES, None)
