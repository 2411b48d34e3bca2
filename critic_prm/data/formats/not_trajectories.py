"""Explain why a row is not a trajectory: recognize related files by their fields and suggest a fix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SOLUTIONS = "convert the file that holds the solutions; these replies belong to them by id"
_NO_STEPS = "label its solutions first, or convert them one by one with --from text"

# Fields that identify such a file, its description, and the suggested fix. The first match is used.
_KNOWN: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("step_labels", "annotator"), "a judge's labels for AgentProcessBench without the messages they are about", _SOLUTIONS),
    (
        ("step_labels", "record_id"),
        "AgentProcessBench's labels without the messages they are about",
        "convert the file with messages",
    ),
    (
        ("correctness_pred", "error_step_pred"),
        "a judge's replies on ReasonEval without the solutions they are about",
        _SOLUTIONS,
    ),
    (("id", "scores"), "scores of steps without the steps", _SOLUTIONS),
    (
        ("step_evaluations", "solution"),
        "PARC's results: a judge's verdicts on solutions",
        "convert the PARC file that has error_annotation",
    ),
    (("response_text", "prompt_style"), "recorded replies of a judge without the solutions they are about", _SOLUTIONS),
    (("response_A", "response_B"), "pairs of answers with a preference, not solutions with steps", "a PRM needs step labels"),
    (("chosen", "rejected"), "pairs of answers with a preference, not solutions with steps", "a PRM needs step labels"),
    (
        ("transformed_solution", "wrong_step"),
        "EIC: solutions rewritten by a model, whose own count of the wrong step is often off",
        "find the first line that differs from original_solution, and write native rows",
    ),
    (("llm_raw_response", "query"), "a PlanBench result", _NO_STEPS),
    (
        ("instances", "domain", "engine"),
        "PlanBench results: plans graded as a whole by a simulator, no labels of steps",
        _NO_STEPS,
    ),
    (
        ("instances", "annotations", "dataset"),
        "JUDGE-BENCH's ROSCOE: one annotation task a step, with problem and steps inside its prompt",
        "write native rows from the CONTEXT and GENERATED RESPONSE parts",
    ),
    (("ground_truth", "175b_verification"), "GSM8K's example solutions of four models, graded as a whole", _NO_STEPS),
    (("custom_id", "response"), "a batch's result file, not trajectories", "label with the cache it came from"),
    (("request", "reply"), "cached replies, not trajectories", "read them with: critic-prm cache import"),
)


def refusal(row: Any) -> tuple[str, str]:
    """Description of a row that no format can read, and a suggested fix."""
    if not isinstance(row, dict):
        return f"a row of this file is no object but {str(row)[:40]!r}", "a row is a JSON object with a problem and its steps"
    if known := refused(row):
        return known
    shown = ", ".join(sorted(row)[:8]) + (", ..." if len(row) > 8 else "")
    return f"no known format has the fields {shown}", 'a native row has "problem" (text) and "steps" (a list of texts)'


def refused(row: Mapping[str, Any]) -> tuple[str, str] | None:
    """Description and suggested fix for a row that is recognized as not a trajectory; None for all other rows."""
    for keys, what, mend in _KNOWN:
        if all(key in row for key in keys):
            return f"this holds {what}", mend
    return None
