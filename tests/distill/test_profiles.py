"""Decisions, profiles and what is expected on unseen data: the arithmetic by hand, and folders from strangers."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from critic_prm.data.records.reading import write_records
from critic_prm.data.trajectory import Step, Trajectory, trajectory_from_json
from critic_prm.errors import CriticPrmError, InputError, UsageError
from critic_prm.metrics.scores import first_error_f1
from distill.calibrate import labels_of
from distill.calibration import Calibration
from distill.data import Row
from distill.decision import RULES, Choice, Decision, Solutions, choose_decision
from distill.profile import PRIOR, QUANTILES, Profile, adapt, best_share
from distill.settings import CalibrationSettings
from distill.store import add_profile, read_verifier
from distill.transfer import Unseen, expectations, leave_out_groups, pairs
from distill.verifier import load_verifier
from tests import command
from tests.distill.tiny import apples

Floats = NDArray[np.float64]
IDENTITY = Calibration()


def known(gold: Sequence[int | None]) -> list[int]:
    return [first for first in gold if first is not None]


# Decisions


@pytest.mark.parametrize(
    ("rule", "scores", "threshold", "first"),
    [
        ("first-below", [0.9, 0.4, 0.2], 0.5, 1),
        ("first-below", [0.9, 0.5], 0.5, -1),  # equality is good
        ("first-below", [None, 0.9, None, 0.4], 0.5, 3),  # steps without a score are skipped, and counted
        ("first-below", [], 0.5, -1),
        ("first-below", [None, None], 0.5, -1),
        ("lowest-step", [0.9, 0.4, 0.2], 0.5, 2),
        ("lowest-step", [0.9, 0.2, 0.4, 0.2], 0.5, 1),  # of equally low steps, the first
        ("lowest-step", [None, 0.45, 0.4], 0.5, 2),
        ("lowest-step", [0.9, 0.5], 0.5, -1),
        ("lowest-step", [], 0.5, -1),
        ("near-lowest", [0.9, 0.2, 0.15], 0.5, 1),  # log odds -1.39 and -1.73: within 0.5
        ("near-lowest", [0.9, 0.25, 0.15], 0.5, 2),  # log odds -1.10: not within 0.5
        ("near-lowest", [None, 0.2, None, 0.15], 0.5, 1),
        ("near-lowest", [0.2, 0.2], 0.5, 0),
        ("near-lowest", [0.45], 0.5, 0),  # one step: log 1 = 0
        ("near-lowest", [0.45, 0.9], 0.5, -1),  # log odds -0.20, plus half of log 2: 0.15
        ("near-lowest", [0.45, None], 0.5, 0),  # steps without a score do not count as steps
        ("near-lowest", [], 0.5, -1),
    ],
)
def test_rules_by_hand(rule: str, scores: list[float | None], threshold: float, first: int) -> None:
    decision = Decision(threshold, rule)
    assert decision.first_error(scores) == first
    assert (decision.lowest(scores) < threshold) == (first >= 0)


def test_the_score_of_a_solution_by_hand() -> None:
    assert Decision(0.5, "lowest-step").lowest([0.7, None, 0.3]) == 0.3
    odds = 0.3 / 0.7 * math.sqrt(2)
    assert Decision(0.5, "near-lowest").lowest([0.7, None, 0.3]) == pytest.approx(odds / (1 + odds))
    assert Decision(0.5).lowest([]) == Decision(0.5, "near-lowest").lowest([None]) == 1.0


@pytest.mark.parametrize("rule", RULES)
def test_the_choice_agrees_with_trying_every_threshold(rule: str) -> None:
    generator = np.random.default_rng(1)
    parts = []
    for count in (40, 70):
        scores = [generator.uniform(size=int(n)).round(2).tolist() for n in generator.integers(1, 6, count)]
        parts.append(Solutions(scores, [int(generator.integers(-1, len(s))) for s in scores]))

    def f1(tau: float) -> float:
        each = [
            first_error_f1(known(part.gold), [Decision(tau, rule).first_error(s) for s in part.scores]).f1 for part in parts
        ]
        return float(np.mean([value or 0.0 for value in each]))

    lowest = [Decision(0.5, rule).lowest(scores) for part in parts for scores in part.scores]
    ends = np.unique([0.0, *lowest, *(score for part in parts for scores in part.scores for score in scores), 1.0])
    between = [*((ends[1:] + ends[:-1]) / 2), 1.0]  # the decisions differ only from one of these to the next

    choice = choose_decision(parts, rules=(rule,), grid=10_000)
    assert choice.decision.rule == rule
    assert choice.f1 == pytest.approx(f1(choice.decision.threshold))
    assert choice.f1 == pytest.approx(max(map(f1, between)), abs=1e-9)
    assert choice.solutions == 110


def test_the_best_rule_is_chosen() -> None:
    """No threshold finds both kinds of errors as the first step below it, and two low steps are within 0.5 of each other."""
    wrong, right = [[0.5, 0.9, 0.4], [0.35, 0.9, 0.1]] * 10, [[0.6, 0.6, 0.6]] * 20
    choice = choose_decision([Solutions([*wrong, *right], [2] * 20 + [-1] * 20)])
    assert (choice.decision.rule, choice.f1) == ("lowest-step", 1.0)
    early = choose_decision([Solutions([*wrong, *right], [0] * 20 + [-1] * 20)])
    assert (early.decision.rule, early.f1) == ("first-below", 1.0)


def test_a_part_of_one_kind_has_no_say() -> None:
    both, one = Solutions([[0.2], [0.8]], [0, -1]), Solutions([[0.9]] * 50, [0] * 50)
    assert choose_decision([both, one]) == choose_decision([both])
    assert choose_decision([one]).f1 is None


# Profiles


def unlabelled(raw: Sequence[Floats]) -> list[list[float | None]]:
    return [[None] * len(p) for p in raw]


def adapted(
    raw: Sequence[Floats], labels: Sequence[Sequence[float | None]] | None = None, rule: str = "first-below", **given: Any
) -> Profile:
    labels = unlabelled(raw) if labels is None else labels
    return adapt(raw, labels, [f"p{i}" for i in range(len(raw))], given.pop("base", IDENTITY), rule, **given)


def random_scores(count: int, seed: int = 0) -> list[Floats]:
    generator = np.random.default_rng(seed)
    return [generator.uniform(size=int(n)) for n in generator.integers(1, 7, count)]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_without_labels_the_wanted_share_is_flagged(rule: str, share: float) -> None:
    raw = random_scores(400)
    profile = adapted(raw, rule=rule, settings=CalibrationSettings(error_rate=str(share)))
    found = [profile.decision.first_error(p.tolist()) >= 0 for p in raw]
    assert np.mean(found) == pytest.approx(share, abs=1 / 400)
    assert profile.flagged == np.mean(found)
    assert (profile.facts["share"], profile.facts["share_from"]) == (share, "--error-rate")
    low, high = profile.facts["threshold_interval"]
    assert low < profile.decision.threshold < high
    assert profile.calibration is IDENTITY
    assert len(profile.quantiles) == QUANTILES


def test_equal_scores_are_flagged_together_where_that_is_closer_to_the_share() -> None:
    """A threshold at the quantile flagged none of the 60 solutions that have exactly that score."""
    raw = [np.array([0.25])] * 60 + [np.array([0.75])] * 40
    half = adapted(raw, settings=CalibrationSettings(error_rate="0.5"))
    assert (half.flagged, half.decision.first_error([0.25]), half.decision.first_error([0.75])) == (0.6, 0, -1)
    few = adapted(raw, settings=CalibrationSettings(error_rate="0.2"))
    assert (few.flagged, few.decision.first_error([0.25])) == (0.0, -1)
    assert adapted([np.array([1.0])] * 50).decision.threshold == 1.0


def test_the_default_share_is_that_of_the_verifier() -> None:
    profile = adapted(random_scores(200), default_share=0.45)
    assert (profile.facts["share"], profile.facts["labelled"]) == (0.45, 0)
    assert profile.flagged == pytest.approx(0.45, abs=1 / 200)


def test_a_range_of_rates_gives_its_middle_and_both_ends() -> None:
    raw = random_scores(300)
    profile = adapted(raw, settings=CalibrationSettings(error_rate="0.2-0.6"))
    lowest = [p.min() for p in raw]
    assert profile.decision.threshold == pytest.approx(np.quantile(lowest, 0.4))
    assert profile.facts["threshold_of_range"] == pytest.approx(np.quantile(lowest, [0.2, 0.6]).tolist())


@pytest.mark.parametrize("text", ["0", "1", "0.6-0.4", "half", "0.2-", "nan", "-0.5", "0.2-1.5"])
def test_rates_that_are_none(text: str) -> None:
    if text == "0.2-":
        assert CalibrationSettings(error_rate=text).shares() == (0.2, 0.2)
        return
    with pytest.raises(UsageError, match="give a share between 0 and 1"):
        CalibrationSettings(error_rate=text)


def test_steps_and_solutions_without_a_score_are_left_out() -> None:
    raw = random_scores(100)
    gaps = [*(np.append(p, np.nan) for p in raw), np.array([np.nan, np.nan])]
    half = CalibrationSettings(error_rate="0.5")
    assert adapted(gaps, settings=half).decision == adapted(raw, settings=half).decision
    assert adapted(gaps).facts["solutions"] == 100
    with pytest.raises(InputError, match="it has 29 solutions with scores"):
        adapted(raw[:29])


def separated(count: int, wrong: float) -> tuple[list[Floats], list[list[float]]]:
    """Solutions of one step, of which the share `wrong` is wrong, with lower scores than all others."""
    scores = np.linspace(0.01, 0.99, count)
    return [np.array([p]) for p in scores], [[0.0] if i < wrong * count else [1.0] for i in range(count)]


@pytest.mark.parametrize("count", [10, 50, 140])
def test_labels_pull_the_share_toward_their_optimum(count: int) -> None:
    """With k labels, the share is (k * best + PRIOR * default) / (k + PRIOR). Fewer than 30 wrong ones fit no probabilities."""
    raw, gold = separated(400, 0.2)
    places = set(np.linspace(0, 399, count).astype(int).tolist())
    labels = [y if i in places else [None] for i, y in enumerate(gold)]
    profile = adapted(raw, labels, default_share=0.6)
    best = profile.facts["best_share_of_labels"]
    assert best == pytest.approx(0.2, abs=0.08)  # the mean over neighbours leans to where F1 falls more slowly
    assert profile.facts["labelled"] == count
    assert profile.facts["share"] == (count * best + PRIOR * 0.6) / (count + PRIOR)
    assert profile.facts["share_from"] == "labels"
    assert profile.flagged == pytest.approx(profile.facts["share"], abs=1 / 400)


def test_the_best_share_by_hand() -> None:
    """Half of 40 solutions are wrong. A share of 0.5 flags all of them and nothing else."""
    raw, gold = separated(40, 0.5)
    part = [(p, 0 if y == [0.0] else -1) for p, y in zip(raw, gold, strict=True)]
    assert best_share([part], "first-below") == pytest.approx(0.5)
    assert best_share([part[:20]], "first-below") is None
    assert best_share([], "first-below") is None


def test_labels_of_one_kind_leave_the_default_share() -> None:
    raw, _ = separated(100, 0.5)
    profile = adapted(raw, [[1.0]] * 100, default_share=0.3)
    assert (profile.facts["share"], profile.facts["share_from"]) == (0.3, "kinds of data left out")


def overconfident(count: int, seed: int, factor: float) -> tuple[list[Floats], list[list[float]]]:
    """Solutions of one step whose log odds are `factor` times too large."""
    generator = np.random.default_rng(seed)
    odds = generator.normal(size=count)
    y = generator.uniform(size=count) < 1 / (1 + np.exp(-odds))
    return [np.array([1 / (1 + math.exp(-factor * z))]) for z in odds], [[float(one)] for one in y]


def test_probabilities_are_fitted_again_only_where_that_is_better() -> None:
    raw, labels = overconfident(600, 0, 4.0)
    fitted = adapted(raw, labels)
    brier = fitted.facts["brier"]
    assert fitted.calibration is not IDENTITY
    assert brier[fitted.calibration.method] == min(brier.values()) < 0.9 * brier["base"]
    kept = [adapted(*overconfident(600, seed, 1.0)) for seed in range(4)]
    for profile in kept:
        brier = profile.facts["brier"]
        assert (profile.calibration is IDENTITY) == (brier["base"] == min(brier.values()))
    assert any(profile.calibration is IDENTITY for profile in kept)


@pytest.mark.parametrize(("wrong", "fitted"), [(29, False), (30, True)])
def test_few_labels_fit_no_probabilities(wrong: int, fitted: bool) -> None:
    raw, labels = overconfident(600, 0, 4.0)
    bad = [i for i, y in enumerate(labels) if y == [0.0]][:wrong]
    some: list[Sequence[float | None]] = [y if y == [1.0] or i in bad else [None] for i, y in enumerate(labels)]
    profile = adapted(raw, some)
    assert bool(profile.facts["brier"]) == fitted


# Labels of the target


def labelled_row(critic: dict[str, Any], status: str = "ok", first: int | None = 1, **more: Any) -> Trajectory:
    row = {
        "id": "a", "problem": "p", "steps": ["x", "y", "z"], "p_correct": [1.0, 0.0, None], "votes": [[1, 1], [0, 1], [0, 0]],
        "first_error": first, "status": status, "judgements": [], "critic": critic, **more,
    }  # fmt: skip
    return trajectory_from_json(row, "here")


def test_whose_labels_count() -> None:
    judge, verifier = {"provider": "openai", "model": "m"}, {"provider": "verifier", "model": "v"}
    assert labels_of(labelled_row(judge)) == (1.0, 0.0, None)
    assert labels_of(labelled_row(judge, first=-1)) == (1.0, 1.0, 1.0)
    assert labels_of(labelled_row(verifier)) == (None, None, None)
    assert labels_of(labelled_row(judge, status="unparseable")) == (None, None, None)
    assert labels_of(labelled_row(judge, first=None)) == (None, None, None)
    for critic in (judge, verifier):  # gold wins over what a critic says
        assert labels_of(labelled_row(critic, label=0)) == (0.0, None, None)
        assert labels_of(labelled_row(critic, label=-1)) == (1.0, 1.0, 1.0)
    assert labels_of(Trajectory("a", "p", (Step("x"),))) == (None,)
    assert labels_of(Trajectory("a", "p", (Step("x"), Step("y")), label=1)) == (1.0, 0.0)


# Folders


def digests(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def copy(verifier_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(verifier_folder, tmp_path / "copy"))


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Solutions of a new kind, without labels."""
    path = tmp_path_factory.mktemp("target") / "new.data.jsonl"
    rows = ({"id": row["id"], "problem": row["prompt"], "steps": row["completions"]} for row in apples(60, 9))
    write_records(path, rows)
    return path


