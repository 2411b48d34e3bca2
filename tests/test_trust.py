"""Names from a file are data: no code of a stranger's file runs, no key leaves, no file outside its folder is read."""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson
import pytest

from critic_prm import registry
from critic_prm.cli import build, main
from critic_prm.cli.recipe import ELSEWHERE, HOLDS
from critic_prm.critics.open import open_critic
from critic_prm.data.trust import Origin, read_toml
from critic_prm.engine.batch.ledger import Ledger
from critic_prm.engine.entries import PendingRequest
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import InputError, UsageError
from critic_prm.providers.openai import OpenAIProvider
from critic_prm.providers.provider import open_provider, request_key
from critic_prm.providers.scripted import ScriptedProvider
from critic_prm.serve.rewards.reward import read_reward
from critic_prm.styles.prompt import open_style, style_in_data
from distill.sft.material import read_material

KEY = "sk-canary-0123456789"


class Canary(HTTPServer):
    """A server that remembers who asked it with which key; and a module whose every call is remembered."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Asked)
        self.keys: list[str | None] = []
        self.ran: list[Any] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class Asked(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Canary)
        self.server.keys.append(self.headers.get("Authorization"))
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def canary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Canary]:
    with Canary() as server:
        module = ModuleType("canary_module")

        def run(model: str, base_url: str | None) -> ScriptedProvider:
            server.ran.append(model)
            return ScriptedProvider([{"text": "The step is \\boxed{correct}"}], model=model)

        module.__dict__["run"] = run
        monkeypatch.setitem(sys.modules, "canary_module", module)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "VLLM_BASE_URL"):
            monkeypatch.delenv(name, raising=False)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's current folder with an input and private files, and a stranger's folder below it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.jsonl").write_bytes(b'{"id": "a", "problem": "2 + 2?", "steps": ["2 + 2 = 4"]}\n')
    (tmp_path / "private.jsonl").write_text('{"text": "PRIVATE"}\n')
    (tmp_path / "private.jinja").write_text("PRIVATE")
    (tmp_path / "private.toml").write_text('[mixture]\n[[mixture.part]]\ncritic = "PRIVATE"\n')
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "verifier.json").write_text("PRIVATE")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "linked").symlink_to(tmp_path / "private", target_is_directory=True)
    (tmp_path / "theirs" / "linked.jsonl").symlink_to(tmp_path / "private.jsonl")
    (tmp_path / "theirs" / "linked.toml").symlink_to(tmp_path / "private.toml")
    (tmp_path / "theirs" / "linked.jinja").symlink_to(tmp_path / "private.jinja")
    (tmp_path / "theirs" / "round").symlink_to("round")
    os.mkfifo(tmp_path / "theirs" / "pipe.toml")
    return tmp_path


def ends(capsys: pytest.CaptureFixture[str], code: int, *words: str) -> str:
    """Run a command; what it wrote to stderr."""
    with pytest.raises(SystemExit) as stopped:
        main(list(words))
    said = capsys.readouterr().err
    assert stopped.value.code == code, said
    return said


def refused(said: str, file: str, canary: Canary) -> None:
    """One line that names the file and the way to allow it; nothing ran, nothing was sent, nothing was read."""
    *_, line = said.splitlines()
    assert line.startswith("error: ")
    assert file in line
    assert "--trust" in line or "--base-url" in line or "--style" in line
    assert "Traceback" not in said
    assert "PRIVATE" not in said
    assert canary.ran == []
    assert canary.keys == []


CRITICS = {
    "module and function": "canary_module:run/x",
    "standard library": "cProfile:run/__import__('os').system('touch canary')",
    "rollouts of a module": "rollout:canary_module:run/x",
    "rollouts of rollouts": "rollout:rollout:canary_module:run/x",
    "module with dots": "critic_prm.providers.openai:connect/x",
    "module without a function": "canary_module:/x",
    "module name as a provider": "critic_prm.providers.openai/x",
    "private module of the package": "_http/x",
    "capital letters": "OpenAI/x",
    "capital prefix": "Rollout:openai/x",
    "Cyrillic letter": "\u043epenai/x",
    "full-width letters": "\uff4fpenai/x",
    "invisible character": "openai\u200b/x",
    "URL with a module": "file:canary_module:run/x",
    "scripted replies elsewhere": "scripted/../private.jsonl",
    "scripted replies in the current folder": "scripted/private.jsonl",
    "scripted replies by an absolute path": "scripted//etc/passwd",
    "scripted replies of a home": "scripted/~/private.jsonl",
    "scripted replies behind a link": "scripted/linked.jsonl",
    "scripted replies from a device": f"scripted/{os.devnull}",
    "model folder of vLLM": "vllm/../private",
    "model folder of vLLM, absolute": "vllm//etc",
    "rollouts of replies elsewhere": "rollout:scripted/../private.jsonl",
    "verifier elsewhere": "../private",
    "verifier in the current folder": "private",
    "verifier behind a link": "linked",
    "cascade elsewhere": "../private.toml",
    "cascade in the current folder": "private.toml",
    "cascade behind a link": "linked.toml",
    "cascade that looks like a judge": "openai/../private.toml",
    "cascade of a home": "~/private.toml",
    "file URL": "file:///etc/passwd.toml",
    "encoded path": "%2e%2e/private.toml",
    "share": "//server/share/x.toml",
    "share of Windows": "\\\\server\\share\\x.toml",
    "loop of links": "round/x.toml",
    "pipe": "pipe.toml",
    "NUL": "openai/\u0000.toml",
    "long name": "x" * 5000 + ".toml",
    "line break": "canary_module:run/x\nerror: all is well",
}


def toml(text: str) -> str:
    """A text as a TOML string."""
    return '"' + "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in text) + '"'


def mixture(critic: str, *more: str) -> str:
    return "\n".join(["[mixture]", "[[mixture.part]]", f"critic = {toml(critic)}", *more]) + "\n"


def cascade(critic: str, *more: str) -> str:
    return "\n".join(["[cascade]", 'first = "rules"', f"judges = [{toml(critic)}]", "low = 0", "high = 1", *more]) + "\n"


@pytest.mark.parametrize("written", [mixture, cascade])
@pytest.mark.parametrize("critic", CRITICS.values(), ids=CRITICS.keys())
def test_a_critic_named_by_a_stranger(
    critic: str, written: Any, world: Path, canary: Canary, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cascade or mixture whose critic is module:factory/model ran code; nor may it name a path outside its folder."""
    (world / "theirs" / "c.toml").write_text(written(critic))
    refused(ends(capsys, 1, "label", "in.jsonl", "--judge", "theirs/c.toml"), "theirs/c.toml", canary)
    assert not (world / "canary").exists()


