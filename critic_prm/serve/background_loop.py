"""Run coroutines from any thread or event loop on one background loop, where the critic's connections live."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class BackgroundLoop:
    """An event loop in its own thread, for a critic and its connections. Trainers call rewards from threads, from their own
    event loops and from forked processes, but a connection belongs to the loop that opened it. The loop is started on first
    use; a pickled or forked copy starts a new one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = 0
        self.kept: dict[str, Any] = {}
        """Objects kept between calls."""

    def __reduce__(self) -> tuple[type[BackgroundLoop], tuple[()]]:
        return BackgroundLoop, ()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run `work` on the loop. Wait for the future in any thread, or through `asyncio.wrap_future`."""
        return asyncio.run_coroutine_threadsafe(work, self._running())

    def stop(self) -> None:
        """Stop the loop. Close the objects in `kept` first; a later call starts a new loop."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
            self.kept.clear()
            if loop is None or thread is None or self._process != os.getpid():
                return
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._process != os.getpid():
                self.kept.clear()
                self._process = os.getpid()
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="critic-prm rewards", daemon=True)
                self._thread.start()
            return self._loop
