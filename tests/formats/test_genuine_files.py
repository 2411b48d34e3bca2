"""Every file of the real data is read in its own format, or refused with a reason that says what it is."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import orjson
import pytest

from critic_prm.data.formats.convert import Options, Report, detect, read_trajectories, write_trajectories
from critic_prm.data.records.reading import read_records
from critic_prm.errors import InputError

# The first pattern that fits says what a file is: a format and how many trajectories it holds, or a reason to refuse it.
EXPECTED: list[tuple[str, str, int | str]] = [
    ("agentprocessbench/hotpotqa.jsonl", "agentprocessbench", 20),
    ("agentprocessbench/*blind*", "refused", "a judge's labels for AgentProcessBench without the messages"),
    ("agentprocessbench/*_final.jsonl", "refused", "AgentProcessBench's labels without the messages"),
    ("bbm/*", "bigbench-mistake", 25),
    ("eic/*", "refused", "EIC: solutions rewritten by a model"),
    ("gsm8k/example_model_solutions.jsonl", "refused", "GSM8K's example solutions of four models, graded as a whole"),
    ("gsm8k/*", "text", 25),
    ("importer_samples/LFS_POINTER*", "refused", "a Git-LFS pointer, not the data"),
    ("importer_samples/openr_prm_code_test.json", "openr", 3),
    ("importer_samples/openr_samples_math-aps-tree.jsonl", "openr", 242),
    ("importer_samples/openr_samples_math-aps.jsonl", "openr", 124),
    ("importer_samples/openr_samples_math-shepherd.jsonl", "math-shepherd", 7),
    ("importer_samples/openr_samples_prm800k.jsonl", "prm800k", 5),
    ("importer_samples/prm800k-phase1-train-example.json", "prm800k", 3),
    ("importer_samples/prm800k-phase2-test-example.json", "prm800k", 1),
    ("importer_samples/prm800k-phase2-train-example.jsonl", "prm800k", 9),
    ("judgebench/*", "refused", "pairs of answers with a preference"),
    ("mr_gsm8k/k-shot-demos.json", "text", 3),
    ("mr_gsm8k/mammoth*", "reasoneval", 3),
    ("mr_gsm8k/metamath*", "reasoneval", 12),
    ("mr_gsm8k/wizardmath*", "reasoneval", 2),
    ("mr_gsm8k/*_eval_results.json", "reasoneval", 25),
    ("mrben/coding.json", "mrben", 65),
    ("mrben/*", "mrben", 75),
    ("parc/*_llama*", "refused", "PARC's results: a judge's verdicts on solutions"),
    ("parc/*", "parc", 25),
    ("planbench/*", "refused", "PlanBench results: plans graded as a whole by a simulator"),
    ("prmbench/*_confidence.jsonl", "prmbench", 24),
    ("prmbench/*_missing_condition.jsonl", "prmbench", 23),
    ("prmbench/*_multi_solutions.jsonl", "prmbench", 24),
    ("prmbench/*", "prmbench", 25),
    ("problems/*", "text", 25),
    ("processbench/*_template.txt", "refused", "a prompt template with the open slot {problem}"),
    ("processbench/*", "processbench", 25),
    ("reasoneval/*__gpt*", "refused", "a judge's replies on ReasonEval without the solutions"),
    ("reasoneval/*__*", "refused", "scores of steps without the steps"),
    ("reasoneval/*", "reasoneval", 25),
    ("roscoe/*", "refused", "JUDGE-BENCH's ROSCOE"),
    ("stepverify/*", "stepverify", 25),
    ("who_and_when/*", "who-and-when", 1),
]


def genuine(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_every_file_is_converted_or_refused_with_its_reason(shared_data: Path) -> None:
    folder = shared_data / "original"
    files = genuine(folder)
    assert len(files) > 80
    for file in files:
        _, what, outcome = next(row for row in EXPECTED if fnmatch(file, row[0]))
        if what == "refused":
            with pytest.raises(InputError) as caught:
                list(read_trajectories(folder / file))
            assert str(outcome) in caught.value.problem, file
            assert caught.value.fix, file
            continue
        assert detect(folder / file) == what, file
        found = list(read_trajectories(folder / file))
        assert len(found) == outcome, file
        assert len({t.id for t in found}) == len(found)
        assert all(t.problem.strip() and t.steps for t in found)


def test_every_normalized_file_is_native(shared_data: Path) -> None:
    for path in sorted((shared_data / "open").glob("*.jsonl")):
        assert detect(path) == "native"
        record = next(read_records(path))
        read = next(read_trajectories(path))
        assert (read.label, read.texts, read.extra["source"]) == (
            record.data["label"],
            record.data["steps"],
            record.data["source"],
        )


AGREEING = {
    "mrben_math",
    "mrben_physics",
    "mrben_coding",
    "mr_math",
    "parc_gsm8k",
    "prm800k_redundant",
    "bbm_logical_deduction",
}


def test_labels_agree_with_an_independent_conversion(shared_data: Path) -> None:
    """The normalized files were made from the same originals by other code."""
    ours: dict[tuple[str, ...], set[int | None]] = {}
    for file in genuine(shared_data / "original"):
        if file.startswith(("mrben", "reasoneval/mr-math", "parc", "bbm", "processbench")) and not fnmatch(file, "*__*"):
            try:
                for t in read_trajectories(shared_data / "original" / file):
                    ours.setdefault(tuple(s.strip() for s in t.texts), set()).add(t.first_error())
            except InputError:
                continue
    compared = dict.fromkeys(AGREEING, 0)
    for name in AGREEING:
        for t in read_trajectories(shared_data / "open" / f"{name}.jsonl"):
            if (labels := ours.get(tuple(s.strip() for s in t.texts))) is not None:
                assert t.label in labels, (name, t.id)
                compared[name] += 1
    assert all(number >= 10 for number in compared.values()), compared


def said(row: dict[str, Any], key: str) -> Any:
    """A field; ReasonEval's steps may come as several sentences, which become one text."""
    return [["\n".join(part)] for part in row[key]] if key == "model_output_step_format" else row[key]


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("processbench/math.json", "processbench"),
        ("bbm/word_sorting.jsonl", "bigbench-mistake"),
        ("importer_samples/openr_samples_math-shepherd.jsonl", "math-shepherd"),
        ("importer_samples/openr_prm_code_test.json", "openr"),
        ("prmbench/prm800k_test_p1_4o_circular.jsonl", "prmbench"),
        ("prmbench/prm800k_test_p1_4o_redundency.jsonl", "prmbench"),
        ("reasoneval/mr-math_invalid_errors.json", "reasoneval"),
        ("agentprocessbench/hotpotqa.jsonl", "agentprocessbench"),
    ],
)
def test_genuine_rows_come_back_through_native_as_they_were(shared_data: Path, tmp_path: Path, file: str, name: str) -> None:
    keep = Options(after_error="keep")
    source, native, back = shared_data / "original" / file, tmp_path / "native.jsonl", tmp_path / "back.jsonl"
    write_trajectories(native, read_trajectories(source, options=keep))
    write_trajectories(back, read_trajectories(native, "native"), name)
    before = [record.data for record in read_records(source)]
    after = [record.data for record in read_records(back)]
    assert len(before) == len(after)
    for was, now in zip(before, after, strict=True):
        for key in was.keys() & now.keys() - {"id"}:
            assert said(now, key) == said(was, key), key
        assert not was.keys() - now.keys() - {"id"}


