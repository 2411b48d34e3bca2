"""The first-order family without a solver: countermodels, and wrong turns that look as their kind says."""

from __future__ import annotations

import re

import pytest

from critic_prm.generate.families._statements import (
    ANYONE,
    Statement,
    fact,
    fails,
    least_model,
    mistakes,
    moves,
    rel,
)
from critic_prm.generate.family import generate_family

P, Q, R, S = 0, 1, 0, 1
EACH, ONE = Statement("each", (ANYONE, R, ANYONE)), Statement("one", (ANYONE, R, ANYONE))
ALL = Statement("all", (P, Q))


@pytest.mark.parametrize(
    ("premises", "conclusion"),
    [
        ([EACH], ONE),
        ([ALL], Statement("all", (Q, P))),
        ([ALL, fact(Q, 0)], fact(P, 0)),
        ([ALL, fact(P, 0, False)], fact(Q, 0, False)),
        ([Statement("some", (P, Q))], ALL),
        ([Statement("some", (P, Q), (), False)], Statement("all", (P, Q), (), False)),
        ([Statement("has", (R, P), (0,)), fact(P, 1)], rel(R, 0, 1)),
        ([Statement("turn", (R, S)), rel(R, 0, 1)], rel(S, 0, 1)),
        ([Statement("along", (R, S)), rel(R, 0, 1, true=False)], rel(S, 0, 1, true=False)),
        ([Statement("chain", (R, R, R)), rel(R, 0, 1), rel(R, 2, 0)], rel(R, 1, 2)),
        ([Statement("subject", (R, P)), rel(R, 0, 1)], fact(P, 1)),
    ],
)
def test_what_does_not_follow_fails_in_some_model(premises: list[Statement], conclusion: Statement) -> None:
    assert fails(premises, conclusion)


@pytest.mark.parametrize(
    ("premises", "conclusion"),
    [
        ([ONE], EACH),
        ([ALL, fact(P, 0)], fact(Q, 0)),
        ([ALL, fact(Q, 0, False)], fact(P, 0, False)),
        ([Statement("all", (P, Q), (), False)], Statement("all", (Q, P), (), False)),
        ([EACH, Statement("subject", (R, P))], fact(P, 0)),
        ([Statement("object", (R, P)), rel(R, 0, 1)], fact(P, 1)),
        ([Statement("chain", (R, S, R)), rel(R, 0, 1), rel(S, 1, 2)], rel(R, 0, 2)),
        ([Statement("from", (P, R), (0,)), ALL, fact(P, 1)], rel(R, 0, 1)),
    ],
)
def test_what_follows_fails_in_none(premises: list[Statement], conclusion: Statement) -> None:
    assert not fails(premises, conclusion)


def test_premises_that_contradict_each_other_have_no_model() -> None:
    assert least_model([ALL, fact(P, 0), fact(Q, 0, False)]) is None
    assert least_model([EACH, Statement("turn", (R, R)), ALL, Statement("some", (P, Q))]) is not None


def test_sound_inferences_never_fail_and_are_no_mistakes() -> None:
    general = [EACH, ALL, Statement("some", (P, 2)), Statement("along", (R, S)), Statement("toward", (Q, S), (1,))]
    known = [*general, fact(P, 0), rel(R, 0, 1)]
    found = moves(known, (0, 1), 2)
    assert len(found) > 6
    for move in found:
        if move.named is None:
            assert not any(fails(move.cites, new) for new in move.new), move
    sound = {new for move in found if move.named is None for new in move.new}
    kinds = {kind for kind, _ in mistakes(known, (0, 1))}
    assert {"swap", "witness", "direction", "overreach", "conversion"} <= kinds
    assert not sound & {move.new[0] for kind, move in mistakes(known, (0, 1)) if kind in ("swap", "overreach", "conversion")}


LOOKS = {
    "swap": r"there is (one and the same|a particular) person.* whom everyone",
    "witness": r"such a person",
    "overreach": r"(everyone|whoever|no one who|if someone)",
    "conversion": r"(everyone who|whoever|if someone)",
    "verdict": r"follow",
}


@pytest.mark.parametrize("kind", LOOKS)
def test_wrong_steps_look_as_their_kind_says(kind: str) -> None:
    for t in generate_family("first-order", 60, seed=4, wrong=1, kinds={kind: 1}):
        assert t.label is not None
        step = t.texts[t.label]
        assert re.search(LOOKS[kind], step), step
        if kind == "witness":
            (name,) = re.findall(r"(?:let|say) ([A-Z][a-z]+)", step)
            assert name in " ".join([t.problem, *t.texts[: t.label]]), "the name is taken"


def test_sound_steps_give_new_names_alone() -> None:
    named = 0
    for t in generate_family("first-order", 400, seed=5, wrong=0):
        spoken = t.problem
        for step in t.texts:
            for name in re.findall(r"(?:let|say) ([A-Z][a-z]+)", step):
                named += 1
                assert name not in re.findall(r"[A-Z][a-z]+", spoken)
            spoken += step
    assert named > 20
