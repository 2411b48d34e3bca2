"""Run the training loop: optimize, evaluate on dev, checkpoint, stop early and restore the best weights."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from critic_prm.errors import CriticPrmError
from critic_prm.metrics.scores import auroc, brier
from distill.data import Row
from distill.decision import choose_threshold
from distill.losses.loss import Loss, Outputs, Targets, open_loss
from distill.settings import TrainingSettings, default_lr
from distill.training.batches import Batch, Indices, Prepared, in_order, micro, move, plan
from distill.training.checkpoint import Checkpoints, State
from distill.training.domains import DomainWeightLearner, DomainWeights
from distill.training.network import trainable
from distill.training.progress import watching

ANCHOR = 0.5
"""Strength of the pull of a head towards its initial weights: lambda of ActPRM (arXiv 2504.10559).

Heads that start apart and see different halves of the data stay apart where the data do not decide; their spread is meant to
show exactly that.
"""


def anchor(now: Tensor, start: Tensor) -> Tensor:
    """ANCHOR times the mean squared distance of the heads from their initial weights, to be added to the loss of a batch."""
    return ANCHOR * ((now - start) ** 2).mean()


def spread(log_odds: Tensor) -> Tensor:
    """Uncertainty of each step: the standard deviation (n - 1) of P(correct) over heads. (heads, n) to (n,); 0 for one head."""
    p = torch.sigmoid(log_odds.float())
    return p.std(dim=0) if len(p) > 1 else torch.zeros_like(p[0])


Record = dict[str, Any]
LOG = "training.jsonl"


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """The processes of a distributed run: this one alone, or those that torchrun or accelerate started."""

    rank: int = 0
    size: int = 1

    def sum(self, tensors: list[Tensor]) -> None:
        """Sum each tensor over all processes, in place."""
        if self.size > 1:
            for tensor in tensors:
                torch.distributed.all_reduce(tensor)


@dataclass(frozen=True, slots=True)
class Run:
    """Who trains, and where the state and the messages of the run go."""

    seed: int = 0
    """The only randomness is the order of rows, which follows from seed and epoch."""
    processes: ProcessGroup = ProcessGroup()
    work: Path | None = None
    """Folder for metrics (`training.jsonl`) and checkpoints; None for none."""
    name: str = ""
    """A fingerprint of everything that affects the result (`run_name`); checkpoints of other runs are ignored."""
    say: Callable[[str], None] = lambda line: None
    """Receives progress lines and warnings."""
    watch: Callable[[Record], None] = lambda record: None
    """Receives every record of the log."""

    @property
    def leads(self) -> bool:
        """Whether this process writes files and messages."""
        return self.processes.rank == 0


def open_run(settings: TrainingSettings, seed: int, work: Path | None, say: Callable[[str], None]) -> Run:
    """Start a run in the processes that torchrun or accelerate launch started, or in this one alone, and seed torch."""
    from accelerate import PartialState

    # By default, accelerate does not look for other processes without a GPU: each would train alone and write to one folder.
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    state = PartialState(cpu=settings.device == "cpu" or (several and not torch.accelerator.is_available()))
    torch.manual_seed(seed)
    processes = ProcessGroup(state.process_index, state.num_processes)
    return Run(seed, processes, work, say=say if processes.rank == 0 else lambda line: None)


def run_name(what: Sequence[str], settings: TrainingSettings, data: str, seed: int) -> str:
    """Return a fingerprint of what affects the result: what is trained, settings, the data's digest and seed."""
    relevant = {name: value for name, value in asdict(settings).items() if name not in ("save_minutes", "device")}
    return hashlib.sha256(json.dumps([*what, relevant, data, seed], sort_keys=True).encode()).hexdigest()[:16]


class TrainingTask(Protocol):
    """What the loop trains: a model, and rows on which it has a loss."""

    @property
    def model(self) -> Any: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def lengths(self) -> Indices:
        """Number of tokens of each row, shape (rows,)."""
        ...

    def weight(self, rows: Indices) -> float:
        """Return the divisor of the loss of these rows."""
        ...

    def loss(self, rows: Indices) -> Tensor:
        """Return the loss summed over these rows, not yet divided: a scalar with gradient."""
        ...


class StepNetwork(Protocol):
    """A network that scores steps; see `network.Network`."""

    @property
    def model(self) -> Any: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def heads(self) -> int: ...

    def __call__(self, batch: Batch) -> list[Outputs]: ...


