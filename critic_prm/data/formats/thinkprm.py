"""ThinkPRM (launch/thinkprm-1K): solutions with gold labels and a verification chain of all step critiques.

{"problem": "p", "cot": "Step 1: fine", "prefix_steps": ["s", "t"], "gt_step_labels": ["+", "-"]}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from critic_prm.data.formats.common import (
    Convention,
    Dropped,
    Neutral,
    Options,
    count,
    has,
    id_of,
    rest,
    say,
    text_of,
    texts_of,
    unsaid,
)
from critic_prm.data.judgement import Judgement, judgement_from_json
from critic_prm.data.records.reading import Record
from critic_prm.data.trajectory import StepLabel, Trajectory
from critic_prm.errors import InputError

CONVENTION = Convention(
    labels='`gt_step_labels`: "+" or "-" per step; `cot` is the chain that says so', after_error="labelled, all -"
)
_SIGNS: Mapping[Any, StepLabel] = {"+": 1.0, "-": 0.0, 1: 1.0, 0: 0.0, None: None}
_ASK = """Here is a problem, and a solution of it that is cut into steps.

[Problem]
{problem}

[Solution]
{solution}

Take the steps in order. Write a critique of each, and end it with \\boxed{{correct}} or \\boxed{{incorrect}}. Stop behind the
first incorrect step. If the solution is not finished, judge the steps that are there."""


def score(row: Mapping[str, Any]) -> int:
    """A row has a verification chain, steps and labels."""
    return 2 * has(row, "problem", "cot", "prefix_steps", "gt_step_labels")


def read(record: Record, options: Options) -> Iterable[Trajectory]:
    """Read one trajectory. The chain goes to `meta`."""
    row, where = record.data, record.where
    steps = texts_of(row, "prefix_steps", where)
    labels = row.get("gt_step_labels")
    if not isinstance(labels, list) or len(labels) != len(steps):
        size = len(labels) if isinstance(labels, list) else say(labels)
        raise InputError(where, f'"gt_step_labels" is {size}, but there are {len(steps)} steps', "each step needs a label")
    for index, label in enumerate(labels):
        if not isinstance(label, str | int | None) or label not in _SIGNS:
            raise InputError(where, f"label {index} is {say(label)}", 'a label is "+" or "-"')
    made = ("id", "problem", "prefix", "prefix_steps", "gt_step_labels", "prefix_label", "messages")
    yield Trajectory(
        id=id_of(row),
        problem=text_of(row, "problem", where),
        steps=steps,
        step_labels=tuple(_SIGNS[label] for label in labels),
        meta=rest(row, made),
    )


def write(trajectory: Trajectory, options: Options, lost: Counter[str]) -> dict[str, Any]:
    """Write the dataset row, with a training chat under `messages`: the task, and the chain as the assistant turn.

    The chain comes from the first readable judgement of a label-file row, or else from the `cot` of the source. Steps after the
    first error are "-". Raises Dropped if there is no chain, or if a step up to the first error has no label.
    """
    chain, right = _chain(trajectory, options.neutral)
    labels = trajectory.gold()
    first = trajectory.first_error()
    open_steps = [i for i, label in enumerate(labels) if label is None or label == "neutral"]
    if first is None or any(i <= first or first < 0 for i in open_steps):
        raise Dropped("the first error is unknown, or a step before it has no label")
    count("soft labels (rounded at 0.5)", sum(label not in (0.0, 1.0, "neutral", None) for label in labels), lost)
    prefix = "\n".join(f"Step {number}: {text}" for number, text in enumerate(trajectory.texts, 1))
    verdict = "" if right is None else f"\n\nIs the solution correct? {'Yes' if right else 'No'}"
    asked = _ASK.format(problem=trajectory.problem, solution=prefix)
    unsaid(trajectory, {"id", "meta.cot", *(_LABEL_FILE if "judgements" in trajectory.extra else ())}, lost)
    return {
        "id": trajectory.id,
        "problem": trajectory.problem,
        "prefix": prefix,
        "cot": chain,
        "prefix_steps": trajectory.texts,
        "gt_step_labels": ["+" if isinstance(label, float) and label >= 0.5 else "-" for label in labels],
        "prefix_label": first < 0,
        "messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": chain + verdict}],
    }


_LABEL_FILE = ("judgements", "p_correct", "p_from", "votes", "status", "first_error", "critic")


def _chain(trajectory: Trajectory, neutral: Neutral) -> tuple[str, bool | None]:
    """The critiques of a judgement as one text, and whether it says the solution is correct (None: unknown). Raises Dropped.

    A chain calls every step correct or incorrect, so a judgement with a neutral verdict is skipped unless `neutral` says how to
    map it.
    """
    judgements = trajectory.extra.get("judgements")
    reason = "no judgement with critiques"
    for row in judgements if isinstance(judgements, list) else ():
        try:
            judgement = judgement_from_json(row)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InputError(trajectory.id, f'"judgements" cannot be read ({error})', "label the row again") from None
        if judgement.status != "ok" or not any(verdict.critique.strip() for verdict in judgement.verdicts):
            continue
        if neutral in ("keep", "drop") and any(verdict.value == "neutral" for verdict in judgement.verdicts):
            reason = "a neutral verdict in the chain"
            continue
        chain = _written(judgement, neutral)
        whole = len(judgement.verdicts) == len(trajectory.steps)
        wrong = chain.endswith("\\boxed{incorrect}")
        return chain, False if wrong else True if whole else None
    if isinstance(came := trajectory.meta.get("cot"), str) and came.strip():
        return came, None
    raise Dropped(reason)


def _written(judgement: Judgement, neutral: Neutral) -> str:
    said = []
    for verdict in judgement.verdicts:
        right = verdict.value == "correct" or (verdict.value == "neutral" and neutral == "good")
        critique = verdict.critique.strip()
        stop = "." if critique[-1:].isalnum() else ""
        end = f"The step is \\boxed{{{'correct' if right else 'incorrect'}}}"
        said.append(f"Step {verdict.step + 1}: {critique}{stop} {end}" if critique else f"Step {verdict.step + 1}: {end}")
        if not right:
            break
    return "\n\n".join(said)
