"""Run a vLLM engine in a thread of this process, with the same request and reply bodies as vLLM's server."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import multiprocessing
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

import orjson

from critic_prm.errors import ConfigError, CriticPrmError, ProviderError
from critic_prm.providers.provider import Wire

ENGINE = "CRITIC_PRM_VLLM_ENGINE"
"""Name of the environment variable that holds arguments of `vllm.LLM` as a JSON object."""

OPENING = "opening the model"
CLOSING = 60.0
"""Seconds to wait for a closed engine to end."""


@dataclass
class Inside:
    """One provider's handle to the engine of `model`. Providers of the same model in one process share an engine."""

    model: str
    arguments: dict[str, Any] = field(default_factory=dict)
    """Arguments of `vllm.LLM`."""
    _engine: Engine | None = field(default=None, repr=False)

    @property
    def gpus(self) -> float:
        """Number of GPUs that the engine uses."""
        return float(self.arguments.get("tensor_parallel_size", 1) * self.arguments.get("pipeline_parallel_size", 1))

    async def complete(self, wire: Wire) -> dict[str, Any]:
        """Return the reply body. Raises ProviderError for a rejected request and ConfigError if the engine does not run."""
        if self._engine is None:
            self._engine = _lease(self.model, self.arguments)
        return await self._engine.complete(wire)

    async def close(self) -> None:
        if self._engine is not None:
            engine, self._engine = self._engine, None
            if _give_back(engine):
                await asyncio.to_thread(engine.end)


