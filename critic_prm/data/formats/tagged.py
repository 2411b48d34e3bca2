"""Formats that mark the end of each step in a text or a chat: Math-Shepherd, OpenRLHF, OpenR, RLHFlow and Qwen2.5-Math-PRM."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from critic_prm.data.formats.common import Dropped, Format, Source, Target, about, describe, has
from critic_prm.data.trajectory import Step, StepLabel, Trajectory
from critic_prm.errors import InputError

TAG, EXTRA = " ки", "<extra_0>"
_FIRST = re.compile(r"[ \n]?Step 1:")
_Valued = tuple[str, StepLabel]
SIGNS: Mapping[Any, StepLabel] = {"+": 1.0, "-": 0.0}


def _divided(text: str, key: str, where: str) -> tuple[str, str]:
    """The problem, and the first step with its marker "Step 1:". Raises InputError if there is no such marker."""
    start = _FIRST.search(text)
    if start is None or not text[: start.start()].strip():
        raise InputError(where, f'"{key}" has no "Step 1:"', "the text before it is the problem")
    return text[: start.start()], text[start.end() - len("Step 1:") :]


def _unmarked(pieces: Sequence[str]) -> tuple[Step, ...]:
    """Steps without the leading "Step k: ", if every step has it."""
    marks = [f"Step {number}:" for number in range(1, len(pieces) + 1)]
    if not all(piece.startswith(mark) for piece, mark in zip(pieces, marks, strict=True)):
        return tuple(Step(piece) for piece in pieces)
    return tuple(Step(piece[len(mark) :].removeprefix(" ")) for piece, mark in zip(pieces, marks, strict=True))


def _marked(texts: Sequence[str]) -> list[str]:
    """Steps with a leading "Step k: ". Raises Dropped if a step contains the tag."""
    if any(TAG in text for text in texts):
        raise Dropped(f"a step contains the step tag {TAG!r}")
    return [f"Step {number}: {text}" for number, text in enumerate(texts, 1)]


def _marked_behind_problem(target: Target) -> tuple[list[str], list[bool]]:
    """The labelled steps with a leading "Step k: ", and their labels. Raises Dropped if the problem before them contains
    "Step 1:"."""
    labels = target.hard_labels()
    if _FIRST.search(target.trajectory.problem):
        raise Dropped('the problem contains "Step 1:"')
    return _marked(target.trajectory.texts[: len(labels)]), labels


def _ended(text: str, tag: str, problem: str, where: str) -> list[str]:
    """The texts before each tag. Raises InputError for text after the last one, which would be a step without a label."""
    *pieces, behind = text.split(tag)
    if behind.strip():
        raise InputError(where, f"{problem}: {describe(behind)}", "each step ends with one")
    return pieces


def _score_math_shepherd(row: Mapping[str, Any]) -> int:
    """A row has an input with step tags and a label that is text."""
    return has(row, "input", "label") and 3 * (
        isinstance(row["input"], str) and isinstance(row["label"], str) and TAG in row["input"]
    )


def _read_math_shepherd(source: Source) -> Iterable[Trajectory]:
    """Read one trajectory. The "Step k:" markers before the steps are removed."""
    pieces, labels = _aligned(source.text("input"), source.text("label"), source.where)
    problem, pieces[0] = _divided(pieces[0], "input", source.where)
    yield source.trajectory(problem, _unmarked(pieces), step_labels=labels)


def _write_math_shepherd(target: Target) -> dict[str, Any]:
    """Write `input` and `label` for the labelled steps. Raises Dropped if a text contains one of the format's own markers."""
    steps, labels = _marked_behind_problem(target)
    head = target.trajectory.problem + " "
    return {
        "input": head + "\n".join(step + TAG for step in steps),
        "label": head + "\n".join(f"{step} {'+' if good else '-'}" for step, good in zip(steps, labels, strict=True)),
        **target.own,
    }


def _aligned(text: str, labelled: str, where: str) -> tuple[list[str], list[StepLabel]]:
    """The pieces between tags, and their labels. A tag counts only where `labelled` has + or - instead, so a step may contain
    "ки"."""
    pieces: list[str] = []
    labels: list[StepLabel] = []
    piece, place = "", 0
    parts = text.split(TAG)
    for index, part in enumerate(parts):
        if not labelled.startswith(part, place):
            break
        place += len(part)
        piece += part
        if index == len(parts) - 1:
            if piece.strip() or place != len(labelled):
                break
            return pieces, labels
        if (sign := labelled[place : place + 2]) in (" +", " -"):
            pieces.append(piece if not pieces else piece.removeprefix("\n"))
            labels.append(SIGNS[sign[1]])
            piece, place = "", place + 2
        else:
            piece += TAG
            if not labelled.startswith(TAG, place):
                break
            place += len(TAG)
    near = labelled[max(0, place - 20) : place + 20]
    fix = '"label" must repeat "input" with + or - in the place of each tag'
    raise InputError(where, f'"input" and "label" part ways after {len(labels)} steps, near {near!r}', fix)