def said(folder: Path) -> dict[str, Any]:
    info: dict[str, Any] = json.loads((folder / "verifier.json").read_text())
    return info


def test_a_copy_leaves_the_original_as_it_was(verifier_folder: Path, target: Path, tmp_path: Path) -> None:
    before, out = digests(verifier_folder), tmp_path / "out"
    result = command.invoke("calibrate", verifier_folder, target, "-o", out, "--error-rate", "0.5", columns=200)
    assert result.exit_code == 0
    assert f"{out}: profile new, in use" in result.stderr
    assert "warning: fewer than 100 solutions" in result.stderr
    assert digests(verifier_folder) == before
    changed = {name for name, digest in digests(out).items() if before.get(name) != digest}
    assert changed == {"verifier.json"}
    assert (said(out)["profile"], said(out)["profiles"]["new"]["data"]) == ("new", "new.data.jsonl")
    with pytest.raises(UsageError, match="is the verifier itself"):
        command.invoke("calibrate", out, target, "-o", out)


def test_profiles_are_chosen_by_name(copy: Path, target: Path) -> None:
    old, before = load_verifier(copy), digests(copy)
    for name, rate in (("few", "0.1"), ("many", "0.9")):
        command.invoke("calibrate", copy, target, "--profile", name, "--error-rate", rate)
    assert {name for name, digest in digests(copy).items() if before.get(name) != digest} == {"verifier.json"}
    few, many, none = (load_verifier(copy, profile=name) for name in ("few", "many", "none"))
    assert load_verifier(copy).profile == "many"
    assert few.decision.threshold < many.decision.threshold
    assert (none.profile, none.decision, none.calibration, none.origin) == (None, old.decision, old.calibration, old.origin)
    assert (few.card["profile"], few.card["threshold"], few.origin) == ("few", few.threshold, "calibrated on new.data.jsonl")
    scored = [command.invoke("score", copy, target, "--profile", name).stdout for name in ("none", "few", "many")]
    shares = [np.mean([json.loads(line)["first_error"] >= 0 for line in text.splitlines()]) for text in scored]
    assert shares[1:] == [many.info["profiles"][name]["flagged"] for name in ("few", "many")]
    assert shares[1] < 0.2 < 0.7 < shares[2]
    items = [(row["prompt"], row["completions"]) for row in apples(60, 9)]
    assert shares[0] == np.mean([old.decision.first_error(p) >= 0 for p in old.score_many(items)])


