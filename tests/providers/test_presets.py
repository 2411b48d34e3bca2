"""The presets of presets.toml against servers that answer in the documented forms of their providers (presets/NAME.json)."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest

from critic_prm import registry
from critic_prm.cli import main
from critic_prm.critics.cascade import Cascade
from critic_prm.critics.combined import connect_all
from critic_prm.critics.open import open_critic
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import ConfigError, InputError, ProviderError, UsageError
from critic_prm.providers import presets as module
from critic_prm.providers.http import Direct
from critic_prm.providers.models import abilities, check, did_you_mean, provider_of
from critic_prm.providers.openai import OpenAIProvider
from critic_prm.providers.presets import preset_of, presets
from critic_prm.providers.provider import (
    Message,
    Provider,
    Reply,
    Request,
    Sampling,
    Wire,
    official_addresses,
    open_provider,
    read_stored,
    request_key,
)

CASES = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(Path(__file__).with_name("presets").glob("*.json"))}
REPLIES = [(name, reply["what"]) for name, case in CASES.items() for reply in case["replies"]]
KEY = "sk-the-key-of-this-test-0123456789"
ASKED = (Message("system", "Judge."), Message("user", "6 * 7 + 1?"))


@pytest.fixture(autouse=True)
def _only_own_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for preset in presets().values():
        for name in filter(None, (preset.key, preset.base_url_env)):
            monkeypatch.delenv(name, raising=False)
    for name in [name for name in os.environ if name.startswith("CRITIC_PRM_")]:
        monkeypatch.delenv(name)


class Server:
    """Answers every request with one documented reply, and remembers what came in."""

    def __init__(self, reply: Mapping[str, Any]) -> None:
        self.reply, self.url = reply, ""
        self.path, self.headers, self.body = "", dict[str, str](), dict[str, Any]()
        self.requests = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                self.path = head[0].split(" ")[1]
                self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
                self.body = orjson.loads(await reader.readexactly(int(self.headers["content-length"])))
                self.requests += 1
                content = orjson.dumps(self.reply["body"])
                more = "".join(f"{name}: {value}\r\n" for name, value in self.reply["headers"].items())
                status = f"HTTP/1.1 {self.reply['status']} x\r\ncontent-type: application/json; charset=utf-8\r\n"
                writer.write(f"{status}{more}content-length: {len(content)}\r\n\r\n".encode() + content)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


@contextmanager
def serving(reply: Mapping[str, Any]) -> Iterator[Server]:
    """The server, in a thread of its own: a command listens for signals in the main one."""
    server, ready, done = Server(reply), threading.Event(), threading.Event()

    async def serve() -> None:
        listening = await asyncio.start_server(server.answer, "127.0.0.1", 0)
        server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        ready.set()
        async with listening:
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    ready.wait()
    try:
        yield server
    finally:
        done.set()
        thread.join()


def reply_of(name: str, what: str) -> dict[str, Any]:
    return next(reply for reply in CASES[name]["replies"] if reply["what"] == what)


def request_of(asked: Mapping[str, Any]) -> Request:
    wanted = {name: value for name, value in asked.items() if name != "schema"}
    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    return Request(ASKED, Sampling(max_tokens=512, **wanted), schema if asked.get("schema") else None)


def opened(name: str, url: str) -> Provider:
    return open_provider(f"{name}/{CASES[name]['model']}", f"{url}{CASES[name]['base_url']}")


async def asked(provider: Provider, wire: Wire) -> tuple[Reply | None, Mapping[str, Any], ProviderError | None]:
    """Send a body once: the parsed reply and the raw one, or the error."""
    try:
        raw = (await provider.complete(wire)).raw
        return provider.read(raw), raw, None
    except ProviderError as error:
        return None, {}, error
    finally:
        await provider.close()


@pytest.mark.parametrize(("name", "what"), REPLIES, ids=[f"{name}: {what}" for name, what in REPLIES])
async def test_what_a_provider_answers_is_read_right(name: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replies: text without reasoning, finish, usage. Errors: the class, the advice, and no key in either."""
    reply = reply_of(name, what)
    if variable := preset_of(name).key:
        monkeypatch.setenv(variable, KEY)
    expect = reply["expect"]
    with serving(reply) as server:
        provider = opened(name, server.url)
        wire = provider.wire(request_of(reply.get("request", {})))
        found, raw, error = await asked(provider, wire)
    if error is not None:
        assert (error.failure, error.retry_after) == (expect.get("failure"), expect.get("retry_after")), str(error)
        assert all(text in str(error) for text in expect["says"]), str(error)
        assert KEY not in f"{error} {error.detail}"
        return
    assert found is not None
    assert (found.text, found.finish) == (expect["text"], expect["finish"])
    usage = expect.get("usage", {})
    assert {key: getattr(found.usage, key) for key in usage} == usage
    assert [[one.token, one.logprob, len(one.top)] for one in found.logprobs] == expect.get("logprobs", [])
    assert read_stored(name, raw) == found
    assert "failure" not in expect


