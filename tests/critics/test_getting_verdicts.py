"""Whatever a server makes of what it is asked for, the same labels come out, and they say how they were got."""

from __future__ import annotations

import math
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from critic_prm.critics.conversation import joined, matches_schema
from critic_prm.critics.llm import LLMCritic, connect, with_provider
from critic_prm.data.judgement import Judgement, combine
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import ProviderError, UsageError
from critic_prm.providers.provider import Reply, Sampling, TokenLogprob, Usage, Wire
from critic_prm.providers.scripted import ScriptedProvider

TRAJECTORY = Trajectory("t", "What is 3 * 4 + 5?", (Step("3 * 4 = 12"), Step("12 + 5 = 18"), Step("The answer is 18.")))

ITEMS = [
    {"step": 1, "critique": "3 * 4 is 12.", "verdict": "correct"},
    {"step": 2, "critique": "12 + 5 is 17, not 18.", "verdict": "incorrect"},
]
WHOLE = orjson.dumps({"steps": ITEMS}).decode()
GOOD = "Step 1: it is 12.\nThe step is \\boxed{correct}\n\nStep 2: 17, not 18.\nThe step is \\boxed{incorrect}"


RIVALS = {"correct": "incorrect", "incorrect": "correct", "Yes": "No", "No": "Yes"}


def tokens(text: str) -> list[dict[str, Any]]:
    """`text` as tokens; a verdict word is one, with a probability of 0.8 and its rival as an alternative."""
    rows = []
    for piece in filter(None, re.split(r"(incorrect|correct|Yes|No)", text)):
        row = {"token": piece, "logprob": math.log(0.99), "top_logprobs": []}
        if piece in RIVALS:
            row["logprob"] = math.log(0.8)
            row["top_logprobs"] = [{"token": word, "logprob": math.log(p)} for word, p in ((piece, 0.8), (RIVALS[piece], 0.2))]
        rows.append(row)
    return rows