def _score_openrlhf(row: Mapping[str, Any]) -> int:
    """A row has inputs with placeholders, and a list of labels."""
    complete = has(row, "inputs", "labels") and isinstance(row["inputs"], str) and isinstance(row["labels"], list)
    return 4 if complete and TAG in row["inputs"] else 0


def _read_openrlhf(source: Source) -> Iterable[Trajectory]:
    """Read one trajectory. The "Step k:" markers before the steps are removed."""
    pieces = _ended(source.text("inputs"), TAG, '"inputs" goes on behind its last placeholder', source.where)
    labels = source.labels("labels", len(pieces), SIGNS, numbers=True)
    problem, first = _divided(pieces[0], "inputs", source.where)
    steps = _unmarked([first, *(piece.removeprefix("\n") for piece in pieces[1:])])
    yield source.trajectory(problem, steps, step_labels=labels)


def _write_openrlhf(target: Target) -> dict[str, Any]:
    """Write `inputs` and `labels` for the labelled steps. Raises Dropped if a text contains one of the format's own markers."""
    problem = target.trajectory.problem
    steps, labels = _marked_behind_problem(target)
    if any(TAG in text for text in (problem, *steps)):  # also where "Step 1:" and the text of a step make one of it
        raise Dropped("a text contains the placeholder")
    return {
        "id": target.trajectory.id,
        "inputs": problem + " " + "\n".join(step + TAG for step in steps),
        "labels": ["+" if good else "-" for good in labels],
    }


def _score_openr(row: Mapping[str, Any]) -> int:
    """A row has a question with a tagged process, or with reasoning steps that have values."""
    return max(2 * has(row, "question", "process"), 2 * has(row, "question", "reasoning_steps"))


def _read_openr(source: Source) -> Iterable[Trajectory]:
    """Read one trajectory per process, per leaf of a tree, or per prefix that no other prefix extends.

    The Monte Carlo value of a step is read as its P(correct).
    """
    question = source.text("question")
    if "process" in source.row:
        # every step ends with the tag, which is at the end of a line
        pieces = source.text("process").removesuffix(TAG).split(f"{TAG}\n")
        key = "labels" if "labels" in source.row else "label"
        labels = source.labels(key, len(pieces), {1: 1.0, 0: 0.0})
        source.drop("label")
        yield source.trajectory(question, _unmarked(pieces), step_labels=labels)
        return
    grown, where = source.get("reasoning_steps"), source.where
    if not isinstance(grown, dict | list):
        raise source.error("reasoning_steps", "it must be a tree or a list of prefixes")
    gold = source.answer("final_answer")
    for path in _leaves(grown, where) if isinstance(grown, dict) else _chains(grown, question, where):
        if path:
            steps, values = (Step(text) for text, _ in path), (value for _, value in path)
            yield source.trajectory(question, steps, id="", gold_answer=gold, step_labels=values)


def _write_openr(target: Target) -> dict[str, Any]:
    """Write a process row for the labelled steps."""
    labels = target.hard_labels()
    return {
        "question": target.trajectory.problem,
        "process": "\n".join(step + TAG for step in _marked(target.trajectory.texts[: len(labels)])),
        "labels": [int(good) for good in labels],
    }


def _value(node: Mapping[str, Any], where: str) -> float:
    value = node.get("mc_value")
    if isinstance(value, int | float) and 0 <= value <= 1:
        return float(value)
    raise InputError(where, f'"mc_value" is {describe(value)}', "it must be a share from 0 to 1")


def _leaves(root: Mapping[str, Any], where: str) -> Iterator[list[_Valued]]:
    """Every path from the root to a leaf, without the root itself, whose text is the question."""
    stack: list[tuple[Mapping[str, Any], list[_Valued]]] = [(root, [])]
    while stack:
        node, path = stack.pop()
        children = node.get("children") or []
        if not children:
            yield path
        stack.extend((child, [*path, (str(child.get("text", "")), _value(child, where))]) for child in reversed(children))


