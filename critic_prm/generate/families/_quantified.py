"""Statements with quantifiers and relations, and finite models that refute a conclusion from premises."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

ANYONE = -1
"""The predicate that is true of everyone: "everyone" instead of "everyone who plays chess"."""
STRANGER = 1000
"""An individual that no premise mentions."""
FIRST_UNNAMED = 2000


class Statement(NamedTuple):
    """One statement. `words` holds the numbers of predicates P, Q and relations R, S, T; `who` holds individuals. By kind:

    fact: P(a). rel: R(a,b). all: every P is Q. both: everyone who is the first two is the third. some: some P is Q. each: each
    P has some Q it is related to (P, R, Q). one: there is a Q to which each P is related (P, R, Q). has: a is related to some Q
    (R, Q). toward: each P is related to a (P, R). from: a is related to each P (P, R). turn: R(x,y) implies S(y,x). along:
    R(x,y) implies S(x,y). subject: R(x,y) implies P(x) (R, P). object: R(x,y) implies P(y) (R, P). chain: R(x,y) and S(y,z)
    imply T(x,z).

    `true` is False if the last predicate, or the fact, is negated; only fact, rel, all, both and some can be.
    """

    kind: str
    words: tuple[int, ...]
    who: tuple[int, ...] = ()
    true: bool = True

    def __invert__(self) -> Statement:
        return self._replace(true=not self.true)


def fact(predicate: int, who: int, true: bool = True) -> Statement:
    """Build the statement P(who), or its negation."""
    return Statement("fact", (predicate,), (who,), true)


def rel(relation: int, a: int, b: int, *, true: bool = True) -> Statement:
    """Build the statement R(a, b), or its negation."""
    return Statement("rel", (relation,), (a, b), true)


@dataclass(slots=True)
class Model:
    """A finite model: individuals, the extension of each predicate, and the pairs of each relation."""

    people: set[int] = field(default_factory=set)
    has: defaultdict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    pairs: defaultdict[int, set[tuple[int, int]]] = field(default_factory=lambda: defaultdict(set))

    def holds(self, s: Statement) -> bool:
        """Return whether the statement is true in this model."""
        words, who = s.words, s.who
        match s.kind:
            case "fact":
                return (who[0] in self.has[words[0]]) == s.true
            case "rel":
                return ((who[0], who[1]) in self.pairs[words[0]]) == s.true
            case "all" | "both":
                some = set.intersection(*(self.has[word] for word in words[:-1]))
                return some <= self.has[words[-1]] if s.true else not some & self.has[words[-1]]
            case "some":
                return bool(self.has[words[0]] & self.has[words[1]] if s.true else self.has[words[0]] - self.has[words[1]])
            case "each":
                return all(self._meets(x, words[1], words[2]) for x in self.has[words[0]])
            case "one":
                return any(all((x, y) in self.pairs[words[1]] for x in self.has[words[0]]) for y in self.has[words[2]])
            case "has":
                return self._meets(who[0], words[0], words[1])
            case "toward":
                return all((x, who[0]) in self.pairs[words[1]] for x in self.has[words[0]])
            case "from":
                return all((who[0], x) in self.pairs[words[1]] for x in self.has[words[0]])
            case "turn":
                return {(y, x) for x, y in self.pairs[words[0]]} <= self.pairs[words[1]]
            case "along":
                return self.pairs[words[0]] <= self.pairs[words[1]]
            case "subject":
                return {x for x, _ in self.pairs[words[0]]} <= self.has[words[1]]
            case "object":
                return {y for _, y in self.pairs[words[0]]} <= self.has[words[1]]
            case _:
                return self._joined(words[0], words[1]) <= self.pairs[words[2]]

    def _meets(self, x: int, relation: int, predicate: int) -> bool:
        return any(y in self.has[predicate] for a, y in self.pairs[relation] if a == x)

    def _joined(self, first: int, second: int) -> set[tuple[int, int]]:
        return {(x, z) for x, y in self.pairs[first] for y2, z in self.pairs[second] if y == y2}

    def meet(self, *who: int) -> None:
        """Add individuals."""
        self.people.update(who)
        self.has[ANYONE].update(who)

    def add(self, s: Statement, number: int) -> None:
        """Add what the statement requires of the individuals in the model. `number` keeps its unnamed individuals distinct."""
        words, who, unnamed = s.words, s.who, FIRST_UNNAMED + 100 * number
        match s.kind:
            case "fact" if s.true:
                self.has[words[0]].add(who[0])
            case "rel" if s.true:
                self.pairs[words[0]].add((who[0], who[1]))
            case "all" | "both" if s.true:
                self.has[words[-1]] |= set.intersection(*(self.has[word] for word in words[:-1]))
            case "some":
                self.meet(unnamed)
                self.has[words[0]].add(unnamed)
                if s.true:
                    self.has[words[1]].add(unnamed)
            case "each":
                for x in [x for x in self.has[words[0]] if not self._meets(x, words[1], words[2])]:
                    # unnamed individuals share one partner; otherwise the chase would not end
                    y = unnamed + 1 + (x if x < 50 else 50 if x == STRANGER else 51)
                    self.meet(y)
                    self.has[words[2]].add(y)
                    self.pairs[words[1]].add((x, y))
            case "one":
                self.meet(unnamed)
                self.has[words[2]].add(unnamed)
                self.pairs[words[1]] |= {(x, unnamed) for x in self.has[words[0]]}
            case "has" if not self.holds(s):
                self.meet(unnamed)
                self.has[words[1]].add(unnamed)
                self.pairs[words[0]].add((who[0], unnamed))
            case "toward":
                self.pairs[words[1]] |= {(x, who[0]) for x in self.has[words[0]]}
            case "from":
                self.pairs[words[1]] |= {(who[0], x) for x in self.has[words[0]]}
            case "turn":
                self.pairs[words[1]] |= {(y, x) for x, y in self.pairs[words[0]]}
            case "along":
                self.pairs[words[1]] |= self.pairs[words[0]]
            case "subject":
                self.has[words[1]] |= {x for x, _ in self.pairs[words[0]]}
            case "object":
                self.has[words[1]] |= {y for _, y in self.pairs[words[0]]}
            case "chain":
                self.pairs[words[2]] |= self._joined(words[0], words[1])

    def size(self) -> int:
        """Return the total size of all predicates and relations."""
        return sum(map(len, self.has.values())) + sum(map(len, self.pairs.values()))


def least_model(premises: Sequence[Statement], people: Sequence[int] = ()) -> Model | None:
    """Return the minimal model of the premises, built by the chase; None if the premises contradict each other.

    `people` are individuals to include besides those that the premises name.
    """
    model = Model()
    model.meet(*{who for s in premises for who in s.who}, *people, STRANGER)
    before = -1
    while before != (before := model.size()):
        for number, s in enumerate(premises):
            model.add(s, number)
    return model if all(map(model.holds, premises)) else None


def against(s: Statement) -> tuple[Statement, ...]:
    """Return premises to add so that the statement fails, if it can."""
    match s.kind:
        case "fact" | "rel":
            return () if s.true else (~s,)
        case "all" | "both":
            said = [fact(word, STRANGER) for word in s.words[:-1]]
            return (*said,) if s.true else (*said, fact(s.words[-1], STRANGER))
        case "some":
            return () if s.true else (Statement("all", s.words),)
        case "each" | "one" | "toward" | "from":
            return (fact(s.words[0], STRANGER),)
        case _:
            return ()


def fails(premises: Sequence[Statement], s: Statement) -> bool:
    """Return whether a model satisfies the premises but not the statement, which proves that the statement does not follow."""
    model = least_model((*premises, *against(s)), s.who)
    return model is not None and not model.holds(s)
