"""Label Studio: tasks with predictions, the labelling configuration, and the answers in its JSON export.

Task format: https://labelstud.io/guide/task_format; predictions: https://labelstud.io/guide/predictions. The steps are one
`Paragraphs` tag (https://labelstud.io/tags/paragraphs), in which people label regions. A `Repeater` with choices for each step
would be handier, but Label Studio refuses predictions for it: it checks their names without repeating the tags.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from critic_prm.annotate.solutions import Solution
from critic_prm.data.human import VERDICTS, Annotated, HumanAnswer, answer_key, first_error_in
from critic_prm.data.judgement import Verdict
from critic_prm.data.trajectory import trajectory_from_json
from critic_prm.errors import InputError

NO_ERROR, ERROR = "No incorrect step", "The first incorrect step is marked"
CONFIG = f"""<View>
  <Header value="Mark the first incorrect step: choose a label and select some of it. Unmarked steps before it are correct."/>
  <Text name="problem" value="$problem"/>
  <ParagraphLabels name="verdict" toName="steps">
    <Label value="incorrect" background="#c03d0e"/>
    <Label value="corrected" background="#5b4b9a"/>
    <Label value="neutral" background="#7a5b00"/>
    <Label value="correct" background="#0b7269"/>
  </ParagraphLabels>
  <Paragraphs name="steps" value="$steps" nameKey="title" textKey="text" layout="dialogue"/>
  <TextArea name="comment" toName="steps" perRegion="true" maxSubmissions="1" placeholder="Comment on the marked step"/>
  <Choices name="outcome" toName="steps" choice="single" required="true" showInline="true">
    <Choice value="{NO_ERROR}"/>
    <Choice value="{ERROR}"/>
  </Choices>
  <TextArea name="note" toName="problem" rows="2" maxSubmissions="1" placeholder="Note on the solution"/>
</View>
"""
"""The labelling configuration of a project."""


def task(solution: Solution, predictions: bool = True) -> dict[str, Any]:
    """The task of a solution. With `predictions`, the first errors and the corrected and neutral steps of judges are
    pre-annotations."""
    row = solution.row
    steps = [_paragraph(number, step) for number, step in enumerate(row["steps"], 1)]
    data = {"id": row["id"], "key": solution.key, "problem": row["problem"], "steps": steps}
    given = [one for one in solution.judges if predictions and one.get("first_error") is not None]
    made = [_prediction(one, [step["text"] for step in steps]) for one in given]
    return {"data": data, **({"predictions": made} if made else {})}


def _paragraph(number: int, step: str | Mapping[str, Any]) -> dict[str, str]:
    """A step as it is shown. Its own text is kept apart if there is an observation."""
    if isinstance(step, str):
        return {"title": f"Step {number}", "text": step}
    shown = f"{step['text']}\n\n[Observation, not judged] {step['observation']}"
    return {"title": f"Step {number}", "text": shown, "step": step["text"], "observation": step["observation"]}


def _prediction(opinion: Mapping[str, Any], texts: list[str]) -> dict[str, Any]:
    """A judgement as a prediction. Its score is the lowest probability of a verdict in it, if probabilities are known."""
    chosen = NO_ERROR if opinion["first_error"] < 0 else ERROR
    result = [{"id": "outcome", "from_name": "outcome", "to_name": "steps", "type": "choices", "value": {"choices": [chosen]}}]
    sure = []
    for step, value, p, critique in opinion.get("verdicts", ()):
        if p is not None and value != "neutral":
            sure.append(1 - p if value == "incorrect" else p)
        if value == "correct":
            continue
        length = len(texts[step].encode("utf-16-le", "surrogatepass")) // 2  # a browser counts UTF-16 code units
        place = {"start": step, "end": step, "startOffset": 0, "endOffset": length}
        region = {"id": f"step_{step}", "to_name": "steps"}
        marked = {**place, "paragraphlabels": [value]}
        result.append({**region, "from_name": "verdict", "type": "paragraphlabels", "value": marked})
        if critique:
            said = {**place, "text": [critique]}
            result.append({**region, "from_name": "comment", "type": "textarea", "value": said})
    return {"model_version": opinion["name"], **({"score": min(sure)} if sure else {}), "result": result}


def is_task(row: Mapping[str, Any]) -> bool:
    """Whether a row is a task of `task`, perhaps with annotations."""
    data = row.get("data")
    return isinstance(data, dict) and {"key", "problem", "steps"} <= data.keys()


def answers(row: Mapping[str, Any], where: str) -> Iterator[tuple[str, str, Annotated]]:
    """Yield (annotator, key, answer) for each annotation of a task in Label Studio's JSON export. Raises InputError."""
    data, annotations = row["data"], row.get("annotations")
    listed = data["steps"] if isinstance(data["steps"], list) else []
    steps = [_step(step, where) for step in listed]
    trajectory = trajectory_from_json({"id": data.get("id"), "problem": data["problem"], "steps": steps}, where)
    key = answer_key(trajectory)
    if key != data["key"]:
        raise InputError(where, "the problem or the steps are not those that were exported", "leave the data of tasks as it is")
    if not isinstance(annotations, list):
        raise InputError(where, 'the task has no "annotations"', "export the project from Label Studio as JSON")
    for one in annotations:
        if isinstance(one, dict):
            name = _name(one.get("completed_by"))
            yield name, key, Annotated(trajectory, _answer(one, name, len(steps), where))


