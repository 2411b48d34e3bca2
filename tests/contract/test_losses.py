"""Every loss declares what it is, is finite and silent without labels; the documentation lists them all."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest

pytest.importorskip("torch")

import torch

from critic_prm.registry import names
from distill.losses.loss import LabelKind, Loss, Outputs, Targets, open_loss
from distill.settings import TrainingSettings

NAN, ROWS = float("nan"), 6


def every_loss() -> list[tuple[str, Loss]]:
    toy: Loss = import_module("tests.contract.toy.absolute").ABSOLUTE
    return [*((name, open_loss(name)) for name in names("loss")), ("absolute", toy)]


def targets(known: bool) -> Targets:
    """Three steps each of two solutions, with labels, votes and outcomes, or with none of them."""
    p = torch.tensor([1.0, 1.0, 0.0, 1.0, 0.9, 1.0] if known else [NAN] * ROWS)
    votes = torch.tensor([4.0, 3.0, 0.0, 4.0, 4.0, 3.0] if known else [0.0] * ROWS)
    return Targets(
        p=p, k=votes, n=torch.full((ROWS,), 4.0 if known else 0.0), weight=torch.ones(ROWS),
        row=torch.tensor([0, 0, 0, 1, 1, 1]), step=torch.tensor([0, 1, 2, 0, 1, 2]),
        last=torch.tensor([False, False, True] * 2),
        outcome=torch.tensor([0.0, 0.0, 0.0, 1.0, 1.0, 1.0] if known else [NAN] * ROWS),
        domain=torch.zeros(ROWS, dtype=torch.int64),
    )  # fmt: skip


@pytest.mark.parametrize(("name", "loss"), every_loss(), ids=lambda value: value if isinstance(value, str) else "")
def test_a_loss_declares_what_it_is(name: str, loss: Loss) -> None:
    assert loss.label_kind in get_args(LabelKind)
    assert loss.objective
    for known in (True, False):
        logits = torch.randn(ROWS, 2, generator=torch.Generator().manual_seed(0)).requires_grad_()
        extra = torch.zeros(ROWS, len(loss.extra_bias)) + torch.tensor(loss.extra_bias)
        want = targets(known)
        each = loss.loss(Outputs(logits, torch.zeros(ROWS, 4), extra), want, TrainingSettings())
        counted = loss.mask(want)
        assert each.shape == counted.shape == (ROWS,)
        assert counted.any() == known
        assert torch.isfinite(each).all()
        assert (each[~counted] == 0).all()
        (gradient,) = torch.autograd.grad(each.sum(), logits)
        assert torch.isfinite(gradient).all()
        assert (gradient.abs().sum() > 0) == known


def test_the_documentation_lists_every_loss() -> None:
    page = Path(__file__).parents[2] / "docs" / "losses.md"
    text = page.read_text("utf-8")
    for name in names("loss"):
        loss = open_loss(name)
        (line,) = [line for line in text.splitlines() if line.startswith(f"| `{name}`")]
        kind = "outcome" if loss.label_kind == "outcomes" else loss.label_kind
        assert f"| `{kind}` | {loss.objective} | {loss.source}".rstrip() in line