@dataclass(frozen=True, slots=True)
class StepTask:
    """The training task of a network that scores steps.

    `half` says which rows each head learns from, `domains` holds the weight of each source. `anchors` holds the parameter of
    the heads and its initial value; if there are several heads, they are regularized towards it.
    """

    network: StepNetwork
    data: Prepared
    objective: Loss
    half: Tensor
    settings: TrainingSettings
    domains: DomainWeights | None = None
    anchors: tuple[nn.Parameter, Tensor] | None = None

    @property
    def model(self) -> Any:
        return self.network.model

    @property
    def device(self) -> torch.device:
        return self.network.device

    @property
    def lengths(self) -> Indices:
        return self.data.lengths

    def weight(self, rows: Indices) -> float:
        return float(counted_weight(self.objective, self.data.batch(rows)[1]).sum())

    def loss(self, rows: Indices) -> Tensor:
        batch, targets = self.data.batch(rows)
        outs, targets = self.network(batch.to(self.device)), move(targets, self.device)
        each = step_losses(outs, targets, self.half, self.objective, self.settings)
        weight = targets.weight
        if self.domains is not None:
            weight = weight * self.domains.factors(targets)
        total = (each * weight).sum()
        # The loss is divided by the weight of all rows of a step. Multiplying by that weight makes the anchor, which belongs to
        # no row, count exactly once.
        return total if self.anchors is None else total + counted_weight(self.objective, targets).sum() * anchor(*self.anchors)


def fit(
    network: StepNetwork,
    data: Prepared,
    dev: Callable[[], Mapping[str, Any]],
    settings: TrainingSettings,
    run: Run,
    *,
    domains: DomainWeights | None = None,
    learner: DomainWeightLearner | None = None,
    heads: nn.Parameter | None = None,
) -> Record:
    """Train a network to score steps; see `train`.

    `domains` holds the weights of the sources of its rows, `heads` is the parameter of its heads if there are several.
    """
    half = halves(len(data.encoded), network.heads, run.seed)
    anchors = None if heads is None else (heads, heads.detach().clone())
    task = StepTask(network, data, open_loss(settings.loss), half, settings, domains, anchors)
    return train(task, dev, settings, run, places=micro_tokens(settings, task.device), learner=learner)


def train(
    task: TrainingTask,
    dev: Callable[[], Mapping[str, Any]],
    settings: TrainingSettings,
    run: Run,
    *,
    places: int,
    learner: DomainWeightLearner | None = None,
) -> Record:
    """Train, evaluate on dev at intervals, and leave the weights with the best dev F1 in the model.

    `dev` evaluates the dev split and returns at least "f1" (None if undefined) and "loss". A run with the same name resumes
    from its last checkpoint and produces the same losses as an uninterrupted run. At most `places` tokens, including padding,
    go through the model at once. `learner` learns the weights of sources alongside the model. Returns steps, tokens, seconds
    and the best dev record.

    Raises CriticPrmError if the loss becomes infinite or nan.
    """
    parameters = trainable(task.model)
    optimizer = make_optimizer(parameters, settings)
    epochs = [plan(task.lengths, settings.batch_tokens, np.random.default_rng([run.seed, e])) for e in range(settings.epochs)]
    schedule = [(epoch, number, rows) for epoch, steps in enumerate(epochs) for number, rows in enumerate(steps)]
    if run.work is not None:
        run.work.mkdir(parents=True, exist_ok=True)
    every = 60 * settings.save_minutes
    checkpoints = Checkpoints(run.work, run.name, parameters, optimizer, every=every, leads=run.leads, say=run.say)
    state = checkpoints.resume() or State()
    if learner is not None and state.more:
        learner.restore(state.more)
    started = time.monotonic() - state.seconds
    task.model.train()
    log = Log(run.work if run.leads else None, state.step, checkpoints.warn)
    with watching(run.say) as show:

        def report(record: Record) -> None:
            log.write(record)
            show(record)
            run.watch(record)

        for step in range(state.step, len(schedule)):
            epoch, number, rows = schedule[step]
            lr = default_lr(settings) * rate(step, len(schedule), settings)
            step_started = time.monotonic()
            value, norm = one_step(task, rows, optimizer, lr, places, settings, run.processes)
            if learner is not None:
                learner.after(step + 1, len(schedule))
                state.more = learner.state()
            tokens = int(task.lengths[rows].sum())
            state.tokens += tokens
            state.step, state.seconds = step + 1, time.monotonic() - started
            speed = tokens / max(1e-9, time.monotonic() - step_started)
            done = epoch + (number + 1) / len(epochs[epoch])
            report(
                {"step": step + 1, "of": len(schedule), "epoch": done, "loss": value, "lr": lr, "norm": norm,
                 "tokens": state.tokens, "tokens_per_second": round(speed, 1), "seconds": round(state.seconds, 2)}
            )  # fmt: skip
            if not math.isfinite(value):
                raise CriticPrmError(
                    f"the loss is {value} at step {step + 1}; lower --lr (it was {lr:.1e}), or use --dtype fp32"
                )
            if due(number, len(epochs[epoch]), settings.evaluations):
                task.model.eval()
                metrics = dict(dev())
                task.model.train()
                better = state.best is None or quality(metrics) > quality(state.best)
                state.stale = 0 if better else state.stale + 1
                if better:
                    state.best = {"step": step + 1, **metrics}
                    checkpoints.keep_best(step + 1)
                report({"step": step + 1, "epoch": done, "dev": metrics, "best": better})
                if settings.patience and state.stale >= settings.patience:
                    break
            checkpoints.save_if_due(state)
    checkpoints.restore_best()
    task.model.eval()
    return {"optimizer_steps": state.step, "tokens": state.tokens, "seconds": round(state.seconds, 1), "best": state.best}