@dataclass(eq=False)
class Question:
    """One request in flight: its body, and the future that waits for the reply in its event loop."""

    wire: Wire
    answer: asyncio.Future[dict[str, Any]]
    loop: asyncio.AbstractEventLoop

    def settle(self, outcome: dict[str, Any] | CriticPrmError) -> None:
        """Deliver the outcome from the engine's thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, so no caller waits
            self.loop.call_soon_threadsafe(_settle, self.answer, outcome)


def _settle(answer: asyncio.Future[dict[str, Any]], outcome: dict[str, Any] | CriticPrmError) -> None:
    if answer.done():
        return
    if isinstance(outcome, CriticPrmError):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)


class Engine:
    """An offline `vllm.LLM` with continuous batching: new requests join the running batch between its steps.

    Requests are added in the order of arrival, so those with a shared prefix find it in vLLM's prefix cache. Everything,
    templates and tokenization included, runs in one thread and blocks no event loop.
    """

    def __init__(self, model: str, arguments: Mapping[str, Any]) -> None:
        self.model, self.arguments = model, arguments
        self.users = 0
        self._inbox: SimpleQueue[Question | None] = SimpleQueue()
        self._state = OPENING
        self._thread = threading.Thread(target=self._run, name=f"vllm {model}", daemon=True)
        self._thread.start()

    async def complete(self, wire: Wire) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        question = Question(wire, loop.create_future(), loop)
        self._inbox.put(question)
        return await question.answer

    def end(self) -> None:
        """Stop the engine and wait for its processes to end, but not for a model that is still being loaded."""
        self._inbox.put(None)
        if self._state != OPENING:
            self._thread.join(CLOSING)

    def _run(self) -> None:
        failure: CriticPrmError
        out: dict[str, Question] = {}
        llm = None
        try:
            others = set(multiprocessing.active_children())
            llm = _open(self.model, self.arguments)
            self._state = "open"
            with guarded([child.pid for child in multiprocessing.active_children() if child not in others and child.pid]):
                self._serve(llm, out)
            failure = ProviderError("the engine was closed", "transient")
        except CriticPrmError as error:
            failure = error
        except BaseException as error:
            failure = ConfigError(
                f"vllm/{self.model}: the engine in this process {'ended' if llm else 'did not start'}: {_said(error)};"
                " what it wrote on stderr says more, all replies so far are kept"
            )
        self._state = "ended"
        if llm is not None:
            _shut(llm)
        for question in out.values():
            question.settle(failure)
        while not (isinstance(failure, ProviderError) and self._inbox.empty()):
            # A failed engine answers every later request with its error until it is closed.
            late = self._inbox.get()
            if late is None:
                break
            late.settle(failure)

    def _serve(self, llm: Any, out: dict[str, Question]) -> None:
        """Loop until closed: add new requests, run one engine step, deliver finished outputs."""
        while True:
            while not out or not self._inbox.empty():
                question = self._inbox.get()
                if question is None:
                    return
                if not question.answer.cancelled():
                    self._take(llm, question, out)
            if left := [name for name, question in out.items() if question.answer.cancelled()]:
                llm.llm_engine.abort_request(left)
                for name in left:
                    del out[name]
                continue
            for output in llm.llm_engine.step():
                if output.finished and (done := out.pop(output.request_id, None)) is not None:
                    done.settle(_answered(self.model, done.wire, output))

    def _take(self, llm: Any, question: Question, out: dict[str, Question]) -> None:
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            chat, sampling = chat_of(question.wire), sampling_of(question.wire, llm.get_default_sampling_params())
            limit = llm.model_config.max_model_len
            if sampling.max_tokens is not None and sampling.max_tokens > limit:
                raise ValueError(f"max_tokens={sampling.max_tokens} is more than the model's whole context of {limit} tokens")
            (name,) = llm.enqueue_chat(question.wire["messages"], sampling, use_tqdm=False, **chat)
        except EngineDeadError:
            question.settle(ConfigError(f"vllm/{self.model}: the engine in this process has ended"))
            raise
        except ProviderError as error:
            question.settle(error)
        except Exception as error:  # a template, grammar or limit rejected it: the request is at fault
            question.settle(ProviderError(f"refused: {_said(error)}", "row", status=400))
        else:
            out[name.partition("-")[0]] = question  # the engine appends a suffix to the number that outputs carry


def _answered(model: str, wire: Wire, output: Any) -> dict[str, Any] | ProviderError:
    ends = [choice.finish_reason for choice in output.outputs]
    if any(end not in ("stop", "length") for end in ends):
        return ProviderError(f"the engine ended the request with {ends[0]!r}", "transient")
    return body_of(model, wire, output, time.time())


_engines: dict[tuple[str, bytes], Engine] = {}
_lock = threading.Lock()


def _lease(model: str, arguments: dict[str, Any]) -> Engine:
    key = (model, orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS))
    with _lock:
        engine = _engines.get(key) or _engines.setdefault(key, Engine(model, arguments))
        engine.users += 1
    return engine


def _give_back(engine: Engine) -> bool:
    """Release one use of an engine. Returns whether it was the last one."""
    with _lock:
        engine.users -= 1
        if engine.users:
            return False
        for key in [key for key, value in _engines.items() if value is engine]:
            del _engines[key]
    return True


def _open(model: str, arguments: Mapping[str, Any]) -> Any:
    """Load the model. Raises ConfigError for a vLLM version that cannot accept requests while it runs."""
    # vLLM's log must not mix with data on stdout. Forking would copy the locks of our other threads.
    for name, value in {"VLLM_LOGGING_STREAM": "ext://sys.stderr", "VLLM_WORKER_MULTIPROC_METHOD": "spawn"}.items():
        os.environ.setdefault(name, value)
    # Block SIGINT here and thus in the engine's processes: this program handles Ctrl-C and lets requests in flight finish.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    import vllm

    if not hasattr(vllm.LLM, "enqueue_chat"):
        raise ConfigError(
            f"vLLM {vllm.__version__} has no LLM.enqueue_chat, which judging in this process needs; install a newer one, or"
            " start its server and name that with --base-url"
        )
    return vllm.LLM(model, **arguments)


@contextlib.contextmanager
def guarded(processes: Sequence[int]) -> Iterator[None]:
    """Context manager: a helper shell ends `processes` if this process disappears.

    Without it, a kill -9 of this process would leave them running and holding all device memory.
    """
    if not processes:
        yield
        return
    then = 'cat > /dev/null; kill "$@"; sleep 10; kill -9 "$@"'
    guard = subprocess.Popen(
        ["sh", "-c", then, "sh", *map(str, processes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        guard.kill()
        guard.communicate()


def _shut(llm: Any) -> None:
    """End the engine's processes, with a timeout for an orderly shutdown if this vLLM version accepts one."""
    with contextlib.suppress(Exception):
        shutdown = llm.llm_engine.engine_core.shutdown
        shutdown(*([CLOSING / 2] if "timeout" in inspect.signature(shutdown).parameters else []))


def _said(error: BaseException) -> str:
    return " ".join(f"{error}".split())[:400] or type(error).__name__