def test_what_calibrate_refuses(copy: Path, target: Path, tmp_path: Path) -> None:
    few = tmp_path / "few.jsonl"
    few.write_text("".join(target.read_text().splitlines(keepends=True)[:20]))
    before = digests(copy)
    for argv, wrong in (
        ((copy, target, "--profile", "none"), "not none"),
        ((copy, target, "--profile", "a/b"), "letters, digits"),
        ((copy, target, "--profile", "x" * 65), "letters, digits"),
        ((copy, few), "it has 20 solutions with scores"),
        ((copy, target, "--error-rate", "2"), "between 0 and 1"),
        ((tmp_path / "gone", target), "no such folder"),
    ):
        with pytest.raises(CriticPrmError, match=wrong) as caught:
            command.invoke("calibrate", *argv)
        assert "\n" not in str(caught.value)
    assert digests(copy) == before
    for name in ("score", "evaluate"):
        with pytest.raises(UsageError, match="has no profile 'gone'; available: none"):
            command.invoke(name, copy, target, "--profile", "gone")
    with pytest.raises(UsageError, match="--profile has no effect with rules"):
        command.invoke("score", "rules", target, "--profile", "math")


GOOD: dict[str, Any] = {
    "decision": {"threshold": 0.5, "rule": "lowest-step"},
    "calibration": {"method": "identity", "parameters": {}},
    "quantiles": np.linspace(0, 1, QUANTILES).tolist(),
    "flagged": 0.5,
    "data": "x",
}