def test_a_dry_run_runs_nothing_either(world: Path, canary: Canary, capsys: pytest.CaptureFixture[str]) -> None:
    (world / "theirs" / "c.toml").write_text(cascade("canary_module:run/x"))
    words = ["label", "in.jsonl", "--judge", "theirs/c.toml", "--dry-run"]
    refused(ends(capsys, 1, *words), "theirs/c.toml", canary)
    ends(capsys, 0, *words, "--trust", "theirs/c.toml")
    assert canary.ran == ["x"]


def test_each_file_is_trusted_for_itself(world: Path, canary: Canary) -> None:
    """A trusted cascade may name a file elsewhere; what that file names is trusted when it is named, too."""
    outer, inner = world / "theirs" / "outer.toml", world / "inner.toml"
    outer.write_text(mixture("../inner.toml"))
    inner.write_text(mixture("canary_module:run/x"))
    for trust, file in (((), "outer.toml"), ((outer,), "inner.toml"), ((inner,), "outer.toml")):
        with pytest.raises(InputError, match=file):
            open_critic(str(outer), JudgeOptions(trust=trust))
    assert canary.ran == []
    open_critic(str(outer), JudgeOptions(db=world / "c.db", trust=("theirs/outer.toml", inner)))
    assert canary.ran == ["x"]


