"""Bands of ranks: worked numbers, a shift of the scores that breaks a fixed band, and tuning without gold labels."""

from __future__ import annotations

import json
import math
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from critic_prm.cli import main
from critic_prm.critics.cascade import (
    Band,
    CascadeStats,
    RankBand,
    in_doubt,
    settled,
    solution_score,
)
from critic_prm.data.judgement import Judgement, Verdict
from critic_prm.errors import CriticPrmError, InputError, UsageError
from critic_prm.evaluate.cascade_ranks import Goal, choose_shares, expected_f1, fit, tune_ranks
from critic_prm.evaluate.cascade_tuning import CascadeCase

TENTHS = tuple(place / 10 for place in range(11))


def test_a_band_of_ranks_by_hand() -> None:
    band = RankBand(0.1, 0.25, TENTHS)
    assert (band.low, band.high, band.asked) == pytest.approx((0.1, 0.75, 0.65))
    assert [band.call(score) for score in (0.09, 0.1, 0.5, 0.75, 0.76, None)] == ["bad", "ask", "ask", "ask", "good", "ask"]
    everything = RankBand(0, 0, TENTHS)
    assert {everything.call(score) for score in (-9, 0.0, 1.0, 9)} == {"ask"}  # also beyond the scores of the profile
    for flag, accept in ((-0.1, 0.5), (0.6, 0.5)):
        with pytest.raises(UsageError, match="at most 1 together"):
            RankBand(flag, accept, TENTHS)


def test_a_solution_is_ranked_by_the_probability_that_no_step_is_wrong() -> None:
    assert solution_score((0.5, 0.8)) == pytest.approx(math.log(0.4))
    assert solution_score((0.9,) * 2) > solution_score((0.9,) * 3)  # type: ignore[operator]
    assert solution_score((0.5, None)) is None
    assert solution_score((0.0,)) is not None


def scored(*p: float, first: int) -> Judgement:
    verdicts = tuple(Verdict(i, "incorrect" if i == first else "correct", p_correct=each) for i, each in enumerate(p))
    return Judgement("ok", verdicts, first)


def test_what_is_not_asked_about_is_accepted_or_flagged() -> None:
    flagged, accepted = scored(0.9, 0.4, 0.3, first=1), scored(0.9, 0.7, 0.6, first=-1)
    assert settled(flagged, "bad") is flagged
    assert settled(flagged, "good").first_error == -1
    assert all(verdict.value == "correct" for verdict in settled(flagged, "good").verdicts)
    assert settled(accepted, "good").first_error == -1
    assert settled(accepted, "bad").first_error == 2
    assert [verdict.value for verdict in settled(accepted, "bad").verdicts] == ["correct", "correct", "incorrect"]


def test_a_shift_of_the_scores_breaks_a_fixed_band_and_not_one_of_ranks() -> None:
    """All log odds are lower by 1.5 on the new data. A calibration profile of 300 of its solutions keeps the share."""
    random = Random(0)

    def solutions(count: int, shift: float) -> list[list[float]]:
        odds = [[random.gauss(2 + shift, 1) for _ in range(random.randint(3, 9))] for _ in range(count)]
        return [[1 / (1 + math.exp(-x)) for x in each] for each in odds]

    def quantiles(data: list[list[float]]) -> tuple[float, ...]:
        return tuple(np.quantile([solution_score(p) for p in data], np.linspace(0, 1, 101)).tolist())

    def doubted(data: list[list[float]]) -> float:
        return sum(bool(in_doubt(Band(0.3, 1.0), p, -1)) for p in data) / len(data)

    def ranked(data: list[list[float]], of: list[list[float]]) -> float:
        band = RankBand(0.0, 0.5, quantiles(of))
        return sum(band.call(solution_score(p)) == "ask" for p in data) / len(data)

    old, new = solutions(1000, 0), solutions(1000, -1.5)
    assert doubted(old) == pytest.approx(0.5, abs=0.06)
    assert doubted(new) > 0.9
    assert ranked(new, solutions(300, -1.5)) == pytest.approx(0.5, abs=0.08)
    assert ranked(new, old) > 0.8  # with the profile of other data, the promise does not hold ...
    stats = CascadeStats(counts=Counter({"solutions": 1000, "without a judge": 150}), promised=0.5)
    assert stats.broken  # ... and the run says so
    assert "85% of the solutions were in doubt, 50% were promised" in stats.lines()[1]
    assert not CascadeStats(counts=Counter({"solutions": 1000, "without a judge": 450}), promised=0.5).broken
    assert not CascadeStats(counts=Counter({"solutions": 4, "without a judge": 0}), promised=0.5).broken


