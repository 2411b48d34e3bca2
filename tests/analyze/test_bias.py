"""Biases: each planted one is caught, and scores that depend on correctness alone have none."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from critic_prm.data.label_rows import LabelledTrajectory
from critic_prm.errors import InputError
from critic_prm.evaluate.analyze.bias import NUMBERS, bias, family_of
from critic_prm.evaluate.settings import BiasSettings
from tests.analyze.conftest import row

WORDS = ["we", "add", "and", "obtain", "the", "value", "of", "this", "clearly", "perhaps", "**so**", "$x$"]


def rows(
    score: Callable[[random.Random, float, int, int, str], float], count: int = 150, gold: bool = True
) -> list[LabelledTrajectory]:
    """Solutions whose steps score by correctness, place, number of steps and text. Later steps are wrong more often, and wrong
    steps score lower: without looking at equals, place would seem to matter."""
    rng = random.Random(0)
    out = []
    for i in range(count):
        n = rng.randrange(3, 9)
        wrong = rng.choice([-1, -1, n - 1, n - 2])
        texts = [" ".join(rng.choices(WORDS, k=rng.randrange(4, 30))) for _ in range(n)]
        scores = [score(rng, 0.7 if place != wrong else 0.3, place, n, text) for place, text in enumerate(texts)]
        out.append(row(f"s{i}", [min(max(s, 0.0), 1.0) for s in scores], steps=texts, label=wrong if gold else None))
    return out


def noise(rng: random.Random) -> float:
    return rng.gauss(0, 0.08)


def test_scores_that_go_with_correctness_alone_pass() -> None:
    found = bias(rows(lambda rng, truth, place, n, text: truth + noise(rng)))
    assert found.findings == ()
    assert found.numbers.keys() == NUMBERS.keys()
    assert found.numbers["biases"] == 0
    assert abs(found.numbers["position"] or 0) < 0.1
    assert found.numbers["self_preference"] is None
    assert not any("no gold label" in note for note in found.notes)


@pytest.mark.parametrize(
    ("score", "number", "words"),
    [
        (
            lambda rng, truth, place, n, text: truth - 0.03 * place + noise(rng),
            "position",
            "the later a step, the lower its score",
        ),
        (
            lambda rng, truth, place, n, text: truth + 0.001 * len(text) + noise(rng),
            "verbosity",
            "the longer a step, the higher its score",
        ),
        (
            lambda rng, truth, place, n, text: truth - 0.03 * n + noise(rng),
            "length",
            "the more steps a solution has, the lower its score",
        ),
        (
            lambda rng, truth, place, n, text: truth + 0.1 * ("clearly" in text) + noise(rng),
            "style_worst",
            "where a step's style is 'sure of itself', the higher its score",
        ),
        (
            lambda rng, truth, place, n, text: truth - 0.1 * ("**" in text) + noise(rng),
            "style_worst",
            "where a step's style is 'markdown', the lower its score",
        ),
    ],
    ids=["position", "verbosity", "length", "sure", "markdown"],
)
def test_a_planted_bias_is_caught(score: Callable[..., float], number: str, words: str) -> None:
    found = bias(rows(score))
    assert any(finding.startswith(words) for finding in found.findings)
    assert abs(found.numbers[number] or 0) > 0.2


def test_a_correlation_that_moves_scores_by_next_to_nothing_is_none_to_speak_of() -> None:
    found = bias(rows(lambda rng, truth, place, n, text: truth - 1e-4 * place + 1e-5 * rng.random()))
    assert (found.numbers["position"] or 0) < -0.9
    assert found.findings == ()


def test_without_gold_a_note_says_that_it_may_be_merit() -> None:
    found = bias(rows(lambda rng, truth, place, n, text: truth + noise(rng), gold=False))
    assert any("150 of 150 solutions have no gold label" in note for note in found.notes)
    assert (found.numbers["position"] or 0) < -0.1  # later steps are wrong more often here


def judged(preference: float, lenient: float = 0.0, count: int = 60) -> list[LabelledTrajectory]:
    """Solutions by two families, judged by two judges: each gives its own `preference` more, one is `lenient`, and one family
    writes better solutions."""
    rng = random.Random(1)
    out = []
    for i in range(count):
        writer = ("openai/gpt-5.4-mini", "Qwen/Qwen3-8B")[i % 2]
        truth = 0.6 if writer.startswith("Qwen") else 0.5
        for judge in ("gpt-5.4", "vllm/Qwen3-32B"):
            own = family_of(judge) == family_of(writer)
            score = truth + preference * own + lenient * ("gpt" in judge) + rng.gauss(0, 0.05)
            out.append(row(f"s{i}", [score], judge=judge, generator=writer))
    return out


def test_self_preference_is_measured_and_named() -> None:
    found = bias(judged(0.2))
    assert found.numbers["self_preference"] == pytest.approx(0.2, abs=0.03)
    assert any("judges score their own family's solutions +0.2" in finding for finding in found.findings)


def test_leniency_and_better_writers_are_no_self_preference() -> None:
    found = bias(judged(0.0, lenient=0.2))
    assert found.numbers["self_preference"] == pytest.approx(0, abs=0.03)
    assert found.findings == ()


def test_who_wrote_a_solution_may_stand_under_another_name() -> None:
    assert bias(judged(0.2), BiasSettings(author="nobody")).numbers["self_preference"] is None


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("openai/gpt-5.4-mini", "gpt"),
        ("o3-mini", "gpt"),
        ("Qwen/Qwen3-8B", "qwen"),
        ("claude-haiku-5-5", "claude"),
        ("meta-llama/Llama-3.1-70B", "llama"),
        ("7b-model", "7b-model"),
    ],
)
def test_families(model: str, family: str) -> None:
    assert family_of(model) == family


def test_nothing_to_look_at() -> None:
    with pytest.raises(InputError, match="no usable judgement"):
        bias([row("a", None)])