def test_prm800k_paths_ratings_and_what_they_become(shared_data: Path) -> None:
    source = shared_data / "original/importer_samples/openr_samples_prm800k.jsonl"
    report = Report()
    chosen = list(read_trajectories(source, report=report))
    assert report.dropped == {"screening question": 1}
    everything = list(read_trajectories(source, options=Options(alternatives="all")))
    assert {t.id for t in chosen} <= {t.id for t in everything}
    assert len(everything) > 20
    written_by_people = [t.step_labels for t in read_trajectories(source) if t.step_labels and None in t.step_labels]
    good = list(read_trajectories(source, options=Options(human_steps="good")))
    assert written_by_people
    assert sum(None in (t.step_labels or ()) for t in good) < len(written_by_people)


def test_phase_two_solutions_go_on_unjudged_after_their_error(shared_data: Path) -> None:
    source = shared_data / "original/importer_samples/prm800k-phase2-test-example.json"
    row = orjson.loads(source.read_bytes())
    (read,) = read_trajectories(source)
    assert read.texts == row["question"]["pre_generated_steps"]
    assert read.label == 6
    assert read.step_labels == (1.0, "neutral", 1.0, 1.0, 1.0, 1.0, 0.0, *(None,) * 6)
    assert read.final_answer == "7200"


def test_agent_runs_are_readable_and_observed(shared_data: Path) -> None:
    first = next(read_trajectories(shared_data / "original/agentprocessbench/hotpotqa.jsonl"))
    assert first.id == "searchR1_hotpotqa:0:0"
    assert first.steps[0].text.startswith('Tool call: search {"query_list"')
    assert (first.steps[0].observation or "").startswith('{"result"')
    assert first.steps[-1].observation is None
    assert first.step_labels == (1.0, 1.0, 1.0, 0.0)
    assert first.problem.startswith("Which Australian city")
