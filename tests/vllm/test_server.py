"""A real vLLM server: every style labelled, structured outputs enforced, log-probabilities those of the model itself."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from critic_prm.cli import main
from critic_prm.critics.llm import connect, with_provider
from critic_prm.data.judgement import Judgement
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import ConfigError, ProviderError
from critic_prm.providers import vllm
from critic_prm.providers.provider import Message, Reply, Request, Sampling
from tests.vllm.conftest import SERVER, SUMS, ending_texts, likeliest, serving

WORD = "[a-z]{3,9}"
GRAMMARS = {
    "stepwise": rf"Step 1: {WORD}\nThe step is \\boxed\{{(incorrect\}}|correct\}}\n\n"
    rf"Step 2: {WORD}\nThe step is \\boxed\{{(correct|incorrect)\}})",
    "first-error": rf"Paragraph 0: {WORD}\n\n\\boxed\{{(-1|0|1)\}}",
    "yes-no": rf"{WORD}\nIs the step correct\? (Yes|No)",
    "json": rf'\{{"steps": \[\{{"step": 1, "critique": "{WORD}", "verdict": "incorrect"\}}\]\}}',
    "agent": rf"{WORD}\nVerdict: (correct|incorrect|neutral)",
}
GRAMMARS["code"] = GRAMMARS["stepwise"]
"""What random weights need to say something that can be read."""


@pytest.fixture(scope="module")
def server(judge: Path) -> Iterator[str]:
    with serving(judge, *SERVER) as address:
        yield address


def judging(folder: Path, server: str, **more: Any) -> JudgeOptions:
    return JudgeOptions(db=folder / "x.db", base_url=server, **more)


async def judged(judge: Path, settings: JudgeOptions, *trajectories: Trajectory, sample: int = 0) -> list[Judgement]:
    critic = connect(f"vllm/{judge}", settings)
    try:
        return await critic.judge(trajectories or SUMS, sample)
    finally:
        await critic.close()


async def asked(server: str, judge: Path, *messages: Message, continues: bool = False, **sampling: Any) -> Reply:
    provider = vllm.VLLMProvider.connect(str(judge), server)
    try:
        arrival = await provider.complete(provider.wire(Request(messages, Sampling(**sampling), continues=continues)))
        return provider.read(arrival.raw)
    finally:
        await provider.close()


HELLO = Message("user", "Is 2 + 2 = 5?")


@pytest.mark.parametrize("style", GRAMMARS)
async def test_every_style_is_labelled(server: str, judge: Path, tmp_path: Path, style: str) -> None:
    sampling = Sampling(max_tokens=400, seed=1, temperature=1.0, extra_body={"structured_outputs": {"regex": GRAMMARS[style]}})
    found = await judged(judge, judging(tmp_path, server, style=style, sampling=sampling, regenerate=0, schema=False))
    assert [one.status for one in found] == ["ok"] * len(SUMS), [one.notes for one in found]
    assert all(verdict.value in ("correct", "incorrect", "neutral") for one in found for verdict in one.verdicts)
    assert all(("logprobs" in one.how) == (style == "yes-no") for one in found)


@pytest.mark.parametrize(
    ("obey", "fits"),
    [
        ({"choice": ["forty-two"]}, lambda text: text == "forty-two"),
        ({"regex": r"a{3}b"}, lambda text: text == "aaab"),
        ({"grammar": 'root ::= "x" "y" "z"'}, lambda text: text == "xyz"),
        ({"json": {"enum": [17]}}, lambda text: orjson.loads(text) == 17),
    ],
)
async def test_structured_outputs_are_enforced(server: str, judge: Path, obey: Any, fits: Any) -> None:
    assert fits((await asked(server, judge, HELLO, max_tokens=40, extra_body={"structured_outputs": obey})).text)


async def test_the_schema_of_a_style_is_enforced(server: str, judge: Path, tmp_path: Path) -> None:
    """Whatever numbers random weights give their steps, it is the JSON that was asked for."""
    sampling = Sampling(max_tokens=400, seed=1, temperature=1.0, extra_body=ending_texts(judge))
    found = await judged(judge, judging(tmp_path, server, style="json", sampling=sampling, regenerate=0, follow_ups=0))
    assert [one.how[0] for one in found] == ["schema"] * len(SUMS)


async def test_what_vllm_ignores_in_silence(server: str, judge: Path) -> None:
    """The old name is answered with a 200 and prose; when that changes, so may docs/vllm.md."""
    said = await asked(server, judge, HELLO, max_tokens=8, extra_body={"guided_choice": ["forty-two"]})
    assert said.text != "forty-two"


async def test_log_probabilities_are_those_of_the_model(server: str, judge: Path) -> None:
    """A verdict after an answer that was begun: the chances of Yes and No, against transformers on the same tokens."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    words = AutoTokenizer.from_pretrained(judge)
    chosen = [words.encode(word, add_special_tokens=False) for word in (" Yes", " No")]
    assert [len(one) for one in chosen] == [1, 1]
    ids = [one[0] for one in chosen]
    begun = "Is the step correct?"
    reply = await asked(
        server, judge, HELLO, Message("assistant", begun), continues=True, max_tokens=1, extra_body={"logprob_token_ids": ids}
    )
    messages = [{"role": "user", "content": HELLO.content}, {"role": "assistant", "content": begun}]
    text = words.apply_chat_template(messages, continue_final_message=True, tokenize=False)
    prompt = torch.tensor([words.encode(text, add_special_tokens=False)])
    assert reply.usage.input == prompt.shape[1]
    with torch.no_grad():
        known = AutoModelForCausalLM.from_pretrained(judge)(prompt).logits[0, -1].log_softmax(-1)
    given = dict(reply.logprobs[0].top)
    for word, one in zip((" Yes", " No"), ids, strict=True):
        assert math.isclose(given[word], float(known[one]), abs_tol=1e-3)


