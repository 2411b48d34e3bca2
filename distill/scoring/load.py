"""Load options of a verifier (backend, dtype, device), and the protocol of the runners that compute scores."""

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
    """The scores of one solution."""

    p: Floats
    """Raw P(correct) of each step that fits, shape (kept steps,)."""
    spread: Floats | None = None
    """Standard deviation over the heads of the network, of the same shape; None if there is one head."""


class Runner(Protocol):
    """Computes scores: one backend, opened on one verifier."""

    def run(self, encoded: Sequence[Encoded]) -> list[StepScores]:
        """Score all steps of all solutions, in order. A score does not depend on the other solutions of the call."""
        ...


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How to open a verifier. Raises UsageError for an invalid value or combination."""

    backend: str = "torch"
    """Backend: "torch", "onnx" (for a folder exported with `critic-prm export`) or "vllm" (by server or in this process)."""
    dtype: str = "auto"
    """Data type of the computation: "fp32", "bf16", or "auto" (bf16 on a GPU that supports it, else fp32)."""
    device: str = "auto"
    """Device such as "auto", "cpu", "cuda" or "cuda:1"."""
    base_url: str | None = None
    """Address of a vLLM server; None for a vLLM engine in this process."""

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
    """Raise UsageError if load options are given for a student that supports only the default."""
    if opening != DEFAULT:
        raise UsageError(
            f"a {student} verifier is opened in one way only; leave --backend, --dtype, --device and --base-url out"
        )
