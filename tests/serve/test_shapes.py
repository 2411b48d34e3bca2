"""The four shapes: what each request means and what comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from critic_prm.serve.endpoints import problem_and_response, steps_of
from critic_prm.serve.settings import ServeSettings

if TYPE_CHECKING:
    from tests.serve.conftest import Start

SOLUTION = {"id": 7, "problem": "p", "steps": ["0.9 a", "0.2 b"], "label": 1, "gold_answer": "secret", "meta": {"x": 1}}


def test_score(start: Start) -> None:
    server = start()
    status, answer = server.post("/v1/score", {"trajectories": [SOLUTION, {"problem": "q", "steps": ["0.75 c"]}]})
    assert status == 200
    assert answer["model"] == "oracle"
    assert answer["usage"] == {"solutions": 2, "steps": 3}
    scored = {"id": 7, "p_correct": [0.9, 0.2], "first_error": 1, "score": 0.2, "status": "ok"}
    assert answer["results"] == [scored, {"id": None, "p_correct": [0.75], "first_error": -1, "score": 0.75, "status": "ok"}]


def test_the_critic_never_sees_gold(start: Start) -> None:
    server = start()
    server.post("/v1/score", {"trajectories": [SOLUTION]})
    (seen,) = server.critic.seen
    assert (seen.label, seen.gold_answer, seen.meta, seen.extra) == (None, None, {}, {})


def test_a_request_chooses_aggregation_and_critiques(start: Start) -> None:
    server = start()
    _, answer = server.post("/v1/score", {"trajectories": [SOLUTION], "aggregation": "last", "critiques": True})
    assert answer["results"][0]["score"] == 0.2
    assert answer["results"][0]["critiques"] == [["about step 0"], ["about step 1"]]
    _, answer = server.post("/v1/score", {"trajectories": [SOLUTION], "aggregation": "max"})
    assert answer["results"][0]["score"] == 0.9
    assert "critiques" not in answer["results"][0]


def test_observations_are_shown(start: Start) -> None:
    server = start()
    server.post("/v1/score", {"trajectories": [{"problem": "p", "steps": [{"text": "0.9", "observation": "out"}]}]})
    assert server.critic.seen[0].steps[0].observation == "out"


def test_an_unusable_judgement_has_a_status_and_no_score(start: Start) -> None:
    server = start()
    server.critic.status = "refused"
    _, answer = server.post("/v1/score", {"trajectories": [SOLUTION]})
    scored = {"id": 7, "p_correct": [None, None], "first_error": None, "score": None, "status": "refused"}
    assert answer["results"] == [scored]
    for path, body in (("/pooling", {"input": "p\n\n0.9"}), ("/get_reward", {"query": ["p\n\n0.9"]})):
        status, answer = server.post(path, body)
        assert (status, answer["error"]["code"]) == (502, "unusable")


def test_a_critic_that_has_nothing_to_say_gives_no_reward(start: Start) -> None:
    """A judge may leave steps out, and the rules say nothing of steps without equations."""
    server = start()
    assert server.post("/pooling", {"input": "p\n\nsilent<extra_0>"})[1]["data"][0]["data"] == [[None, None]]
    status, answer = server.post("/get_reward", {"query": ["p\n\nsilent"]})
    assert (status, answer["error"]["code"]) == (502, "unusable")


def test_rank(start: Start) -> None:
    server = start()
    candidates = [{"steps": ["0.5"]}, {"steps": ["0.9"], "id": "b"}, {"steps": ["0.9"]}, {"steps": ["0.1"]}]
    status, answer = server.post("/v1/rank", {"problem": "p", "candidates": candidates})
    assert status == 200
    assert answer["best"] == 1
    assert [row["index"] for row in answer["ranking"]] == [1, 2, 0, 3]
    assert answer["ranking"][0]["id"] == "b"
    assert server.post("/v1/rank", {"problem": "p", "candidates": []})[1]["best"] is None


def test_pooling_gives_a_pair_for_each_step_tag(start: Start) -> None:
    server = start()
    text = "<|im_start|>user\nWhat?<|im_end|>\n<|im_start|>assistant\n0.25 a<extra_0>0.5 b<extra_0><|im_end|><|endoftext|>"
    status, answer = server.post("/pooling", {"model": "prm", "input": [text, "What?\n\n1 c<extra_0>"]})
    assert status == 200
    assert [row["data"] for row in answer["data"]] == [[[0.75, 0.25], [0.5, 0.5]], [[0.0, 1.0]]]
    assert [row["index"] for row in answer["data"]] == [0, 1]
    assert {row["object"] for row in answer["data"]} == {"pooling"}
    assert [seen.problem for seen in server.critic.seen] == ["What?", "What?"]


def test_pooling_of_messages(start: Start) -> None:
    server = start()
    turns = [("system", "s"), ("user", "What?"), ("assistant", "1 a<extra_0>0 b<extra_0>")]
    body = {"messages": [{"role": role, "content": text} for role, text in turns]}
    assert server.post("/pooling", body)[1]["data"][0]["data"] == [[0.0, 1.0], [1.0, 0.0]]
    assert server.critic.seen[0].problem == "What?"


def test_rewards_as_openrlhf_asks_for_them(start: Start) -> None:
    server = start()
    prompt = "<|im_start|>user\nWhat?<|im_end|>\n<|im_start|>assistant\n"
    body = {"query": [prompt + "0.5 a\n\n0.25 b<|im_end|>"], "prompts": [prompt], "labels": ["4"]}
    expected = {"rewards": [0.25], "scores": [0.25], "extra_logs": {"min_step": [0.25], "steps": [2]}}
    assert server.post("/get_reward", body) == (200, expected)
    assert (server.critic.seen[0].problem, server.critic.seen[0].texts) == ("What?", ["0.5 a", "0.25 b"])


def test_rewards_of_nothing(start: Start) -> None:
    """With several reward servers OpenRLHF sends the query to the first, and empty lists to the others."""
    body: dict[str, Any] = {"query": [], "prompts": [], "labels": []}
    assert start().post("/get_reward", body) == (200, {"rewards": [], "scores": [], "extra_logs": {}})


@pytest.mark.parametrize(
    ("text", "prompt", "problem", "response"),
    [
        ("Q\n\nA", None, "Q", "A"),
        ("A alone", None, "", "A alone"),
        ("Q A", "Q", "Q", "A"),
        ("other", "Q", "Q", "other"),
        ("<s>[INST] Q [/INST] A</s>", None, "Q", "A"),
        (
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nQ<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|>",
            *(None, "Q", "A"),
        ),
        ("<start_of_turn>user\nQ<end_of_turn>\n<start_of_turn>model\nA", None, "Q", "A"),
    ],
)
def test_texts(text: str, prompt: str | None, problem: str, response: str) -> None:
    assert problem_and_response(text, prompt) == (problem, response)


@pytest.mark.parametrize(
    ("response", "steps"),
    [("a<extra_0>b<extra_0>rest", ["a", "b"]), ("a\n\nb", ["a", "b"]), ("", [""]), ("<extra_0>", [""])],
)
def test_steps(response: str, steps: list[str]) -> None:
    assert steps_of(response, ServeSettings().step_tag) == steps
