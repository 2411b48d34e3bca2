"""ThinkPRM (launch/thinkprm-1K): solutions with gold labels and a verification chain of all step critiques."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from critic_prm.data.formats.common import Dropped, Format, Options, Source, Target, about, is_good
from critic_prm.data.judgement import Judgement, judgement_from_json
from critic_prm.data.label_rows import LABEL_FIELDS
from critic_prm.data.trajectory import StepLabel, Trajectory
from critic_prm.errors import InputError

_SIGNS: Mapping[Any, StepLabel] = {"+": 1.0, "-": 0.0, 1: 1.0, 0: 0.0, None: None}
_ASK = """Here is a problem, and a solution of it that is cut into steps.

[Problem]
{problem}

[Solution]
{solution}

Take the steps in order. Write a critique of each, and end it with \\boxed{{correct}} or \\boxed{{incorrect}}. Stop behind the
first incorrect step. If the solution is not finished, judge the steps that are there."""


def read(source: Source) -> Iterable[Trajectory]:
    """Read one trajectory. The chain goes to `meta`."""
    source.drop("prefix", "prefix_label", "messages")
    steps = source.steps("prefix_steps")
    labels = source.labels("gt_step_labels", len(steps), _SIGNS)
    yield source.trajectory(source.text("problem"), steps, step_labels=labels)


def write(target: Target) -> dict[str, Any]:
    """Write the dataset row, with a training chat under `messages`: the task, and the chain as the assistant turn.

    The chain comes from the first readable judgement of a label-file row, or else from the `cot` of the source. Steps after the
    first error are "-". Raises Dropped if there is no chain, or if a step up to the first error has no label.
    """
    trajectory = target.trajectory
    chain, right = _chain(trajectory, target.options)
    gold, first = trajectory.gold(), trajectory.first_error()
    open_steps = [i for i, label in enumerate(gold) if label is None or label == "neutral"]
    if first is None or any(i <= first or first < 0 for i in open_steps):
        raise Dropped("the first error is unknown, or a step before it has no label")
    labels = target.labels()
    if "judgements" in trajectory.extra:
        target.kept.update(LABEL_FIELDS)
    prefix = "\n".join(f"Step {number}: {text}" for number, text in enumerate(trajectory.texts, 1))
    verdict = "" if right is None else f"\n\nIs the solution correct? {'Yes' if right else 'No'}"
    asked = _ASK.format(problem=trajectory.problem, solution=prefix)
    return {
        "id": trajectory.id,
        "problem": trajectory.problem,
        "prefix": prefix,
        "cot": chain,
        "prefix_steps": trajectory.texts,
        "gt_step_labels": ["+" if is_good(label) else "-" for label in labels],
        "prefix_label": first < 0,
        "messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": chain + verdict}],
    }


def _chain(trajectory: Trajectory, options: Options) -> tuple[str, bool | None]:
    """The critiques of a judgement as one text, and whether it says the solution is correct (None: unknown). Raises Dropped.

    A chain calls every step correct or incorrect, so a judgement with a neutral verdict is skipped unless `neutral` says how to
    map it. It ends at its first incorrect step, so a corrected step can only be correct in it (keep); otherwise the judgement
    is skipped.
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
        values = {verdict.value for verdict in judgement.verdicts}
        if options.neutral in ("keep", "drop") and "neutral" in values:
            reason = "a neutral verdict in the chain"
            continue
        if options.corrected != "keep" and "corrected" in values:
            reason = "a corrected verdict in the chain"
            continue
        chain = _written(judgement, options)
        whole = len(judgement.verdicts) == len(trajectory.steps)
        wrong = chain.endswith("\\boxed{incorrect}")
        return chain, False if wrong else True if whole else None
    if isinstance(original := trajectory.meta.get("cot"), str) and original.strip():
        return original, None
    raise Dropped(reason)


def _written(judgement: Judgement, options: Options) -> str:
    parts = []
    for verdict in judgement.verdicts:
        right = verdict.vote is True or (verdict.value == "neutral" and options.neutral == "good")
        critique = verdict.critique.strip()
        stop = "." if critique[-1:].isalnum() else ""
        end = f"The step is \\boxed{{{'correct' if right else 'incorrect'}}}"
        parts.append(f"Step {verdict.step + 1}: {critique}{stop} {end}" if critique else f"Step {verdict.step + 1}: {end}")
        if not right:
            break
    return "\n\n".join(parts)


FORMATS = {
    "thinkprm": Format(read=read, write=write, **about("thinkprm")),
}
