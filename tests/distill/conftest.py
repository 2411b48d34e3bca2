"""What the tests of students share: one thread each, since two on a busy machine mostly wait for one another; no model hub."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is imported, which is after this
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a name that is not a folder fails at once, without retries
