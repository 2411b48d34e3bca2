"""Bodies of chat requests -> one vLLM engine in a thread of this process -> bodies as vLLM's own server would answer."""

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

from critic_prm.errors import ConfigError, CriticPrmError, ProviderError, UsageError
from critic_prm.providers.provider import Wire
from critic_prm.providers.vllm_dialect import body_of, chat_of, sampling_of

ENGINE = "CRITIC_PRM_VLLM_ENGINE"
"""The environment variable with arguments of `vllm.LLM`, as a JSON object."""

OPENING = "opening the model"
CLOSING = 60.0
"""Seconds that a closed engine is waited for."""


@dataclass
class Inside:
    """One provider's share of the engine for `model`: providers of the same model in one process share one."""

    model: str
    _engine: Engine | None = field(default=None, repr=False)

    async def complete(self, wire: Wire) -> dict[str, Any]:
        """The body of the answer. Raises ProviderError for a request that is refused, ConfigError when there is no engine."""
        if self._engine is None:
            self._engine = _lease(self.model, engine_arguments())
        return await self._engine.complete(wire)

    async def close(self) -> None:
        if self._engine is not None:
            engine, self._engine = self._engine, None
            if _give_back(engine):
                await asyncio.to_thread(engine.end)


def engine_arguments() -> dict[str, Any]:
    """What CRITIC_PRM_VLLM_ENGINE says. Raises UsageError when that is no JSON object."""
    said = os.environ.get(ENGINE) or "{}"
    try:
        arguments = orjson.loads(said)
    except orjson.JSONDecodeError:
        arguments = None
    if not isinstance(arguments, dict):
        raise UsageError(f'{ENGINE} is {said!r}; it holds arguments of vllm.LLM as JSON, such as {{"max_model_len": 8192}}')
    return arguments


@dataclass(eq=False)
class Question:
    """One request on its way: its body, and whoever waits for the answer in which event loop."""

    wire: Wire
    answer: asyncio.Future[dict[str, Any]]
    loop: asyncio.AbstractEventLoop

    def settle(self, outcome: dict[str, Any] | CriticPrmError) -> None:
        """Hand over the outcome, from the engine's thread."""
        with contextlib.suppress(RuntimeError):  # nobody waits any more: the loop is closed
            self.loop.call_soon_threadsafe(_settle, self.answer, outcome)


def _settle(answer: asyncio.Future[dict[str, Any]], outcome: dict[str, Any] | CriticPrmError) -> None:
    if answer.done():
        return
    if isinstance(outcome, CriticPrmError):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)


class Engine:
    """An offline `vllm.LLM`, fed between its steps: what comes in joins the batch that is running, in the order of arrival,
    so that requests that begin alike find each other's prefix in its cache.

    All of it, templates and tokens included, happens in one thread; no event loop waits for it.
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
        """Stop, and wait for the engine's processes to end; not for a model that is still being loaded."""
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
            # An engine that failed answers whoever comes until it is closed.
            late = self._inbox.get()
            if late is None:
                break
            late.settle(failure)

    def _serve(self, llm: Any, out: dict[str, Question]) -> None:
        """Until it is closed: take in what has come, make a step, hand out what is finished."""
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
        except Exception as error:  # whatever a template, a grammar or a limit makes of it: the request is at fault
            question.settle(ProviderError(f"refused: {_said(error)}", "row", status=400))
        else:
            out[name.partition("-")[0]] = question  # the engine adds letters of its own to the number that outputs carry


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
    """Whether nobody uses it any more."""
    with _lock:
        engine.users -= 1
        if engine.users:
            return False
        for key in [key for key, value in _engines.items() if value is engine]:
            del _engines[key]
    return True


def _open(model: str, arguments: Mapping[str, Any]) -> Any:
    """Load the model. Raises ConfigError for a vLLM that cannot be fed while it runs."""
    # What it logs must not mix with data on stdout; forking would copy the locks of our other threads.
    for name, value in {"VLLM_LOGGING_STREAM": "ext://sys.stderr", "VLLM_WORKER_MULTIPROC_METHOD": "spawn"}.items():
        os.environ.setdefault(name, value)
    # Blocked here, and so in the processes that the engine starts: Ctrl-C is ours, and what is out is brought in.
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
    """While this lasts, a shell waits for this process to vanish, and then ends `processes`: killed with -9, it would leave
    them behind for good, with all the memory of the device."""
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
    """End the engine's processes, in good order where this vLLM lets us say how long that may take."""
    with contextlib.suppress(Exception):
        shutdown = llm.llm_engine.engine_core.shutdown
        shutdown(*([CLOSING / 2] if "timeout" in inspect.signature(shutdown).parameters else []))


def _said(error: BaseException) -> str:
    return " ".join(f"{error}".split())[:400] or type(error).__name__
