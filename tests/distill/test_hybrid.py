"""The hybrid student: what it reads, that later steps change nothing, that it comes back from its folder and from a kill."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from critic_prm.errors import InputError, UsageError
from distill.data import TrainingSet, row_from_json
from distill.run import distill
from distill.settings import TrainingSettings
from distill.students import hybrid
from distill.students.frozen_lm import NAMES, Marks, StepFeatures, summarize
from distill.students.hybrid import Hybrid, fit_probe, probe_from_arrays
from distill.types import Item, choose_student
from distill.verifier import load_verifier
from tests.distill.tiny import known, sums, tiny_base

pytest.importorskip("torch")
ITEM = ("Add them up, 3 times.", ["1 + 2 = 3", "3 + 4 = 7 wrong", "", "7 + 8 = 15, so the answer is 15."])


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def training_set() -> TrainingSet:
    rows = [row_from_json({**row, "prompt": f"Add them up, {n} times."}, "row") for n, row in enumerate(sums(80, 0))]
    return TrainingSet("sums", tuple(rows[:60]), tuple(rows[60:]), (), "fingerprint")


@pytest.fixture(scope="module")
def folder(base: Path, training_set: TrainingSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("verifier") / "v"
    distill(training_set, out, student=Hybrid(str(base), TrainingSettings(dtype="fp32")))
    return out


def expected(count: int) -> Any:
    """Made-up expectations: log probability, entropy, highest log probability."""
    generator = np.random.default_rng(0)
    own = -generator.exponential(2.0, count)
    return np.column_stack([own, generator.uniform(0, 3, count), np.minimum(0, own + generator.exponential(1.0, count))])


def test_summaries_by_hand() -> None:
    marks = Marks(np.array([False, True, False, False]), np.array([False, False, True, False]))
    ids = np.array([0, 2, 1, 3, 0, 3])  # word = digit end, word end
    e = np.array([[-1, 0.5, -0.5], [-2, 1, -2], [-4, 1, -1], [-0.1, 0.2, -0.1], [-3, 1, -1], [-0.2, 0.1, -0.2]], dtype=float)
    found = dict(zip(NAMES, summarize(e, ids, np.array([4, 2]), marks).T.tolist(), strict=True))
    assert found["mean"] == pytest.approx([7 / 3, 3])
    assert found["largest"] == [4, 3]
    assert found["excess"] == pytest.approx([(0.5 + 1 + 3) / 3, 2])
    assert found["lost_largest"] == [3, 2]
    assert found["not_first"] == pytest.approx([2 / 3, 1])
    assert found["digits"][0] == found["result"][0] == 4
    assert np.isnan(found["digits"][1])
    assert np.isnan(found["result"][1])
    assert found["end"] == pytest.approx([0.1, 0.2])
    assert found["share_digits"] == pytest.approx([1 / 3, 0])
    assert found["mean-mean_before"][1] == pytest.approx(3 - 7 / 3)
    assert found["largest-largest_before"][1] == -1
    assert np.isnan(found["mean-mean_before"][0])


def test_a_summary_does_not_know_later_steps() -> None:
    marks = Marks(np.array([False, True]), np.array([True, False]))
    ids, e = np.random.default_rng(1).integers(0, 2, 40), expected(40)
    counts = np.array([1, 7, 2, 30])
    whole = summarize(e, ids, counts, marks)
    for steps in (1, 2, 3):
        stop = counts[:steps].sum()
        np.testing.assert_array_equal(summarize(e[:stop], ids[:stop], counts[:steps], marks), whole[:steps])


def test_a_probe_finds_the_column_that_matters_and_comes_back() -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(3.0, 2.0, (400, 3))
    y = (x[:, 1] > 3).astype(np.int64)
    x[::7, 0] = np.nan
    probe = fit_probe(x, y, np.ones(400), 0.1)
    assert abs(probe.weights[1]) > 5 * max(abs(probe.weights[0]), abs(probe.weights[2]))
    assert probe.log_odds(np.array([[np.nan] * 3]))[0] == pytest.approx(probe.intercept)
    np.testing.assert_array_equal(probe_from_arrays(probe.arrays()).log_odds(x), probe.log_odds(x))
    with pytest.raises(ValueError, match="different lengths"):
        probe_from_arrays({**probe.arrays(), "weights": probe.weights[:1]})


def test_surprise_is_that_of_the_plain_model(base: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    reader = hybrid.open_reader(str(base), TrainingSettings(dtype="fp32"))
    view = reader.read([ITEM])[0]
    encoded = reader.encoder.encode(*ITEM)
    ids = torch.from_numpy(encoded.ids.astype(np.int64))[None]
    with torch.no_grad():
        out = AutoModelForCausalLM.from_pretrained(base)(input_ids=ids, output_hidden_states=True)
    own = torch.log_softmax(out.logits[0, :-1], -1).gather(1, ids[0, 1:, None])[:, 0].numpy()
    begin, end = int(encoded.ends[0]) + 1, int(encoded.ends[1])
    assert view.surprise[1, NAMES.index("mean")] == pytest.approx(-own[begin - 1 : end - 1].mean(), abs=1e-4)
    assert view.surprise[1, NAMES.index("end")] == pytest.approx(-own[end - 1], abs=1e-4)
    state = out.hidden_states[reader.depth][0]
    size = state.shape[1]
    np.testing.assert_allclose(view.states[1, :size], state[end], atol=1e-5)
    np.testing.assert_allclose(view.states[1, size:], state[begin : end + 1].mean(0), atol=1e-5)


def test_predictions_are_over_the_vocabulary_and_the_actual_token(base: Path) -> None:
    import torch

    reader = hybrid.open_reader(str(base), TrainingSettings(dtype="fp32"))
    vocabulary = hybrid.frequent_tokens(reader, [ITEM], 12)
    head = replace(reader, vocabulary=vocabulary)._head()
    before = torch.from_numpy(np.random.default_rng(0).normal(size=(7, head.weight.shape[1])).astype(np.float32))
    tokens = torch.tensor([*vocabulary[:3].tolist(), 0, 1, 2, 3])
    assert not {0, 1, 2, 3} <= set(vocabulary.tolist())
    with torch.inference_mode():
        logits, statistics = before @ head.layer.weight.T, head.token_statistics(before, tokens)
    for row, (token, found) in enumerate(zip(tokens.tolist(), statistics, strict=True)):
        ids = sorted({*vocabulary.tolist(), token})
        logp = torch.log_softmax(logits[row, ids], -1)
        entropy, highest = -(logp.exp() * logp).sum(), logp.max()
        np.testing.assert_allclose(found, [logp[ids.index(token)], entropy, highest], atol=1e-5)


def test_frequent_tokens_are_counted_and_equals_go_by_id(base: Path) -> None:
    reader = hybrid.open_reader(str(base), TrainingSettings(dtype="fp32"))
    ids = reader.encoder.encode(*ITEM).ids.tolist()
    found = hybrid.frequent_tokens(reader, [ITEM], 5).tolist()
    assert found == sorted(sorted(set(ids), key=lambda i: (-ids.count(i), i))[:5])
    assert hybrid.frequent_tokens(reader, [ITEM], 10**6).tolist() == sorted(set(ids))


@pytest.mark.parametrize("options", [{}, {"vocabulary": 20}, {"vocabulary": 0}, {"layers": 1}])
def test_company_order_and_later_steps_change_nothing(
    base: Path, training_set: TrainingSet, tmp_path: Path, options: dict[str, Any]
) -> None:
    student = Hybrid(str(base), TrainingSettings(dtype="fp32"), **options)
    trained = student.train(training_set, seed=0, say=lambda line: None).scorer
    folder = tmp_path / "v"
    distill(training_set, folder, student=student, leave_out=0)
    np.testing.assert_allclose(load_verifier(folder).scorer.score([ITEM])[0], trained.score([ITEM])[0], atol=1e-6)
    verifier = load_verifier(folder)
    alone = known(verifier.score(*ITEM))
    others: list[Item] = [("Short.", ["1"]), ("Longer than that. " * 9, ["2 = 2"] * 7), ("Nothing.", [])]
    together = verifier.score_many([others[0], ITEM, *others[1:]])
    np.testing.assert_allclose(known(together[1]), alone, atol=1e-6)
    assert [len(scores) for scores in together] == [1, 4, 7, 0]
    for steps in (1, 2, 3):
        np.testing.assert_allclose(known(verifier.score(ITEM[0], ITEM[1][:steps])), alone[:steps], atol=1e-6)


def test_it_learns_and_says_what_it_is(folder: Path, training_set: TrainingSet) -> None:
    info = json.loads((folder / "verifier.json").read_text())
    assert info["student"] == "hybrid"
    assert info["causal"] is True
    assert info["training"]["solutions_read"] == 60
    right, wrong = known(load_verifier(folder).score("Add them up.", ["1 + 2 = 3", "3 + 4 = 7 wrong"]))
    assert right > wrong


def test_equal_runs_give_equal_files(
    base: Path, folder: Path, training_set: TrainingSet, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The second one reads with two threads."""
    import torch

    request.addfinalizer(partial(torch.set_num_threads, torch.get_num_threads()))
    torch.set_num_threads(2)
    distill(training_set, tmp_path / "again", student=Hybrid(str(base), TrainingSettings(dtype="fp32")))
    for name in ("hybrid.safetensors", "linear.safetensors", "model.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes(), name


def test_steps_beyond_the_context_are_left_to_the_linear_part(base: Path, folder: Path) -> None:
    verifier = load_verifier(folder)
    scorer = verifier.scorer
    assert isinstance(scorer, hybrid.HybridScorer)
    short = replace(scorer, reader=replace(scorer.reader, encoder=replace(scorer.reader.encoder, max_length=60)))
    whole, cut = scorer.score([ITEM])[0], short.score([ITEM])[0]
    assert whole[0] == pytest.approx(cut[0], abs=1e-6)
    plain = scorer.linear.score([ITEM])[0][3]
    z = np.log(plain / (1 - plain)) + scorer.probes.usual
    assert cut[3] == pytest.approx(1 / (1 + np.exp(-z / 3)), abs=1e-6)


def test_a_killed_run_does_not_read_again(
    base: Path, training_set: TrainingSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distill.students.frozen_lm import FrozenLM

    monkeypatch.setattr(hybrid, "CHUNK", 20)
    student, read, plain = Hybrid(str(base), TrainingSettings(dtype="fp32")), FrozenLM.read, []

    def once(self: FrozenLM, items: Sequence[Item]) -> list[StepFeatures]:
        plain.append(len(items))
        if len(plain) == 3:
            raise KeyboardInterrupt
        return read(self, items)

    monkeypatch.setattr(FrozenLM, "read", once)
    with pytest.raises(KeyboardInterrupt):
        student.train(training_set, seed=0, say=lambda line: None, work=tmp_path)
    assert plain == [20, 20, 20]
    scorer = student.train(training_set, seed=0, say=lambda line: None, work=tmp_path).scorer
    assert plain == [20, 20, 20, 20]
    fresh = student.train(training_set, seed=0, say=lambda line: None).scorer
    np.testing.assert_array_equal(scorer.score([ITEM])[0], fresh.score([ITEM])[0])


def test_first_layers_are_read_alone(base: Path, training_set: TrainingSet) -> None:
    trained = Hybrid(str(base), TrainingSettings(dtype="fp32"), layers=1).train(training_set, seed=0, say=lambda line: None)
    scorer = trained.scorer
    assert isinstance(scorer, hybrid.HybridScorer)
    assert scorer.probes.surprise is None
    assert np.isnan(scorer.reader.read([ITEM])[0].surprise).all()
    assert trained.summary["settings"]["layers_read"] == scorer.reader.depth == len(scorer.reader.model.base_model.layers) == 1
    with pytest.raises(InputError, match="9 of its 2 layers"):
        Hybrid(str(base), layers=9).train(training_set, seed=0, say=lambda line: None)


def test_a_group_left_out_is_not_learned_from_and_everything_is_read_once(
    base: Path, training_set: TrainingSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distill.students.frozen_lm import FrozenLM

    groups, read, counts = np.arange(len(training_set.train)) % 3, FrozenLM.read, []

    def counted(self: FrozenLM, items: Sequence[Item]) -> list[StepFeatures]:
        counts.append(len(items))
        return read(self, items)

    def scores(data: TrainingSet) -> list[Any]:
        student = Hybrid(str(base), TrainingSettings(dtype="fp32"), sources=("a",))
        assert student.leaves_out_cheaply
        return list(student.train_leaving_out(data, groups, seed=0, say=lambda line: None).left_out)

    monkeypatch.setattr(FrozenLM, "read", counted)
    rows = tuple(replace(row, source="b" if n == 4 else "a") for n, row in enumerate(training_set.train))
    plain = scores(replace(training_set, train=rows))
    assert sum(counts) == len(rows) - 1
    assert [len(p) for p in plain] == [len(row.steps) for row in rows]
    flipped = [
        replace(row, labels=tuple(None if y is None else 1 - y for y in row.labels)) if group == 0 else row
        for row, group in zip(rows, groups, strict=True)
    ]
    other = scores(replace(training_set, train=tuple(flipped)))
    for at, group in enumerate(groups):
        assert np.isnan(plain[at]).all() == (at == 4)
        if at != 4:
            assert np.allclose(plain[at], other[at], atol=1e-9) == (group == 0)


def test_only_the_sources_named_are_read(base: Path, training_set: TrainingSet, tmp_path: Path) -> None:
    train = tuple(replace(row, source="a" if n % 2 else "b") for n, row in enumerate(training_set.train))
    data = replace(training_set, train=train)
    trained = Hybrid(str(base), TrainingSettings(dtype="fp32"), sources=("a*",)).train(data, seed=0, say=lambda line: None)
    assert (trained.solutions, trained.summary["solutions_read"]) == (60, 30)
    with pytest.raises(InputError, match="name other sources"):
        Hybrid(str(base), sources=("c",)).train(data, seed=0, say=lambda line: None)


def test_sources_are_for_a_base_that_reads() -> None:
    assert choose_student("hybrid:./base", TrainingSettings(), ["sources=math_*"]) == Hybrid(
        "./base", TrainingSettings(), ("math_*",)
    )
    with pytest.raises(UsageError, match="linear student has no option"):
        choose_student("linear", TrainingSettings(), ["sources=math_*"])


def test_what_cannot_be_read_is_said_before_anything_is_done(
    training_set: TrainingSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = tiny_base(tmp_path / "bert", "bert")
    with pytest.raises(InputError, match=r"writes text|causal language model"):
        Hybrid(str(encoder)).train(training_set, seed=0, say=lambda line: None)
    with pytest.raises(UsageError, match="--epochs"):
        choose_student("hybrid:some/base", TrainingSettings(epochs=4))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="one process"):
        Hybrid(str(encoder)).train(training_set, seed=0, say=lambda line: None)
    assert choose_student("hybrid:some/base", TrainingSettings(layout="trl")) == Hybrid(
        "some/base", TrainingSettings(layout="trl")
    )


def test_what_a_step_looks_like_counts_against_the_steps_before_it(folder: Path) -> None:
    scorer = load_verifier(folder).scorer
    assert isinstance(scorer, hybrid.HybridScorer)
    view = scorer.reader.read([ITEM])[0]
    said = scorer.probes.log_odds(view)
    plain = scorer.linear.score([ITEM])[0]
    z = np.log(plain / (1 - plain))
    first = z[0] + scorer.probes.usual + said[0] - scorer.probes.usual
    third = z[2] + scorer.probes.usual + said[2] - (3 * scorer.probes.usual + said[0] + said[1]) / 5
    np.testing.assert_allclose(scorer.score([ITEM])[0][[0, 2]], 1 / (1 + np.exp(-np.array([first, third]) / 3)), atol=1e-9)


def test_dev_keeps_the_sources_that_are_read_and_a_difference_has_its_interval(tmp_path: Path) -> None:
    from bench.transformer import difference, with_dev_of

    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "train.jsonl").write_text('{"source": "logs"}\n')
    (tmp_path / "set" / "dev.jsonl").write_text('{"source": "logs"}\n{"source": "mr_math"}\n')
    found = with_dev_of(tmp_path / "set", tmp_path / "narrow", ["mr_*"])
    assert (found / "dev.jsonl").read_text() == '{"source": "mr_math"}\n'
    assert (found / "train.jsonl").read_text() == '{"source": "logs"}\n'
    row = np.concatenate([[0.03, 0.02, 0, 0], np.linspace(0, 0.08, 1001), np.linspace(-0.02, 0.06, 1001)])
    assert difference("mean", row).split(None, 1)[1] == "AUROC +0.030 [+0.002, +0.078]   F1 +2.0 [-1.8, +5.8]"


def test_readings_are_kept_for_the_same_reader_and_text_only(base: Path, tmp_path: Path) -> None:
    from bench.hybrid_seeds import keeping
    from distill.students.frozen_lm import FrozenLM

    asked: list[Item] = []

    def read(self: FrozenLM, items: Sequence[Item]) -> list[StepFeatures]:
        asked.extend(items)
        return FrozenLM.read(self, items)

    reader, kept = hybrid.open_reader(str(base), TrainingSettings(dtype="fp32")), keeping(read, tmp_path)
    other: Item = (ITEM[0], ITEM[1][:2])
    for _ in range(2):
        views = kept(reader, [ITEM, other])
        for view, plain in zip(views, reader.read([ITEM, other]), strict=True):
            np.testing.assert_array_equal(view.states, plain.states)
            np.testing.assert_array_equal(view.surprise, plain.surprise)
    assert asked == [ITEM, other]
    kept(replace(reader, vocabulary=np.arange(9, dtype=np.int32)), [ITEM])
    kept(hybrid.open_reader(str(base), TrainingSettings(dtype="fp32"), 1), [ITEM])
    assert asked == [ITEM, other, ITEM, ITEM]