@pytest.mark.parametrize(
    "change",
    [
        {"profiles": {"a": []}},
        {"profiles": {"a": None}},
        {"profiles": {"a": {}}},
        {"profiles": {"a": GOOD | {"decision": [0.5]}}},
        {"profiles": {"a": GOOD | {"decision": {"threshold": "0.5"}}}},
        {"profiles": {"a": GOOD | {"decision": {"threshold": None}}}},
        {"profiles": {"a": GOOD | {"decision": {"threshold": 2}}}},
        {"profiles": {"a": GOOD | {"decision": {"threshold": 0.5, "rule": ["x"]}}}},
        {"profiles": {"a": GOOD | {"quantiles": None}}},
        {"profiles": {"a": GOOD | {"quantiles": "0" * QUANTILES}}},
        {"profiles": {"a": GOOD | {"quantiles": [0.5] * 100_000}}},
        {"profiles": {"a": GOOD | {"quantiles": [0.5] * 3}}},
        {"profiles": {"a": GOOD | {"quantiles": ["nan"] * QUANTILES}}},
        {"profiles": {"a": GOOD | {"quantiles": [True] * QUANTILES}}},
        {"profiles": {"a": GOOD | {"quantiles": [2.0] * QUANTILES}}},
        {"profiles": {"a": GOOD | {"quantiles": list(reversed(GOOD["quantiles"]))}}},
        {"profiles": {"a": GOOD | {"flagged": "many"}}},
        {"profiles": {"a": GOOD | {"flagged": -1}}},
        {"profiles": {"a": GOOD | {"data": {"x": 1}}}},
        {"profiles": {"a": GOOD | {"calibration": {"method": "isotonic", "parameters": {"x": [0, 0.3], "y": [0.5, 7]}}}}},
        {"profiles": {"a": GOOD | {"calibration": {"method": "isotonic", "parameters": {"x": [0, 1], "y": [0.5]}}}}},
        {"profiles": {"a": GOOD | {"calibration": 5}}},
        {"profiles": {"\u001b[31mred": GOOD}},
        {"profiles": {"a" * 1000: GOOD}},
        {"profiles": {"none": GOOD}},
        {"profiles": {"a": GOOD}, "profile": ["a"]},
        {"profiles": {"a": GOOD}, "profile": "b" * 100_000},
        {"quantiles": [0.1] * 5},
        {"quantiles": {"a": 1}},
        {"error_rate": "half"},
        {"error_rate": 7},
        {"decision": {"threshold": 0.5, "rule": {}}},
    ],
    ids=lambda change: json.dumps(change)[:60],
)
def test_profiles_from_strangers_are_refused_in_one_line(change: dict[str, Any], copy: Path) -> None:
    (copy / "verifier.json").write_text(json.dumps(said(copy) | change))
    with pytest.raises(InputError) as caught:
        load_verifier(copy)
    assert "\n" not in str(caught.value)
    assert "\u001b" not in str(caught.value)
    assert len(str(caught.value)) < 700