CHAT = (
    "add_generation_prompt",
    "continue_final_message",
    "chat_template",
    "chat_template_kwargs",
    "mm_processor_kwargs",
    "tools",
)
"""Fields of a body that are passed to `LLM.chat` unchanged."""


ELSEWHERE = frozenset({"model", "messages", "logprobs", "top_logprobs", "max_completion_tokens", "response_format"})
"""Fields that are passed under other names."""


SILENT = frozenset({"user", "reasoning_effort", "service_tier", "metadata", "store"})
"""Fields that do not affect a reply or are handled elsewhere."""


OWN = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "stop_token_ids")
"""Sampling parameters that the model's generation_config.json may set; a request's values take precedence."""


LEAST = -9999.0
"""The log-probability that vLLM's server reports for a probability of 0."""


def chat_of(wire: Wire) -> dict[str, Any]:
    """Return the arguments of `LLM.chat` that control how messages become a prompt."""
    chat = {name: wire[name] for name in CHAT if wire.get(name) is not None}
    if (effort := wire.get("reasoning_effort")) is not None:
        told = {"reasoning_effort": effort, "enable_thinking": effort != "none"}
        chat["chat_template_kwargs"] = told | dict(chat.get("chat_template_kwargs") or {})
    return chat


def sampling_of(wire: Wire, own: Any) -> Any:
    """Return the SamplingParams of a body; `own` are the model's defaults.

    Raises ProviderError for a field that would be ignored.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    known = frozenset(SamplingParams.__struct_fields__)
    given = {name: value for name, value in wire.items() if value is not None and name not in (*CHAT, *ELSEWHERE, *SILENT)}
    if unknown := sorted(set(given) - known):
        raise ProviderError(f"vLLM in this process knows no parameter {unknown[0]!r}", "run")
    arguments = {name: getattr(own, name) for name in OWN} | given
    arguments["max_tokens"] = wire.get("max_completion_tokens") or wire.get("max_tokens")
    if wire.get("logprobs") and "logprob_token_ids" not in given:
        arguments["logprobs"] = wire.get("top_logprobs") or 0
    if "logit_bias" in given:
        arguments["logit_bias"] = {int(token): bias for token, bias in given["logit_bias"].items()}
    if (obey := given.get("structured_outputs") or _structure(wire.get("response_format"))) is not None:
        arguments["structured_outputs"] = StructuredOutputsParams(**obey)
    return SamplingParams(**arguments)


def _structure(said: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Convert OpenAI's response_format to vLLM's structured outputs."""
    if said is None or said.get("type") == "text":
        return None
    if said.get("type") == "json_schema":
        return {"json": said["json_schema"]["schema"]}
    if said.get("type") == "json_object":
        return {"json_object": True}
    raise ProviderError(f"vLLM in this process knows no response_format of type {said.get('type')!r}", "run")


def body_of(model: str, wire: Wire, output: Any, now: float) -> dict[str, Any]:
    """Convert a finished RequestOutput to the body of a chat completion."""
    import vllm

    prompt = len(output.prompt_token_ids or ())
    written = sum(len(choice.token_ids) for choice in output.outputs)
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
        "prompt_tokens_details": {"cached_tokens": output.num_cached_tokens or 0},
    }
    return {
        "object": "chat.completion",
        "created": int(now),
        "model": model,
        "choices": [_choice(choice, wire) for choice in output.outputs],
        "system_fingerprint": f"vllm-{vllm.__version__}-in-process",
        "usage": usage,
    }


def _choice(choice: Any, wire: Wire) -> dict[str, Any]:
    body = {
        "index": choice.index,
        "message": {"role": "assistant", "content": choice.text},
        "finish_reason": choice.finish_reason,
        "stop_reason": choice.stop_reason,
    }
    if wire.get("logprobs") and choice.logprobs is not None:
        most = None if wire.get("logprob_token_ids") else wire.get("top_logprobs") or 0
        content = [_token(place, name, most) for name, place in zip(choice.token_ids, choice.logprobs, strict=True)]
        body["logprobs"] = {"content": content}
    return body


def _token(place: Mapping[int, Any], name: int, most: int | None) -> dict[str, Any]:
    top = [_spelled(entry) for entry in place.values()]
    return {**_spelled(place[name]), "top_logprobs": top if most is None or most < 0 else top[:most]}


def _spelled(entry: Any) -> dict[str, Any]:
    return {"token": entry.decoded_token or "", "logprob": max(entry.logprob, LEAST)}
