"""The implicit student: from outcomes alone, rewards that are log ratios of two plain models, a folder that needs no other."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.errors import InputError, UsageError
from distill.data import Row, TrainingSet
from distill.run import distill
from distill.settings import TrainingSettings
from distill.students.implicit import BETA, Implicit
from distill.types import choose_student
from distill.verifier import load_verifier
from tests.distill.tiny import known, tiny_base

SETTINGS = TrainingSettings(epochs=4, lr=3e-3, batch_tokens=400, device="cpu", dtype="fp32", patience=0)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_base(tmp_path_factory.mktemp("base"))


def rows(count: int, *, labels: bool = False) -> tuple[Row, ...]:
    """A right solution ends in one way, a wrong one in another; the steps' labels are kept back unless asked for."""
    found = []
    for n in range(count):
        right = n % 2 == 0
        steps = (f"{n % 7} + 1", "so it is so" if right else "but zzzz")
        known = (1.0, float(right)) if labels else (None, None)
        found.append(Row(f"r{n}", f"What is {n}?", steps, known, outcome=float(right)))
    return tuple(found)


@pytest.fixture(scope="module")
def verifier(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out") / "verifier"
    distill(TrainingSet("toy", rows(40), rows(20, labels=True), ()), out, student=Implicit(str(base), SETTINGS))
    return out


def test_steps_are_told_apart_without_a_step_label(verifier: Path) -> None:
    found = load_verifier(verifier)
    scores = [known(found.score(row.problem, row.steps)) for row in rows(10)]
    right, wrong = [s[1] for s in scores[::2]], [s[1] for s in scores[1::2]]
    assert min(right) > max(wrong)
    assert found.info["student"] == "implicit"
    assert found.info["decision"]["f1"] is not None


def test_a_raw_score_is_the_log_ratio_of_two_plain_models(verifier: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(verifier)
    policy, reference = (AutoModelForCausalLM.from_pretrained(p).eval() for p in (verifier, verifier / "reference"))
    problem, steps = "What is 3?", ["3 + 1", "but zzzz"]
    head = tokenizer(problem + "\n\n", add_special_tokens=False)["input_ids"]
    pieces = [tokenizer(s, add_special_tokens=False)["input_ids"] + tokenizer("\n\n")["input_ids"] for s in steps]
    ids = torch.tensor([head + pieces[0] + pieces[1]])
    with torch.no_grad():
        each = [
            torch.log_softmax(model(ids).logits[0, :-1], -1).gather(1, ids[0, 1:, None])[:, 0] for model in (policy, reference)
        ]
    ratio = each[0] - each[1]
    cut = len(head) + len(pieces[0]) - 1
    expected = BETA * torch.stack([ratio[len(head) - 1 : cut].sum(), ratio[cut:].sum()])
    raw = load_verifier(verifier).scorer.score([(problem, steps), ("Another, longer problem?", ["x"] * 3)])[0]
    np.testing.assert_allclose(np.log(raw / (1 - raw)), expected.double().numpy(), atol=1e-5)


def test_before_training_every_reward_is_nothing(base: Path) -> None:
    from distill.layouts import make_encoder
    from distill.students.implicit import ImplicitScorer
    from distill.training.causal import open_policy
    from distill.training.network import open_tokenizer

    scorer = ImplicitScorer(
        open_policy(str(base), SETTINGS), open_policy(str(base), SETTINGS),
        make_encoder(open_tokenizer(base), "default", 64), {"beta": BETA},
    )  # fmt: skip
    found = scorer.score([("p", ["a", "b" * 100]), ("q", [])])
    assert found[0][0] == 0.5
    assert np.isnan(found[0][1])  # it does not fit
    assert len(found[1]) == 0


def test_without_step_labels_scores_stay_as_they_are_and_that_is_said(base: Path, tmp_path: Path) -> None:
    said: list[str] = []
    once = replace(SETTINGS, epochs=1, lora="r=2")
    found = distill(
        TrainingSet("toy", rows(8), rows(4), ()), tmp_path / "v", student=Implicit(str(base), once), say=said.append
    )
    assert any("dev has no labelled steps" in line for line in said)
    assert found.info["calibration"]["method"] == "identity"
    assert found.info["decision"]["threshold"] == 0.5
    assert not list((tmp_path / "v").glob("adapter*"))
    p = load_verifier(tmp_path / "v").score("What is 1?", ["1 + 1", "but zzzz"])
    assert all(0 < x < 1 for x in known(p))


@pytest.mark.parametrize("student", ["implicit", "transformer"])
async def test_steps_beyond_the_context_have_no_score_rather_than_nan(student: str, verifier: Path, base: Path) -> None:
    """`load_verifier(...).score()` gave nan for them, which no JSON holds and no comparison notices."""
    found = load_verifier(verifier)
    if student == "transformer":
        from distill.layouts import make_encoder
        from distill.scoring.scorer import scorer_of
        from distill.training.network import open_network, open_tokenizer, plain_model

        model, _ = plain_model(open_network(str(base), SETTINGS))
        encoder = make_encoder(open_tokenizer(base), "default", 512)
        stored = {"heads": 1, "causal": True, "loss": "soft", "max_length": 512}
        found = replace(found, scorer=scorer_of(model.eval(), {}, encoder, stored))
    items = [("p", ["a", "b" * 2000, "c"]), ("p" * 2000, ["a", "b"]), ("p", ["a"])]
    scores = found.score_many(items)
    assert [[p is None for p in one] for one in scores] == [[False, True, True], [True, True], [False]]
    assert found.score(*items[0]) == scores[0]
    json.dumps(scores, allow_nan=False)
    judged = await found.judge([Trajectory("t", problem, tuple(map(Step, steps))) for problem, steps in items])
    assert [[v.step for v in one.verdicts] for one in judged] == [[0], [], [0]]


def test_the_reference_is_a_part_of_the_fingerprint(verifier: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(verifier, copy)
    shutil.copyfile(copy / "model.safetensors", copy / "reference" / "model.safetensors")
    with pytest.raises(InputError, match="damaged or changed"):
        load_verifier(copy)


def test_what_cannot_be_is_said_before_the_first_step(base: Path, tmp_path: Path) -> None:
    def train(settings: TrainingSettings = SETTINGS, data: tuple[Row, ...] = rows(4), place: Path = base) -> Any:
        return distill(TrainingSet("toy", data, data, ()), tmp_path / "v", student=Implicit(str(place), settings))

    with pytest.raises(UsageError, match="implicit student has no --heads, --trusted"):
        train(replace(SETTINGS, heads=4, trusted="x"))
    with pytest.raises(InputError, match="needs outcomes of both kinds"):
        train(data=rows(1))
    with pytest.raises(InputError, match="its tokenizer cannot be opened"):
        train(place=tmp_path)
    encoder = tiny_base(tmp_path / "bert", "bert")
    with pytest.raises(InputError, match="causal language model"):
        train(place=encoder)
    assert not (tmp_path / "v").exists()


def test_the_command_line_names_it(base: Path) -> None:
    assert choose_student(f"implicit:{base}", SETTINGS) == Implicit(str(base), SETTINGS)


def test_outcomes_are_read(tmp_path: Path) -> None:
    from distill.data import read_training_set

    for split in ("train", "dev"):
        lines = [{"prompt": "p", "completions": ["a"], "labels": [None], "outcome": right} for right in (True, False, None)]
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [row.outcome for row in read_training_set(tmp_path).train] == [1.0, 0.0, None]
    with pytest.raises(InputError, match="the linear student needs both"):
        distill(tmp_path, tmp_path / "v")
    (tmp_path / "dev.jsonl").write_text('{"prompt": "p", "completions": ["a"], "labels": [null], "outcome": 0.5}\n')
    with pytest.raises(InputError, match=r"\"outcome\" is '0\.5'"):
        read_training_set(tmp_path)
