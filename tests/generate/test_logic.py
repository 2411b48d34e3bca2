"""The logic family, read back from its words and decided by truth tables of the test's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from critic_prm.generate.families._common import PREDICATES
from critic_prm.generate.families.logic import ATOMS
from tests.families import trajectories_of, unnumbered

SENTENCES = {text: (pair[0], text == pair[0]) for pair in (*ATOMS, *PREDICATES) for text in pair}
SYMBOL = re.compile(r"(?<![A-Za-z])¬?[A-Z](?![A-Za-z])")
Literal = tuple[str, bool]
Formula = tuple[str, list[Literal]]


def literals(text: str) -> list[Literal]:
    """The literals of a text in their order: sentences, or single capital letters."""
    lowered = text[:1].lower() + text[1:]
    found = [
        (m.start(), SENTENCES[m.group()]) for m in re.finditer("|".join(sorted(SENTENCES, key=len, reverse=True)), lowered)
    ]
    found += [(m.start(), (m.group().lstrip("¬"), m.group()[0] != "¬")) for m in SYMBOL.finditer(text)]
    return [literal for _, literal in sorted(found)]


def formula(text: str) -> Formula:
    """A premise. What is said of everyone holds of the one person there is talk of."""
    if text.startswith("No one who "):
        *before, (atom, true) = literals(text)
        return "if", [*before, (atom, not true)]
    conditional = "→" in text or text.startswith(("If ", "Everyone who "))
    return "if" if conditional else "or" if "∨" in text or ", or " in text else "fact", literals(text)


@cache
def column(index: int, count: int) -> int:
    """The rows of a truth table of `count` atoms in which atom `index` is true, as the bits of a number."""
    block = "0" * (1 << index) + "1" * (1 << index)
    return int(block * (1 << (count - index - 1)), 2)


def rows(wanted: Formula, order: Mapping[str, int]) -> int:
    every = (1 << (1 << len(order))) - 1
    kind, parts = wanted
    *before, last = [column(order[a], len(order)) ^ (0 if true else every) for a, true in parts]
    if kind == "fact":
        return last
    if kind == "or":
        return before[0] | last
    antecedent = every
    for part in before:
        antecedent &= part
    return (every ^ antecedent) | last


def entails(premises: list[Formula], goal: Literal) -> bool:
    order = {atom: i for i, atom in enumerate(sorted({a for _, parts in premises for a, _ in parts} | {goal[0]}))}
    models = (1 << (1 << len(order))) - 1
    for premise in premises:
        models &= rows(premise, order)
    return not models & ~rows(("fact", [goal]), order)


def test_every_label_is_confirmed_by_truth_tables() -> None:
    for t in trajectories_of("logic"):
        _, *lines, question = t.problem.split("\n")
        premises = [formula(line.split(") ", 1)[1]) for line in lines]
        (goal,) = literals(re.sub(r"^.* that ", "", question))
        assert not entails(premises, (goal[0], not goal[1])) or not entails(premises, goal), "premises without a contradiction"
        assert ("yes" if entails(premises, goal) else "no") == t.gold_answer
        known = [parts[0] for kind, parts in premises if kind == "fact"]
        first = -1
        *derivation, verdict = [unnumbered(text) for text in t.texts]
        for index, text in enumerate(derivation):
            number = re.search(r"\((\d+)\)", text)
            assert number is not None
            *have, new = literals(re.sub(r"^(Since|By|Premise|We know that) ", "", text))
            sound = set(have) <= set(known) and entails(
                [premises[int(number.group(1)) - 1], *(("fact", [h]) for h in have)], new
            )
            if first == -1:
                assert sound == entails(premises, new), "an unsound step never hits on the truth"
                first = -1 if sound else index
            else:
                assert sound, "after the error the derivation goes on soundly"
            known.append(new)
        says_yes = "not follow" not in verdict
        assert (t.final_answer == "yes") == says_yes
        if first == -1 and says_yes != entails(premises, goal):
            first = len(derivation)
        if "opposite" in verdict or "false" in verdict:
            assert first != -1 or entails(premises, (goal[0], not goal[1]))
        assert first == t.label, (t.problem, t.texts)


def test_the_words_are_read_as_they_are_meant() -> None:
    assert formula("If the dog barks and the road is wet, then the pump does not run.") == (
        "if",
        [("the dog barks", True), ("the road is wet", True), ("the pump runs", False)],
    )
    assert formula("¬K ∨ B") == ("or", [("K", False), ("B", True)])
    a, b = ("A", True), ("B", True)
    assert entails([("if", [a, b]), ("fact", [a])], b)
    assert not entails([("if", [a, b]), ("fact", [b])], a)
    assert entails([("or", [a, b]), ("fact", [("A", False)])], b)
