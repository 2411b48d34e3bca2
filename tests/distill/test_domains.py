"""What each source counts: by hand, and learned against a trusted set; several heads that stay apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from critic_prm.errors import InputError, UsageError
from distill.data import Row, TrainingSet
from distill.layouts import make_encoder
from distill.losses.loss import Outputs, Targets, open_loss
from distill.settings import TrainingSettings
from distill.students.transformer import Transformer
from distill.training.batches import Prepared, prepare
from distill.training.domains import (
    DomainWeights,
    domain_numbers,
    head_gradient,
    parse_weights,
    split_trusted,
    trusted_loss,
    updated_weights,
)
from distill.training.loop import ANCHOR, anchor, spread
from distill.training.network import open_network, open_tokenizer
from tests.distill.tiny import sums, tiny_base

SETTINGS = TrainingSettings(epochs=3, lr=3e-3, batch_tokens=300, device="cpu", dtype="fp32", patience=0)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_base(tmp_path_factory.mktemp("base"))


def rows(source: str, count: int, seed: int, *, flipped: bool = False) -> list[Row]:
    found = []
    for row in sums(count, seed):
        labels = tuple(None if p is None else 1 - p if flipped else p for p in row["labels"])
        found.append(Row(f"{source}-{row['id']}", row["prompt"], tuple(row["completions"]), labels, source=source))
    return found


def prepared(base: Path, own: list[Row]) -> Prepared:
    encoded = make_encoder(open_tokenizer(base), "default", 512).encode_many([(row.problem, row.steps) for row in own])
    return prepare(own, encoded, 0, causal=True, domains=domain_numbers(own))


def targets(p: list[float], outcome: list[float], row: list[int]) -> Targets:
    n = len(p)
    last = [i + 1 == n or row[i] != row[i + 1] for i in range(n)]
    zero, one = torch.zeros(n), torch.ones(n)
    index = torch.zeros(n, dtype=torch.long)
    return Targets(torch.tensor(p), zero, zero, one, torch.tensor(row), index, torch.tensor(last), torch.tensor(outcome), index)


class TestByHand:
    def test_weights_are_read(self) -> None:
        assert parse_weights("b=1.5, c=0", {"a": 0, "b": 1, "c": 2}).tolist() == [1.0, 1.5, 0.0]

    def test_a_source_may_hold_an_equals_sign(self) -> None:
        assert parse_weights("a=b=2", {"a=b": 0}).tolist() == [2.0]

    @pytest.mark.parametrize("text", ["d=1", "a=much", "a=-1", "a", "a=nan"])
    def test_what_cannot_be_is_refused(self, text: str) -> None:
        with pytest.raises(UsageError, match="domain-weights"):
            parse_weights(text, {"a": 0})

    def test_a_source_of_weight_zero_teaches_nothing(self, base: Path) -> None:
        data = TrainingSet("d", (*rows("good", 30, 1), *rows("bad", 30, 2, flipped=True)), tuple(rows("good", 20, 3)), ())

        def auroc(weights: str) -> float:
            found = Transformer(str(base), replace(SETTINGS, domain_weights=weights)).train(data, seed=0, say=lambda line: None)
            assert found.summary["domain_weights"] == (
                {"bad": 0.0, "good": 1.0} if weights == "bad=0" else {"bad": 1.0, "good": 0.0}
            )
            return float(found.summary["best"]["auroc"])

        assert auroc("bad=0") > 0.9
        assert auroc("good=0") < 0.1


class TestLearned:
    def test_one_dimension(self) -> None:
        found = updated_weights(torch.ones(2), torch.tensor([[-1.0], [1.0]]), torch.tensor([-1.0]))
        assert found.tolist() == pytest.approx([1.0996680, 0.9003320], abs=1e-6)

    def test_the_mean_stays_one_and_the_bounds_hold(self) -> None:
        weights = torch.ones(3)
        for _ in range(200):
            weights = updated_weights(weights, torch.tensor([[1.0, 0], [0, 1.0], [-1.0, 0]]), torch.tensor([1.0, 0]))
            assert weights.mean().item() == pytest.approx(1, abs=1e-5)
        assert weights[0] > weights[1] > 0.15
        assert weights[2] == pytest.approx(weights[1])  # both at the lower bound

    def test_equal_domains_and_unseen_ones_stay_where_they_are(self) -> None:
        same = torch.tensor([[1.0, 2.0], [1.0, 2.0]])
        assert updated_weights(torch.ones(2), same, torch.tensor([0.3, -1.0])).tolist() == pytest.approx([1, 1])
        assert updated_weights(torch.ones(2), torch.zeros(2, 2), torch.tensor([1.0, 1.0])).tolist() == [1, 1]

    def test_the_gradient_is_that_of_the_heads(self, base: Path) -> None:
        network = open_network(str(base), replace(SETTINGS, heads=2))
        own = rows("one", 9, 1)
        data, loss = prepared(base, own), open_loss("soft")
        found = head_gradient(network, data, np.arange(3, 9), lambda out, want: loss.loss(out, want, SETTINGS))
        batch, want = data.batch(np.arange(3, 9))
        total = torch.stack([loss.loss(out, want, SETTINGS) for out in network(batch)]).sum()
        weight, bias = torch.autograd.grad(total, (network.head.weight, network.head.bias))
        torch.testing.assert_close(found, torch.cat([weight, bias[:, None]], dim=1).flatten())

    def test_the_trusted_loss_takes_labels_or_else_the_outcome(self) -> None:
        logit = torch.tensor([0.9, 0.6, 0.8, 0.3]).logit()
        out = Outputs(torch.stack([torch.zeros(4), logit], dim=1), torch.zeros(4, 1), torch.zeros(4, 0))
        nan = float("nan")
        found = trusted_loss(out, targets([nan, nan, nan, 1.0], [1.0, 1.0, 1.0, 0.0], [0, 0, 0, 1]))
        assert found.tolist() == pytest.approx([0, 0, (0.7907846 - 1) ** 2, -float(np.log(0.3))], abs=1e-6)

    def test_a_source_with_flipped_labels_ends_below_the_others(self, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("distill.training.domains.EVERY", 3)
        train = [*rows("one", 30, 1), *rows("two", 30, 2), *rows("flipped", 20, 3, flipped=True), *rows("held", 20, 4)]
        said: list[str] = []
        found = Transformer(str(base), replace(SETTINGS, trusted="held")).train(
            TrainingSet("d", tuple(train), tuple(rows("one", 10, 5)), ()), seed=0, say=said.append
        )
        weights = found.summary["domain_weights"]
        assert set(weights) == {"one", "two", "flipped"}
        assert weights["flipped"] < 0.9 < 1 < min(weights["one"], weights["two"])
        assert found.solutions == 80
        assert any("the trusted set has 20 solutions" in line for line in said)

    def test_a_trusted_file_must_not_share_problems(self, tmp_path: Path) -> None:
        path = tmp_path / "trusted.jsonl"
        path.write_text('{"prompt": "p", "completions": ["a"], "labels": [1.0]}\n')
        own = [Row("1", "q", ("a",), (0.0,), source="s")]
        kept, trusted = split_trusted(own, str(path))
        assert (len(kept), trusted[0].problem) == (1, "p")
        with pytest.raises(InputError, match="1 of its problems are in the training rows"):
            split_trusted([replace(own[0], problem="p")], str(path))
        with pytest.raises(InputError, match="neither a file nor a source"):
            split_trusted(own, "elsewhere")

    def test_a_killed_run_goes_on_with_its_weights(self, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("distill.training.domains.EVERY", 3)
        train = (*rows("one", 30, 1), *rows("flipped", 20, 3, flipped=True), *rows("held", 20, 4))
        data = TrainingSet("d", train, tuple(rows("one", 10, 5)), ())
        student = Transformer(str(base), replace(SETTINGS, trusted="held", save_minutes=0.0))

        def run(work: Path, stop: int | None) -> Any:
            if stop is not None:
                real, count = DomainWeights.factors, iter(range(10_000))

                def dying(self: DomainWeights, want: Targets) -> torch.Tensor:
                    if next(count) == stop:
                        raise KeyboardInterrupt
                    return real(self, want)

                with monkeypatch.context() as patch:
                    patch.setattr(DomainWeights, "factors", dying)
                    with pytest.raises(KeyboardInterrupt):
                        student.train(data, seed=0, say=lambda line: None, work=work)
            return student.train(data, seed=0, say=lambda line: None, work=work).summary

        whole, resumed = run(tmp_path / "a", None), run(tmp_path / "b", 11)
        assert resumed["domain_weights"] == whole["domain_weights"]
        assert resumed["best"] == pytest.approx(whole["best"])


class TestHeads:
    def test_the_anchor_and_the_spread(self) -> None:
        assert anchor(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0])).item() == ANCHOR * 2.0
        heads = torch.tensor([[0.97, 0.95, 0.2], [0.96, 0.93, 0.6], [0.98, 0.97, 0.4]])
        assert spread(heads.logit()).tolist() == pytest.approx([0.01, 0.02, 0.2], abs=1e-6)
        assert spread(heads[:1].logit()).tolist() == [0, 0, 0]

    def test_the_anchor_counts_once_a_step_however_it_is_cut(self, base: Path) -> None:
        from distill.training.loop import StepTask, halves

        settings = replace(SETTINGS, heads=3)
        network = open_network(str(base), settings)
        data = prepared(base, rows("one", 6, 1))
        start = network.head.weight.detach() - 1.0
        half = halves(6, 3, 0)
        plain = StepTask(network, data, open_loss("soft"), half, settings)
        held = replace(plain, anchors=(network.head.weight, start))
        every = np.arange(6)
        more = sum((held.loss(part) - plain.loss(part)).item() for part in (every[:2], every[2:]))
        assert more / plain.weight(every) == pytest.approx(ANCHOR, rel=1e-4)

    def test_heads_learn_and_disagree_more_where_nothing_was_seen(self, base: Path) -> None:
        data = TrainingSet("d", tuple(rows("one", 60, 1)), tuple(rows("one", 20, 2)), ())
        found = Transformer(str(base), replace(SETTINGS, heads=4)).train(data, seed=0, say=lambda line: None)
        assert found.summary["best"]["auroc"] > 0.9
