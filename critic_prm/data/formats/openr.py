"""OpenR (openreasoner/openr): tagged processes with step labels, and Monte Carlo trees or prefixes with values.

    {"question": "p", "process": "Step 1: s ки", "labels": [1]}
    {"question": "p", "reasoning_steps": {"text": "p", "children": [{"text": "s", "mc_value": 0.5}]}}

The Monte Carlo value of a step is read as its P(correct).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from critic_prm.data.formats.common import Convention, Options, answer_of, has, id_of, judged, rest, say, text_of, unsaid
from critic_prm.data.formats.math_shepherd import TAG, marked, unmarked
from critic_prm.data.records.reading import Record
from critic_prm.data.trajectory import Step, StepLabel, Trajectory
from critic_prm.errors import InputError

CONVENTION = Convention(
    labels="`labels`: 1 or 0 per step tagged `ки`; or `mc_value`: share of rollouts that end right", after_error="labelled"
)


def score(row: Mapping[str, Any]) -> int:
    """A row has a question with a tagged process, or with reasoning steps that have values."""
    return max(2 * has(row, "question", "process"), 2 * has(row, "question", "reasoning_steps"))


def read(record: Record, options: Options) -> Iterable[Trajectory]:
    """Read one trajectory per process, per leaf of a tree, or per prefix that no other prefix extends."""
    row, where = record.data, record.where
    question = text_of(row, "question", where)
    if "process" in row:
        yield _process(row, question, where)
        return
    grown = row.get("reasoning_steps")
    if isinstance(grown, dict):
        paths = _leaves(grown, where)
    elif isinstance(grown, list):
        paths = _chains(grown, question, where)
    else:
        raise InputError(where, f'"reasoning_steps" is {say(grown)}', "it must be a tree or a list of prefixes")
    for path in paths:
        if path:
            yield Trajectory(
                id="",
                problem=question,
                steps=tuple(Step(text) for text, _ in path),
                gold_answer=answer_of(row, "final_answer"),
                step_labels=tuple(value for _, value in path),
                meta=rest(row, ("question", "reasoning_steps", "final_answer")),
            )


def write(trajectory: Trajectory, options: Options, lost: Counter[str]) -> dict[str, Any]:
    """Write a process row for the labelled steps."""
    labels = judged(trajectory, "openr", lost)
    unsaid(trajectory, (), lost)
    return {
        "question": trajectory.problem,
        "process": "\n".join(step + TAG for step in marked(trajectory.texts[: len(labels)])),
        "labels": [int(good) for good in labels],
    }


_Valued = tuple[str, StepLabel]


def _process(row: Mapping[str, Any], question: str, where: str) -> Trajectory:
    labels = row.get("labels", row.get("label"))
    # every step ends with the tag, which is at the end of a line
    pieces = text_of(row, "process", where).removesuffix(TAG).split(f"{TAG}\n")
    if not isinstance(labels, list) or len(labels) != len(pieces) or not all(label in (0, 1) for label in labels):
        raise InputError(where, f'"labels" is {say(labels)}', f"it needs 1 or 0 for each of the {len(pieces)} tagged steps")
    return Trajectory(
        id=id_of(row),
        problem=question,
        steps=unmarked(pieces),
        step_labels=tuple(float(label) for label in labels),
        meta=rest(row, ("question", "process", "labels", "label", "id")),
    )


def _value(node: Mapping[str, Any], where: str) -> float:
    value = node.get("mc_value")
    if isinstance(value, int | float) and 0 <= value <= 1:
        return float(value)
    raise InputError(where, f'"mc_value" is {say(value)}', "it must be a share from 0 to 1")


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
