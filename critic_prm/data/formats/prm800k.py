"""PRM800K (openai/prm800k), phases 1 and 2: steps with alternative candidates, each rated 1, 0 (neutral) or -1.

{"question": {"problem": "p"},
 "label": {"steps": [{"completions": [{"text": "s", "rating": 1}], "chosen_completion": 0}]}}
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from critic_prm.data.formats.common import (
    Convention,
    Dropped,
    Options,
    answer_of,
    count,
    has,
    known,
    rating,
    rest,
    say,
    text_of,
    unsaid,
)
from critic_prm.data.records.reading import Record
from critic_prm.data.trajectory import Step, StepLabel, Trajectory
from critic_prm.errors import InputError

CONVENTION = Convention(
    labels="`rating`: 1, 0 or -1 for each candidate of a step, null where nobody rated it",
    neutral="rating 0",
    after_error="phase 2 stops there; phase 1 goes on from a better candidate",
)
_RATINGS: Mapping[Any, StepLabel] = {1: 1.0, 0: "neutral", -1: 0.0, None: None}
_ANSWER = re.compile(r"# Answer\s+(.+?)\s*$", re.DOTALL)
_ROW = ("labeler", "timestamp", "generation", "is_quality_control_question", "is_initial_screening_question")
_QUESTION = ("ground_truth_solution", "pre_generated_verifier_score")
_LABEL = ("total_time", "finish_reason")


def score(row: Mapping[str, Any]) -> int:
    """A row has a question object, and a label object with steps."""
    question, label = row.get("question"), row.get("label")
    return 6 if isinstance(question, dict) and isinstance(label, dict) and has(label, "steps") else 0


def read(record: Record, options: Options) -> Iterable[Trajectory]:
    """Read the chosen path. With alternatives="all", also read one trajectory per candidate that was not chosen, following the
    same prefix.

    In phase 2, steps of the generated solution after the labelled ones are included without labels. A step written by a labeler
    has no label unless it was rated. Raises Dropped for quality-control and screening rows.
    """
    row, where = record.data, record.where
    for flag, reason in ((_ROW[3], "quality-control question"), (_ROW[4], "screening question")):
        if row.get(flag):
            raise Dropped(reason)
    question, label = row["question"], row["label"]
    path, others = _path(label["steps"], "pre_generated_steps" in question, options, where)
    generated = question.get("pre_generated_steps") or []
    if not isinstance(generated, list):
        raise InputError(where, f'"pre_generated_steps" is {say(generated)}', "it must be a list with the text of each step")
    whole = [*path, *((str(text), None) for text in generated[len(path) :])]
    if not whole:
        raise Dropped("no step was labelled")
    meta = {**rest(row, ("question", "label")), **rest(question, _USED), **rest(label, ("steps",))}
    final = question.get("pre_generated_answer")
    if final is None and (found := _ANSWER.search(whole[-1][0])):
        final = found.group(1)
    common = (text_of(question, "problem", where), answer_of(question, "ground_truth_answer"), meta)
    yield _trajectory(whole, None if final is None else str(final), *common)
    if options.alternatives == "all":
        for place, candidate in others:
            yield _trajectory([*path[:place], candidate], None, *common)


_USED = ("problem", "ground_truth_answer", "pre_generated_answer", "pre_generated_steps")
_Rated = tuple[str, StepLabel]


def _trajectory(path: list[_Rated], final: str | None, problem: str, gold: str | None, meta: dict[str, Any]) -> Trajectory:
    return Trajectory(
        id="",
        problem=problem,
        steps=tuple(Step(text) for text, _ in path),
        final_answer=final,
        gold_answer=gold,
        step_labels=tuple(label for _, label in path),
        meta=meta,
    )


def _path(steps: Any, phase2: bool, options: Options, where: str) -> tuple[list[_Rated], list[tuple[int, _Rated]]]:
    """The chosen steps with their labels, and the candidates that were not chosen with their positions."""
    if not isinstance(steps, list):
        raise InputError(where, f'"label.steps" is {say(steps)}', "it must be the list of labelled steps")
    path: list[_Rated] = []
    others: list[tuple[int, _Rated]] = []
    for place, step in enumerate(steps):
        rated = list(_rated(step, place, where))
        chosen, human = step.get("chosen_completion"), step.get("human_completion")
        if isinstance(chosen, int) and 0 <= chosen < len(rated):
            taken: _Rated | None = rated.pop(chosen)
        elif human is not None:
            taken = _human(human, place, options, where)
        else:
            # In phase 2 the first candidate is the generated solution's own step, and labelling stops at its error. In
            # phase 1 nobody continued from here, so none of the candidates is on the path.
            taken = rated.pop(0) if rated and (phase2 or not path) else None
        others.extend((place, candidate) for candidate in rated)
        if taken is None:
            break
        path.append(taken)
    return path, others


def _rated(step: Any, place: int, where: str) -> Iterator[_Rated]:
    candidates = step.get("completions") if isinstance(step, dict) else say(step)
    if not isinstance(candidates, list | None):
        raise InputError(where, f"the completions of step {place} are {say(candidates)}", "they must be a list of candidates")
    for candidate in candidates or ():  # null if the labeler wrote the step without seeing candidates
        if not isinstance(candidate, dict) or not isinstance(candidate.get("text"), str):
            raise InputError(where, f"step {place} holds {say(candidate)}", "a candidate has a text and a rating")
        yield candidate["text"], rating(candidate.get("rating"), _RATINGS, where, f"a rating of step {place}")


def _human(human: Any, place: int, options: Options, where: str) -> _Rated:
    """A step written by the labeler: a string, or an object whose rating may have been added later."""
    if not isinstance(human, dict):
        human = {"text": str(human)}
    rated = human.get("rating") if human.get("rating") is not None else human.get("corrected_rating")
    if rated is None and options.human_steps == "good":
        rated = 1
    return str(human.get("text", "")), rating(rated, _RATINGS, where, f"the rating of the step written for step {place}")


def write(trajectory: Trajectory, options: Options, lost: Counter[str]) -> dict[str, Any]:
    """Write a phase-2 row: the whole solution, and a rating for each step up to the last labelled one."""
    gold = trajectory.gold()
    last = max((index for index, label in enumerate(gold) if label is not None), default=-1)
    if last < 0:
        raise Dropped("no step has a label")
    count("soft labels (rounded at 0.5)", sum(label not in (0.0, 1.0, "neutral", None) for label in gold), lost)
    steps = [
        {
            "completions": [{"text": step.text, "rating": _rating(label), "flagged": False}],
            "human_completion": None,
            "chosen_completion": 0,
        }
        for step, label in zip(trajectory.steps[: last + 1], gold, strict=False)
    ]
    first = trajectory.first_error()
    reason = {None: None, -1: "solution"}.get(first, "found_error")
    own = known(trajectory, *_ROW, *_QUESTION, *_LABEL)
    unsaid(trajectory, {"gold_answer", "final_answer", *(f"meta.{key}" for key in own)}, lost)
    return {
        **dict.fromkeys(_ROW[:3]),
        **dict.fromkeys(_ROW[3:], False),
        **{key: own[key] for key in _ROW if key in own},
        "question": {
            "problem": trajectory.problem,
            "ground_truth_answer": trajectory.gold_answer,
            "pre_generated_steps": trajectory.texts,
            "pre_generated_answer": trajectory.final_answer,
            **{key: own[key] for key in _QUESTION if key in own},
        },
        "label": {"steps": steps, "total_time": own.get("total_time"), "finish_reason": own.get("finish_reason", reason)},
    }


def _rating(label: StepLabel) -> int | None:
    if label is None or label == "neutral":
        return None if label is None else 0
    return 1 if label >= 0.5 else -1