@pytest.mark.parametrize("name", CASES)
async def test_what_a_provider_is_sent(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address, the key in the provider's header, and the fields by the provider's names."""
    case, reply = CASES[name], CASES[name]["replies"][0]
    preset = preset_of(name)
    if preset.key:
        monkeypatch.setenv(preset.key, KEY)
    with serving(reply) as server:
        provider = opened(name, server.url)
        await provider.complete(provider.wire(request_of(reply["request"])))
        await provider.close()
    assert server.path == f"{case['base_url']}/chat/completions"
    header = case.get("header", "authorization")
    sent = (
        {"authorization": "Bearer none"} if header is None else {header: KEY if header != "authorization" else f"Bearer {KEY}"}
    )
    assert {name: value for name, value in server.headers.items() if name in ("authorization", "api-key")} == sent
    assert server.body["model"] == case["model"]
    expected = {
        field: {"type": value["type"]} if field == "response_format" else value for field, value in case["sent"].items()
    }
    told = {
        field: {"type": value["type"]} if field == "response_format" else value
        for field, value in server.body.items()
        if field in expected
    }
    assert told == expected
    assert not set(case["not_sent"]) & server.body.keys()
    if preset.base_url and not preset.start:
        assert urlsplit(preset.base_url).path == case["base_url"]


@pytest.mark.parametrize("name", CASES)
def test_the_reasoning_stands_where_the_table_says(name: str) -> None:
    """Each first reply is one with reasoning, if the provider returns it; none of it is in the reply's text."""
    message = CASES[name]["replies"][0]["body"]["choices"][0]["message"]
    field = {"lmstudio": "reasoning"}.get(name, preset_of(name).reasoning)
    if field == "content":
        assert message["content"][0]["type"] == "thinking"
    elif field:
        assert message[field] == "Let me check 42 + 1."


SOLUTION = {"id": "1", "problem": "What is 6 * 7 + 1?", "steps": ["6 * 7 = 42.", "42 + 1 = 44."]}


@pytest.mark.parametrize("name", CASES)
def test_a_solution_is_labelled(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole command with each preset: a label, the costs of the documented usage, and a second run that sends nothing."""
    case = CASES[name]
    if variable := preset_of(name).key:
        monkeypatch.setenv(variable, KEY)
    (tmp_path / "in.jsonl").write_bytes(orjson.dumps(SOLUTION) + b"\n")
    with serving(case["replies"][0]) as server:
        line = ["label", f"{tmp_path}/in.jsonl", "-o", f"{tmp_path}/out.jsonl", "--db", f"{tmp_path}/c.db"]
        line += ["--judge", f"{name}/{case['model']}", "--base-url", f"{server.url}{case['base_url']}"]
        line += ["--header", "X-Team=a-secret-of-the-team-0123456789", "--verbose"]

        def run() -> int:
            with pytest.raises(SystemExit) as ended:
                main(line)
            return int(ended.value.code or 0)

        assert (run(), server.requests) == (0, 1)
        assert server.headers["x-team"] == "a-secret-of-the-team-0123456789"
        row = orjson.loads((tmp_path / "out.jsonl").read_bytes())
        assert (row["status"], row["first_error"], row["critic"]["provider"]) == ("ok", 1, name)
        assert (run(), server.requests) == (0, 1)
    usage = case["replies"][0]["expect"]["usage"]
    report = (tmp_path / "out.jsonl.run.json").read_text()
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir()) + "".join(capsys.readouterr()).encode()
    assert b"a-secret-of-the-team" not in written
    assert KEY.encode() not in written
    assert str(usage["input"]) in report or "cached" in report


# The table and the rules that hold for every preset


def test_there_are_ten_presets_with_documented_replies() -> None:
    tried = {name for name, preset in presets().items() if "mock" in preset.tried} - {"openai", "vllm"}
    assert tried == CASES.keys()
    assert len(tried) >= 10
    for case in CASES.values():
        classes = {reply["expect"].get("failure") for reply in case["replies"]}
        assert {None, "run", "row"} & classes == {None, "run", "row"}


@pytest.mark.parametrize("name", sorted(presets()))
def test_the_table_holds_together(name: str) -> None:
    preset = preset_of(name)
    assert preset.title
    assert preset.docs
    assert preset.read
    assert set(preset.tried) <= {"mock", "server", "real"}
    for address in preset.official_addresses:
        assert preset.owns(address), address
        assert address.startswith("https://")
    assert bool(preset.key) or bool(preset.start)
    provider = open_provider(f"{name}/MODEL")
    assert provider.name == name
    assert provider.wire(Request(ASKED))["model"] == "MODEL"
    assert official_addresses(name) == preset.official_addresses


def test_names_are_unique() -> None:
    """A name belongs to one provider, and no suggestion stands for a provider's own name."""
    others = [other for preset in presets().values() for other in preset.also]
    assert len(set(others)) == len(others)
    assert not set(others) & set(registry.names("provider"))
    keys = [preset.key for preset in presets().values() if preset.key]
    assert len(set(keys)) == len(keys)


KEYS = {
    "azure": "f29f64f037de",
    "cerebras": "f29f64f037de",
    "dashscope": "0777e97953cd",
    "deepseek": "365a95aef175",
    "fireworks": "0777e97953cd",
    "gemini": "0777e97953cd",
    "groq": "f29f64f037de",
    "huggingface": "0777e97953cd",
    "llamacpp": "0777e97953cd",
    "lmstudio": "0777e97953cd",
    "mistral": "ff569acbbe45",
    "moonshot": "0777e97953cd",
    "nebius": "0777e97953cd",
    "ollama": "0777e97953cd",
    "openai": "f29f64f037de",
    "openrouter": "f0196ea6b717",
    "sambanova": "365a95aef175",
    "together": "0777e97953cd",
    "vllm": "0777e97953cd",
    "xai": "f29f64f037de",
    "zhipu": "365a95aef175",
}
"""The cache keys of a request, by preset: if one changed, every reply paid for under it would be bought again. A key depends on
the body alone, so providers that are sent the same body share it."""


def test_the_cache_keys_of_presets_stay() -> None:
    request = Request(ASKED, Sampling(max_tokens=512, seed=7, effort="low"))
    found = {}
    for name in sorted(presets()):
        try:
            found[name] = request_key(open_provider(f"{name}/MODEL").wire(request))[:12]
        except UsageError:
            found[name] = request_key(open_provider(f"{name}/MODEL").wire(Request(ASKED, Sampling(max_tokens=512))))[:12]
    assert found == KEYS


def test_a_header_and_a_key_variable_are_not_in_the_cache_key() -> None:
    plain = open_provider("groq/m")
    other = open_provider("groq/m", None, (), ["X-Team=a", "authorization=Basic x"], "OTHER_KEY")
    assert plain.wire(Request(ASKED)) == other.wire(Request(ASKED))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("grok/grok-4.7", "did you mean xai/grok-4.7?"),
        ("llama.cpp/m", "did you mean llamacpp/m?"),
        ("google/gemini-3.8-flash", "did you mean gemini/gemini-3.8-flash?"),
        ("bedrock/anthropic.claude", "or litellm/bedrock/anthropic.claude"),
    ],
)
def test_another_name_of_a_provider(name: str, meant: str) -> None:
    with pytest.raises(UsageError, match="there is no provider") as caught:
        open_provider(name)
    assert meant in str(caught.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("gpt-5.4-mini", "openai/gpt-5.4-mini"), ("claude-haiku-5-5", "anthropic/claude-haiku-5-5"), ("grok-4.7", "xai/grok-4.7")],
)
def test_a_judge_without_a_provider(name: str, meant: str) -> None:
    """`gpt-5.4-mini` "is not a critic", with no word about openai/gpt-5.4-mini."""
    with pytest.raises(UsageError) as caught:
        open_critic(name)
    assert str(caught.value) == f"{name!r} is not a critic; did you mean {meant}?"


