"""Coroutines from any thread or event loop in, their results out: run on one loop in its own thread, where critics live."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class BackgroundLoop:
    """The loop on which a critic lives. Trainers call rewards from threads, from loops of their own and from processes they
    forked, but connections belong to the loop that opened them: so all of it happens here. Started when it is first needed;
    a copy that was pickled, or forked into another process, starts its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = 0
        self.kept: dict[str, Any] = {}
        """What lives here from one call to the next."""

    def __reduce__(self) -> tuple[type[BackgroundLoop], tuple[()]]:
        return BackgroundLoop, ()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run `work` here; the future may be waited for in any thread, or through `asyncio.wrap_future`."""
        return asyncio.run_coroutine_threadsafe(work, self._running())

    def stop(self) -> None:
        """End the loop. What lives here should be closed before; a later call starts another."""
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