def one_step(
    task: TrainingTask,
    rows: Indices,
    optimizer: torch.optim.Optimizer,
    lr: float,
    places: int,
    settings: TrainingSettings,
    processes: ProcessGroup,
) -> tuple[float, float]:
    """Run one optimizer step on these rows, divided among the processes. Returns the loss and the gradient norm."""
    divisor = task.weight(rows) or 1.0
    own = rows[np.argsort(-task.lengths[rows], kind="stable")][processes.rank :: processes.size]
    total = torch.zeros((), device=task.device)
    optimizer.zero_grad(set_to_none=True)
    for part in micro(own, task.lengths, places):
        value = task.loss(part) / divisor
        value.backward()
        total += value.detach()
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if processes.size > 1:
        for p in parameters:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        processes.sum([total, *(p.grad for p in parameters)])
    norm = torch.nn.utils.clip_grad_norm_(parameters, settings.clip or math.inf)
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.step()
    return float(total), float(norm)


def step_losses(outs: list[Outputs], targets: Targets, half: Tensor, loss: Loss, settings: TrainingSettings) -> Tensor:
    """Return the loss at every step end, (n,): the mean over heads, before any weight and not yet divided."""
    if len(outs) == 1:
        return loss.loss(outs[0], targets, settings)
    # Each head sees one half of the rows, at twice their weight. Heads that saw the same rows would agree even where none of
    # them has evidence.
    seen = 2.0 * half.to(targets.row.device)[targets.row].float()
    return torch.stack([loss.loss(out, targets, settings) * seen[:, h] for h, out in enumerate(outs)]).mean(0)


def counted_weight(loss: Loss, targets: Targets) -> Tensor:
    """Return the weight of each step end in the divisor."""
    return loss.mask(targets) * targets.weight


def halves(rows: int, heads: int, seed: int) -> Tensor:
    """Draw the rows that each head learns from, (rows, heads) bool: a random half for each."""
    drawn = np.random.default_rng([seed, 1 << 20]).random((rows, heads if heads > 1 else 0))
    return torch.from_numpy(drawn < 0.5)


def make_optimizer(trainable: Mapping[str, nn.Parameter], settings: TrainingSettings) -> torch.optim.Optimizer:
    """Create an AdamW optimizer that applies weight decay to matrices only, since it distorts biases and norms."""
    parameters = list(trainable.values())
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=default_lr(settings), fused=True)


def rate(step: int, total: int, settings: TrainingSettings) -> float:
    """Return the factor of the learning rate at a step: linear warmup, then cosine or linear decay to 0, or constant."""
    rise = round(settings.warmup * total)
    if step < rise:
        return (step + 1) / (rise + 1)
    done = (step - rise) / max(1, total - rise)
    return {"cosine": 0.5 * (1 + math.cos(math.pi * done)), "linear": 1 - done, "constant": 1.0}[settings.schedule]


def micro_tokens(settings: TrainingSettings, device: torch.device) -> int:
    """Return the positions per forward pass: enough to keep a GPU busy, or few enough to stay in a CPU's caches."""
    return min(settings.batch_tokens, settings.micro_tokens or (16384 if device.type == "cuda" else 2048))