def _chains(prefixes: list[Any], question: str, where: str) -> Iterator[list[_Valued]]:
    """Chains of prefixes, each extending the one before it. A step is the text that a prefix adds."""
    values = {str(node.get("solution_prefix", "")): _value(node, where) for node in prefixes}
    texts = sorted(text for text in values if text.startswith(question) and text != question)
    chain: list[str] = []
    for text, following in zip(texts, [*texts[1:], ""], strict=True):
        while chain and not text.startswith(chain[-1]):
            chain.pop()
        chain.append(text)
        if not following.startswith(text):
            starts = [question, *chain]
            yield [(b[len(a) :].strip(), values[b]) for a, b in zip(starts, chain, strict=False) if b[len(a) :].strip()]


def _score_rlhflow(row: Mapping[str, Any]) -> int:
    """A row has conversations in which the assistant only says + or -."""
    turns = row.get("conversations")
    if not isinstance(turns, list) or not turns or len(turns) % 2:
        return 0
    return 4 * all(isinstance(turn, dict) and turn.get("content") in ("+", "-") for turn in turns[1::2])


def _read_rlhflow(source: Source) -> Iterable[Trajectory]:
    """Read one trajectory. The "Step k:" markers before the steps are removed."""
    turns = source.get("conversations")
    if not _score_rlhflow(source.row):
        fix = "fix or delete the row"
        raise InputError(source.where, '"conversations" does not alternate steps with + or -', fix)
    texts = [str(turn.get("content", "")) if isinstance(turn, dict) else "" for turn in turns[::2]]
    problem, texts[0] = _divided(texts[0], "conversations", source.where)
    yield source.trajectory(problem, _unmarked(texts), step_labels=(SIGNS[turn["content"]] for turn in turns[1::2]))


def _write_rlhflow(target: Target) -> dict[str, Any]:
    """Write the conversation for the labelled steps."""
    steps, labels = _marked_behind_problem(target)
    steps[0] = f"{target.trajectory.problem} {steps[0]}"
    turns = [
        turn
        for step, good in zip(steps, labels, strict=True)
        for turn in ({"role": "user", "content": step}, {"role": "assistant", "content": "+" if good else "-"})
    ]
    return {"id": target.trajectory.id, "conversations": turns}


def _score_qwen_prm(row: Mapping[str, Any]) -> int:
    """A row has messages, and the last one contains the step token."""
    turns = row.get("messages")
    if not isinstance(turns, list) or not turns or not isinstance(turns[-1], dict):
        return 0
    return 5 if isinstance(text := turns[-1].get("content"), str) and EXTRA in text else 0


def _read_qwen_prm(source: Source) -> Iterable[Trajectory]:
    """Read one trajectory. The user turn is the problem; the text before each step token is a step."""
    turns = {str(turn.get("role")): turn.get("content") for turn in source.get("messages") or () if isinstance(turn, dict)}
    problem, answer, system = turns.get("user"), turns.get("assistant"), turns.get("system")
    if not isinstance(problem, str) or not problem.strip() or not isinstance(answer, str) or EXTRA not in answer:
        fix = f"it needs a user's turn and an answer with {EXTRA}"
        raise InputError(source.where, f'"messages" contains {describe(list(turns))}', fix)
    pieces = _ended(answer, EXTRA, f"the answer goes on behind its last {EXTRA}", source.where)
    labels = source.labels("labels", len(pieces), {None: None}, numbers=True)
    meta = {"system": system} if isinstance(system, str) else {}
    yield source.trajectory(problem, map(Step, pieces), step_labels=labels, meta=meta)


def _write_qwen_prm(target: Target) -> dict[str, Any]:
    """Write the chat and labels of the labelled steps, with a system turn if the source had one."""
    trajectory, labels = target.trajectory, target.hard_labels()
    texts = trajectory.texts[: len(labels)]
    if any(EXTRA in text for text in texts):
        raise Dropped(f"a step contains the step token {EXTRA}")
    system = target.own.get("system")
    turns = [{"role": "system", "content": system}] if isinstance(system, str) else []
    turns.append({"role": "user", "content": trajectory.problem})
    turns.append({"role": "assistant", "content": "".join(text + EXTRA for text in texts)})
    return {"id": trajectory.id, "messages": turns, "labels": [int(label) for label in labels]}


FORMATS = {
    "math-shepherd": Format(
        read=_read_math_shepherd, write=_write_math_shepherd, score=_score_math_shepherd, **about("math-shepherd")
    ),
    "openrlhf": Format(read=_read_openrlhf, write=_write_openrlhf, score=_score_openrlhf, **about("openrlhf")),
    "openr": Format(read=_read_openr, write=_write_openr, score=_score_openr, **about("openr")),
    "rlhflow": Format(read=_read_rlhflow, write=_write_rlhflow, score=_score_rlhflow, **about("rlhflow")),
    "qwen-prm": Format(read=_read_qwen_prm, write=_write_qwen_prm, score=_score_qwen_prm, **about("qwen-prm")),
}
