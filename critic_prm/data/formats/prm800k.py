"""PRM800K (openai/prm800k), phases 1 and 2: steps with alternative candidates, each rated 1, 0 (neutral) or -1."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from critic_prm.data.formats.common import RATINGS, Dropped, Format, Source, Target, about, describe, has, rating
from critic_prm.data.trajectory import Step, StepLabel, Trajectory
from critic_prm.errors import InputError

_RATINGS: Mapping[Any, StepLabel] = {**RATINGS, None: None}
_ANSWER = re.compile(r"# Answer\s+(.+?)\s*$", re.DOTALL)
_ROW = ("labeler", "timestamp", "generation", "is_quality_control_question", "is_initial_screening_question")
_QUESTION = ("ground_truth_solution", "pre_generated_verifier_score")
_LABEL = ("total_time", "finish_reason")
_Rated = tuple[str, StepLabel]


def score(row: Mapping[str, Any]) -> int:
    """A row has a question object, and a label object with steps."""
    question, label = row.get("question"), row.get("label")
    return 6 if isinstance(question, dict) and isinstance(label, dict) and has(label, "steps") else 0


def read(source: Source) -> Iterable[Trajectory]:
    """Read the chosen path. With alternatives="all", also read one trajectory per candidate that was not chosen, following the
    same prefix.

    In phase 2, steps of the generated solution after the labelled ones are included without labels. A step written by a labeler
    has no label unless it was rated. Raises Dropped for quality-control and screening rows.
    """
    for flag, reason in ((_ROW[3], "quality-control question"), (_ROW[4], "screening question")):
        if source.row.get(flag):
            raise Dropped(reason)
    question, label = Source(source.get("question"), source.where), Source(source.get("label"), source.where)
    path, others = _path(label.get("steps"), "pre_generated_steps" in question.row, source)
    generated = question.get("pre_generated_steps") or []
    if not isinstance(generated, list):
        raise question.error("pre_generated_steps", "it must be a list with the text of each step")
    whole = [*path, *((str(text), None) for text in generated[len(path) :])]
    if not whole:
        raise Dropped("no step was labelled")
    final = question.get("pre_generated_answer")
    if final is None and (answer := _ANSWER.search(whole[-1][0])):
        final = answer.group(1)
    problem, gold = question.text("problem"), question.answer("ground_truth_answer")
    meta = {**source.unused(), **question.unused(), **label.unused()}

    def trajectory(path: list[_Rated], final: str | None) -> Trajectory:
        steps, labels = tuple(Step(text) for text, _ in path), tuple(rated for _, rated in path)
        return Trajectory("", problem, steps, final, gold, step_labels=labels, meta=meta)

    yield trajectory(whole, None if final is None else str(final))
    if source.options.alternatives == "all":
        for place, candidate in others:
            yield trajectory([*path[:place], candidate], None)


def _path(steps: Any, phase2: bool, source: Source) -> tuple[list[_Rated], list[tuple[int, _Rated]]]:
    """The chosen steps with their labels, and the candidates that were not chosen with their positions."""
    if not isinstance(steps, list):
        raise InputError(source.where, f'"label.steps" is {describe(steps)}', "it must be the list of labelled steps")
    path: list[_Rated] = []
    others: list[tuple[int, _Rated]] = []
    for place, step in enumerate(steps):
        rated = list(_rated(step, place, source))
        chosen, human = step.get("chosen_completion"), step.get("human_completion")
        if isinstance(chosen, int) and 0 <= chosen < len(rated):
            taken: _Rated | None = rated.pop(chosen)
        elif human is not None:
            taken = _human(human, place, source)
        else:
            # In phase 2 the first candidate is the generated solution's own step, and labelling stops at its error. In
            # phase 1 nobody continued from here, so none of the candidates is on the path.
            taken = rated.pop(0) if rated and (phase2 or not path) else None
        others.extend((place, candidate) for candidate in rated)
        if taken is None:
            break
        path.append(taken)
    return path, others


def _rated(step: Any, place: int, source: Source) -> Iterator[_Rated]:
    candidates = step.get("completions") if isinstance(step, dict) else describe(step)
    if not isinstance(candidates, list | None):
        problem = f"the completions of step {place} are {describe(candidates)}"
        raise InputError(source.where, problem, "they must be a list of candidates")
    for candidate in candidates or ():  # null if the labeler wrote the step without seeing candidates
        if not isinstance(candidate, dict) or not isinstance(candidate.get("text"), str):
            raise InputError(
                source.where, f"step {place} contains {describe(candidate)}", "a candidate has a text and a rating"
            )
        yield candidate["text"], source.label(candidate.get("rating"), _RATINGS, f"a rating of step {place}")


def _human(human: Any, place: int, source: Source) -> _Rated:
    """A step written by the labeler: a string, or an object whose rating may have been added later."""
    if not isinstance(human, dict):
        human = {"text": str(human)}
    rated = human.get("rating") if human.get("rating") is not None else human.get("corrected_rating")
    if rated is None and source.options.human_steps == "good":
        rated = 1
    return str(human.get("text", "")), source.label(rated, _RATINGS, f"the rating of the step written for step {place}")


def write(target: Target) -> dict[str, Any]:
    """Write a phase-2 row: the whole solution, and a rating for each step up to the last labelled one."""
    trajectory, gold, own = target.trajectory, target.labels(), target.own
    last = max(index for index, label in enumerate(gold) if label is not None)
    steps = [
        {
            "completions": [{"text": step.text, "rating": rating(label), "flagged": False}],
            "human_completion": None,
            "chosen_completion": 0,
        }
        for step, label in zip(trajectory.steps[: last + 1], gold, strict=False)
    ]
    reason = {None: None, -1: "solution"}.get(trajectory.first_error(), "found_error")
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


FORMATS = {
    "prm800k": Format(read=read, write=write, score=score, own=(*_ROW, *_QUESTION, *_LABEL), **about("prm800k")),
}