def due(number: int, steps: int, evaluations: int) -> bool:
    """Return whether dev is evaluated after step `number` of an epoch's `steps`.

    The evaluations are at the end and at even intervals before it.
    """
    return (number + 1) * evaluations // steps > number * evaluations // steps


def quality(metrics: Mapping[str, Any]) -> tuple[float, float]:
    """Return the sort key of a dev evaluation: the F1 where it is defined, then the lower loss."""
    return (-1.0 if metrics["f1"] is None else float(metrics["f1"]), -float(metrics["loss"]))


class Log:
    """The file training.jsonl, with one line per step and per dev evaluation.

    A resumed run removes what is newer than its checkpoint.
    """

    def __init__(self, folder: Path | None, step: int, warn: Callable[[OSError], None]) -> None:
        self._warn, self._path = warn, None if folder is None else folder / LOG
        if self._path is not None:
            lines = self._path.read_text("utf-8").splitlines() if self._path.is_file() else []
            self._path.write_text("".join(line + "\n" for line in lines if _step_of(line) <= step), "utf-8")

    def write(self, record: Record) -> None:
        if self._path is None:
            return
        size = self._path.stat().st_size if self._path.is_file() else 0
        try:
            with self._path.open("a", encoding="utf-8") as out:
                out.write(json.dumps(record) + "\n")
        except OSError as error:
            with suppress(OSError):
                os.truncate(self._path, size)  # remove an incomplete line
            self._warn(error)


def _step_of(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError):  # the last line of a run that was killed while writing it
        return math.inf


Floats = NDArray[np.float64]


def evaluate_dev(network: StepNetwork, data: Prepared, settings: TrainingSettings, processes: ProcessGroup) -> dict[str, Any]:
    """Compute the loss, the first-error F1 at its best threshold, step AUROC and Brier score of a split, from raw scores.

    A metric that is undefined on these rows is None.
    """
    scores, loss = score(network, data, settings, processes)
    labels = np.array([np.nan if x is None else x for row in data.rows for x in row.labels[: len(row.steps)]])
    flat = np.concatenate(
        [np.pad(s, (0, len(r.steps) - len(s)), constant_values=np.nan) for s, r in zip(scores, data.rows, strict=True)]
    )
    scored = ~np.isnan(labels) & ~np.isnan(flat)
    p, y = flat[scored], labels[scored]
    gold = [_gold(row, len(s)) for row, s in zip(data.rows, scores, strict=True)]
    choice = choose_threshold(scores, gold, [row.weight for row in data.rows])
    return {"loss": loss, "f1": choice.f1, "auroc": auroc(y >= 0.5, p), "brier": brier(y, p)}


def _gold(row: Row, seen: int) -> int | None:
    """Return the first error among the steps in context; None if it lies beyond them or is unknown."""
    first = row.first_error()
    return None if first is None or first >= seen or (first < 0 and seen < len(row.steps)) else first


@torch.no_grad()
def score(
    network: StepNetwork, data: Prepared, settings: TrainingSettings, processes: ProcessGroup
) -> tuple[list[list[float]], float]:
    """Return the raw P(correct) of every kept step of every row, and the loss."""
    loss, device = open_loss(settings.loss), network.device
    half = torch.ones((len(data.encoded), network.heads), dtype=torch.bool) * 0.5
    p = torch.zeros(len(data.targets.p), device=device)
    sums = torch.zeros(2, device=device)
    for number, (rows, batch) in enumerate(in_order(data, micro_tokens(settings, device))):
        if number % processes.size != processes.rank:
            continue
        targets = move(data.batch(rows)[1], device)
        outs = network(batch.to(device))
        places = np.concatenate([np.arange(data.begin[r], data.begin[r + 1]) for r in rows])
        p[torch.from_numpy(places).to(device)] = p_correct(outs)
        sums[1] += counted_weight(loss, targets).sum()
        sums[0] += (step_losses(outs, targets, half, loss, settings) * targets.weight).sum()
    processes.sum([p, sums])
    flat = p.cpu().tolist()
    each = [flat[a:b] for a, b in zip(data.begin[:-1], data.begin[1:], strict=True)]
    return each, float(sums[0] / sums[1].clamp(min=1e-9))


def p_correct(outs: Sequence[Outputs]) -> torch.Tensor:
    """Return P(correct), shape (n,): the softmax of the heads' mean logits, as the exported plain model computes it."""
    mean = torch.stack([out.logits.float() for out in outs]).mean(0)
    return torch.sigmoid(mean[:, 1] - mean[:, 0])
