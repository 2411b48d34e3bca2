"""Run coroutines on an event loop in a thread of its own, from any thread, also while another loop runs there."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from critic_prm.errors import UsageError

T = TypeVar("T")

GRACE = 10.0
"""Seconds that interrupted work gets to finish the requests it has in flight, which are paid for."""


class BackgroundLoop:
    """An event loop in its own thread, for a critic and its connections.

    Notebooks and trainers call from threads, from their own event loops and from forked processes, but a connection belongs to
    the loop that opened it. The loop is started on first use; a pickled or forked copy starts a new one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = 0
        self.objects: dict[str, Any] = {}
        """Objects kept between calls, such as the critic."""

    def __reduce__(self) -> tuple[type[BackgroundLoop], tuple[()]]:
        return BackgroundLoop, ()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run `work` on the loop. Wait for the future in any thread, or through `asyncio.wrap_future`."""
        return asyncio.run_coroutine_threadsafe(work, self._running())

    def run(self, work: Coroutine[Any, Any, T], stop: Callable[[], object] | None = None) -> T:
        """Run `work` on the loop and return its result, in any thread but the loop's own.

        Ctrl-C, or "interrupt" in a notebook, calls `stop` on the loop and gives the work `GRACE` seconds to end; without
        `stop`, or on a second Ctrl-C, the work is cancelled at once.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise UsageError("this was called by work that it would have to wait for; use its form with `await` there")
        future = self.submit(work)
        try:
            return future.result()
        except KeyboardInterrupt:
            try:
                if stop is not None:
                    self._running().call_soon_threadsafe(stop)
                    concurrent.futures.wait([future], GRACE)
            finally:
                future.cancel()
            raise

    def stop(self) -> None:
        """Stop the loop. Close the objects in `objects` first; a later call starts a new loop."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
            self.objects.clear()
            if loop is None or thread is None or self._process != os.getpid():
                return
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._process != os.getpid():
                self.objects.clear()
                self._process = os.getpid()
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="critic-prm", daemon=True)
                self._thread.start()
            return self._loop


BACKGROUND = BackgroundLoop()
"""The loop of all calls without `await`: a critic opened for one of them can be used for the next."""
