"""The engine inside this process: the bodies that the server is sent, answered as it would answer them."""

from __future__ import annotations

import asyncio
import math
import multiprocessing
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest

from critic_prm.cli import main
from critic_prm.critics.llm import connect
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import ConfigError, ProviderError
from critic_prm.providers import vllm_in_process as inside
from critic_prm.providers.provider import Message, Reply, Request, Sampling, open_provider
from tests.vllm.conftest import ENGINE, QUIET, SUMS, ending_texts, likeliest

# vLLM warns on being imported, and its engine runs in this process.
pytestmark = pytest.mark.filterwarnings("default")
HELLO = Message("user", "Is 2 + 2 = 5?")
YES_NO = {"structured_outputs": {"regex": r"[a-z]{3,9}\nIs the step correct\? (Yes|No)"}}


@pytest.fixture(scope="module")
def engine(judge: Path) -> Iterator[str]:
    """The name of a judge whose engine stays open until the last test of this file."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**QUIET, inside.ENGINE: orjson.dumps(ENGINE).decode()}.items():
            patch.setenv(name, value)
        patch.delenv("VLLM_BASE_URL", raising=False)
        held = inside._lease(str(judge), ENGINE)
        yield f"vllm/{judge}"
        assert inside._give_back(held)
        children = multiprocessing.active_children()
        held.end()
        for child in children:
            child.join(20)
        assert [child for child in children if child.is_alive()] == []


async def asked(engine: str, *messages: Message, continues: bool = False, **sampling: Any) -> Reply:
    provider = open_provider(engine)
    try:
        arrival = await provider.complete(provider.wire(Request(messages, Sampling(**sampling), continues=continues)))
        return provider.read(arrival.raw)
    finally:
        await provider.close()


async def test_the_loop_goes_on_while_the_model_is_loaded_and_stdout_stays_clean(
    engine: str, capfd: pytest.CaptureFixture[str]
) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    ticking = asyncio.create_task(tick())
    first = await asked(engine, HELLO, max_tokens=8)
    ticking.cancel()
    with suppress(asyncio.CancelledError):
        await ticking
    assert first.usage.input > 0
    assert ticks > 1000  # a start on the loop itself leaves it a handful of turns
    assert capfd.readouterr().out == ""


async def test_trajectories_are_labelled(engine: str, tmp_path: Path) -> None:
    """The second question about a trajectory finds the prefix of the first."""
    settings = JudgeOptions(style="yes-no", db=tmp_path / "x.db", sampling=Sampling(max_tokens=80, seed=3, extra_body=YES_NO))
    critic = connect(engine, settings)
    try:
        found = [(await critic.judge([one]))[0] for one in SUMS]
        assert [one.status for one in found] == ["ok"] * len(SUMS), [one.notes for one in found]
        assert all("logprobs" in one.how for one in found)
        assert all(verdict.p_correct is not None for one in found for verdict in one.verdicts)
        two = [one for one in found if len(one.verdicts) == 2]
        assert all(one.usage.cached > 0.4 * one.usage.input for one in two)
        again = (await critic.judge([SUMS[0]]))[0]
        assert again.verdicts == found[0].verdicts
        assert critic.client.counts["cached"] == len(again.keys)
        assert critic.client.gate.most == critic.client.gate.limit  # filled at once
    finally:
        await critic.close()


async def test_log_probabilities_are_those_of_the_model(engine: str, judge: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    words = AutoTokenizer.from_pretrained(judge)
    ids = [words.encode(word, add_special_tokens=False)[0] for word in (" Yes", " No")]
    begun = Message("assistant", "Is the step correct?")
    reply = await asked(engine, HELLO, begun, continues=True, max_tokens=1, extra_body={"logprob_token_ids": ids})
    messages = [{"role": one.role, "content": one.content} for one in (HELLO, begun)]
    text = words.apply_chat_template(messages, continue_final_message=True, tokenize=False)
    prompt = torch.tensor([words.encode(text, add_special_tokens=False)])
    assert reply.usage.input == prompt.shape[1]
    with torch.no_grad():
        known = AutoModelForCausalLM.from_pretrained(judge)(prompt).logits[0, -1].log_softmax(-1)
    given = dict(reply.logprobs[0].top)
    for word, one in zip((" Yes", " No"), ids, strict=True):
        assert math.isclose(given[word], float(known[one]), abs_tol=1e-3)
    some = await asked(engine, HELLO, max_tokens=3, temperature=0.0, logprobs=4)
    assert [len(token.top) for token in some.logprobs] == [4] * 3
    assert all(token.logprob == max(chance for _, chance in token.top) for token in some.logprobs)


async def test_structured_outputs_and_seeds(engine: str) -> None:
    schema = {"type": "object", "properties": {"n": {"enum": [7]}}, "required": ["n"], "additionalProperties": False}
    provider = open_provider(engine)
    arrival = await provider.complete(provider.wire(Request((HELLO,), Sampling(max_tokens=40), schema)))
    assert orjson.loads(provider.read(arrival.raw).text) == {"n": 7}
    format = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    assert orjson.loads((await asked(engine, HELLO, max_tokens=40, extra_body={"response_format": format})).text) == {"n": 7}
    first, same, other = await asyncio.gather(
        *(asked(engine, HELLO, max_tokens=20, temperature=1.0, seed=seed) for seed in (1, 1, 2))
    )
    assert first.text == same.text != other.text
    assert len((await asked(engine, HELLO, max_tokens=5, extra_body={"n": 3})).raw["choices"]) == 3
    assert (await asked(engine, HELLO, max_tokens=9, extra_body={"ignore_eos": True})).finish == "length"
    await provider.close()


async def test_what_is_wrong_with_a_row_is_said_and_the_rest_goes_on(engine: str, tmp_path: Path) -> None:
    huge = Trajectory("huge", "What is " + "1 + " * 9000 + "1?", (Step("2."),))
    critic = connect(
        engine, JudgeOptions(style="yes-no", db=tmp_path / "x.db", sampling=Sampling(max_tokens=80, extra_body=YES_NO))
    )
    try:
        found = await critic.judge([huge, SUMS[0]])
        assert [one.status for one in found] == ["provider_error", "ok"]
        assert "maximum context length" in found[0].notes[0]
    finally:
        await critic.close()
    with pytest.raises(ProviderError, match="8192") as refused:
        await asked(engine, HELLO, max_tokens=100_000)
    assert (refused.value.failure, refused.value.status) == ("row", 400)
    with pytest.raises(ProviderError, match="no parameter 'guided_choice'") as unknown:
        await asked(engine, HELLO, max_tokens=9, extra_body={"guided_choice": ["a"]})
    assert unknown.value.failure == "run"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):  # 8,000 tokens take longer on any machine
            await asked(engine, HELLO, max_tokens=8000, extra_body={"ignore_eos": True})
    assert (await asked(engine, HELLO, max_tokens=8)).usage.output > 0


async def test_a_folder_without_a_model_stops_the_run(engine: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did not start"):
        await asked(f"vllm/{tmp_path}", HELLO)


def test_the_doctor_looks_inside_and_finds_the_golden_scores_of_a_server(
    engine: str, judge: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    golden = tmp_path / "golden.json"
    golden.write_bytes(orjson.dumps({"judge": "known", "p": likeliest(judge)}))
    options = ("--extra-body", orjson.dumps(ending_texts(judge)).decode(), "--max-tokens", "4000", "--golden", str(golden))
    with pytest.raises(SystemExit) as stopped:
        main(["doctor", engine, *options])
    said = capsys.readouterr().out
    assert stopped.value.code == 0, said
    for what in ("schema", "grammar", "verdicts", "continue", "seed", "n", "prefix", "golden"):
        assert f"ok    {what:<11}" in said, said
