"""The commands distill and score, from a training set to scored rows."""

from __future__ import annotations

import json
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from critic_prm.cli import main
from distill.verifier import load_verifier


def command(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stopped:
        main([str(a) for a in arguments])
    return int(stopped.value.code or 0)


def sums(count: int, seed: int) -> list[dict[str, Any]]:
    generator = np.random.default_rng(seed)
    rows = []
    for n in range(count):
        a, b = (int(x) for x in generator.integers(2, 60, 2))
        wrong = bool(generator.integers(0, 2))
        steps = [f"We add {a} and {b}.", f"{a} + {b} = {a + b + 9 * wrong}, so the answer is {a + b + 9 * wrong}."]
        rows.append({"id": f"{seed}-{n}", "prompt": f"{a} plus {b}?", "completions": steps, "labels": [1.0, 1.0 - wrong]})
    return rows


@pytest.fixture(scope="module")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("data")
    for name, count, seed in (("train", 300, 1), ("dev", 60, 2), ("test", 60, 3)):
        (data / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in sums(count, seed)))
    out = data / "verifier"
    with redirect_stdout(StringIO()) as stdout, redirect_stderr(StringIO()) as stderr:
        assert command("distill", data, "-o", out, "--student", "linear", "--seed", "3") == 0
    (data / "stdout").write_text(stdout.getvalue())
    (data / "stderr").write_text(stderr.getvalue())
    return out


def test_distill_reports_on_stderr_and_records_what_it_did(verifier: Path) -> None:
    data = verifier.parent
    assert (data / "stdout").read_text() == ""
    err = (data / "stderr").read_text()
    assert "dev" in err
    assert "test" in err
    info = json.loads((verifier / "verifier.json").read_text())
    assert info["training"]["seed"] == 3
    assert info["decision"]["data"] == f"{data.name}/train, 5 groups left out in turn"
    assert info["training"]["steps"] == 600
    metrics = json.loads((verifier / "metrics.json").read_text())
    assert metrics["test"]["auroc"] > 0.95  # a false sum is what the features see best
    assert metrics["test"]["f1"] > 0.9
    card = (verifier / "README.md").read_text()
    assert "300 solutions with 600 labelled steps" in card
    assert f"{info['decision']['threshold']:.4f}" in card


def test_score_gives_the_rows_back_with_scores(verifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"id": r["id"], "problem": r["prompt"], "steps": r["completions"], "label": -1, "mine": {"kept": True}}
        for r in sums(700, 5)
    ]
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert command("score", verifier, source, "-o", out) == 0
    assert "700 rows in" in capsys.readouterr().err
    scored = [json.loads(line) for line in out.read_text().splitlines()]
    opened = load_verifier(verifier)
    for row, before in zip(scored, rows, strict=True):
        p = row.pop("p_correct")
        first = opened.decision.first_error(p)
        wrong = [i == first or (0 <= first < i and x < opened.threshold) for i, x in enumerate(p)]
        assert (row.pop("first_error"), row.pop("votes")) == (first, [[int(not w), 1] for w in wrong])
        assert (row.pop("status"), row.pop("p_from"), row.pop("critic")["provider"]) == ("ok", "scores", "verifier")
        assert row == before
        assert p == pytest.approx(opened.score(before["problem"], before["steps"]))


def test_score_opens_any_critic(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(json.dumps({"id": "a", "problem": "2 plus 2?", "steps": ["2 + 2 = 5"]}) + "\n")
    assert command("score", "rules", source) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["p_correct"], row["first_error"]) == ([0.0], 0)


def test_scored_rows_can_be_ranked_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    rows = [{"problem": "2 plus 2?", "steps": [f"2 + 2 = {n}"], "final_answer": f"{n}", "gold_answer": "4"} for n in (5, 4)]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert command("score", "rules", source, "-o", out) == 0
    assert command("rank", out, "--json") == 0
    assert command("report", out, "-o", tmp_path / "page.html") == 0
    assert "2 rows in" in capsys.readouterr().err


def test_a_dev_split_of_one_kind_chooses_no_threshold(
    verifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "train.jsonl").write_text((verifier.parent / "train.jsonl").read_text())
    wrong = [row for row in sums(80, 2) if row["labels"][1] == 0.0][:20]
    for kind, said in ((wrong, "all erroneous or all correct, so the threshold is 0.5"), (sums(20, 2), "rests on only 20")):
        (data / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kind))
        assert command("distill", data, "-o", tmp_path / "v", "--leave-out", 0) == 0
        assert said in capsys.readouterr().err
        chosen = json.loads((tmp_path / "v" / "verifier.json").read_text())["decision"]
        card = (tmp_path / "v" / "README.md").read_text()
        assert (chosen["f1"] is None) == ("was not chosen" in card) == (kind is wrong)
        assert load_verifier(tmp_path / "v").card["threshold_chosen"] == (kind is not wrong)


def test_errors_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("distill", tmp_path / "none", "-o", tmp_path / "v") == 1
    assert (
        capsys.readouterr().err
        == f"error: {tmp_path / 'none'}: there is no such folder; make one with: critic-prm dataset build LABELS -o DIR\n"
    )
    assert command("score", tmp_path, "x.jsonl") == 2
    assert "verifier.json" in capsys.readouterr().err