def test_numbers_that_json_does_not_have(copy: Path) -> None:
    text = json.dumps(said(copy) | {"profiles": {"a": GOOD | {"flagged": math.nan}}})
    (copy / "verifier.json").write_text(text)
    with pytest.raises(InputError, match="broken JSON"):
        load_verifier(copy)


def test_a_good_profile_is_restored(copy: Path) -> None:
    (copy / "verifier.json").write_text(json.dumps(said(copy) | {"profiles": {"a": GOOD}, "profile": "a"}))
    assert asdict(load_verifier(copy).decision) == GOOD["decision"]
    profile = adapted(random_scores(50))
    add_profile(copy, "b", profile)
    again = load_verifier(copy)
    assert (again.profile, again.decision, again.origin) == ("b", profile.decision, "calibrated on solutions without a name")


@pytest.mark.parametrize("origin", [{"data": "sums/dev", "f1": 0.5}, 5, None])
def test_version_1_still_loads(origin: Any, copy: Path, target: Path) -> None:
    """It had a threshold for the rule "first below", and where it comes from."""
    info = said(copy)
    for name in ("decision", "quantiles", "profiles", "profile", "error_rate", "unseen"):
        del info[name]
    info |= {"version": 1, "threshold": 0.37, "threshold_from": origin}
    (copy / "verifier.json").write_text(json.dumps(info))
    verifier = read_verifier(copy)
    assert verifier.decision == Decision(0.37, "first-below")
    assert verifier.origin == ("sums/dev" if isinstance(origin, dict) else "a default")
    assert command.invoke("score", copy, target).exit_code == 0  # without quantiles, nothing is compared
    command.invoke("calibrate", copy, target, "--error-rate", "0.5")
    assert said(copy)["version"] == 2  # an older program does not know what it is
    assert load_verifier(copy).profile == "new"
    assert load_verifier(copy, profile="none").threshold == 0.37


