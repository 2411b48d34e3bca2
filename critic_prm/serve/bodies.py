"""Convert request bodies to trajectories and labels to reply bodies, for every scoring endpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import uuid4

from critic_prm.data.aggregate import aggregate
from critic_prm.data.judgement import Label
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.errors import CriticPrmError
from critic_prm.serve import texts
from critic_prm.serve.settings import ServeSettings

Body: TypeAlias = Mapping[str, Any]


class Unusable(CriticPrmError):
    """A judgement without a usable status, in a reply format that cannot represent it."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One request and reply format. `request` and `reply` name the schemas; the reply is built from the body, the labels and
    the name of the model."""

    name: str
    path: str
    summary: str
    request: str
    reply: str
    trajectories: Callable[[Body, ServeSettings], list[Trajectory]]
    answer: Callable[[Body, Sequence[Label], str, ServeSettings], dict[str, Any]]


def _score_trajectories(body: Body, settings: ServeSettings) -> list[Trajectory]:
    return [_trajectory(row["problem"], row) for row in body["trajectories"]]


def _score_answer(body: Body, labels: Sequence[Label], model: str, settings: ServeSettings) -> dict[str, Any]:
    how = body.get("aggregation", settings.aggregation)
    results = [_scored(row, label, how) for row, label in zip(body["trajectories"], labels, strict=True)]
    if body.get("critiques"):
        for result, label in zip(results, labels, strict=True):
            result["critiques"] = _critiques(label)
    return {"model": model, "aggregation": how, "results": results, "usage": _usage(labels)}


def _rank_trajectories(body: Body, settings: ServeSettings) -> list[Trajectory]:
    return [_trajectory(body["problem"], row) for row in body["candidates"]]


def _rank_answer(body: Body, labels: Sequence[Label], model: str, settings: ServeSettings) -> dict[str, Any]:
    """Best first. Candidates without a score come last; ties keep the input order."""
    how = body.get("aggregation", settings.aggregation)
    rows = zip(body["candidates"], labels, strict=True)
    ranking = [{"index": index, **_scored(row, label, how)} for index, (row, label) in enumerate(rows)]
    ranking.sort(key=lambda row: (row["score"] is None, -(row["score"] or 0.0), row["index"]))
    best = ranking[0]["index"] if ranking and ranking[0]["score"] is not None else None
    return {"model": model, "aggregation": how, "best": best, "ranking": ranking, "usage": _usage(labels)}


def _pooling_trajectories(body: Body, settings: ServeSettings) -> list[Trajectory]:
    if "messages" in body:
        said = [(turn["role"], turn["content"]) for turn in body["messages"]]
        pairs = [texts.in_turns(said) or ("", "\n\n".join(text for _, text in said))]
    else:
        given = body.get("input", [])
        pairs = [texts.problem_and_response(text) for text in ([given] if isinstance(given, str) else given)]
    return [_plain(problem, response, settings.tag) for problem, response in pairs]


def _pooling_answer(body: Body, labels: Sequence[Label], model: str, settings: ServeSettings) -> dict[str, Any]:
    """One row [P(incorrect), P(correct)] per step, nulls for a step that was not judged. Raises Unusable."""
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
    prompts = body.get("prompts", [])
    pairs = [
        texts.problem_and_response(query, prompts[index] if index < len(prompts) else None)
        for index, query in enumerate(body["query"])
    ]
    return [_plain(problem, response, settings.tag) for problem, response in pairs]


def _reward_answer(body: Body, labels: Sequence[Label], model: str, settings: ServeSettings) -> dict[str, Any]:
    """One number per query in every list, because the trainer builds tensors from them. Raises Unusable."""
    _refuse_unusable(labels)
    scores = [aggregate(label.p_correct, settings.aggregation) for label in labels]
    if None in scores:
        raise Unusable(f"the critic says nothing of {scores.count(None)} of {len(scores)} solutions; no reward is made up")
    lowest = [aggregate(label.p_correct, "min") for label in labels]
    logs = {"min_step": lowest, "steps": [len(label.p_correct) for label in labels]} if labels else {}
    return {"rewards": scores, "scores": scores, "extra_logs": logs}


SHAPES = (
    Shape("score", "/v1/score", "P(correct) of every step", "ScoreRequest", "ScoreReply", _score_trajectories, _score_answer),
    Shape("rank", "/v1/rank", "Candidates, best first", "RankRequest", "RankReply", _rank_trajectories, _rank_answer),
    Shape(
        *("pooling", "/pooling", "Step rewards as vLLM's pooling runner gives them", "PoolingRequest", "PoolingReply"),
        *(_pooling_trajectories, _pooling_answer),
    ),
    Shape(
        *("reward", "/get_reward", "Rewards as OpenRLHF asks for them", "RewardRequest", "RewardReply"),
        *(_reward_trajectories, _reward_answer),
    ),
)


def _trajectory(problem: str, row: Body) -> Trajectory:
    """The trajectory for the critic: problem, steps and the solution's own answer, without any field that could reveal the gold
    answer."""
    steps = tuple(Step(s) if isinstance(s, str) else Step(s["text"], s.get("observation")) for s in row["steps"])
    return Trajectory(id="", problem=problem, steps=steps, final_answer=row.get("final_answer"))


def _plain(problem: str, response: str, tag: str) -> Trajectory:
    return Trajectory(id="", problem=problem, steps=tuple(map(Step, texts.steps_of(response, tag))))


def _scored(row: Body, label: Label, how: str) -> dict[str, Any]:
    return {
        "id": row.get("id"),
        "p_correct": list(label.p_correct),
        "first_error": label.first_error,
        "score": aggregate(label.p_correct, how),
        "status": label.status,
    }


def _critiques(label: Label) -> list[list[str]]:
    said: list[list[str]] = [[] for _ in label.p_correct]
    for judgement in label.judgements:
        for verdict in judgement.verdicts:
            if verdict.critique:
                said[verdict.step].append(verdict.critique)
    return said


def _usage(labels: Sequence[Label]) -> dict[str, int]:
    return {"solutions": len(labels), "steps": sum(len(label.p_correct) for label in labels)}


def _refuse_unusable(labels: Sequence[Label]) -> None:
    bad = [label.status for label in labels if label.status != "ok"]
    if bad:
        raise Unusable(f"{len(bad)} of {len(labels)} judgements could not be read ({bad[0]}); nothing is made up for them")