def test_expected_f1_by_hand() -> None:
    """Four ranks, erroneous with P = 1, 1/2, 1/2, 0; the verifier names half of the first errors; the judge 0.8 and 0.9."""
    p_bad, half = np.array([[1.0, 0.5, 0.5, 0.0]]), np.full((1, 4), 0.5)
    flag, accept = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 3])
    f1 = expected_f1(p_bad, half, np.array([0.8]), np.array([0.9]), flag, accept)[0]

    def harmonic(a: float, b: float) -> float:
        return 2 * a * b / (a + b)

    assert f1[0] == pytest.approx(harmonic(0.8, 0.9))
    assert f1[1] == pytest.approx(harmonic(0.8, (0.9 + 1) / 2))  # the fourth rank is never wrong: accepting it costs nothing
    assert f1[2] == pytest.approx(harmonic((0.5 + 0.8) / 2, 0.9))
    assert f1[3] == pytest.approx(harmonic(0.5 / 2, 1.0))


def test_logistic_curves() -> None:
    many = np.linspace(-2, 2, 20_000)
    drawn = np.random.default_rng(0).random(20_000) < 1 / (1 + np.exp(-(0.5 - 1.5 * many)))
    curve = fit(many, drawn, np.ones((1, 20_000)), np.array([-1.0, 0.0, 1.0]))[0]
    assert curve == pytest.approx([0.881, 0.622, 0.269], abs=0.015)
    x, y = many[::50], drawn[::50]
    one_kind = fit(x[:5], np.ones(5, dtype=bool), np.ones((2, 5)), np.array([0.0]))
    assert one_kind.shape == (2, 1)
    assert 0.8 < one_kind[0, 0] < 1
    twice = fit(np.repeat(x, 2), np.repeat(y, 2), np.ones((1, 800)), x)
    assert fit(x, y, np.full((1, 400), 2.0), x) == pytest.approx(twice, abs=1e-6)  # a weight is a number of repetitions


def cases(count: int, *, by_step: bool = False, seed: int = 0, apart: float = 2.0) -> list[CascadeCase]:
    """Solutions of four steps; the first error scores lower by `apart` in log odds; a judge that is right on nine of ten."""
    random, rows = Random(seed), []
    for i in range(count):
        gold = random.choice([-1, -1, -1, 0, 1, 2, 3])
        p = tuple(1 / (1 + math.exp(-random.gauss(2.0 - apart * (step == gold), 1.0))) for step in range(4))
        first = min(range(4), key=p.__getitem__)
        row = CascadeCase(f"p{i}", gold, p, first if p[first] < 0.5 else -1)
        verdict = gold if random.random() < 0.9 else random.choice([-1, 0, 1, 2, 3])
        right = tuple(step != verdict for step in range(4))
        row = replace(row, judged=right, calls=4 if verdict < 0 else verdict + 1) if by_step else replace(row, verdict=verdict)
        rows.append(row)
    return rows


def quantiles_of(rows: list[CascadeCase], by: str = "solution") -> tuple[float, ...]:
    scores: list[Any] = (
        [p for row in rows for p in row.p_correct] if by == "step" else [solution_score(r.p_correct) for r in rows]
    )
    return tuple(np.quantile(scores, np.linspace(0, 1, 101)).tolist())


