"""Labels confirmed by z3 and networkx, and what the checkers say of derivations written by hand."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.errors import ConfigError, CriticPrmError, InputError, UsageError
from critic_prm.generate.checks import first_order, graphs, logic
from critic_prm.generate.checks.logic import entails, satisfiable
from critic_prm.generate.family import Finding, checked_families, confirm, generate_family
from tests.command import invoke
from tests.families import COUNT, trajectories_of

pytest.importorskip("z3", reason="z3-solver is not installed: pip install 'critic-prm[formal]'")
pytest.importorskip("networkx", reason="networkx is not installed: pip install 'critic-prm[formal]'")


@pytest.mark.parametrize("name", ["first-order", "graphs", "logic"])
def test_every_label_is_confirmed_by_a_solver(name: str) -> None:
    trajectories = trajectories_of(name, max(COUNT // 4, 100) if COUNT < 10_000 else COUNT)
    assert list(confirm(name, trajectories)) == trajectories
    assert name in checked_families()


@pytest.mark.parametrize("name", ["first-order", "graphs", "logic"])
def test_a_label_moved_by_one_step_is_contradicted(name: str) -> None:
    for t in generate_family(name, 60, seed=9):
        assert t.label is not None
        moved = replace(t, label=t.label + 1 if t.label < len(t.steps) - 1 else -1)
        with pytest.raises(CriticPrmError, match=f"{t.id} has the label {moved.label}, the solver says {t.label}"):
            list(confirm(name, [moved]))


A, B, NOT_A, A_THEN_B, A_AND_B, A_OR_B = "A", "B", "¬A", "A → B", "A ∧ B", "A ∨ B"


@pytest.mark.parametrize(
    ("assumptions", "conclusion", "follows"),
    [
        ([A, A_THEN_B], B, True),
        ([A_THEN_B, B], A, False),
        ([A_AND_B], A, True),
        ([A_OR_B, NOT_A], B, True),
        ([A], A_OR_B, True),
        ([], A, False),
        ([A, NOT_A], B, True),
    ],
)
def test_entailment_of_known_cases(assumptions: list[str], conclusion: str, follows: bool) -> None:
    z3 = logic.z3()
    a, b = z3.Bools("A B")
    formulas = {A: a, B: b, NOT_A: z3.Not(a), A_THEN_B: z3.Implies(a, b), A_AND_B: z3.And(a, b), A_OR_B: z3.Or(a, b)}
    given = [formulas[text] for text in assumptions]
    assert entails(given, formulas[conclusion]) is follows
    assert satisfiable(given) is (assumptions != [A, NOT_A])


def test_entailment_agrees_with_truth_tables() -> None:
    z3, rng = logic.z3(), Random(3)
    atoms = z3.Bools("A B C D E")

    def formula(depth: int) -> tuple[Any, Callable[[tuple[bool, ...]], bool]]:
        if not depth:
            i = rng.randrange(len(atoms))
            return atoms[i], lambda row: row[i]
        (f, left), (g, right) = formula(depth - 1), formula(rng.randrange(depth))
        return rng.choice(
            [
                (z3.And(f, g), lambda row: left(row) and right(row)),
                (z3.Or(f, g), lambda row: left(row) or right(row)),
                (z3.Implies(f, g), lambda row: not left(row) or right(row)),
                (z3.Not(f), lambda row: not left(row)),
            ]
        )

    seen = set()
    for _ in range(150):
        given, (goal, true) = [formula(2) for _ in range(3)], formula(2)
        rows = [row for row in product((False, True), repeat=len(atoms)) if all(holds(row) for _, holds in given)]
        follows = all(true(row) for row in rows)
        assert entails([f for f, _ in given], goal) is follows
        seen.add((follows, bool(rows)))
    assert {(True, True), (False, True)} <= seen


def test_a_solver_that_gives_up_makes_no_label(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not known is neither right nor wrong."""
    made = list(generate_family("first-order", 5, seed=1))
    monkeypatch.setattr(first_order, "entails", lambda given, goal: entails(given, goal, effort=1))
    found = list(confirm("first-order", made))
    assert [t.label for t in found] == [None] * 5
    assert all("the solver gave up on" in t.meta["undecided"] for t in found)


def derivation(*lines: str, ask: str = "Does it follow that Ada plays chess?", given: str = "Given:") -> Trajectory:
    """Premises up to the empty line, then steps."""
    at = lines.index("")
    problem = "\n".join([given, *(f"({n}) {line}" for n, line in enumerate(lines[:at], 1)), ask])
    return Trajectory("by-hand", problem, tuple(Step(text) for text in lines[at + 1 :]))


def test_premises_that_contradict_each_other_are_flagged() -> None:
    t = derivation("Ada can swim.", "Ada cannot swim.", "", "From (1): Ada plays chess.", "So the statement follows.")
    assert first_order.examine(t) == Finding(None, "the premises contradict each other")
    t = derivation("A", "¬A", "", "By (1), since A: B.", "So the statement follows.", ask="Does it follow that B?")
    assert logic.examine(t) == Finding(None, "the premises contradict each other")


