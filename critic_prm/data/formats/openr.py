"""OpenR (openreasoner/openr): tagged processes with step labels, and Monte Carlo trees or prefixes with values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from critic_prm.data.formats.common import Format, Source, Target, describe, has
from critic_prm.data.formats.math_shepherd import TAG, marked, unmarked
from critic_prm.data.trajectory import Step, StepLabel, Trajectory
from critic_prm.errors import InputError

_Valued = tuple[str, StepLabel]


def score(row: Mapping[str, Any]) -> int:
    """A row has a question with a tagged process, or with reasoning steps that have values."""
    return max(2 * has(row, "question", "process"), 2 * has(row, "question", "reasoning_steps"))


def read(source: Source) -> Iterable[Trajectory]:
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
        yield source.trajectory(question, unmarked(pieces), step_labels=labels)
        return
    grown, where = source.get("reasoning_steps"), source.where
    if not isinstance(grown, dict | list):
        raise source.error("reasoning_steps", "it must be a tree or a list of prefixes")
    gold = source.answer("final_answer")
    for path in _leaves(grown, where) if isinstance(grown, dict) else _chains(grown, question, where):
        if path:
            steps, values = (Step(text) for text, _ in path), (value for _, value in path)
            yield source.trajectory(question, steps, id="", gold_answer=gold, step_labels=values)


def write(target: Target) -> dict[str, Any]:
    """Write a process row for the labelled steps."""
    labels = target.hard_labels()
    return {
        "question": target.trajectory.problem,
        "process": "\n".join(step + TAG for step in marked(target.trajectory.texts[: len(labels)])),
        "labels": [int(good) for good in labels],
    }


FORMAT = Format(
    sample={"question": "p", "process": "Step 1: s ки", "labels": [1]},
    read=read,
    write=write,
    score=score,
    labels="`labels`: 1 or 0 per step tagged `ки`; or `mc_value`: share of rollouts with the correct answer",
    after_error="labelled",
    step_labels=(1.0, 0.0),
)


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
