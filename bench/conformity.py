"""Check the requests of every style with independent servers, which validate each body.

    python bench/conformity.py --spec openapi.json [--tools FOLDER]

Stoplight Prism checks every request against OpenAI's published specification (openapi.json of the repository
openai/openai-openapi), of which only Chat Completions is loaded. LiteLLM's proxy and CopilotKit's aimock are used if they are
installed in FOLDER. The proxy is asked for a model that it answers itself and, with the preset `together`, for one that it
translates to Anthropic's Messages API, at a local server. Exit code 1 if a request did not pass.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.server import Behaviour, serving
from critic_prm.styles.prompt import style_names

PATH = "/chat/completions"
ROWS = Path(__file__).parents[1] / "examples" / "trajectories.jsonl"
KEYS = {"OPENAI_API_KEY": "none", "TOGETHER_API_KEY": "none"}
START = 240.0
"""Seconds that a server may take to start."""

OPTIONS: tuple[tuple[str, ...], ...] = (
    (),
    ("--max-tokens", "256", "--temperature", "0.7", "--top-p", "0.9", "--seed", "3"),
    ("--samples", "2", "--logprobs", "3", "--no-schema"),
    ("--think-rounds", "1"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spec", type=Path, help="OpenAI's specification, openapi.json; without it, Prism is left out.")
    parser.add_argument("--tools", type=Path, default=Path("tools"), help="Where Prism, LiteLLM and aimock are installed.")
    given = parser.parse_args()
    tools, wrong = given.tools.resolve(), 0
    with TemporaryDirectory() as name:
        folder = Path(name)
        for run, program, how in (
            (_prism, "node_modules/.bin/prism", "npm install --prefix {} @stoplight/prism-cli"),
            (_litellm, "litellm/bin/litellm", "python -m venv {0}/litellm && {0}/litellm/bin/pip install 'litellm[proxy]'"),
            (_aimock, "node_modules/.bin/llmock", "npm install --prefix {} @copilotkit/aimock"),
        ):
            path = tools / program
            if run is _prism and given.spec is None:
                print("prism: no specification (--spec)")
            elif path.exists():
                wrong += run(path, folder, given.spec)
            else:
                print(f"{path.name}: not installed: {how.format(given.tools)}")
    return int(wrong > 0)


def chat_only(spec: dict[str, Any]) -> dict[str, Any]:
    """A specification with Chat Completions and what it refers to: the whole one takes minutes to load."""
    paths = {PATH: {"post": spec["paths"][PATH]["post"]}}
    parts: dict[str, dict[str, Any]] = {"securitySchemes": spec["components"].get("securitySchemes", {})}
    waiting, seen = list(_references(paths)), set()
    while waiting:
        reference = waiting.pop()
        if reference not in seen:
            seen.add(reference)
            _, _, kind, name = reference.split("/")
            parts.setdefault(kind, {})[name] = spec["components"][kind][name]
            waiting += _references(spec["components"][kind][name])
    return {name: spec[name] for name in ("openapi", "info", "servers") if name in spec} | {"paths": paths, "components": parts}


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _references(one)


def _prism(program: Path, folder: Path, spec: Path) -> int:
    """Prism answers with random texts; what counts is its word on each request."""
    small, log = folder / "spec.json", folder / "prism.log"
    small.write_text(json.dumps(chat_only(json.loads(spec.read_text("utf-8")))))
    port = _free_port()
    with _running([str(program), "mock", "--errors", "-h", "127.0.0.1", "-p", str(port), str(small)], port, log):
        for style in style_names():
            for options in OPTIONS:
                _label(f"http://127.0.0.1:{port}", folder, style, options)
    said = log.read_text("utf-8", "replace")
    passed, refused = said.count("The request passed the validation rules"), said.count("did not pass the validation rules")
    print(f"prism: {passed} requests passed, {refused} did not")
    for line in said.splitlines():
        if "Violation: request" in line:
            print(f"  {line}")
    return refused + (passed == 0)


def _litellm(program: Path, folder: Path, spec: Path) -> int:
    config = folder / "litellm.yaml"
    with serving(Behaviour(latency=0.0)) as claude:
        upstream = claude.url.removesuffix("/v1")
        mocked = {"model": "openai/gpt-4o", "api_key": "none", "mock_response": "Verdict: correct"}
        translated = {"model": "anthropic/claude-haiku-4-5", "api_key": "none", "api_base": upstream}
        local = {"dangerously_permit_weak_or_unset_master_key": True}
        models = [{"model_name": "gpt-4o", "litellm_params": mocked}, {"model_name": "claude", "litellm_params": translated}]
        config.write_text(json.dumps({"model_list": models, "general_settings": local}))
        port = _free_port()
        command = [str(program), "--config", str(config), "--host", "127.0.0.1", "--port", str(port), "--telemetry", "False"]
        judges = ("openai/gpt-4o", "together/claude")
        return _answered("litellm", command, port, folder, f"http://127.0.0.1:{port}/v1", judges)


def _aimock(program: Path, folder: Path, spec: Path) -> int:
    fixtures = folder / "fixtures"
    fixtures.mkdir(exist_ok=True)
    answer = {"match": {"userMessage": ""}, "response": {"content": "Verdict: correct"}}
    (fixtures / "all.json").write_text(json.dumps({"fixtures": [answer]}))
    port = _free_port()
    command = [str(program), "-p", str(port), "-f", str(fixtures)]
    return _answered("aimock", command, port, folder, f"http://127.0.0.1:{port}/v1")


def _answered(
    name: str, command: Sequence[str], port: int, folder: Path, url: str, judges: Sequence[str] = ("openai/gpt-4o",)
) -> int:
    """How many requests a server refused; what the answers say does not matter."""
    refused = 0
    with _running(command, port, folder / f"{name}.log"):
        for judge in judges:
            asked = failed = 0
            for style in style_names():
                report = _label(url, folder, style, ("--max-tokens", "256"), judge)
                asked += report["requests"]
                failed += sum(report["failures"].values())
            print(f"{name}, {judge}: {asked} requests, {failed} refused")
            refused += failed + (asked == 0)
    return refused


def _label(url: str, folder: Path, style: str, options: Sequence[str], judge: str = "openai/gpt-4o") -> dict[str, Any]:
    """Label two rows; the run's report."""
    with TemporaryDirectory(dir=folder) as place:
        out = Path(place) / "labels.jsonl"
        judged = ("--judge", judge, "--base-url", url, "--style", style, "--limit", "2")
        kept = ("-o", str(out), "--db", str(Path(place) / "cache.db"), "--max-retries", "0", "--regenerate", "0")
        command = [sys.executable, "-m", "critic_prm", "label", str(ROWS), *judged, *kept, *options]
        ran = subprocess.run(command, env=os.environ | KEYS, capture_output=True, text=True, timeout=300)
        found = Path(f"{out}.run.json")
        if not found.exists():
            raise SystemExit(f"{style} {' '.join(options)}: {ran.stderr.strip()}")
        report: dict[str, Any] = json.loads(found.read_text())
        return report


@contextmanager
def _running(command: Sequence[str], port: int, log: Path) -> Iterator[None]:
    """A server until it is no longer needed; its output goes to `log`. Raises SystemExit when it does not start."""
    with log.open("wb") as stream:
        # LiteLLM would fetch a table of prices when it starts.
        env = os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        server = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT, env=env)
        try:
            end = time.monotonic() + START
            while not _listens(port):
                if server.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"{command[0]} did not start: {log.read_text('utf-8', 'replace')[-400:]}")
                time.sleep(0.2)
            yield
        finally:
            server.terminate()
            server.wait(30)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


if __name__ == "__main__":
    sys.exit(main())