EVERY = "Everyone trusts at least one person."
ONE = "There is one and the same person whom everyone trusts."
WHOM = "there is one and the same person whom everyone trusts"
TURN = "If X trusts Y, then Y pays X, whoever X and Y are."
MIDDLE = "From (1) and (2): whoever paints sings in the choir."
YES = "So the statement follows."
END = "Nothing of this gives the statement, so it does not follow."


@pytest.mark.parametrize(
    ("lines", "first_error"),
    [
        ([EVERY, "", "From (1): Bruno trusts someone.", END], -1),
        ([EVERY, "", f"From (1): {WHOM}.", END], 0),
        ([ONE, "", "From (1): everyone trusts someone or other.", END], -1),
        # a new name for one who is said to exist, then the same name once more
        ([EVERY, "", "From (1): Bruno trusts someone.", "By (2), let Kim be such a person: Bruno trusts Kim.", END], -1),
        ([EVERY, "", "From (1): Bruno trusts someone.", "By (2), let Bruno be such a person: Bruno trusts Bruno.", END], 1),
        (["Someone who can swim paints.", "Someone who is a member paints.", "",
          "By (1), let Kim be such a person: Kim can swim and Kim paints.",
          "By (2), let Kim be such a person: Kim is a member and Kim paints.", END], 1),
        (["Whoever paints can swim.", "Ada can swim.", "", "From (2) and (1): Ada paints.", END], 0),
        (["Whoever paints can swim.", "Ada cannot swim.", "", "From (2) and (1): Ada does not paint.", END], -1),
        (["Whoever paints can swim.", "Ada does not paint.", "", "From (2) and (1): Ada cannot swim.", END], 0),
        (["No one who paints can swim.", "Ada can swim.", "", "From (2) and (1): Ada does not paint.", END], -1),
        (["Whoever paints can swim.", "Whoever pays anyone can swim.", "", "From (1) and (2): Ada can swim.", END], 0),
        (["Whoever sings in the choir can swim.", "Whoever paints can swim.", "", MIDDLE, END], 0),
        ([TURN, "Ada trusts Bela.", "", "From (2) and (1): Bela pays Ada.", END], -1),
        ([TURN, "Ada trusts Bela.", "", "From (2) and (1): Ada pays Bela.", END], 0),
        # a premise that is there, and not cited
        (["Whoever paints can swim.", "Ada paints.", "", "From (1): Ada can swim.", END], 0),
        # a restated fact that nobody has stated
        (["Whoever paints can swim.", "Ada paints.", "", "By (1), since Bela paints: Bela can swim.", END], 0),
        (["Whoever paints plays chess.", "Ada paints.", "", "From (1) and (2): Ada plays chess.", END], 1),
        (["Whoever paints plays chess.", "Ada paints.", "", "From (1) and (2): Ada plays chess.", YES], -1),
    ],
)  # fmt: skip
def test_derivations_by_hand(lines: list[str], first_error: int) -> None:
    premises, steps = lines[: lines.index("")], lines[lines.index("") + 1 :]
    numbered = [f"({n}) {text}" for n, text in enumerate(steps, len(premises) + 1)]
    assert first_order.examine(derivation(*premises, "", *numbered)) == Finding(first_error)


def test_words_that_cannot_be_read_are_told() -> None:
    with pytest.raises(InputError, match="'Everybody dances' is not a statement"):
        first_order.examine(derivation("Everybody dances.", "", "So the statement follows."))
    with pytest.raises(InputError, match="cites no premise by its number"):
        logic.examine(derivation("A", "", "A.", "So it follows.", ask="Does it follow that A?"))
    with pytest.raises(InputError, match="is not a question that this checker can read"):
        graphs.examine(Trajectory("x", "A graph. How many edges?", (Step("Three."),)))


def test_what_cannot_be_checked_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        UsageError, match="no solver checks the family 'sorting'; those it can check are: first-order, graphs, logic"
    ):
        confirm("sorting", [])
    logic.z3.cache_clear()
    monkeypatch.setitem(sys.modules, "z3", None)
    monkeypatch.setitem(sys.modules, "networkx", None)
    for name in ("graphs", "logic"):
        with pytest.raises(ConfigError, match=r"pip install .networkx.* .z3-solver"):
            list(confirm(name, generate_family(name, 1)))


@pytest.fixture(autouse=True)
def _solver_found_again() -> Iterator[None]:
    yield
    logic.z3.cache_clear()


def test_the_command_checks(tmp_path: Path) -> None:
    out = tmp_path / "made.jsonl"
    result = invoke("generate", "first-order", "-n", 20, "-o", out, "--check", catch=True)
    assert result.exit_code == 0, result.output
    assert "with a planted error; a solver confirmed their labels, and left 0 undecided" in result.stderr
    assert len([json.loads(line) for line in out.read_text().splitlines()]) == 20
    refused = invoke("generate", "sorting", "-n", 1, "--check", catch=True)
    assert isinstance(refused.exception, UsageError)
