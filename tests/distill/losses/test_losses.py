"""Every loss: published and worked numbers, right gradients, finite at extremes, silent where there is no label."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from critic_prm.errors import InputError, UsageError
from critic_prm.registry import names
from distill.data import Row
from distill.losses import labels, outcomes
from distill.losses.loss import Outputs, Targets, check_rows, check_settings, open_loss
from distill.settings import TrainingSettings

NAN = math.nan


def settings(class_weights: tuple[float, float] | None = None, label_smoothing: float = 0.0) -> TrainingSettings:
    return TrainingSettings(class_weights=class_weights, label_smoothing=label_smoothing)


def outputs(log_odds: Tensor | Sequence[float], extra: Tensor | None = None) -> Outputs:
    z = torch.as_tensor(log_odds)
    logits = torch.stack([torch.zeros_like(z), z], dim=1)
    return Outputs(logits, torch.zeros(len(z), 4), torch.zeros(len(z), 0) if extra is None else extra)


def targets(
    p: Sequence[float],
    row: Sequence[int] | None = None,
    votes: Sequence[tuple[int, int]] | None = None,
    outcome: Sequence[float] | None = None,
) -> Targets:
    count = len(p)
    rows = torch.tensor([0] * count if row is None else row)
    step = torch.tensor([sum(int(rows[j]) == int(rows[i]) for j in range(i)) for i in range(count)])
    last = torch.tensor([i + 1 == count or int(rows[i]) != int(rows[i + 1]) for i in range(count)])
    k, n = zip(*(votes or [(0, 0)] * count), strict=True)
    return Targets(
        p=torch.tensor(p, dtype=torch.float64),
        k=torch.tensor(k, dtype=torch.float64),
        n=torch.tensor(n, dtype=torch.float64),
        weight=torch.ones(count),
        row=rows,
        step=step,
        last=last,
        outcome=torch.tensor([NAN] * count if outcome is None else outcome, dtype=torch.float64),
        domain=torch.zeros(count, dtype=torch.long),
    )


def values(loss: str, out: Outputs, want: Targets, how: TrainingSettings | None = None) -> list[float]:
    found: list[float] = open_loss(loss).loss(out, want, how or settings()).tolist()
    return found


def logit(p: float) -> float:
    return math.log(p / (1 - p))


def near(x: Any) -> Any:
    return pytest.approx(x, abs=1e-6)


class TestCrossEntropy:
    def test_hard_labels_cut_at_one_half(self) -> None:
        found = values("ce", outputs([logit(0.8)] * 4), targets([1.0, 0.5, 0.49, NAN]))
        assert found == near([-math.log(0.8), -math.log(0.8), -math.log(0.2), 0.0])

    def test_soft_labels_stay_soft(self) -> None:
        found = values("soft", outputs([logit(0.8)] * 3), targets([0.7, 1.0, NAN]))
        assert found == near([-0.7 * math.log(0.8) - 0.3 * math.log(0.2), -math.log(0.8), 0.0])

    @pytest.mark.parametrize("name", ["ce", "soft"])
    @pytest.mark.parametrize(("weights", "smoothing"), [(None, 0.1), ((2.0, 0.5), 0.0), ((2.0, 0.5), 0.2)])
    def test_weights_and_smoothing_are_those_of_torch(
        self, name: str, weights: tuple[float, float] | None, smoothing: float
    ) -> None:
        logits = torch.randn(6, 2, generator=torch.Generator().manual_seed(0))
        hard = torch.tensor([0, 1, 1, 0, 1, 0])
        class_weights = None if weights is None else torch.tensor(weights)
        theirs = F.cross_entropy(logits, hard, weight=class_weights, label_smoothing=smoothing, reduction="none")
        out = Outputs(logits, torch.zeros(6, 1), torch.zeros(6, 0))
        ours = open_loss(name).loss(out, targets(hard.double().tolist()), settings(weights, smoothing))
        torch.testing.assert_close(ours, theirs, check_dtype=False)


def test_mse_is_the_squared_distance_of_probabilities() -> None:
    assert values("mse", outputs([logit(0.8), 0.0, 3.0]), targets([0.7, 1.0, NAN])) == near([0.01, 0.25, 0.0])


class TestBetaBinomial:
    @staticmethod
    def nll(mu: float, kappa: float, k: int, n: int, dtype: torch.dtype = torch.float64) -> float:
        z, votes = torch.tensor([logit(mu)], dtype=dtype), torch.tensor([[k], [n]], dtype=dtype)
        return labels.nll(z, torch.tensor([kappa], dtype=dtype), votes[0], votes[1]).item()

    @pytest.mark.parametrize(
        ("mu", "kappa", "k", "n", "expected"),
        [
            (0.5, 2, 3, 4, math.log(5)),
            (0.75, 8, 3, 4, 1.0805938),
            (0.75, 80, 3, 4, 0.8876562),
            (0.75, 1e6, 3, 4, 0.8630482),
            (0.25, 8, 3, 4, 2.6210388),
        ],
    )
    def test_worked_numbers(self, mu: float, kappa: float, k: int, n: int, expected: float) -> None:
        assert self.nll(mu, kappa, k, n) == near(expected)
        assert self.nll(mu, kappa, k, n, torch.float32) == pytest.approx(expected, abs=1e-5)

    def test_it_is_the_form_with_lgamma(self) -> None:
        for mu, kappa, n in itertools.product((0.02, 0.4, 0.9), (0.05, 3.0, 200.0), (1, 2, 7)):
            for k in range(n + 1):
                a, b = mu * kappa, (1 - mu) * kappa
                ways = math.log(math.comb(n, k))
                beta = math.lgamma(k + a) + math.lgamma(n - k + b) - math.lgamma(n + a + b)
                theirs = -(ways + beta - math.lgamma(a) - math.lgamma(b) + math.lgamma(a + b))
                assert self.nll(mu, kappa, k, n) == pytest.approx(theirs, abs=1e-9)

    def test_probabilities_sum_to_one(self) -> None:
        assert sum(math.exp(-self.nll(0.3, 2.5, k, 8)) for k in range(9)) == pytest.approx(1)

    def test_one_vote_is_cross_entropy_whatever_kappa(self) -> None:
        assert [self.nll(0.8, kappa, 1, 1) for kappa in (0.01, 1.0, 1e6)] == near([-math.log(0.8)] * 3)

    def test_gradients_by_mean_and_kappa(self) -> None:
        for mu, by_mu, by_kappa in ((0.75, 0.5238095, -0.0238727), (0.25, None, 0.0311869)):
            z = torch.tensor([logit(mu)], dtype=torch.float64, requires_grad=True)
            kappa = torch.tensor([8.0], dtype=torch.float64, requires_grad=True)
            three, four = torch.tensor([3.0], dtype=torch.float64), torch.tensor([4.0], dtype=torch.float64)
            labels.nll(z, kappa, three, four).sum().backward()
            assert z.grad is not None
            assert kappa.grad is not None
            assert kappa.grad.item() == near(by_kappa)
            if by_mu is not None:
                assert z.grad.item() / (mu * (1 - mu)) == near(by_mu)

    def test_a_mean_that_misses_lowers_kappa_and_is_not_moved_by_that(self) -> None:
        assert labels.BETA_BINOMIAL.extra_bias[0] == near(3.9804959)
        start = math.log(math.expm1(8 - labels.KAPPA_MIN))
        z = torch.tensor([logit(0.25)], requires_grad=True)
        extra = torch.tensor([[start]])
        want = targets([0.75], votes=[(3, 4)])
        loss = open_loss("beta-binomial").loss(outputs(z, extra), want, settings()).sum()
        assert loss.item() == pytest.approx(2.6210388 + 0.2, abs=1e-5)
        (whole,) = torch.autograd.grad(loss, z)
        plain = labels.nll(z, torch.tensor([8.0]), want.k, want.n).sum()
        (alone,) = torch.autograd.grad(plain, z)
        torch.testing.assert_close(whole, alone)

    def test_a_kappa_beyond_all_bounds_is_the_binomial(self) -> None:
        assert self.nll(0.75, 1e30, 3, 4, torch.float32) == pytest.approx(0.8630462, abs=1e-6)


class TestRanking:
    @pytest.mark.parametrize(("q", "expected"), [([1.0, 2.0, -3.0], 0.9339266), ([1.0, 2.0, -6.0], 0.2985523)])
    def test_worked_numbers(self, q: list[float], expected: float) -> None:
        assert values("pqm", outputs(q), targets([1, 1, 0])) == near([expected, 0, 0])

    def test_each_trajectory_is_ranked_within_itself(self) -> None:
        out = outputs([1.0, 2.0, -3.0, 0.5, 1.0, 2.0, -6.0])
        found = values("pqm", out, targets([1, 1, 0, NAN, 1, 1, 0], row=[0, 0, 0, 7, 9, 9, 9]))
        assert found == near([0.9339266, 0, 0, 0, 0.2985523, 0, 0])
        counted = labels.first_labelled(targets([1, 1, 0, NAN, NAN, 1, 0], row=[0, 0, 0, 7, 9, 9, 9]))
        assert counted.tolist() == [True, False, False, False, False, True, False]

    def test_a_right_trajectory_has_no_virtual_step(self) -> None:
        found = values("pqm", outputs([1.0, 2.0]), targets([1, 1]))
        first, second = math.log(math.e + 1) - 1, math.log(math.e**2 + 1 + math.e) - 2
        assert found == near([(first + second) / 2, 0])


class TestBuffer:
    @staticmethod
    def value(share: float, outcome: float) -> float:
        logits = torch.tensor([[0.2, 0.5, 0.3]], dtype=torch.float64).log()
        return outcomes.buffered(logits, torch.tensor([outcome]), torch.tensor([share])).item()

    def test_worked_numbers(self) -> None:
        assert [self.value(b, 1) for b in (0, 0.5, 1)] == near([0.6931472, 0.4307829, 0.2231436])
        assert [self.value(b, 0) for b in (0, 0.5, 1)] == near([1.6094379, 1.0498221, 0.6931472])
        assert 0.7 * self.value(0, 1) + 0.3 * self.value(1, 1) == near(0.5521461)
        assert 0.7 * self.value(0, 0) + 0.3 * self.value(1, 0) == near(1.3345507)

    def test_the_buffer_alone_is_no_way_out(self) -> None:
        collapsed = torch.tensor([[0.0, 0.0, 60.0]])
        assert outcomes.buffered(collapsed, torch.tensor([1.0]), torch.tensor([1.0])).item() == near(0)
        out = outputs([0.0], torch.tensor([[60.0]]))
        want = targets([NAN, NAN], outcome=[1, 1])
        both = Outputs(out.logits.repeat(2, 1), out.hidden.repeat(2, 1), out.extra.repeat(2, 1))
        assert values("freeprm", both, want) == pytest.approx([math.log(2), 60 + math.log(1)], abs=1e-4)

    def test_it_needs_no_step_labels_and_leaves_out_unknown_outcomes(self) -> None:
        want = targets([NAN] * 3, row=[0, 1, 2], outcome=[1, 0, NAN])
        found = values("freeprm", outputs([2.0, 2.0, 2.0], torch.full((3, 1), -90.0)), want)
        assert found == near([math.log1p(math.exp(-2)), math.log1p(math.exp(2)), 0])


class TestImplicit:
    def test_worked_numbers(self) -> None:
        beta = 0.05
        rewards = [beta * (2 - 1), beta * 3, beta * (-2 + 1), beta * -4]
        want = targets([NAN] * 4, row=[0, 0, 1, 1], outcome=[1, 1, 0, 0])
        found = values("implicit", outputs(rewards), want)
        assert found[0] == found[2] == 0
        assert (found[1] + found[3]) / 2 == near(0.5870391)
        assert open_loss("implicit").mask(want).tolist() == [False, True, False, True]

    def test_no_reward_is_log_two(self) -> None:
        found = values("implicit", outputs([0.0, 0.0]), targets([NAN, NAN], outcome=[1, 1]))
        assert found == near([0, math.log(2)])


COMMON: dict[str, Callable[[], Targets]] = {
    "labels": lambda: targets([0.9, 0.2, NAN, 1.0, 0.0, NAN], row=[0, 0, 0, 1, 1, 2]),
    "votes": lambda: targets(
        [0.9, 0.2, NAN, 1.0, 0.0, NAN], row=[0, 0, 0, 1, 1, 2], votes=[(7, 8), (1, 5), (3, 3), (4, 4), (0, 3), (0, 0)]
    ),
    "outcomes": lambda: targets([NAN] * 6, row=[0, 0, 0, 1, 1, 2], outcome=[1, 1, 1, 0, 0, NAN]),
}


@pytest.mark.parametrize("name", names("loss"))
class TestEveryLoss:
    def test_gradient(self, name: str) -> None:
        loss, how = open_loss(name), settings((0.5, 2.0), 0.05)
        want = COMMON[loss.label_kind]()
        generator = torch.Generator().manual_seed(3)

        def value(logits: Tensor, extra: Tensor) -> Tensor:
            # The losses compute in float32 whatever comes; a gradient check wants float64 all through.
            return loss.loss(Outputs(logits, logits, extra), want, how)

        logits = torch.randn(6, 2, generator=generator, dtype=torch.float64, requires_grad=True)
        extra = torch.randn(6, len(loss.extra_bias), generator=generator, dtype=torch.float64, requires_grad=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.Tensor, "float", lambda self: self)
            patch.setattr(labels, "EVIDENCE", 0.0)  # its second term is cut off from the mean on purpose
            assert torch.autograd.gradcheck(value, (logits, extra))

    def test_silent_where_nothing_counts(self, name: str) -> None:
        loss = open_loss(name)
        want = COMMON[loss.label_kind]()
        logits = torch.randn(6, 2, generator=torch.Generator().manual_seed(1), requires_grad=True)
        extra = torch.zeros(6, len(loss.extra_bias), requires_grad=True)
        found = loss.loss(Outputs(logits, logits, extra), want, settings())
        counted = loss.mask(want)
        assert found.shape == (6,)
        assert found.dtype == torch.float32 or found.dtype == torch.float64
        assert not found[~counted].any()
        assert (found[counted] > 0).all()
        found.sum().backward()
        assert logits.grad is not None
        assert not logits.grad[5].any()

    def test_a_batch_without_labels_is_zero_and_moves_nothing(self, name: str) -> None:
        loss = open_loss(name)
        logits = torch.randn(3, 2, requires_grad=True)
        extra = torch.zeros(3, len(loss.extra_bias), requires_grad=True)
        found = loss.loss(Outputs(logits, logits, extra), targets([NAN] * 3), settings()).sum()
        found.backward()
        assert found.item() == 0
        assert logits.grad is not None
        assert not logits.grad.any()

    @pytest.mark.parametrize("size", [1e4, -1e4])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_finite_at_extremes(self, name: str, size: float, dtype: torch.dtype) -> None:
        loss = open_loss(name)
        want = COMMON[loss.label_kind]()
        logits = (torch.tensor([[0.0, 1.0]] * 6) * size).to(dtype).requires_grad_()
        extra = torch.full((6, len(loss.extra_bias)), size, dtype=dtype, requires_grad=True)
        found = loss.loss(Outputs(logits, logits, extra), want, settings())
        found.sum().backward()
        assert found.isfinite().all()
        assert logits.grad is not None
        assert logits.grad.isfinite().all()
        assert extra.grad is None or extra.grad.isfinite().all()


def row(**more: Any) -> Row:
    return Row("a", "p", ("x", "y"), **{"labels": (None, None), **more})


def test_every_loss_is_documented() -> None:
    text = (Path(__file__).parents[3] / "docs" / "losses.md").read_text("utf-8")
    assert [name for name in names("loss") if f"| `{name}`" not in text] == []


class TestWhatALossWants:
    def test_an_unknown_name_lists_the_known(self) -> None:
        with pytest.raises(UsageError, match="beta-binomial, ce, freeprm, implicit, mse, pqm, soft"):
            open_loss("hinge")

    def test_weights_that_a_loss_does_not_take(self) -> None:
        check_settings(settings((1.0, 2.0), 0.1))
        with pytest.raises(
            UsageError, match="the loss pqm does not use class-weights and label-smoothing; these losses do: ce, soft"
        ):
            check_settings(TrainingSettings(loss="pqm", class_weights=(1.0, 2.0), label_smoothing=0.1))

    def test_votes(self) -> None:
        thin = row(labels=(1.0, 0.0), votes=((1, 1), (0, 2)))
        with pytest.raises(InputError, match="3 or more votes per step, but 0 of 2"):
            check_rows("beta-binomial", [thin], "train.jsonl")
        check_rows("beta-binomial", [row(labels=(1.0, 0.0), votes=((3, 3), (0, 4)))], "train.jsonl")

    def test_outcomes(self) -> None:
        for name in ("freeprm", "implicit"):
            with pytest.raises(InputError, match="1 solutions are correct, 0 incorrect, 1 without"):
                check_rows(name, [row(outcome=1.0), row()], "train.jsonl")
            check_rows(name, [row(outcome=1.0), row(outcome=0.0)], "train.jsonl")

    def test_labels(self) -> None:
        for name in ("ce", "soft", "mse", "pqm"):
            with pytest.raises(InputError, match=r"train.jsonl: 0 steps are labelled correct and 0 incorrect"):
                check_rows(name, [row(outcome=1.0), row(outcome=0.0)], "train.jsonl")
            check_rows(name, [row(labels=(1.0, 0.2))], "train.jsonl")
