"""Save and restore training runs: weights, optimizer state and the position in the schedule."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from critic_prm import signals


@dataclass(slots=True)
class State:
    """The state of a run: steps done, tokens seen, seconds spent, the best dev record, and the dev evaluations since then.

    `more` is the state of the auxiliary learner, if there is one.
    """

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best: dict[str, Any] | None = None
    stale: int = 0
    more: dict[str, Any] = field(default_factory=dict)


class Checkpoints:
    """The checkpoints of one run in `folder`. If it is None, the best weights are kept in memory and nothing can be resumed.

    `run` identifies the run: checkpoints of other runs are ignored. A checkpoint is a folder that gets its name,
    `checkpoint-STEP`, when it is complete; the best weights are beside it, as `best-STEP.safetensors`. Only the process in
    which `leads` is true writes. If the disk is full, `say` receives one warning and the run continues.
    """

    def __init__(
        self,
        folder: Path | None,
        run: str,
        parameters: Mapping[str, torch.nn.Parameter],
        optimizer: torch.optim.Optimizer,
        *,
        every: float,
        leads: bool = True,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._folder, self._run, self._parameters, self._optimizer = folder, run, dict(parameters), optimizer
        self._every, self._leads, self._saved = every, leads, time.monotonic()
        self._best: dict[str, Tensor] = {}
        self._say, self._warned = say, False

    def resume(self) -> State | None:
        """Load the newest complete checkpoint of this run into the parameters and the optimizer; None if there is none."""
        if self._folder is None:
            return None
        for place in sorted(self._folder.glob("checkpoint-*"), key=lambda p: -int(p.name.split("-")[1])):
            stored = json.loads((place / "state.json").read_text("utf-8"))
            if stored.pop("run") != self._run:
                continue
            state = State(**stored)
            self._fill(_read(place / "weights.safetensors"))
            self._fill_optimizer(_read(place / "optimizer.safetensors"), state.step)
            if state.best is not None:
                self._best = _read(self._best_path(state.best["step"]))
            return state
        return None

    def keep_best(self, step: int) -> None:
        """Keep the current weights as the best so far: in memory, and in a file if there is room on the disk."""
        self._best = {name: p.detach().to("cpu", copy=True).contiguous() for name, p in self._parameters.items()}
        if self._folder is not None and self._leads:
            try:
                write(self._best_path(step), self._best)
            except OSError as error:
                self.warn(error)

    def warn(self, error: OSError) -> None:
        """Report once that the state of the run cannot be written."""
        if not self._warned:
            self._warned = True
            self._say(
                f"{self._folder}: the state of the run cannot be written: {error.strerror or error}; training continues,"
                " but if it is interrupted, it resumes from the last complete checkpoint; make room on the disk"
            )

    def restore_best(self) -> None:
        if self._best:
            self._fill(self._best)

    def save_if_due(self, state: State) -> None:
        if self._folder is not None and self._leads and time.monotonic() - self._saved >= self._every:
            self.save(state)
            self._saved = time.monotonic()

    def save(self, state: State) -> None:
        """Write a checkpoint and remove the previous one.

        If the disk is full, the checkpoint is skipped and the run continues.
        """
        assert self._folder is not None
        fresh = self._folder / ".checkpoint"
        try:
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir()
            if state.best is not None and not self._best_path(state.best["step"]).is_file():
                write(self._best_path(state.best["step"]), self._best)  # the disk was full when these weights were the best
            write(fresh / "weights.safetensors", {n: p.detach().contiguous() for n, p in self._parameters.items()})
            write(fresh / "optimizer.safetensors", self._moments())
            (fresh / "state.json").write_text(json.dumps({"run": self._run, **asdict(state)}), "utf-8")
            place = self._folder / f"checkpoint-{state.step}"
            shutil.rmtree(place, ignore_errors=True)
            fresh.rename(place)
            signals.note(str(self._folder), f"holds the checkpoint of step {state.step}, from which the same command resumes")
        except OSError as error:
            shutil.rmtree(fresh, ignore_errors=True)
            self.warn(error)
            return
        kept = {place, self._best_path(state.best["step"])} if state.best else {place}
        for old in {*self._folder.glob("checkpoint-*"), *self._folder.glob("best-*")} - kept:
            shutil.rmtree(old) if old.is_dir() else old.unlink()

    def _best_path(self, step: int) -> Path:
        assert self._folder is not None
        return self._folder / f"best-{step}.safetensors"

    def _fill(self, tensors: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                parameter.copy_(tensors[name])

    def _moments(self) -> dict[str, Tensor]:
        moments: dict[str, Tensor] = {}
        for name, parameter in self._parameters.items():
            for key in ("exp_avg", "exp_avg_sq"):
                if key in self._optimizer.state[parameter]:
                    moments[f"{key}.{name}"] = self._optimizer.state[parameter][key].contiguous()
        return moments

    def _fill_optimizer(self, moments: Mapping[str, Tensor], step: int) -> None:
        for name, parameter in self._parameters.items():
            if f"exp_avg.{name}" in moments:
                self._optimizer.state[parameter] = {
                    # On the parameter's device, because the fused optimizer reads it there.
                    "step": torch.tensor(float(step), device=parameter.device),
                    "exp_avg": moments[f"exp_avg.{name}"].to(parameter.device),
                    "exp_avg_sq": moments[f"exp_avg_sq.{name}"].to(parameter.device),
                }


def write(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file atomically. Raises OSError; an incomplete file is removed."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    fresh = path.with_name(path.name + ".new")
    try:
        save_file(dict(tensors), fresh)
        os.replace(fresh, path)
    except SafetensorError as error:  # how the library reports a full disk
        raise OSError(str(error)) from None
    finally:
        fresh.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    tensors: dict[str, Tensor] = load_file(path)
    return tensors
