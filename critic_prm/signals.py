"""Stop commands cleanly on Ctrl-C, SIGTERM and SIGHUP, and report what is left on disk.

The first signal stops in an orderly way: no new request is sent, requests in flight get some seconds to finish, files are
closed. The second one stops at once, with two seconds to close files. The third one ends the process.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakSet

from critic_prm.errors import Interrupted

if TYPE_CHECKING:
    import asyncio

Result = TypeVar("Result")

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PATIENCE, AT_ONCE = 10.0, 2.0
"""Seconds until the process is ended unconditionally: PATIENCE after a first signal that interrupts a computation, AT_ONCE
after a second one or when only threads are still running."""

SPARE = 0.5
"""Seconds between abandoning the requests in flight and cancelling all other tasks."""


class Brake(Protocol):
    """An object with requests in flight that can be stopped: a Client."""

    @property
    def grace(self) -> float:
        """Seconds that requests in flight get to finish."""
        ...

    def halt(self, error: Interrupted) -> None:
        """Stop sending requests; raise `error` in callers that wait to send."""
        ...

    def abandon(self) -> None:
        """Stop waiting for the requests in flight."""
        ...


brakes: WeakSet[Brake] = WeakSet()
"""The objects that the first signal halts before anything is cancelled."""


@dataclass(slots=True)
class _State:
    """Signal state of this process. `callback` is called on each signal; if it is None, a KeyboardInterrupt is raised."""

    signals: int = 0
    handling: bool = False
    callback: Callable[[], object] | None = None
    reported: bool = False
    outputs: dict[str, str] = field(default_factory=dict)
    caches: dict[str, None] = field(default_factory=dict)
    pid: int = 0
    terminals: tuple[int, ...] = ()
    timer: threading.Timer | None = None


_state = _State()


def stopped() -> bool:
    """Whether this process has received a signal to stop."""
    return _state.signals > 0


def note(output: str, state: str) -> None:
    """Record the state of an output on disk, as words that follow its name: "holds 12 rows", "is complete"."""
    if _state.handling:
        _state.outputs[output] = state


def note_cache(path: str) -> None:
    """Record a cache in which this process stores replies."""
    if _state.handling:
        _state.caches[path] = None


def summary() -> str:
    """Return a one-line message for the user: what is left on disk and how to resume."""
    parts = [f"{name} {state}" for name, state in _state.outputs.items()] or ["no output was written"]
    if _state.caches:
        parts.append(f"replies received so far are stored in {', '.join(_state.caches)}")
    again = "run the same command again" + (" to resume; nothing is paid twice" if _state.caches else "")
    return f"interrupted: {'; '.join([*parts, again])}"


@contextmanager
def handled(*, ending: bool = False) -> Iterator[None]:
    """Context manager: handle the signals of STOPPING, in the main thread.

    With `ending`, they remain handled after the block, because the process is about to end. A SIGHUP that the parent ignores
    (nohup) stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    global _state
    _state = _State(handling=True, pid=os.getpid(), terminals=tuple(filter(os.isatty, (1, 2))))
    numbers = [n for n in STOPPING if n != signal.SIGHUP or signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, _receive) for number in numbers}
    hook, sys.unraisablehook = sys.unraisablehook, _unraisable
    try:
        yield
    finally:
        _state.callback = _end
        if not ending:
            for number, handler in before.items():
                signal.signal(number, handler)
            sys.unraisablehook = hook
            _state.handling = False
            _end_within(None)


@contextmanager
def on_signal(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> Iterator[None]:
    """Context manager: a signal calls `callback` on `loop` instead of raising KeyboardInterrupt.

    The third signal ends the process. The process also ends if the loop is too busy to run the callback.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def received() -> None:
        if _state.signals == 1:
            _end_within(None)
        callback()

    with nullcontext() if _state.handling else handled():
        before, _state.callback = _state.callback, lambda: loop.call_soon_threadsafe(received)
        try:
            yield
        finally:
            _state.callback = before


def run(
    main: Coroutine[Any, Any, Result],
    heed: Callable[[], object] | None = None,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> Result:
    """Run a command's coroutine, like `asyncio.run`, with signal handling.

    The first signal halts all brakes, calls `heed`, and cancels `main` after the grace period, or at once if there are neither
    brakes nor `heed`. The second one raises KeyboardInterrupt out of the loop. Threads that are still running when `main` has
    ended after a signal are not waited for.
    """
    import asyncio

    tasks: list[asyncio.Task[Any]] = []

    async def whole() -> Result:
        tasks.append(asyncio.current_task())  # type: ignore[arg-type]  # a coroutine that runs has a task
        try:
            return await main
        finally:
            if stopped():
                _end_within(AT_ONCE)

    def cancel() -> None:
        for task in tasks:
            task.cancel()

    def abandon(halted: list[Brake]) -> None:
        for brake in halted:
            brake.abandon()
        loop.call_later(SPARE, cancel)

    def stop() -> None:
        if _state.signals > 1 or not tasks:
            raise KeyboardInterrupt
        halted = list(brakes)
        for brake in halted:
            brake.halt(Interrupted())
        if heed is not None:
            heed()
        if halted or heed is not None:
            loop.call_later(max((brake.grace for brake in halted), default=0.0), abandon, halted)
        else:
            cancel()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        loop = runner.get_loop()
        loop.set_exception_handler(lambda loop, about: None if stopped() else loop.default_exception_handler(about))
        try:
            with on_signal(loop, stop):
                return runner.run(whole())
        except asyncio.CancelledError:
            if stopped():
                raise Interrupted from None
            raise
        finally:
            main.close()


def _receive(number: int, frame: FrameType | None) -> None:
    if os.getpid() != _state.pid:  # a forked child: restore the default handling
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        return
    _state.signals += 1
    if number == signal.SIGHUP:
        _detach_terminals()
    if _state.signals > 2:
        _end()
    _end_within(PATIENCE if _state.signals == 1 else AT_ONCE)
    if _state.callback is None:
        raise KeyboardInterrupt
    _state.callback()


def _detach_terminals() -> None:
    """Redirect closed terminals to /dev/null: a failed write would end the run before its files are closed."""
    for number in _state.terminals:
        if not os.isatty(number):
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)


def _unraisable(problem: sys.UnraisableHookArgs) -> None:
    """Raise a KeyboardInterrupt again shortly after it occurred where Python can only print it, as in a destructor."""
    if not isinstance(problem.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(problem)
        return
    _state.signals -= 1
    again = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT))
    again.daemon = True
    again.start()


def _end_within(seconds: float | None) -> None:
    """End the process unconditionally after `seconds`; None cancels the timer."""
    if _state.timer is not None:
        _state.timer.cancel()
        _state.timer = None
    if seconds is not None and _state.handling:
        _state.timer = threading.Timer(seconds, _end)
        _state.timer.daemon = True
        _state.timer.start()


def report() -> None:
    """Write `summary` to stderr, once."""
    if not _state.reported:
        _state.reported = True
        with suppress(OSError):
            print(summary(), file=sys.stderr, flush=True)


def _end() -> None:
    """End the process immediately, from any thread. It writes without Python's buffers, which may be locked."""
    if not _state.reported:
        shown = "\x1b[?25h" if os.isatty(2) else ""  # a progress bar hides the cursor
        with suppress(OSError):
            os.write(2, f"{shown}{summary()}\n".encode("utf-8", "backslashreplace"))
    os._exit(Interrupted.exit_code)