async def test_a_cut_critique_is_forced_to_its_verdicts(server: str, judge: Path, tmp_path: Path) -> None:
    provider = vllm.VLLMProvider.connect(str(judge), server)
    plain = provider.wire

    def wire(request: Request) -> dict[str, Any]:
        grammar = r"correct\}" if request.continues else r"Step 1: [a-z]{300}"
        return plain(request) | {"structured_outputs": {"regex": grammar}}

    provider.wire = wire  # type: ignore[method-assign]
    critic = with_provider(provider, judging(tmp_path, server, sampling=Sampling(max_tokens=30), regenerate=0))
    one = Trajectory("one", "What is 2 + 2?", (Step("2 + 2 = 4."),))
    try:
        (found,) = await critic.judge([one])
    finally:
        await critic.close()
    assert (found.status, [verdict.value for verdict in found.verdicts], found.turns) == ("ok", ["correct"], (2,))
    assert "forced" in found.how


async def test_seeds_and_several_answers(server: str, judge: Path) -> None:
    first, same, other = await asyncio.gather(
        *(asked(server, judge, HELLO, max_tokens=20, temperature=1.0, seed=seed) for seed in (1, 1, 2))
    )
    assert first.text == same.text != other.text
    several = await asked(server, judge, HELLO, max_tokens=5, temperature=1.0, extra_body={"n": 3})
    assert len(several.raw["choices"]) == 3


async def test_a_prefix_that_was_read_before_is_not_read_again(server: str, judge: Path, tmp_path: Path) -> None:
    """Style by step: the second question about a trajectory begins like the first."""
    sampling = Sampling(max_tokens=60, extra_body={"structured_outputs": {"regex": r"a\nIs the step correct\? Yes"}})
    (found,) = await judged(judge, judging(tmp_path, server, style="yes-no", sampling=sampling), SUMS[0])
    assert (found.status, len(found.verdicts)) == ("ok", 2)
    assert found.usage.cached > 0.4 * found.usage.input


async def test_what_does_not_fit_is_a_failed_row_and_an_unknown_model_stops(server: str, judge: Path, tmp_path: Path) -> None:
    sampling = Sampling(max_tokens=400, extra_body={"structured_outputs": {"regex": GRAMMARS["stepwise"]}})
    huge = Trajectory("huge", "What is " + "1 + " * 9000 + "1?", (Step("2."), Step("3.")))
    found = await judged(judge, judging(tmp_path, server, sampling=sampling), huge, SUMS[0])
    assert [one.status for one in found] == ["provider_error", "ok"]
    assert "maximum context length" in found[0].notes[0]
    with pytest.raises(ConfigError, match="no such model"):
        await judged(Path("nobody/nothing"), judging(tmp_path, server))
    with pytest.raises(ProviderError, match="max_tokens"):
        await asked(server, judge, HELLO, max_tokens=100_000)


def doctor(
    capsys: pytest.CaptureFixture[str], server: str, judge: Path, *options: str
) -> tuple[int, dict[str, tuple[str, str]]]:
    with pytest.raises(SystemExit) as stopped:
        main(["doctor", f"vllm/{judge}", "--base-url", server, *options])
    found = {line[6:17].strip(): (line[:4].strip(), line[18:].strip()) for line in capsys.readouterr().out.splitlines()}
    return int(stopped.value.code or 0), found


def test_the_doctor_says_what_this_server_does(
    server: str, judge: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    extra = orjson.dumps(ending_texts(judge)).decode()
    golden = tmp_path / "golden.json"
    options = ("--extra-body", extra, "--style", "json", "--max-tokens", "4000", "--golden", str(golden))
    code, found = doctor(capsys, server, judge, *options)
    assert {what: state for what, (state, _) in found.items() if state == "BAD"} == {}
    assert code == 0
    for what in ("schema", "server", "fields", "context", "grammar", "verdicts", "continue", "seed", "n", "prefix", "golden"):
        assert found[what][0] == "ok", (what, found[what])
    assert "8192 tokens" in found["context"][1]
    known, given = likeliest(judge), orjson.loads(golden.read_bytes())["p"]
    assert len(set(known) & set(given)) >= 2
    assert all(math.isclose(given[token], known[token], abs_tol=1e-3) for token in set(known) & set(given))
    assert "as in" in doctor(capsys, server, judge, *options)[1]["golden"][1]
    golden.write_bytes(orjson.dumps({"p": {"Yes": 0.9, "No": 0.05}}))
    code, found = doctor(capsys, server, judge, *options)
    assert (code, found["golden"][0]) == (4, "BAD")


def test_the_doctor_says_what_this_server_ignores(server: str, judge: Path, capsys: pytest.CaptureFixture[str]) -> None:
    extra = orjson.dumps({**ending_texts(judge), "guided_json": {"type": "object"}}).decode()
    code, found = doctor(capsys, server, judge, "--extra-body", extra)
    assert code == 4
    assert found["fields"][0] == "BAD"
    assert "guided_json: this version silently ignores that" in found["fields"][1]
    assert found["context"] == ("BAD", "8192 tokens, prompt included, and a run asks for up to 8192 of answer: set --max-tokens"
                                " well below")  # fmt: skip