def _step(paragraph: Any, where: str) -> dict[str, Any]:
    if not isinstance(paragraph, dict):
        raise InputError(where, f"a step is {paragraph!r:.40}", "leave the data of tasks as it is")
    text = {"text": paragraph.get("step", paragraph.get("text"))}
    return {**text, "observation": paragraph["observation"]} if "observation" in paragraph else text


def _answer(annotation: Mapping[str, Any], by: str, steps: int, where: str) -> HumanAnswer:
    marks: dict[int, str] = {}
    comments: dict[int, str] = {}
    note, outcome = "", ""
    for one in annotation.get("result") or ():
        name, value = (one.get("from_name"), one.get("value")) if isinstance(one, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(value, dict):
            raise InputError(where, f"a result is {one!r:.60}", "export the project from Label Studio as JSON")
        text = "\n".join(map(str, value["text"])) if isinstance(value.get("text"), list) else str(value.get("text") or "")
        if name == "note":
            note = text
        elif name == "outcome":
            outcome = _single(value.get("choices"), (NO_ERROR, ERROR), "outcome", where)
        elif name in ("verdict", "comment"):
            for step in _region(value, steps, where):
                if name == "comment":
                    comments[step] = text
                    continue
                label = _single(value.get("paragraphlabels"), VERDICTS, f"label of step {step}", where)
                if marks.setdefault(step, label) != label:
                    raise InputError(where, f"step {step} is marked {marks[step]} and {label}", "remove one of the two")
    wrong = [step for step, mark in marks.items() if mark == "incorrect"]
    if outcome == NO_ERROR and wrong:
        raise InputError(
            where, f"step {wrong[0]} is marked incorrect, and the outcome is {NO_ERROR!r}", "correct one of the two"
        )
    before = min(wrong) if wrong else steps if outcome == NO_ERROR else 0
    marks |= {step: "correct" for step in range(before) if step not in marks}
    skipped = annotation.get("was_cancelled") is True
    return HumanAnswer(
        first_error=None if skipped else first_error_in(marks, steps),
        by=by,
        note=note,
        verdicts=tuple(Verdict(step, mark, comments.pop(step, "")) for step, mark in sorted(marks.items())),  # type: ignore[arg-type]
        comments=comments,
        skipped=skipped,
        at=str(annotation.get("updated_at") or annotation.get("created_at") or ""),
    )


def _region(value: Mapping[str, Any], steps: int, where: str) -> range:
    """The steps that a region covers. Label Studio writes their numbers as texts or as numbers."""
    ends = [int(end) if (end := str(value.get(name))).isdecimal() and len(end) < 9 else -1 for name in ("start", "end")]
    if not 0 <= ends[0] <= ends[1] < steps:
        raise InputError(where, f"a region is {dict(value)!r:.60}", f"it starts and ends in steps 0 to {steps - 1}")
    return range(ends[0], ends[1] + 1)


def _single(values: Any, known: tuple[str, ...], what: str, where: str) -> str:
    if not isinstance(values, list) or len(values) != 1 or values[0] not in known:
        raise InputError(where, f"the {what} is {values!r:.60}", f"it is one of {', '.join(known)}")
    return str(values[0])


def _name(person: Any) -> str:
    """The annotator of an annotation: an e-mail address, or the number of the account."""
    if isinstance(person, dict):
        return str(person.get("email") or person.get("username") or f"user {person.get('id')}")
    return f"user {person}"
