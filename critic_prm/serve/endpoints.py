"""Convert request bodies to trajectories, and labels to reply bodies, for every scoring endpoint."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, zip_longest
from typing import Any, NamedTuple, TypeAlias
from uuid import uuid4

from critic_prm.data import Label, Step, Trajectory, split_steps
from critic_prm.data.aggregate import aggregate
from critic_prm.serve.openapi import MAX_STEPS, Refused
from critic_prm.serve.settings import ServeSettings

Body: TypeAlias = Mapping[str, Any]


class Handler(NamedTuple):
    """How an endpoint reads its requests, and builds the reply from the body, the labels and the name of the model."""

    trajectories: Callable[[Body, ServeSettings], list[Trajectory]]
    reply: Callable[[Body, Sequence[Label], str, ServeSettings], dict[str, Any]]


def _score_trajectories(body: Body, settings: ServeSettings) -> list[Trajectory]:
    return [_trajectory(row["problem"], row) for row in body["trajectories"]]


def _score_reply(body: Body, labels: Sequence[Label], model: str, settings: ServeSettings) -> dict[str, Any]:
    aggregation = body.get("aggregation", settings.aggregation)
    results = [_scored(row, label, aggregation) for row, label in zip(body["trajectories"], labels, strict=True)]
    if body.get("critiques"):
        for result, label in zip(results, labels, strict=True):
            result["critiques"] = _critiques(label)
    return {"model": model, "aggregation": aggregation, "results": results, "usage": _usage(labels)}


def _rank_trajectories(body: Body, settings: ServeSettings) -> list[Trajectory]:
    return [_trajectory(body["problem"], row) for row in body["candidates"]]


def _rank_reply(body: Body, labels: Sequence[Label], model: str, settings: ServeSettings) -> dict[str, Any]:
    """Best first. Candidates without a score come last; ties keep the input order."""
    aggregation = body.get("aggregation", settings.aggregation)
    rows = zip(body["candidates"], labels, strict=True)
    ranking = [{"index": index, **_scored(row, label, aggregation)} for index, (row, label) in enumerate(rows)]
    ranking.sort(key=lambda row: (row["score"] is None, -(row["score"] or 0.0), row["index"]))
    best = ranking[0]["index"] if ranking and ranking[0]["score"] is not None else None
    return {"model": model, "aggregation": aggregation, "best": best, "ranking": ranking, "usage": _usage(labels)}


def _pooling_trajectories(body: Body, settings: ServeSettings) -> list[Trajectory]:
    if "messages" in body:
        chat = [(turn["role"], turn["content"]) for turn in body["messages"]]
        pairs = [last_exchange(chat) or ("", "\n\n".join(text for _, text in chat))]
    else:
        given = body.get("input", [])
        pairs = [problem_and_response(text) for text in ([given] if isinstance(given, str) else given)]
    return [_plain(*pair, settings.step_tag) for pair in pairs]


def _pooling_reply(body: Body, labels: Sequence[Label], model: str, settings: ServeSettings) -> dict[str, Any]:
    """One row [P(incorrect), P(correct)] per step, nulls for a step that was not judged. Raises Refused."""
    _refuse_unusable(labels)
    rows = [[[None if p is None else 1 - p, p] for p in label.p_correct] for label in labels]
    return {
        "id": f"pool-{uuid4().hex}",
        "object": "list",
        "created": int(time.time()),
        "model": model,
        "data": [{"index": index, "object": "pooling", "data": data} for index, data in enumerate(rows)],
        "usage": {"prompt_tokens": 0, "total_tokens": 0, "completion_tokens": 0, **_usage(labels)},
    }


def _reward_trajectories(body: Body, settings: ServeSettings) -> list[Trajectory]:
    queries = body["query"]
    pairs = zip_longest(queries, body.get("prompts", [])[: len(queries)])
    return [_plain(*problem_and_response(query, prompt), settings.step_tag) for query, prompt in pairs]


def _reward_reply(body: Body, labels: Sequence[Label], model: str, settings: ServeSettings) -> dict[str, Any]:
    """One number per query in every list, because the trainer builds tensors from them. Raises Refused."""
    _refuse_unusable(labels)
    scores = [aggregate(label.p_correct, settings.aggregation) for label in labels]
    if None in scores:
        raise Refused(502, f"the critic judged no step of {scores.count(None)} of {len(scores)} solutions; nothing is imputed")
    lowest = [aggregate(label.p_correct, "min") for label in labels]
    logs = {"min_step": lowest, "steps": [len(label.p_correct) for label in labels]} if labels else {}
    return {"rewards": scores, "scores": scores, "extra_logs": logs}


HANDLERS = {
    "score": Handler(_score_trajectories, _score_reply),
    "rank": Handler(_rank_trajectories, _rank_reply),
    "pooling": Handler(_pooling_trajectories, _pooling_reply),
    "reward": Handler(_reward_trajectories, _reward_reply),
}
"""The handler of each operation in openapi.OPERATIONS, by name."""


def _trajectory(problem: str, row: Body) -> Trajectory:
    """The trajectory for the critic: problem, steps and the solution's own answer, without any field that could reveal the gold
    answer."""
    steps = tuple(Step(s) if isinstance(s, str) else Step(s["text"], s.get("observation")) for s in row["steps"])
    return Trajectory(id="", problem=problem, steps=steps, final_answer=row.get("final_answer"))


def _plain(problem: str, response: str, tag: str) -> Trajectory:
    return Trajectory(id="", problem=problem, steps=tuple(map(Step, steps_of(response, tag))))


def _scored(row: Body, label: Label, aggregation: str) -> dict[str, Any]:
    return {
        "id": row.get("id"),
        "p_correct": list(label.p_correct),
        "first_error": label.first_error,
        "score": aggregate(label.p_correct, aggregation),
        "status": label.status,
    }


def _critiques(label: Label) -> list[list[str]]:
    critiques: list[list[str]] = [[] for _ in label.p_correct]
    for verdict in (verdict for judgement in label.judgements for verdict in judgement.verdicts if verdict.critique):
        critiques[verdict.step].append(verdict.critique)
    return critiques


def _usage(labels: Sequence[Label]) -> dict[str, int]:
    return {"solutions": len(labels), "steps": sum(len(label.p_correct) for label in labels)}


def _refuse_unusable(labels: Sequence[Label]) -> None:
    if bad := [label.status for label in labels if label.status != "ok"]:
        raise Refused(502, f"{len(bad)} of {len(labels)} judgements could not be parsed ({bad[0]}); nothing is imputed")


# Texts of RL trainers and pooling clients, with prompt and response in one string.

_MARKERS = re.compile(
    r"<\|im_start\|>[ \t]{0,8}(?P<chatml>\w{1,32})\n"  # ChatML: Qwen and many others
    r"|<\|start_header_id\|>(?P<llama>\w{1,32})<\|end_header_id\|>"  # Llama 3
    r"|<start_of_turn>(?P<gemma>\w{1,32})\n"
    r"|<\|(?P<phi>system|user|assistant)\|>"
    r"|(?P<inst>\[INST\])|(?P<answer>\[/INST\])"
)
_NOISE = re.compile(
    r"<\|(?:im_end|endoftext|eot_id|end_of_text|begin_of_text|end|eos|pad)\|>|<end_of_turn>|<bos>|<eos>|<pad>|</?s>"
)

WINDOW, LONGEST = 1 << 14, 128
"""Characters per regex search, and an upper limit on the length of a match of the patterns above."""


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """The matches of `finditer`, found by searches of bounded length. A regex search holds the GIL, so a long one would block
    all other requests."""
    place = 0
    while place < len(text):
        match = pattern.search(text, place, place + WINDOW + LONGEST)
        if match is not None:
            yield match
        place = place + WINDOW if match is None else match.end()


def turns(text: str) -> list[tuple[str, str]]:
    """The turns of a text in a chat template, as (role, content); empty for a text without roles."""
    marks = list(islice(_matches(_MARKERS, text), MAX_STEPS + 1))
    if len(marks) > MAX_STEPS:
        raise Refused(422, f"a text has more than {MAX_STEPS} turns")
    ends = [mark.start() for mark in marks[1:]] + [len(text)] * bool(marks)
    return [(_role(mark), clean(text[mark.end() : end])) for mark, end in zip(marks, ends, strict=True)]


def _role(mark: re.Match[str]) -> str:
    if mark["inst"] or mark["answer"]:
        return "user" if mark["inst"] else "assistant"
    name = mark["chatml"] or mark["llama"] or mark["gemma"] or mark["phi"]
    return "assistant" if name == "model" else name


def clean(text: str) -> str:
    """The text without its begin, end and padding tokens."""
    kept, end = [], 0
    for match in _matches(_NOISE, text):
        kept.append(text[end : match.start()])
        end = match.end()
    return "".join([*kept, text[end:]]).strip()


def problem_and_response(text: str, prompt: str | None = None) -> tuple[str, str]:
    """The last question and the response to it.

    If the text begins with `prompt`, it is split there. Otherwise the roles of a chat template decide, then `prompt`, and
    without one the first blank line separates problem and response.
    """
    if prompt is not None and text.startswith(prompt):
        questions = [content for role, content in turns(prompt) if role == "user" and content]
        return (questions[-1] if questions else clean(prompt)), clean(text[len(prompt) :])
    return last_exchange(turns(text)) or _by_blank_line(clean(text), None if prompt is None else clean(prompt))


def last_exchange(chat: Sequence[tuple[str, str]]) -> tuple[str, str] | None:
    """The last user turn and the assistant turns after it; None without a user turn."""
    last = next((index for index in range(len(chat) - 1, -1, -1) if chat[index][0] == "user"), None)
    if last is None:
        return None
    return chat[last][1], "\n\n".join(text for role, text in chat[last + 1 :] if role == "assistant")


def _by_blank_line(text: str, prompt: str | None) -> tuple[str, str]:
    if prompt is not None:
        return prompt, text.removeprefix(prompt).strip()
    problem, gap, response = text.partition("\n\n")
    return (problem.strip(), response.strip()) if gap else ("", text)


def steps_of(response: str, tag: str) -> list[str]:
    """The steps of a response. Each step ends with a `tag`, and text after the last tag is dropped, as a PRM with step tags
    scores it. Without tags, steps are split at "Step k:" markers or blank lines. An empty response is one empty step, which the
    critic judges."""
    if (tags := response.count(tag)) > MAX_STEPS:
        raise Refused(422, f"a solution has more than {MAX_STEPS} steps")
    if tags:
        return [part.strip() for part in response.split(tag)[:-1]]
    return split_steps(response) or [response.strip()]
