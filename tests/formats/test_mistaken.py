"""A file or folder of another kind is named as what it is, with the command that was meant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from critic_prm.errors import CriticPrmError
from tests.command import invoke

SOLUTION = {"id": "a", "problem": "2 + 2?", "steps": ["2 + 2 = 5."], "label": 0}
LABELLED = {**SOLUTION, "p_correct": [0.0], "votes": [[0, 1]], "first_error": 0, "status": "ok", "judgements": [], "critic": {}}
TRAINING = {"prompt": "p", "completions": ["s"], "labels": [1.0], "votes": [[1, 1]], "weight": 1.0, "id": "a", "source": "x"}


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file or folder of each kind in the current folder."""
    monkeypatch.chdir(tmp_path)
    for folder, file in (("verifier", "verifier.json"), ("set", "dataset.json"), ("chats", "sft.json"), ("empty", "")):
        (tmp_path / folder).mkdir()
        if file:
            (tmp_path / folder / file).write_text("{}")
    rows = {"solutions.jsonl": SOLUTION, "labels.jsonl": LABELLED, "set/train.jsonl": TRAINING}
    rows |= {
        "labels.jsonl.run.json": {"run": {}, "exit_code": 0},
        "set/dataset.json": {"splits": {}, "options": {}, "acceptance": {}},
    }
    rows |= {"eval.json": {"critic": {}, "threshold": {}, "subsets": []}}
    for name, row in rows.items():
        (tmp_path / name).write_text(json.dumps(row))
    (tmp_path / "report.html").write_text("<!doctype html>\n<title>critic-prm report</title>")
    (tmp_path / "none.json").write_text("[]")


CASES = """
$ critic-prm distill labels.jsonl -o v
labels.jsonl: this is a label file, not a training set; run: critic-prm dataset build labels.jsonl -o SET, then
critic-prm distill SET -o VERIFIER
$ critic-prm distill solutions.jsonl -o v
solutions.jsonl: this is a file of solutions, not a training set; run: critic-prm label solutions.jsonl -o LABELS, then
critic-prm dataset build LABELS -o SET
$ critic-prm distill set/train.jsonl -o v
set/train.jsonl: this is a file of a training set, not a training set; run: critic-prm distill set -o VERIFIER
$ critic-prm distill verifier -o v
verifier: this is a verifier, not a training set; run: critic-prm dataset build LABELS -o SET
$ critic-prm distill chats -o v
chats: this is a set of chats for a small judge, not a training set; run: critic-prm distill chats
$ critic-prm label set
set: this is a training set, not solutions; run: critic-prm distill set -o VERIFIER
$ critic-prm label set/train.jsonl
set/train.jsonl: these are rows of a training set, whose steps have a judge's labels already; run:
$ critic-prm label set/dataset.json
set/dataset.json:1: this holds the account of a training set, not its rows; train on its folder
$ critic-prm label verifier
verifier: this is a verifier, not solutions; run: critic-prm score verifier INPUT
$ critic-prm label empty
empty: this is a folder; name one file in it
$ critic-prm label labels.jsonl.run.json
labels.jsonl.run.json:1: this holds the report of a run, not its rows; give the file beside
$ critic-prm label eval.json
eval.json:1: this holds an evaluation, not solutions; show it with: critic-prm report FILE
$ critic-prm label report.html
report.html: this is a report of critic-prm, not data; give the label file that it shows
$ critic-prm label none.json
none.json: the file is empty
$ critic-prm label solutions.jsonl --judge labels.jsonl
'labels.jsonl' is a label file, not a critic; a critic is rules, a verifier's folder,
$ critic-prm score set solutions.jsonl
'set' is a training set, not a critic; a critic is rules, a verifier's folder,
$ critic-prm score solutions.jsonl rules
solutions.jsonl is not a critic, but rules is; run: critic-prm score rules solutions.jsonl
$ critic-prm calibrate solutions.jsonl verifier
solutions.jsonl is not a critic, but verifier is; run: critic-prm calibrate verifier
$ critic-prm calibrate labels.jsonl solutions.jsonl
labels.jsonl: this is a label file, not a verifier; run: critic-prm dataset build labels.jsonl -o SET, then critic-prm
distill SET -o VERIFIER
$ critic-prm evaluate processbench:PB/ rules
processbench:PB/ is not a critic, but rules is; run: critic-prm evaluate rules processbench:PB/
$ critic-prm evaluate rules set
set: this is a training set, not a benchmark; run: critic-prm evaluate CRITIC set/test.jsonl
$ critic-prm evaluate rules verifier
verifier: this is a verifier, not a benchmark; run: critic-prm evaluate verifier BENCH
$ critic-prm evaluate rules processbench
processbench: this is the name of a benchmark without its files; write processbench:DIR; get them from https://
$ critic-prm evaluate rules nowhere
nowhere: there is no such file or folder; check the path, or write NAME:DIR with one of agent
$ critic-prm rank solutions.jsonl
solutions.jsonl:1: this solution has no labels; add --critic CRITIC, or score it first: critic-prm
$ critic-prm analyze drift solutions.jsonl labels.jsonl
solutions.jsonl:1: this solution has no labels; label the file first: critic-prm label FILE -o LABELS
$ critic-prm rank set/train.jsonl
set/train.jsonl:1: this is not a row of a label file; it has completions, id, labels, prompt,
"""
"""Commands, and how their errors begin."""


def cases() -> list[tuple[str, str]]:
    pairs = (case.partition("\n") for case in CASES.split("$ critic-prm ")[1:])
    return [(command, " ".join(says.split())) for command, _, says in pairs]


@pytest.mark.parametrize(("command", "says"), cases())
def test_a_file_of_another_kind_is_named(command: str, says: str) -> None:
    result = invoke(*command.split(), catch=True)
    assert isinstance(result.exception, CriticPrmError), result.exception
    assert str(result.exception).startswith(says)
    assert "\n" not in str(result.exception)


def test_training_rows_can_be_scored_and_evaluated() -> None:
    assert invoke("score", "rules", "set/train.jsonl").exit_code == 0
    assert invoke("evaluate", "rules", "set/train.jsonl").exit_code == 0