# Kinds of data left out


def rows_of(source: str, problems: Sequence[str]) -> list[Row]:
    return [Row(f"{source}{i}", problem, ("a",), (1.0,), source=source) for i, problem in enumerate(problems)]


def groups_by_source(rows: Sequence[Row], most: int = 5) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for row, group in zip(rows, leave_out_groups(rows, most), strict=True):
        found.setdefault(row.source, set()).add(int(group))
    return found


def numbered(name: str, count: int) -> list[str]:
    return [f"{name} problem {i}" for i in range(count)]


def test_sources_of_one_kind_are_left_out_together() -> None:
    shared = numbered("s", 20)
    rows = [
        *rows_of("bbm_dyck", numbered("d", 50)),
        *rows_of("bbm-words", numbered("w", 30)),  # the same first word
        *rows_of("eic", [*shared, *numbered("e", 60)]),
        *rows_of("parc", [*shared[:8], *numbered("p", 32)]),  # 8 of 40 problems: 0.2
        *rows_of("who", [*shared[:7], *numbered("h", 33)]),  # 7 of 40: less
        *rows_of("plan/a", numbered("a", 20)),
    ]
    found = groups_by_source(rows)
    assert all(len(groups) == 1 for groups in found.values())
    assert found["bbm_dyck"] == found["bbm-words"]
    assert found["eic"] == found["parc"] != found["who"]
    assert len(set.union(*found.values())) == 4


def test_kinds_are_spread_evenly() -> None:
    rows = [row for i, size in enumerate((90, 50, 40, 30, 20, 20, 10)) for row in rows_of(f"k{i}", numbered(f"k{i}", size))]
    sizes = np.bincount(leave_out_groups(rows, 3))
    assert sizes.tolist() == [90, 90, 80]
    assert len(np.bincount(leave_out_groups(rows, 5))) == 5
    assert len(np.bincount(leave_out_groups(rows[:180], 5))) == 3


