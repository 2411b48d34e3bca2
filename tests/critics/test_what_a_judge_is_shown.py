"""Images, a reference answer, tools and observations reach the judge as they should, and the key knows all of them."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from critic_prm.critics.llm import LLMCritic, connect, with_provider
from critic_prm.data.judgement import Judgement
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.engine.options import JudgeOptions
from critic_prm.providers.provider import Wire
from critic_prm.providers.scripted import ScriptedProvider

PNG = b"\x89PNG\r\n\x1a\n" + b"picture"
JPEG = "data:image/jpeg;base64," + base64.b64encode(b"another").decode()
GOOD = "Step 1: yes.\nThe step is \\boxed{correct}"


async def judged(critic: LLMCritic, trajectories: Sequence[Trajectory]) -> list[Judgement]:
    try:
        return await critic.judge(trajectories)
    finally:
        await critic.close()


def chat(body: Wire) -> dict[str, Any]:
    return {"choices": [{"message": {"content": GOOD}, "finish_reason": "stop"}]}


def messages(body: Wire) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": GOOD}], "stop_reason": "end_turn", "usage": {}}


@pytest.mark.parametrize(
    ("judge", "path", "answer", "pictures"),
    [
        (
            "openai/m",
            "/v1",
            chat,
            [
                {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(PNG).decode()}},
                {"type": "image_url", "image_url": {"url": JPEG}},
            ],
        ),
        (
            "anthropic/claude-x",
            "",
            messages,
            [
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PNG).decode()},
                },
                {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": JPEG.partition(",")[2]}},
            ],
        ),
    ],
)
async def test_images_arrive_as_bytes_and_the_key_is_of_the_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, judge: str, path: str, answer: Any, pictures: list[dict[str, Any]]
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
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
    image, copy = tmp_path / "a.png", tmp_path / "b.png"
    image.write_bytes(PNG)
    copy.write_bytes(PNG)
    trajectory = Trajectory("t", "What is shown?", (Step("A picture."),), images=(str(image), JPEG))
    other = tmp_path / "c.png"
    other.write_bytes(PNG + b"!")
    same = replace(trajectory, images=(str(copy), JPEG))
    changed = replace(trajectory, images=(str(other), JPEG))
    critic = connect(judge, JudgeOptions(db=tmp_path / "x.db", base_url=f"{site.name}{path}"))
    found = await judged(critic, [trajectory, same, changed])
    await runner.cleanup()
    content = seen[0]["messages"][-1]["content"]
    assert content[0]["type"] == "text"
    assert content[1:] == pictures
    assert len(seen) == 2
    assert found[0].keys == found[1].keys != found[2].keys


@pytest.mark.parametrize("style", ["stepwise", "first-error", "json", "yes-no", "code", "agent", "trace"])
async def test_a_reference_is_shown_when_asked_for_and_never_else(tmp_path: Path, style: str) -> None:
    trajectory = Trajectory("t", "What?", (Step("It is 4."),), gold_answer="forty-two")
    shown = {}
    for reference in (False, True):
        provider = ScriptedProvider([{"text": "?"}])
        judging = JudgeOptions(style=style, db=tmp_path / f"{reference}.db", with_reference=reference, follow_ups=0)
        critic = with_provider(provider, judging)
        await judged(critic, [trajectory])
        shown[reference] = "forty-two" in provider.asked[0]["messages"][-1]["content"]
        assert critic.card.get("reference", False) is reference
    assert shown == {False: False, True: True}


async def test_an_agent_is_shown_with_its_tools_and_what_they_gave_long_ones_shortened(tmp_path: Path) -> None:
    tool = {"name": "search", "description": "finds pages", "parameters": {"q": "string"}}
    long = "BEGIN " + "filler " * 4000 + "END"
    steps = (Step("search(q='x')", long), Step("The answer is y."))
    provider = ScriptedProvider([{"text": "It is sensible.\n\nVerdict: correct"}])
    critic = with_provider(provider, JudgeOptions(style="agent", db=tmp_path / "x.db"))
    [judgement] = await judged(critic, [Trajectory("t", "Find y.", steps, tools=(tool,))])
    assert (judgement.status, judgement.first_error, len(judgement.verdicts)) == ("ok", -1, 2)
    first, second = (body["messages"][-1]["content"] for body in provider.asked)
    assert '"finds pages"' in first
    assert "BEGIN filler" in second
    assert "filler END" in second
    head, count, tail = re.split(r"\n\[\.\.\. ([\d,]+) characters left out here \.\.\.\]\n", second)
    kept = len(head[head.index("BEGIN") :]) + len(tail[: tail.index("END") + 3])
    assert kept + int(count.replace(",", "")) == len(long)