@pytest.mark.parametrize(
    "line",
    [
        'style = "../private.jinja"',
        'style = "private.jinja"',
        'style = "linked.jinja"',
        'style = "/etc/passwd"',
        'style = "~/x.jinja"',
        'style = "stepwise/../../private.jinja"',
        "style = 5",
        'escalate = "/tmp/elsewhere.jsonl"',
        'escalate = "../elsewhere.jsonl"',
        'escalate = "linked/elsewhere.jsonl"',
        'escalate = "~/elsewhere.jsonl"',
        'escalate = "pipe.toml"',
    ],
)
def test_other_paths_of_a_cascade(line: str, world: Path, canary: Canary, capsys: pytest.CaptureFixture[str]) -> None:
    """A prompt is read and escalations are written below the file's own folder only."""
    (world / "theirs" / "c.toml").write_text(cascade("openai/x", line))
    refused(ends(capsys, 1, "label", "in.jsonl", "--judge", "theirs/c.toml"), "theirs/c.toml", canary)
    assert not list(world.rglob("elsewhere.jsonl"))


def test_what_lies_in_the_folder_needs_no_trust(world: Path) -> None:
    folder = world / "theirs"
    (folder / "own.jinja").write_text(open_style("stepwise").source)
    (folder / "replies.jsonl").write_text('{"text": "x"}\n')
    (folder / "inner.toml").write_text(mixture("rules"))
    (folder / "c.toml").write_text(cascade("scripted/replies.jsonl", 'style = "own.jinja"', 'escalate = "people.jsonl"'))
    opened: Any = open_critic(str(folder / "c.toml"), JudgeOptions(db=world / "c.db"))
    assert opened.judges[1][1].style.name == "own"
    assert opened.escalations.path == folder / "people.jsonl"
    (folder / "outer.toml").write_text(mixture(str(folder / "inner.toml")))
    open_critic(str(folder / "outer.toml"), JudgeOptions())
    for fine in ("rules", "openai/gpt-5", "rollout:openai/gpt-5", "vllm/Qwen/Qwen3-8B", "anthropic/claude"):
        (folder / "c.toml").write_text(mixture(fine))
        open_critic(str(folder / "c.toml"), JudgeOptions(db=world / "c.db"))


@pytest.mark.parametrize("source", ['{% include "private.jinja" %}', '{% import "private.jinja" as x %}'])
def test_a_prompt_in_the_folder_reads_no_other_file(source: str, world: Path) -> None:
    (world / "theirs" / "own.jinja").write_text(
        "{# reader: boxed-verdicts #}\n{% block system %}" + source + "{% endblock %}{% block user %}x{% endblock %}"
    )
    (world / "theirs" / "c.toml").write_text(cascade("openai/x", 'style = "own.jinja"'))
    with pytest.raises(UsageError, match="a prompt is one file"):
        open_critic(str(world / "theirs" / "c.toml"), JudgeOptions(db=world / "c.db"))


# Caches


def a_cache(path: Path, provider: str, model: str, base_url: str | None = None) -> str:
    """A cache with a batch that runs, of this provider; the custom_id of its request."""
    wire = {"model": model, "messages": [{"role": "user", "content": "?"}]}
    key = request_key(wire)
    with Ledger(path) as ledger:
        batch = ledger.begin(OpenAIProvider("m", None, KEY), "writing")
        ledger.add(batch, [PendingRequest(key, wire, 0, "")])
        ledger.note(batch, state="running", remote="batch_1")
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("UPDATE batch SET provider = ?, model = ?, base_url = ?", (provider, model, base_url))
        conn.execute("UPDATE request SET provider = ?, model = ?", (provider, model))
        conn.commit()
    from critic_prm.providers.batches import custom_id

    return custom_id(key, 0)


PROVIDERS = [
    ("canary_module:run", "x"),
    ("cProfile:run", "__import__('os').system('touch canary')"),
    ("critic_prm.providers.openai", "x"),
    ("scripted", "../private.jsonl"),
    ("OPENAI", "x"),
    ("", "x"),
    ("canary_module:run\nerror: all is well", "x"),
]