def test_the_model_table_knows_presets() -> None:
    assert provider_of("no-model-of-anybody") is None
    assert abilities("deepseek", "deepseek-v4-flash").prices is not None
    assert did_you_mean("deepseek", "deepseek-v4-flsh") == "; did you mean deepseek-v4-flash?"
    azure = abilities("azure", "gpt-5.4-mini")
    assert (azure.sampling, azure.prices) == ("no-effort", None)
    priced = [preset for preset in presets() if preset != "azure" and any(_priced(preset))]
    assert len(priced) >= 6


def _priced(provider: str) -> Iterator[bool]:
    from critic_prm.providers.models import PACKAGED, _table

    return (row.prices is not None for row in _table(PACKAGED).get(provider, ()))


def test_what_a_server_does_not_take_is_refused_before_it_is_sent() -> None:
    for name, sampling, text in (
        ("groq", Sampling(logprobs=3), "Groq does not take log-probabilities"),
        ("deepseek", Sampling(seed=3), "DeepSeek does not take a seed"),
    ):
        with pytest.raises(UsageError, match=text):
            open_provider(f"{name}/m").wire(Request(ASKED, sampling))
    for name, sampling, text in (
        ("mistral", Sampling(temperature=1.8), "takes 0 to 1.5"),
        ("fireworks", Sampling(logprobs=9), "takes 0 to 5"),
        ("together", Sampling(effort="none"), "takes low, medium, high"),
        ("zhipu", Sampling(stop=("a", "b")), "takes 1 at most"),
    ):
        with pytest.raises(UsageError, match=text):
            check(name, "m", sampling)