def completion(text: str, finish: str = "stop", logprobs: bool = False) -> dict[str, Any]:
    choice: dict[str, Any] = {"message": {"role": "assistant", "content": text}, "finish_reason": finish}
    if logprobs:
        choice["logprobs"] = {"content": tokens(text)}
    return {"model": "m", "choices": [choice], "usage": {"prompt_tokens": 100, "completion_tokens": len(text) // 4}}


@asynccontextmanager
async def server(answer: Callable[[Wire], dict[str, Any]]) -> AsyncIterator[tuple[str, list[Wire]]]:
    """A server on the loopback that answers every POST with `answer` of its body; its address, and the bodies it was sent."""
    seen: list[Wire] = []

    async def handle(request: web.Request) -> web.Response:
        seen.append(orjson.loads(await request.read()))
        return web.json_response(answer(seen[-1]))

    app = web.Application()
    app.router.add_post("/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"{site.name}/v1", seen
    finally:
        await runner.cleanup()


async def judged(critic: LLMCritic, sample: int = 0) -> Judgement:
    try:
        return (await critic.judge([TRAJECTORY], sample))[0]
    finally:
        await critic.close()


def scripted(db: Path, script: Any, **options: Any) -> tuple[LLMCritic, ScriptedProvider]:
    provider = ScriptedProvider(script)
    return with_provider(provider, JudgeOptions(db=db / "x.db", **options)), provider


def asked_schema(body: Wire) -> Any:
    """The schema that a body asks for, in any provider's dialect."""
    if "response_format" in body:
        return body["response_format"]["json_schema"]["schema"]
    if "structured_outputs" in body:
        return body["structured_outputs"]["json"]
    return body.get("output_config", {}).get("format", {}).get("schema")


def obeys(body: Wire) -> dict[str, Any]:
    return completion(WHOLE if asked_schema(body) else f"Here you are:\n{WHOLE}")


def ignores(body: Wire) -> dict[str, Any]:
    return completion(f"Here is my examination:\n\n```json\n{WHOLE}\n```\nI hope that helps.")


def gives_logprobs(body: Wire) -> dict[str, Any]:
    return completion(WHOLE, logprobs=bool(body.get("logprobs")))


@pytest.mark.parametrize("provider", ["openai", "vllm"])
@pytest.mark.parametrize(
    ("answer", "how"),
    [(obeys, ("schema",)), (ignores, ("schema ignored",)), (gives_logprobs, ("schema", "logprobs"))],
)
async def test_the_same_label_comes_out_of_every_server(
    tmp_path: Path, provider: str, answer: Callable[[Wire], dict[str, Any]], how: tuple[str, ...]
) -> None:
    logprobs = 5 if answer is gives_logprobs else None
    async with server(answer) as (url, seen):
        judging = JudgeOptions(style="json", db=tmp_path / "x.db", base_url=url, sampling=Sampling(logprobs=logprobs))
        judgement = await judged(connect(f"{provider}/m", judging))
    assert asked_schema(seen[0]) is not None
    assert (judgement.status, judgement.first_error, judgement.how) == ("ok", 1, how)
    assert [(v.step, v.value) for v in judgement.verdicts] == [(0, "correct"), (1, "incorrect")]
    label = combine([judgement], 3)
    assert (label.votes, label.first_error) == (((1, 1), (0, 1), (0, 0)), 1)
    assert label.p_from == ("logprobs" if "logprobs" in how else "votes")
    if "logprobs" in how:
        assert label.p_correct[:2] == pytest.approx((0.8, 0.2))


async def test_anthropic_is_asked_in_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")

    def answer(body: Wire) -> dict[str, Any]:
        text = WHOLE if asked_schema(body) else GOOD
        return {"content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "usage": {}}

    async with server(answer) as (url, seen):
        judging = JudgeOptions(style="json", db=tmp_path / "x.db", base_url=url.removesuffix("/v1"))
        judgement = await judged(connect("anthropic/claude-x", judging))
    assert seen[0]["output_config"]["format"]["type"] == "json_schema"
    assert (judgement.first_error, judgement.how) == (1, ("schema",))


async def test_no_schema_is_asked_for_when_told_so(tmp_path: Path) -> None:
    critic, provider = scripted(tmp_path, [{"text": WHOLE}], style="json", schema=False)
    assert (await judged(critic)).how == ("plain",)
    assert "schema" not in provider.asked[0]


def test_a_reply_obeys_only_when_it_is_just_that() -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "v": {"type": "string", "enum": ["a", "b"]}},
        "required": ["n", "v"],
        "additionalProperties": False,
    }
    assert matches_schema('{"n": 1, "v": "a"}', schema)
    others = [
        '{"n": 1, "v": "c"}',
        '{"n": 1}',
        '{"n": true, "v": "a"}',
        '{"n": 1, "v": "a", "w": 1}',
        'x{"n": 1, "v": "a"}',
        "[]",
    ]
    assert not any(matches_schema(other, schema) for other in others)
    assert not matches_schema("[1]", {"type": "array", "items": {"type": "string"}})


async def test_a_reply_without_a_verdict_is_told_so_once(tmp_path: Path) -> None:
    critic, provider = scripted(tmp_path, [{"text": GOOD, "contains": "cannot be used"}, {"text": "It is all fine, I think."}])
    judgement = await judged(critic)
    assert (judgement.status, judgement.first_error, judgement.how) == ("ok", 1, ("plain", "re-asked"))
    assert len(judgement.keys) == len(provider.asked) == 2
    told = provider.asked[1]["messages"]
    assert [message["role"] for message in told[-2:]] == ["assistant", "user"]
    assert "it has no verdict in the form that was asked for" in told[-1]["content"]


async def test_what_is_missing_is_named_and_what_was_said_stays(tmp_path: Path) -> None:
    first = "Step 1: it is 12.\nThe step is \\boxed{correct}"
    second = "Step 2: 17.\nThe step is \\boxed{incorrect}"
    critic, _ = scripted(tmp_path, [{"text": second, "contains": "no verdict on step 2, 3"}, {"text": first}])
    judgement = await judged(critic)
    assert judgement.first_error == 1
    assert [v.critique for v in judgement.verdicts] == ["it is 12.", "17."]
    text = f"{first}\n\n{second}"
    assert [text[v.span[0] : v.span[1]] for v in judgement.verdicts if v.span] == [
        "The step is \\boxed{correct}",
        "The step is \\boxed{incorrect}",
    ]


async def test_it_is_told_as_often_as_asked_and_then_stays_unread(tmp_path: Path) -> None:
    for times in (0, 2):
        critic, provider = scripted(tmp_path, [{"text": "no idea"}], follow_ups=times, salt=str(times))
        judgement = await judged(critic)
        assert (judgement.status, judgement.verdicts) == ("unparseable", ())
        assert len(provider.asked) == 1 + times


async def test_a_follow_up_that_fails_leaves_the_first_reading(tmp_path: Path) -> None:
    script = [{"text": "Step 1: ok.\nThe step is \\boxed{correct}", "contains": "3 * 4"}]
    critic, _ = scripted(tmp_path, lambda wire: ProviderError("gone", "row") if len(wire["messages"]) > 2 else script[0])
    judgement = await judged(critic)
    assert (judgement.status, judgement.how) == ("count_mismatch", ("plain",))
    assert "re-asked failed: gone" in judgement.notes


def cut_then(text: str) -> Callable[[Wire], dict[str, Any]]:
    def script(wire: Wire) -> dict[str, Any]:
        if "cut off before its end" in wire["messages"][-1]["content"]:
            return {"text": text}
        return {"text": "Step 1: it is 12.\nThe step is \\boxed{correct}\n\nStep 2: let me see, 12 + 5", "finish": "length"}

    return script


async def test_a_cut_critique_is_forced_to_its_verdicts_and_never_paid_again(tmp_path: Path) -> None:
    critic, provider = scripted(tmp_path, cut_then("Step 2: 17, not 18.\nThe step is \\boxed{incorrect}"), regenerate=0)
    judgement = await judged(critic)
    assert (judgement.status, judgement.first_error, judgement.how) == ("ok", 1, ("plain", "forced"))
    assert len(provider.asked) == 2
    again, provider = scripted(tmp_path, [], regenerate=0)
    assert await judged(again) == judgement
    assert provider.asked == []


async def test_a_critique_that_is_cut_again_with_more_room_is_forced_too_and_found_again(tmp_path: Path) -> None:
    critic, provider = scripted(tmp_path, cut_then(GOOD))
    judgement = await judged(critic)
    assert [body["max_tokens"] for body in provider.asked] == [8192, 16384, 8192]
    again, provider = scripted(tmp_path, [])
    assert await judged(again) == judgement
    assert provider.asked == []


async def test_nothing_is_forced_when_told_so(tmp_path: Path) -> None:
    critic, provider = scripted(tmp_path, cut_then(GOOD), regenerate=0, force=False)
    judgement = await judged(critic)
    assert (judgement.status, judgement.first_error, len(provider.asked)) == ("truncated", None, 1)


@pytest.mark.parametrize(
    ("style", "cut", "ending", "begins"),
    [
        ("stepwise", "Step 1: 12.\nThe step is \\boxed{correct}\n\nStep 2: 12 + 5", "incorrect}", "The step is \\boxed{"),
        ("stepwise", "<think>Step 1 is right, and", "correct}\n\nStep 2: 17.\nThe step is \\boxed{incorrect}", "\\boxed{"),
        ("first-error", "Paragraph 0: it is 12.\n\nParagraph 1: well, 12", "1}", "earliest paragraph in error is \\boxed{"),
        ("yes-no", "12 is what comes out, so", " No", "Is the step correct?"),
    ],
)
async def test_where_a_server_can_go_on_a_cut_reply_goes_on_to_its_verdict(
    tmp_path: Path, style: str, cut: str, ending: str, begins: str
) -> None:
    def answer(body: Wire) -> dict[str, Any]:
        if body.get("continue_final_message"):
            return completion(ending, logprobs=bool(body.get("logprobs")))
        if style == "yes-no" and "Judge step 1." in body["messages"][-1]["content"]:
            return completion("Is the step correct? Yes", logprobs=True)
        return completion(cut, "length")

    async with server(answer) as (url, seen):
        critic = connect("vllm/m", JudgeOptions(style=style, db=tmp_path / "x.db", base_url=url, regenerate=0))
        judgement = await judged(critic)
    assert (judgement.status, judgement.first_error) == ("ok", 1)
    assert judgement.how[:2] == ("plain", "forced")
    last = seen[-1]
    assert (last["add_generation_prompt"], last["continue_final_message"]) == (False, True)
    assert last["messages"][-1]["role"] == "assistant"
    assert last["messages"][-1]["content"].startswith(cut)
    assert last["messages"][-1]["content"].endswith(begins)
    if style == "yes-no":
        assert seen[0]["top_logprobs"] == 5, "a style made for log-probabilities asks for them"
        assert [v.p_correct for v in judgement.verdicts] == pytest.approx([0.8, 0.2])


async def test_thinking_rounds_go_on_with_another_phrase_each(tmp_path: Path) -> None:
    def script(wire: Wire) -> dict[str, Any]:
        turns = sum(message["role"] == "user" for message in wire["messages"])
        wrong = "Step 1: 12.\nThe step is \\boxed{correct}\n\nStep 2: fine.\nThe step is \\boxed{correct}\n\n"
        return {"text": GOOD if turns == 3 else wrong + "Step 3: fine.\nThe step is \\boxed{correct}"}

    critic, provider = scripted(tmp_path, script, think_rounds=2)
    judgement = await judged(critic)
    assert (judgement.first_error, judgement.how) == (1, ("plain", "thought again"))
    said = [body["messages"][-1]["content"] for body in provider.asked]
    assert len(said) == len(set(said)) == 3
    assert critic.card["think_rounds"] == 2


@pytest.mark.parametrize(
    ("round_", "how", "note"),
    [
        ({"text": "<think>hm", "finish": "length"}, ("plain", "thought again"), "cut off after its last verdict"),
        ({"text": "no", "refusal": "no"}, ("plain",), "thought again failed: finish reason: refusal"),
    ],
)
async def test_a_round_that_brings_nothing_leaves_what_was_read(
    tmp_path: Path, round_: dict[str, Any], how: tuple[str, ...], note: str
) -> None:
    critic, _ = scripted(
        tmp_path, lambda wire: {"text": GOOD} if len(wire["messages"]) == 2 else round_, think_rounds=1, regenerate=0
    )
    judgement = await judged(critic)
    assert (judgement.status, judgement.first_error, judgement.how) == ("ok", 1, how)
    assert note in judgement.notes


def test_there_are_only_so_many_phrases(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--think-rounds is 9; there are phrases for 0 to 4"):
        scripted(tmp_path, [], think_rounds=9)


async def test_offline_nothing_is_asked_that_is_not_there(tmp_path: Path) -> None:
    critic, _ = scripted(tmp_path, [{"text": "no idea"}], follow_ups=0)
    await judged(critic)
    critic, provider = scripted(tmp_path, [], offline=True)
    judgement = await judged(critic)
    assert (judgement.status, provider.asked) == ("unparseable", [])
    assert any(note.startswith("re-asked failed") for note in judgement.notes)


@pytest.mark.parametrize(
    ("judge", "effort", "expected"),
    [
        ("openai/gpt-4o-mini", None, 5),
        ("openai/gpt-5.6-luna", None, None),
        ("openai/gpt-5.6-luna", "none", 5),
        ("openai/gpt-6-sol", None, None),
        ("openai/some-model", None, None),
        ("anthropic/claude-haiku-5-5", None, None),
        ("vllm/some-model", None, 5),
    ],
)
async def test_a_style_made_for_log_probabilities_asks_where_they_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, judge: str, effort: str | None, expected: int | None
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    judging = JudgeOptions(style="yes-no", db=tmp_path / "x.db", sampling=Sampling(effort=effort))
    critic = connect(judge, judging)
    assert critic.sampling.logprobs == expected
    await critic.close()
    other = connect(judge, replace(judging, style="stepwise"))
    assert other.sampling.logprobs is None
    await other.close()


async def test_a_verdict_after_thinking_has_its_probability(tmp_path: Path) -> None:
    text = "<think>Yes? No?</think>It is.\n\nIs the step correct? Yes"
    critic, _ = scripted(tmp_path, [{"text": text, "logprobs": tokens(text)}], style="yes-no")
    judgement = await judged(critic)
    assert [verdict.p_correct for verdict in judgement.verdicts] == pytest.approx([0.8] * 3)
    assert judgement.how == ("plain", "logprobs")


def test_replies_put_together_keep_their_tokens_in_place() -> None:
    cut = Reply(
        "ab cd", "length", {}, Usage(5, 2), (TokenLogprob("ab", -1.0), TokenLogprob(" cd", -2.0), TokenLogprob("<eos>", 0.0))
    )
    rest = Reply("No", "stop", {}, Usage(9, 1), (TokenLogprob("No", -0.1, (("Yes", -3.0),)),))
    whole = joined([("", cut), ("\n\n", rest)])
    assert (whole.text, whole.finish, whole.usage) == ("ab cd\n\nNo", "stop", Usage(14, 3))
    assert "".join(token.token for token in whole.logprobs) == whole.text
    assert whole.logprobs[-1].top == (("Yes", -3.0),)
    spaced = replace(rest, text=" No", logprobs=(TokenLogprob(" No", -0.1, ((" Yes", -3.0),)),))
    assert joined([("", cut), ("\n\nIs it?", spaced)]).logprobs[-1].top == ((" Yes", -3.0),)
    thought = replace(rest, text="<think>eh</think>No", logprobs=(TokenLogprob("<think>eh</think>", 0.0), *rest.logprobs))
    later = joined([("", cut), ("\n\n", thought)])
    assert later.text == f"ab cd\n\n{' ' * 17}No", "thinking is blanked out"
    assert (later.logprobs[-1].token, later.logprobs[-1].top) == ("No", (("Yes", -3.0),))
    assert "".join(token.token for token in later.logprobs) == later.text
    unknown = joined([("", replace(cut, logprobs=())), ("\n\n", rest)])
    assert [token.token for token in unknown.logprobs] == ["ab cd", "\n\n", "No"]
