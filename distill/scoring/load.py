"""Encoded solutions -> P(correct) per step: what computes it, and how it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from critic_prm.errors import UsageError
from distill.sequences import Encoded

Floats = NDArray[np.float64]

BACKENDS = ("torch", "onnx", "vllm")
DTYPES = ("auto", "fp32", "bf16")


@dataclass(frozen=True, slots=True)
class StepScores:
    """Of one solution: raw P(correct) of each step that fits, shape (kept steps,), and the standard deviation over the heads of
    the network, None where there is one head."""

    p: Floats
    spread: Floats | None = None


class Runner(Protocol):
    """What computes scores: one backend, opened on one verifier."""

    def run(self, encoded: Sequence[Encoded]) -> list[StepScores]:
        """All steps of all solutions, in order. A score does not depend on what else is asked for at the same time."""
        ...


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a verifier is to be opened. Raises UsageError for what cannot be.

    `backend` is "torch"; "onnx", for a folder that `critic-prm export` was run on; or "vllm": a server at `base_url`, or
    without one an engine in this process. `dtype` is what is computed in: "fp32", "bf16", or "auto" (bf16 on a GPU that has
    it, else fp32). `device` is "auto", "cpu", "cuda", "cuda:1".
    """

    backend: str = "torch"
    dtype: str = "auto"
    device: str = "auto"
    base_url: str | None = None

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise UsageError(f"backend is {self.backend!r}; it is one of {', '.join(BACKENDS)}")
        if self.dtype not in DTYPES:
            raise UsageError(f"dtype is {self.dtype!r}; it is one of {', '.join(DTYPES)}")
        if self.base_url and self.backend != "vllm":
            raise UsageError(f"a base URL goes with the backend vllm, not with {self.backend}")
        if self.backend != "torch" and (self.dtype, self.device) != ("auto", "auto"):
            raise UsageError(f"dtype and device go with the backend torch, not with {self.backend}")


DEFAULT = LoadOptions()


def require_default(opening: LoadOptions, student: str) -> None:
    """Raises UsageError when a student that can be opened in one way only is asked for another."""
    if opening != DEFAULT:
        raise UsageError(
            f"a {student} verifier is opened in one way only; leave --backend, --dtype, --device and --base-url out"
        )