# Addresses and keys


@pytest.mark.parametrize(
    ("given", "posted"),
    [
        ("https://r.openai.azure.com", "https://r.openai.azure.com/openai/v1/chat/completions"),
        ("https://r.openai.azure.com/openai/v1/", "https://r.openai.azure.com/openai/v1/chat/completions"),
        (
            "https://r.openai.azure.com/openai/deployments/d?api-version=2024-10-21",
            "https://r.openai.azure.com/openai/deployments/d/chat/completions?api-version=2024-10-21",
        ),
    ],
)
def test_both_addresses_of_azure(given: str, posted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", given)
    for base_url in (given, None):
        provider = open_provider("azure/d", base_url)
        assert isinstance(provider, OpenAIProvider)
        post = provider.open_post()
        assert isinstance(post, Direct)
        assert (post.url, post.headers) == (posted, {"api-key": KEY})


def test_a_preset_has_no_batch_api() -> None:
    with pytest.raises(UsageError, match="groq has no batch API; `critic-prm batch export`"):
        open_provider("groq/m").batches()


def test_a_preset_is_sent_to_the_workers_of_a_cluster() -> None:
    """The classes of presets are made at run time, so a worker cannot import them by name."""
    cloudpickle = pytest.importorskip("cloudpickle")
    provider = open_provider("groq/m", headers=["X-Team=a"])
    sent = cloudpickle.loads(cloudpickle.dumps(provider))
    assert (sent.name, sent.base_url, sent.headers) == ("groq", provider.base_url, {"X-Team": "a"})
    assert sent.wire(Request(ASKED, Sampling(max_tokens=4)))["max_completion_tokens"] == 4


def test_azure_needs_an_address_and_a_key() -> None:
    with pytest.raises(ConfigError, match=r"azure needs an address.*--base-url https://RESOURCE.openai.azure.com"):
        open_provider("azure/d").open_post()  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="azure needs a key: set AZURE_OPENAI_API_KEY"):
        open_provider("azure/d", "https://r.openai.azure.com").open_post()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("named", "used"),
    [
        ("127.0.0.1", "http://127.0.0.1:11434/v1"),
        ("box:9000", "http://box:9000/v1"),
        ("http://box:9000/", "http://box:9000/v1"),
        ("https://box/ollama/v1", "https://box/ollama/v1"),
    ],
)
def test_the_address_of_ollama_from_its_own_variable(named: str, used: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", named)
    assert open_provider("ollama/m").base_url == used


def test_a_provider_without_a_key_says_which_variable_it_needs() -> None:
    with pytest.raises(ConfigError, match=r"^groq needs a key: set GROQ_API_KEY, or give your own server with --base-url$"):
        open_provider("groq/m").open_post()  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"^groq needs a key: set OTHER$"):
        open_provider("groq/m", key_variable="OTHER").open_post()  # type: ignore[attr-defined]


def test_a_key_goes_to_the_provider_that_it_belongs_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """No preset sends another one's key, and a file may name the provider's own addresses only."""
    for preset in presets().values():
        if preset.key:
            monkeypatch.setenv(preset.key, f"key-of-{preset.name}")
    for name, preset in presets().items():
        secrets = [secret for secret in open_provider(f"{name}/m").secrets if secret]
        assert secrets == ([f"key-of-{name}"] if preset.key else ["none"])
        others = [address for other in presets().values() if other is not preset for address in other.official_addresses]
        assert not set(others) & set(official_addresses(name))