@pytest.mark.parametrize("by", ["step", "solution"])
def test_tuning_without_gold_labels_uses_none(by: str) -> None:
    rows = cases(200, by_step=by == "step", apart=4.0)
    blind = [replace(row, gold=-2) for row in rows]
    quantiles = quantiles_of(rows, by)
    tuned = tune_ranks(blind, quantiles, reference="judge", goal=Goal(loss=0.05), replicates=200)
    assert tuned == tune_ranks(rows, quantiles, reference="judge", goal=Goal(loss=0.05), replicates=200)
    assert tuned.judge.f1 == 1.0
    assert tuned.cascade.f1 is not None
    assert tuned.cascade.f1 > 0.9
    assert tuned.difference[0] == pytest.approx(tuned.cascade.f1 - 1)
    assert tuned.chosen.accept > 0
    assert tuned.share < 0.95
    assert tuned.solutions == 200


def test_a_better_verifier_spares_more_calls_and_a_useless_one_none_to_speak_of() -> None:
    shares = []
    for apart in (0.0, 3.0, 6.0):
        rows = cases(300, apart=apart)
        chosen, curve = choose_shares(rows, quantiles_of(rows), Goal(loss=0.01))
        shares.append(chosen.share)
        assert curve[-1].f1 >= chosen.f1
        assert [one.share for one in curve] == sorted(one.share for one in curve)
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.85
    assert shares[2] < 0.6


def test_goals() -> None:
    rows = cases(150, apart=4.0)
    quantiles = quantiles_of(rows)
    assert choose_shares(rows, quantiles, Goal(budget=0.3))[0].share <= 0.3 + 1e-9
    strict, lax = (choose_shares(rows, quantiles, Goal(loss=loss))[0].share for loss in (0.005, 0.1))
    assert lax < strict
    with pytest.raises(CriticPrmError, match=r"no band reaches F1 0\.9990"):
        choose_shares(rows, quantiles, Goal(target=0.999))
    with pytest.raises(InputError, match="has 5 usable solutions"):
        tune_ranks(rows[:5], quantiles)
    with pytest.raises(InputError, match="one kind is missing"):
        tune_ranks([replace(row, gold=-1) for row in rows], quantiles)


