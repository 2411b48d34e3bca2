"""What the tests of students share: one thread each, since two on a busy machine mostly wait for one another."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is imported, which is after this