async def test_headers_replace_ours_and_another_variable_has_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_KEY", KEY)
    reply = reply_of("groq", "a wrong key")
    with serving(reply) as server:
        address, given = f"{server.url}/v1", ["x-org=acme", "user-agent=judge"]
        first = open_provider("groq/m", address, headers=given, key_variable="GATEWAY_KEY")
        with pytest.raises(ProviderError, match="set GATEWAY_KEY to a valid one"):
            await first.complete({"model": "m", "messages": []})
        seen = server.headers
        assert (seen["authorization"], seen["x-org"], seen["user-agent"]) == (f"Bearer {KEY}", "acme", "judge")
        second = open_provider("groq/m", address, headers=["authorization=Basic Zm9vOmJhcg=="])
        with pytest.raises(ProviderError):
            await second.complete({"model": "m", "messages": []})
        assert server.headers["authorization"] == "Basic Zm9vOmJhcg=="
        await first.close()
        await second.close()
        third = open_provider("vllm/m", address, headers=given, key_variable="GATEWAY_KEY")
        with pytest.raises(ProviderError):
            await third.complete(third.wire(Request(ASKED)))
        assert (server.headers["authorization"], server.headers["x-org"]) == (f"Bearer {KEY}", "acme")
        await third.close()


@pytest.mark.parametrize(
    "text", ["Authorization: Bearer sk-secret", "X-Key", "=sk-secret", "X Y=sk-secret", "Host=sk-secret", "X=sk-secret\nY: 1"]
)
def test_a_malformed_header_is_refused_without_its_value(text: str) -> None:
    with pytest.raises(UsageError, match="--header") as caught:
        open_provider("groq/m", headers=[text])
    assert "sk-secret" not in str(caught.value)


def test_headers_are_for_one_server() -> None:
    options = JudgeOptions(header=("X-Key=sk-secret",))
    assert "sk-secret" not in repr(options)
    with pytest.raises(UsageError, match="--header would be used for the servers of anthropic, openai"):
        connect_all(["openai/a", "anthropic/b"], options)
    with pytest.raises(UsageError, match="sends no HTTP requests"):
        open_provider("recorded/m", headers=["X-Key=1"])


def test_each_judge_of_a_trusted_file_has_its_own_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRST_KEY", "key-one-of-two")
    path = tmp_path / "two.toml"
    path.write_text(
        """
        [cascade]
        first = "rules"
        low = 0.1
        high = 0.9
        [[cascade.judges]]
        critic = "openai/a"
        base_url = "https://one.example/v1"
        header = ["X-Team=one"]
        api_key_env = "FIRST_KEY"
        [[cascade.judges]]
        critic = "groq/b"
        """
    )
    with pytest.raises(InputError, match=r"two\.toml: base_url is .*--trust"):
        open_critic(str(path), JudgeOptions(db=tmp_path / "c.db"))
    critic = open_critic(str(path), JudgeOptions(db=tmp_path / "c.db", trust=(path,), header=()))
    assert isinstance(critic, Cascade)
    first, second = (judge.client.provider for _, judge in critic.others if judge.client is not None)
    assert (first.base_url, first.secrets) == ("https://one.example/v1", ("key-one-of-two", "one"))
    assert second.base_url == preset_of("groq").base_url


# A local server that is not running


@pytest.mark.parametrize(
    ("judge", "says"),
    [
        (
            "vllm/Qwen",
            r"vllm/Qwen: vLLM is not installed here \(pip install 'vllm>=[\d.]+'\), and no server answers .* --base-url",
        ),
        ("ollama/llama3", r"ollama/llama3: nothing answers at .*: start Ollama with `ollama serve`, or name .* --base-url"),
    ],
)
def test_a_local_server_that_is_not_running_is_said_at_once(
    judge: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """vllm/MODEL without vLLM asked localhost for 11 s, and named neither the extra nor --base-url."""
    nobody = f"http://127.0.0.1:{free_port()}/v1"
    name = judge.partition("/")[0]
    table = dict(presets()) | {name: replace(preset_of(name), base_url=nobody)}
    monkeypatch.setattr(module, "presets", lambda: table)
    monkeypatch.setattr("critic_prm.providers.vllm.PRESET", table["vllm"])
    monkeypatch.setattr("critic_prm.providers.vllm.find_spec", lambda name: None)
    cached = "critic_prm.providers.openai._preset"
    monkeypatch.setattr(cached, lambda name, base_url: table[name].at(base_url))
    (tmp_path / "in.jsonl").write_bytes(orjson.dumps(SOLUTION) + b"\n")
    with pytest.raises(SystemExit) as ended:
        main(["label", f"{tmp_path}/in.jsonl", "-o", f"{tmp_path}/o.jsonl", "--db", f"{tmp_path}/c.db", "--judge", judge])
    said = capsys.readouterr().err
    assert ended.value.code == 4
    assert re.search(says, " ".join(said.split())), said


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
