"""One vLLM at a time: tiny models made by code, and servers that are started, waited for and ended, all within bounds."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import orjson
import pytest

from critic_prm.cli.doctor_judge import GOLDEN_QUESTION
from critic_prm.data.trajectory import Step, Trajectory
from tests.effort import PATIENCE, until
from tests.vllm.tiny_model import make_judge

HERE = Path(__file__).parent

QUIET = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "OMP_NUM_THREADS": "1",
}
GRAMMAR = {"backend": "xgrammar", "disable_any_whitespace": True}
"""A model with random weights would fill JSON with blanks until it is cut."""

SERVER = (
    "--dtype",
    "float32",
    "--max-model-len",
    "8192",
    "--structured-outputs-config",
    orjson.dumps(GRAMMAR).decode(),
    "--enable-prompt-tokens-details",
)
ENGINE = {
    "enforce_eager": True,
    "dtype": "float32",
    "max_model_len": 8192,
    "max_num_seqs": 16,
    "structured_outputs_config": GRAMMAR,
}

SUMS = (
    Trajectory("right", "What is 2 + 3?", (Step("2 + 3 = 5."), Step("So the answer is 5."))),
    Trajectory("wrong", "What is 4 + 4?", (Step("4 + 4 = 9."), Step("So the answer is 9."))),
    Trajectory("odd", "What is 1 + 1 + 1?", (Step("1 + 1 = 2."), Step("2 + 1 = 3, so the answer is 3."))),
)


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Without vLLM nothing here can run."""
    if find_spec("vllm") is None:
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(
                    pytest.mark.skip(reason="vLLM is not installed here; `make test-vllm` makes an environment for it")
                )


@pytest.fixture(scope="session")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A causal model's folder."""
    return make_judge(tmp_path_factory.mktemp("tiny") / "judge")


@contextmanager
def serving(model: Path, *options: str) -> Iterator[str]:
    """The address (.../v1) of a vLLM server with `model` for as long as the block runs; then its processes are ended."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)),
        *("--host", "127.0.0.1", "--port", str(port), "--enforce-eager", "--max-num-seqs", "16"),
        *options,
    ]
    with ended(command, model.with_suffix(".log")) as running:
        wait_for(f"http://127.0.0.1:{port}/health", running, model.with_suffix(".log"))
        yield f"http://127.0.0.1:{port}/v1"


@contextmanager
def ended(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A command in a session of its own, that is over with all its children when the block is."""
    with log.open("wb") as said:
        running = subprocess.Popen(command, stdout=said, stderr=said, env=os.environ | QUIET, start_new_session=True)
    try:
        yield running
    finally:
        running.terminate()
        try:
            running.wait(20)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait(20)
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)  # whoever of its session is left


def wait_for(address: str, running: subprocess.Popen[bytes], log: Path) -> None:
    def answers() -> bool:
        assert running.poll() is None, "it ended"
        try:
            with urlopen(address, timeout=PATIENCE) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False

    try:
        until(answers, "an answer of /health")
    except AssertionError as error:
        said = log.read_text("utf-8", "replace")[-3000:]
        pytest.fail(f"vLLM did not start ({error}):\n{said}")


@contextmanager
def vllm_pooling_server(folder: Path) -> Iterator[str]:
    """As `serving`, with a verifier's folder in the pooling runner: POST /pooling answers with scores for every token."""
    options = ("--runner", "pooling", "--pooler-config", orjson.dumps({"tok_pooling_type": "ALL"}).decode())
    with serving(folder, *options, "--dtype", "float32") as address:
        yield address


def ending_texts(judge: Path) -> dict[str, Any]:
    """Random weights hardly ever close a text of JSON: make quotation marks likely."""
    from transformers import AutoTokenizer

    (quote,) = AutoTokenizer.from_pretrained(judge).encode('"', add_special_tokens=False)
    return {"logit_bias": {str(quote): 8.0}}


def likeliest(judge: Path) -> dict[str, float]:
    """What transformers says to the golden question: the chance to come first of each token with a spelling of its own."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    words = AutoTokenizer.from_pretrained(judge)
    messages = [{"role": message.role, "content": message.content} for message in GOLDEN_QUESTION]
    text = words.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    with torch.no_grad():
        prompt = torch.tensor([words.encode(text, add_special_tokens=False)])
        p = AutoModelForCausalLM.from_pretrained(judge)(prompt).logits[0, -1].softmax(-1)
    texts = [str(words.decode([token])) for token in range(len(p))]
    return {text: float(chance) for text, chance in zip(texts, p, strict=True) if texts.count(text) == 1}
