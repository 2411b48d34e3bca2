"""Label Studio: tasks with predictions, the labelling configuration, and the answers in its JSON export.

Task format: https://labelstud.io/guide/task_format; predictions: https://labelstud.io/guide/predictions; a block of tags per
step: https://labelstud.io/tags/repeater.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from critic_prm.annotate.solutions import Solution
from critic_prm.data.human import VERDICTS, Annotated, HumanAnswer, answer_key, first_error_in
from critic_prm.data.judgement import Verdict
from critic_prm.data.trajectory import Step, trajectory_from_json
from critic_prm.errors import InputError

CONFIG = """<View>
  <Header size="5" value="Mark every step up to the first incorrect one. Later steps may stay open."/>
  <Header value="Problem"/>
  <Text name="problem" value="$problem"/>
  <Repeater on="$steps" indexFlag="{{idx}}">
    <Header size="5" value="$steps[{{idx}}].title"/>
    <Text name="step_{{idx}}" value="$steps[{{idx}}].text"/>
    <Text name="observation_{{idx}}" value="$steps[{{idx}}].observation"/>
    <Choices name="verdict_{{idx}}" toName="step_{{idx}}" choice="single" showInline="true">
      <Choice value="correct"/>
      <Choice value="incorrect"/>
      <Choice value="neutral"/>
    </Choices>
    <TextArea name="comment_{{idx}}" toName="step_{{idx}}" rows="1" maxSubmissions="1" placeholder="Comment"/>
  </Repeater>
  <Header value="Note on the solution"/>
  <TextArea name="note" toName="problem" rows="2" maxSubmissions="1" placeholder="Note"/>
</View>
"""
"""The labelling configuration of a project."""


def task(solution: Solution, predictions: bool = True) -> dict[str, Any]:
    """The task of a solution. With `predictions`, the verdicts of judges are pre-annotations."""
    row = solution.row
    steps = [step if isinstance(step, dict) else {"text": step} for step in row["steps"]]
    data = {
        "id": row["id"],
        "key": solution.key,
        "problem": row["problem"],
        "steps": [
            {"title": f"Step {n} of {len(steps)}", "text": step["text"], "observation": step.get("observation") or ""}
            for n, step in enumerate(steps, 1)
        ],
    }
    made = [one for one in map(_prediction, solution.judges) if one["result"]] if predictions else []
    return {"data": data, **({"predictions": made} if made else {})}


def _prediction(opinion: Mapping[str, Any]) -> dict[str, Any]:
    """A judgement as a prediction. Its score is the lowest probability of a verdict given, if probabilities are known."""
    result, sure = [], []
    for step, value, p, critique in opinion.get("verdicts", ()):
        where = {"to_name": f"step_{step}", "type": "choices"}
        result.append({"id": f"verdict_{step}", "from_name": f"verdict_{step}", **where, "value": {"choices": [value]}})
        if critique:
            where["type"] = "textarea"
            result.append({"id": f"comment_{step}", "from_name": f"comment_{step}", **where, "value": {"text": [critique]}})
        if p is not None and value != "neutral":
            sure.append(p if value == "correct" else 1 - p)
    return {"model_version": opinion["name"], **({"score": min(sure)} if sure else {}), "result": result}


def is_task(row: Mapping[str, Any]) -> bool:
    """Whether a row is a task of `task`, perhaps with annotations."""
    data = row.get("data")
    return isinstance(data, dict) and {"key", "problem", "steps"} <= data.keys()


def answers(row: Mapping[str, Any], where: str) -> Iterator[tuple[str, str, Annotated]]:
    """Yield (annotator, key, answer) for each annotation of a task in Label Studio's JSON export. Raises InputError."""
    data = row["data"]
    listed = data["steps"] if isinstance(data["steps"], list) else []
    texts = [
        {"text": step.get("text")} | ({"observation": seen} if (seen := step.get("observation")) else {}) for step in listed
    ]
    bare = trajectory_from_json({"id": data.get("id"), "problem": data["problem"], "steps": texts}, where)
    key = answer_key(bare)
    if key != data["key"]:
        raise InputError(
            where, "the problem or the steps are not those that were exported", "annotate tasks without changing data"
        )
    annotations = row.get("annotations")
    if not isinstance(annotations, list):
        raise InputError(where, 'the task has no "annotations"', "export the project from Label Studio as JSON")
    for one in annotations:
        if isinstance(one, dict):
            name = _name(one.get("completed_by"))
            yield name, key, Annotated(bare, _answer(one, name, bare.steps, where))


def _answer(annotation: Mapping[str, Any], by: str, steps: tuple[Step, ...], where: str) -> HumanAnswer:
    choices: dict[int, str] = {}
    comments: dict[int, str] = {}
    note = ""
    for one in annotation.get("result") or ():
        name, value = (one.get("from_name"), one.get("value")) if isinstance(one, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(value, dict):
            raise InputError(where, f"a result is {one!r:.60}", "export the project from Label Studio as JSON")
        text = "\n".join(map(str, value["text"])) if isinstance(value.get("text"), list) else str(value.get("text") or "")
        kind, _, number = name.partition("_")
        if name == "note":
            note = text
        elif number.isdecimal() and int(number) < len(steps) and kind == "comment":
            comments[int(number)] = text
        elif number.isdecimal() and int(number) < len(steps) and kind == "verdict":
            chosen = value.get("choices")
            if not isinstance(chosen, list) or len(chosen) != 1 or chosen[0] not in VERDICTS:
                raise InputError(
                    where, f"the choice for step {number} is {chosen!r:.40}", f"it is one of {', '.join(VERDICTS)}"
                )
            choices[int(number)] = chosen[0]
    skipped = annotation.get("was_cancelled") is True
    return HumanAnswer(
        first_error=None if skipped else first_error_in(choices, len(steps)),
        by=by,
        note=note,
        verdicts=tuple(Verdict(step, value, comments.pop(step, "")) for step, value in sorted(choices.items())),  # type: ignore[arg-type]
        comments=comments,
        skipped=skipped,
        at=str(annotation.get("updated_at") or annotation.get("created_at") or ""),
    )


def _name(person: Any) -> str:
    """The annotator of an annotation: an e-mail address, or the number of the account."""
    if isinstance(person, dict):
        return str(person.get("email") or person.get("username") or f"user {person.get('id')}")
    return f"user {person}"