def test_the_loss_against_the_judges_labels_bounds_that_against_gold() -> None:
    """To first order in the accepted errors e: 2 b^2 a e / (a + b)^2 against gold, e / 2 against the judge, which never accepts
    an error. No judge loses more against gold."""
    for erroneous in np.linspace(0.05, 1, 20):
        for correct in np.linspace(0.05, 1, 20):
            assert 2 * correct**2 * erroneous / (erroneous + correct) ** 2 <= 0.5 + 1e-12


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a verifier that has a calibration profile `new`, and the solutions of that profile, judged."""
    folder = tmp_path_factory.mktemp("cascade")
    random, data, target = Random(0), folder / "data", []
    data.mkdir()
    for name, count in (("train", 120), ("dev", 60)):
        with (data / f"{name}.jsonl").open("w") as out:
            for i in range(count):
                steps, gold = sums(random, i)
                labels = [1.0 if gold < 0 or s < gold else 0.0 if s == gold else None for s in range(3)]
                row: dict[str, Any] = {
                    "prompt": f"{name} {i}",
                    "completions": steps,
                    "labels": labels,
                    "weight": 1.0,
                    "source": "s",
                }
                out.write(json.dumps({"id": f"{name}{i}", **row}) + "\n")
    for i in range(60):
        steps, gold = sums(random, i)
        target.append(({"id": str(i), "problem": f"new {i}", "steps": steps}, gold))
    (folder / "new.jsonl").write_text("".join(json.dumps(row) + "\n" for row, _ in target))
    with (folder / "judged.jsonl").open("w") as out:
        for row, gold in target:
            p = [1.0 if gold < 0 or s < gold else 0.0 if s == gold else None for s in range(3)]
            label: dict[str, Any] = {
                "p_correct": p,
                "votes": [[0, 0] if x is None else [int(x), 1] for x in p],
                "first_error": gold,
            }
            card = {"provider": "scripted", "model": "judge.jsonl", "style": "first-error"}
            out.write(json.dumps(row | label | {"status": "ok", "critic": card}) + "\n")
    (folder / "judge.jsonl").write_text(json.dumps({"text": "\\boxed{-1}"}) + "\n")
    ends(0, "distill", str(data), "-o", str(folder / "verifier"))
    return folder


def sums(random: Random, i: int) -> tuple[list[str], int]:
    gold = random.choice([-1, 0, 1, 2])
    return [f"{i + s} + {s} = {i + 2 * s + (7 if s == gold else 0)}" for s in range(3)], gold


def ends(code: int, *arguments: str) -> None:
    with pytest.raises(SystemExit) as done:
        main(list(arguments))
    assert (done.value.code or 0) == code


def test_the_command_tunes_without_gold_and_writes_a_cascade_with_its_profile(
    calibrated: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(calibrated)
    tune = ("cascade", "tune", "new.jsonl", "--first", "verifier", "--judged", "judged.jsonl", "--reference", "judge")
    ends(2, *tune, "--band", "ranks")
    assert "no calibration profile in use, which a band of shares needs: run critic-prm calibrate" in capsys.readouterr().err
    ends(0, "calibrate", "verifier", "new.jsonl")
    info = json.loads(Path("verifier/verifier.json").read_text())
    assert {by: len(values) for by, values in info["profiles"]["new"]["ranks"].items()} == {"step": 101, "solution": 101}
    ends(0, *tune, "--loss", "0.1", "-o", "cascade.toml", "--json")
    row = json.loads(capsys.readouterr().out)
    assert (row["reference"], row["profile"], row["loss"], row["judge"]["f1"]) == ("judge", "new", 0.1, 1.0)
    table = tomllib.loads(Path("cascade.toml").read_text())["cascade"]
    assert (table["profile"], table["flag"], table["accept"]) == ("new", row["chosen"]["flag"], row["chosen"]["accept"])
    assert table["tuned"]["reference"] == "judge"
    # The cascade asks about the share that it promises, on the data of the profile.
    text = Path("cascade.toml").read_text().replace(f"flag = {table['flag']}", "flag = 0.1")
    Path("half.toml").write_text(text.replace(f"accept = {table['accept']}", "accept = 0.4"))
    ends(0, "label", "new.jsonl", "--judge", "half.toml", "-o", "labels.jsonl", "--db", "cache.db")
    report = json.loads(Path("labels.jsonl.run.json").read_text())["cascade"]
    assert report["share_promised"] == pytest.approx(0.5)
    spared = report["without a judge"] / report["solutions"]
    assert 0.35 <= spared <= 0.52  # solutions with equal scores are all asked about
    ends(0, *tune, "--by", "step")
    out = " ".join(capsys.readouterr().out.split())
    assert "F1 against the judge's own labels" in out
    assert "Measured by cross-validation" in out
    ends(0, *tune, "--band", "scores", "--loss", "0.2", "--json")
    assert {"low", "high"} <= json.loads(capsys.readouterr().out)["chosen"].keys()
    ends(2, *tune, "--loss", "0.1", "--budget", "1")
    Path("both.toml").write_text(text.replace("[cascade.tuned]", "spread = 0.1\n\n[cascade.tuned]"))
    ends(2, "label", "new.jsonl", "--judge", "both.toml", "-o", "no.jsonl", "--db", "cache.db")
    Path("rules.toml").write_text('[cascade]\nfirst = "rules"\njudges = ["rules"]\nflag = 0.1\naccept = 0.1\n')
    ends(2, "label", "new.jsonl", "--judge", "rules.toml", "-o", "no.jsonl", "--db", "cache.db")
    assert "needs a single verifier" in capsys.readouterr().err