def test_one_kind_is_left_out_by_problem() -> None:
    rows = rows_of("math_a", [problem for problem in numbered("m", 200) for _ in range(3)])
    groups = leave_out_groups(rows)
    assert set(groups.tolist()) == set(range(5))
    assert all(len(set(groups[i : i + 3].tolist())) == 1 for i in range(0, 600, 3))
    assert np.bincount(groups).min() > 60
    again = leave_out_groups(rows[::-1])[::-1]
    assert (groups == again).all()  # it does not depend on the order


def test_groups_do_not_depend_on_the_order_of_rows() -> None:
    rows = [row for i in range(7) for row in rows_of(f"k{i}", numbered(f"k{i}", 10 + i))]
    mixed = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]
    assert groups_by_source(rows) == groups_by_source(mixed)


def unseen(source: str, group: int, wrong: tuple[float, float, int], right: tuple[float, float, int]) -> Unseen:
    """Solutions of one step: wrong ones and right ones, each (lowest score, highest score, number)."""
    scores = [np.array([p]) for low, high, count in (wrong, right) for p in np.linspace(low, high, count)]
    gold = [0] * wrong[2] + [-1] * right[2]
    labels = [[0.0 if first == 0 else 1.0] for first in gold]
    return Unseen(source, group, [f"{source}{i}" for i in range(len(gold))], scores, labels, gold)


def test_expectations_do_not_use_labels_of_the_same_group() -> None:
    """In group 0, all scores are above the gap of group 1, where its threshold lies. With the labels of group 0, the threshold
    would be right for both."""
    first = unseen("a", 0, (0.6, 0.7, 200), (0.75, 0.79, 40))
    second = unseen("b", 0, (0.6, 0.7, 200), (0.75, 0.79, 40))
    other = unseen("c", 1, (0.1, 0.2, 40), (0.8, 0.9, 60))
    for together in ([first, other], [first, second, other]):
        table, _ = expectations(together, Choice(Decision(0.5)))
        row = table[0]
        assert (row.source, row.auroc, row.f1) == ("a", 1.0, 0.0)
        choice = choose_decision([other.solutions])
        share = best_share([pairs(other)], choice.decision.rule)
        assert share is not None
        assert share == pytest.approx(0.4, abs=0.05)
        tau = float(np.quantile([p[0] for p in first.scores], share))
        predicted = [Decision(tau, choice.decision.rule).first_error(p.tolist()) for p in first.scores]
        assert row.f1_calibrated == first_error_f1(known(first.gold), predicted).f1
    everything = [each.solutions for each in (first, second, other)]
    leaked = choose_decision(everything).decision
    assert first_error_f1(known(first.gold), [leaked.first_error(p.tolist()) for p in first.scores]).f1 == 1.0
    assert best_share([pairs(each) for each in (first, second, other)], leaked.rule) != share


def test_expectations_over_sources() -> None:
    gaps = [(0.40, 0.50), (0.45, 0.55), (0.42, 0.52), (0.41, 0.51)]
    sources = [unseen(f"s{i}", i, (0.1, low, 40), (high, 0.9, 40)) for i, (low, high) in enumerate(gaps)]
    few = unseen("few", 4, (0.1, 0.2, 29), (0.8, 0.9, 100))
    table, summary = expectations([*sources, few], Choice(Decision(0.5)))
    assert [row.source for row in table] == ["s0", "s1", "s2", "s3"]  # 29 wrong solutions are too few
    f1 = [row.f1 for row in table]
    assert summary["f1"].mean == pytest.approx(np.mean([value for value in f1 if value is not None]))
    assert 0 <= summary["f1"].low <= summary["f1"].mean <= summary["f1"].high <= 1
    assert summary["f1"].sources == 4
    alone, none = expectations(sources[:1], Choice(Decision(0.3)))
    assert none == {}
    found = [Decision(0.3).first_error(p.tolist()) for p in sources[0].scores]
    assert alone[0].f1 == first_error_f1(known(sources[0].gold), found).f1  # no other group: the fallback
    assert all(a.mean <= b.mean for a, b in pairwise([summary["f1"], summary["auroc"]]))