@pytest.mark.parametrize(("provider", "model"), PROVIDERS)
@pytest.mark.parametrize("command", [("status",), ("fetch",), ("cancel", "1")])
def test_the_judge_of_a_batch_in_a_strangers_cache(
    provider: str,
    model: str,
    command: tuple[str, ...],
    world: Path,
    canary: Canary,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The cache's batch table named a provider, and any module's function was called with a text of the cache."""
    a_cache(world / "theirs" / "c.db", provider, model)
    refused(ends(capsys, 1, "batch", *command, "--db", "theirs/c.db"), "theirs/c.db", canary)
    assert not (world / "canary").exists()


@pytest.mark.parametrize(("provider", "model"), PROVIDERS)
def test_the_judge_of_a_request_in_a_strangers_cache(
    provider: str, model: str, world: Path, canary: Canary, capsys: pytest.CaptureFixture[str]
) -> None:
    """`batch import` opened the provider that the cache's request table named."""
    custom = a_cache(world / "theirs" / "c.db", provider, model)
    body = {"choices": [{"message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}], "usage": {}}
    row = {"custom_id": custom, "response": {"status_code": 200, "body": body}, "error": None}
    (world / "results.jsonl").write_bytes(orjson.dumps(row) + b"\n")
    words = ["batch", "import", "results.jsonl", "--db", "theirs/c.db"]
    refused(ends(capsys, 1, *words), "theirs/c.db", canary)
    assert not (world / "canary").exists()
    if provider == "canary_module:run":
        ends(capsys, 0, *words, "--trust", "theirs/c.db")
        assert canary.ran == ["x"]


def test_the_key_goes_to_no_server_that_a_cache_names(world: Path, canary: Canary, capsys: pytest.CaptureFixture[str]) -> None:
    """The cache's base_url got the user's key; now only a server that the user names, here or in the environment, gets it."""
    a_cache(world / "theirs" / "c.db", "openai", "gpt-5", canary.url)
    words = ["batch", "status", "--db", "theirs/c.db"]
    refused(ends(capsys, 1, *words), "theirs/c.db", canary)
    refused(ends(capsys, 1, *words, "--trust", "theirs/c.db"), "theirs/c.db", canary)  # trust is for code, not for a key
    with pytest.raises(SystemExit):
        main([*words, "--base-url", canary.url])
    assert set(canary.keys) == {f"Bearer {KEY}"}


def test_the_server_of_the_environment_is_the_users_own(world: Path, canary: Canary, monkeypatch: pytest.MonkeyPatch) -> None:
    a_cache(world / "c.db", "openai", "gpt-5", canary.url)
    monkeypatch.setenv("OPENAI_BASE_URL", canary.url)
    with pytest.raises(SystemExit):
        main(["batch", "status", "--db", "c.db"])
    assert set(canary.keys) == {f"Bearer {KEY}"}


@pytest.mark.parametrize(
    ("url", "fine"),
    [
        ("https://api.openai.com/v1", True),
        ("https://eu.api.openai.com/v1", True),
        ("http://api.openai.com/v1", False),
        ("https://api.openai.com.evil.example/v1", False),
        ("https://api.openai.com@evil.example/v1", False),
        ("https://api.openai.com:8443/v1", False),
        ("https://evil.example/https://api.openai.com/v1", False),
        ("https://api.anthropic.com", False),
        ("https://API.OPENAI.COM\\@evil.example/v1", False),
        ("", False),
    ],
)
def test_only_the_providers_own_addresses_are_taken_from_a_cache(url: str, fine: bool, world: Path, canary: Canary) -> None:
    from critic_prm.label.batch_files import _provider

    a_cache(world / "c.db", "openai", "gpt-5", url)
    with Ledger(world / "c.db") as ledger:
        [batch] = ledger.batches("running")
        if fine:
            assert _provider(ledger, batch, JudgeOptions()).base_url == url
        else:
            with pytest.raises(InputError, match="repeat it with --base-url"):
                _provider(ledger, batch, JudgeOptions())


# Recipes


def a_recipe(folder: Path, run: list[str], out: str = "made.jsonl", parameters: str = "") -> None:
    (folder / "r.toml").write_text(
        f'about = "a"\npaper = "p"\nneeds = "solutions"\n[parameters]\n{parameters}\n[[stages]]\nname = "one"\n'
        f"run = [{', '.join(map(toml, run))}]\nout = {toml(out)}\n"
    )


STAGES = {
    "judge": ["label", "{input}", "--judge", "canary_module:run/x"],
    "judge with =": ["label", "{input}", "--judge=canary_module:run/x"],
    "judge in a parameter": ["label", "{input}", "--judge", "{bad}"],
    "option in a parameter": ["label", "{input}", "{option}"],
    "several judges in one": ["judge-eval", "openai/a,canary_module:run/x", "{input}"],
    "critic": ["score", "canary_module:run/x", "{input}"],
    "policy": ["generate", "sample", "{input}", "--policy", "canary_module:run/x"],
    "confirming critic": ["generate", "perturb", "{input}", "--confirm", "canary_module:run/x"],
    "nested recipe": ["generate", "recipe", "{folder}/r.toml", "{input}"],
    "server": ["label", "{input}", "--judge", "openai/x", "--base-url", "http://127.0.0.1:1/v1"],
    "server of the policy": ["search", "{input}", "--policy", "openai/x", "--policy-base-url", "http://127.0.0.1:1/v1"],
    "body": ["label", "{input}", "--extra-body", "{}"],
    "cache": ["label", "{input}", "--db", "private.jsonl"],
    "prices": ["label", "{input}", "--prices", "0,0"],
    "trust": ["label", "{input}", "--judge", "theirs/c.toml", "--trust", "theirs/c.toml"],
    "output": ["label", "{input}", "-o", "elsewhere.jsonl"],
    "output of the input": ["label", "{input}", "--out={input}"],
    "second output": ["generate", "tree", "{input}", "--trees", "elsewhere.jsonl"],
    "second output over the input": ["generate", "tree", "{input}", "--trees", "{input}"],
    "second output over the cache": ["generate", "tree", "{input}", "--trees", "{out}/critic-prm.db"],
    "second output above": ["generate", "tree", "{input}", "--trees", "{out}/../elsewhere.jsonl"],
    "input": ["label", "private.jsonl"],
    "absolute input": ["label", "/etc/passwd"],
    "input of a home": ["label", "~/x"],
    "input above": ["label", "{folder}/../private.jsonl"],
    "input behind a link": ["label", "{folder}/linked.jsonl"],
    "style": ["label", "{input}", "--style", "private.jinja"],
    "style above": ["label", "{input}", "--style", "{folder}/../private.jinja"],
    "prompt": ["generate", "sample", "{input}", "--prompt", "private.jinja"],
    "weights of judges": ["label", "{input}", "--consensus", "weighted:private.jsonl"],
    "human answers": ["labels", "import", "{input}", "private.jsonl"],
    "cluster": ["label", "{input}", "--engine", "ray", "--ray-address", "ray://evil.example:1"],
    "base of a student": ["distill", "{out}/dataset", "--student", "evil/model"],
    "tokenizer": ["dataset", "sft", "{input}", "--tokenizer", "evil/model"],
    "end of options": ["dataset", "build", "{input}", "--"],
    "option without a value": ["label", "{input}", "--style"],
    "no command": ["--version"],
    "unknown command": ["sh", "-c", "touch canary"],
}


@pytest.mark.parametrize("dry", [(), ("--dry-run",)], ids=["", "dry"])
@pytest.mark.parametrize("run", STAGES.values(), ids=STAGES.keys())
def test_a_strangers_recipe(
    run: list[str], dry: tuple[str, ...], world: Path, canary: Canary, capsys: pytest.CaptureFixture[str]
) -> None:
    """A recipe's stage named a judge as module:factory/model, and the code ran."""
    a_recipe(world / "theirs", run, parameters='bad = "canary_module:run/x"\noption = "--judge=canary_module:run/x"')
    before = sorted(world.rglob("*"))
    words = ["generate", "recipe", "theirs/r.toml", "in.jsonl", "-o", "made", *dry]
    refused(ends(capsys, 1, *words), "theirs/r.toml", canary)
    assert sorted(world.rglob("*")) == before


@pytest.mark.parametrize(
    "out", ["/tmp/elsewhere.jsonl", "../elsewhere.jsonl", "a/../../elsewhere.jsonl", ".", "critic-prm.db", "recipe.json"]
)
def test_a_recipe_writes_below_its_output_folder(
    out: str, world: Path, canary: Canary, capsys: pytest.CaptureFixture[str]
) -> None:
    """A recipe with an absolute `out` wrote there."""
    a_recipe(world / "theirs", ["label", "{input}"], out)
    before = sorted(world.rglob("*"))
    refused(ends(capsys, 1, "generate", "recipe", "theirs/r.toml", "in.jsonl", "-o", "made"), "theirs/r.toml", canary)
    assert sorted(world.rglob("*")) == before
    assert not Path("/tmp/elsewhere.jsonl").exists()


def test_a_recipe_of_ones_own(world: Path, canary: Canary, capsys: pytest.CaptureFixture[str]) -> None:
    """Packaged critics, files beside it and what the user names need no trust; code does."""
    (world / "theirs" / "own.jinja").write_text(open_style("stepwise").source)
    words = ["generate", "recipe", "theirs/r.toml", "in.jsonl", "-o", "made"]
    a_recipe(
        world / "theirs",
        ["label", "{input}", "--judge", "rules", "--style", "{folder}/own.jinja", "--samples", "{n}"],
        "a/made.jsonl",
        "n = 1",
    )
    (world / "made" / "a").mkdir(parents=True)
    ends(capsys, 0, *words)
    assert (world / "made" / "a" / "made.jsonl").is_file()
    a_recipe(world / "theirs", ["label", "{input}", "--judge", "{who}"], parameters='who = "rules"')
    with pytest.raises(SystemExit):
        main([*words, "--set", "who=canary_module:run/mine"])
    assert canary.ran == ["mine"]
    a_recipe(world / "theirs", ["label", "{input}", "--judge", "canary_module:run/x"])
    with pytest.raises(SystemExit):
        main([*words, "--trust", "theirs/r.toml"])
    assert canary.ran == ["mine", "x"]


def test_every_option_of_a_stage_is_classed() -> None:
    """Options that are neither a flag nor a number are refused in a stage unless the table says what they hold."""
    refused_there = {
        *("against", "backend", "band", "base_url", "bench", "bounds", "check", "consensus", "db", "device", "ends", "engine"),
        *("error_rate", "profile", "reference", "threshold_from"),
        *(
            "api_key_env",
            "escalate",
            "extra_body",
            "header",
            "feedback_prompt",
            "image_root",
            "judge_options",
            "name",
            "out",
            "plots",
            "policy_api_key_env",
            "policy_base_url",
            "policy_header",
        ),
        *(
            "policy_options",
            "prices",
            "ray_address",
            "service_tier",
            "set",
            "sources",
            "student",
            "styles",
            "title",
            "tokenizer",
        ),
        *("option", "trust", "trusted", "verifier"),
    }

    def named(command: Any) -> Iterator[str]:
        for child in getattr(command, "commands", {}).values():
            yield from named(child)
        if any("--out" in parameter.opts for parameter in command.params):
            for parameter in command.params:
                if parameter.type_descriptor.annotation not in (int, float, bool):
                    yield parameter.name

    found = set(named(build()))
    assert found == HOLDS.keys() | refused_there
    assert not HOLDS.keys() & refused_there
    assert {option for _, option in ELSEWHERE} <= found


# Label files, chats, rewards


@pytest.mark.parametrize("style", ["../private", "/etc/passwd", "private.jinja", "stepwise/../x.jinja", 5, None, ["stepwise"]])
def test_a_style_in_data_opens_no_file(style: Any, world: Path) -> None:
    with pytest.raises(UsageError, match="only a packaged one"):
        style_in_data(style, "a label")
    assert style_in_data("stepwise", "a label") == open_style("stepwise")


@pytest.mark.parametrize("style", ["private.jinja", "/etc/passwd", "theirs/linked.jinja"])
def test_the_style_of_a_strangers_label_file(
    style: str, world: Path, canary: Canary, capsys: pytest.CaptureFixture[str]
) -> None:
    """Labels are read again with the style that they name: it was opened as a path."""
    Ledger(world / "c.db").cache.close()
    judgement = {"status": "ok", "verdicts": [{"step": 0, "verdict": "correct"}], "first_error": -1, "keys": ["k"]}
    row = {
        "id": "a",
        "problem": "2 + 2?",
        "steps": ["2 + 2 = 4"],
        "p_correct": [1.0],
        "votes": [[1, 1]],
        "status": "ok",
        "first_error": -1,
        "judgements": [judgement],
        "critic": {"provider": "openai", "style": style},
    }
    (world / "labels.jsonl").write_bytes(orjson.dumps(row) + b"\n")
    said = ends(capsys, 2, "labels", "reread", "labels.jsonl", "--db", "c.db", "-o", "out.jsonl")
    refused(said, "a label", canary)
    said = ends(capsys, 2, "dataset", "sft", "labels.jsonl", "-o", "chats")
    refused(said, "a label", canary)


def test_the_style_of_a_strangers_chats(world: Path) -> None:
    folder = world / "theirs" / "chats"
    folder.mkdir()
    chat = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}
    for name in ("train", "dev"):
        (folder / f"{name}.jsonl").write_bytes(orjson.dumps(chat) + b"\n")
    (folder / "sft.json").write_bytes(orjson.dumps({"style": {"name": "../../private"}}))
    with pytest.raises(InputError, match="files in its own folder"):
        read_material(folder, world / "x", None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        'critic = "canary_module:run/x"',
        'critic = "../private"',
        'critic = "rules"\n[judging]\ndb = "/tmp/elsewhere.db"',
        'critic = "rules"\n[judging]\ndb = "../elsewhere.db"',
        'critic = "openai/x"\n[judging]\nstyle = "../private.jinja"',
        'critic = "openai/x"\n[judging]\nbase_url = "http://127.0.0.1:1/v1"',
        'critic = "openai/x"\n[judging]\nbase_url = "https://api.anthropic.com"',
        'critic = "groq/x"\n[judging]\nbase_url = "https://api.openai.com/v1"',
        'critic = "openai/x"\n[judging]\nheader = ["X-Secret=of-the-file"]',
        'critic = "openai/x"\n[judging]\napi_key_env = "AWS_SECRET_ACCESS_KEY"',
    ],
)
def test_a_strangers_reward(text: str, world: Path, canary: Canary) -> None:
    path = world / "theirs" / "reward.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"reward\.toml.*--trust.*trust=\[\.\.\.\]"):
        read_reward(path)
    read_reward(path, trust=[path])
    assert canary.ran == []


def test_a_reward_does_not_trust_itself(world: Path) -> None:
    path = world / "reward.toml"
    path.write_text('critic = "rules"\n[judging]\ntrust = ["reward.toml"]')
    with pytest.raises(UsageError, match="unknown name 'trust'"):
        read_reward(path)


# The pieces


def test_trust_is_for_the_file_itself(world: Path) -> None:
    """Also by another path to it, and not for a file of the same name elsewhere."""
    file = world / "theirs" / "c.toml"
    file.write_text("")
    assert Origin(file, ["theirs/../theirs/c.toml"]).trusted
    assert not Origin(file, ["c.toml", world / "c.toml", world / "theirs"]).trusted
    assert not Origin(file).trusted


@pytest.mark.parametrize("name", ["_http", "..errors", "os", "openai.connect", "openai/../vllm", "", "-http", "openai "])
def test_a_registry_loads_its_own_modules_only(name: str) -> None:
    with pytest.raises(UsageError, match="there is no provider"):
        registry.load("provider", name)
    if "/" not in name:
        with pytest.raises(UsageError):
            open_provider(f"{name}/x")


@pytest.mark.parametrize(
    "key", ["a" + ".a" * 20_000, "[" + "a." * 20_000 + "a]", '"a" . ' * 100 + "b", "x = {" + "a." * 90 + "b"]
)
def test_keys_of_many_parts_are_refused_before_they_are_parsed(tmp_path: Path, key: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(f"{key} = 1\n")
    with pytest.raises(ValueError, match="more than 64 dotted parts"):
        read_toml(path)


def test_long_texts_with_dots_are_read(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text('a.b."c.d" = "' + "So it goes. " * 5_000 + '"\ne = "' + "." * 10_000 + "x" * 500_000 + '"\n')
    assert read_toml(path)["a"]["b"].keys() == {"c.d"}
