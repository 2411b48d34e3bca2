"""Statements with quantifiers and relations: models that refute them, sound inferences and unsound ones."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
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


BINARY = {"rel": (0,), "each": (1,), "one": (1,), "has": (0,), "toward": (1,), "from": (1,), "turn": (0, 1), "along": (0, 1),
          "subject": (0,), "object": (0,), "chain": (0, 1, 2)}  # fmt: skip
"""Positions of relations among the words of a statement, by kind."""
GENERAL = ("each", "one", "toward", "from")
"""Kinds of statements about all individuals that satisfy their first word."""


class Move(NamedTuple):
    """Conclusions drawn from cited statements. `named` is the individual that gets its name in this move, if any."""

    cites: tuple[Statement, ...]
    new: tuple[Statement, ...]
    named: int | None = None


def witness(s: Statement, who: int) -> tuple[Statement, ...]:
    """Return what holds for a named witness of an existential statement."""
    if s.kind == "has":
        said = [rel(s.words[0], s.who[0], who), fact(s.words[1], who)]
    elif s.kind == "one":
        said = [Statement("toward", s.words[:2], (who,)), fact(s.words[2], who)]
    else:
        said = [fact(s.words[0], who), fact(s.words[1], who, s.true)]
    return tuple(one for one in said if one.words[0] != ANYONE or one.kind == "toward")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of rules.toml. Indices refer to the words and individuals of the cited statements, one after the other, and
    `ANYONE`."""

    cites: tuple[str, ...]
    """The kinds of the cited statements, with ~ if they are negated."""
    equal: tuple[tuple[int, int], ...]
    differ: tuple[tuple[int, int], ...]
    """Pairs of indices whose values are equal, or differ."""
    new: str
    """The kind of the conclusion, with ~ if it is negated."""
    words: tuple[int, ...]
    who: tuple[int, ...]
    """Indices of the words and individuals of the conclusion."""

    def conclude(self, *cited: Statement) -> Statement | None:
        """What follows from statements of the right kinds; None if they do not fit together."""
        values = [number for s in cited for numbers in (s.words, s.who) for number in numbers]
        values.append(ANYONE)
        for one, other in self.equal:
            if values[one] != values[other]:
                return None
        for one, other in self.differ:
            if values[one] == values[other]:
                return None
        words, who = tuple([values[i] for i in self.words]), tuple([values[i] for i in self.who])
        return Statement(self.new.removeprefix("~"), words, who, self.new[0] != "~")


def _rule(line: str) -> Rule:
    """Parse "fact Q a; all P Q => fact P a if P != Q"."""
    cited, _, rest = line.partition(" => ")
    conclusion, _, conditions = rest.partition(" if ")
    patterns = [pattern.split() for pattern in cited.split("; ")]
    letters = [*(letter for _, *letters in patterns for letter in letters), "*"]
    new, *used = conclusion.split()
    unlike = (condition.split(" != ") for condition in conditions.split(" and ") if condition)
    return Rule(
        tuple(kind for kind, *_ in patterns),
        tuple((letters.index(letter), i) for i, letter in enumerate(letters) if letters.index(letter) < i),
        tuple((letters.index(one), letters.index(other)) for one, others in unlike for other in others.split()),
        new,
        tuple(letters.index(letter) for letter in used if not letter.islower()),
        tuple(letters.index(letter) for letter in used if letter.islower()),
    )


Rules = Mapping[tuple[str, ...], Sequence[tuple[str, Rule]]]
"""Rules by the kinds of the statements that they cite, each with the kind of error that it is."""


def _by_kinds(sections: Mapping[str, str]) -> Rules:
    found: dict[tuple[str, ...], list[tuple[str, Rule]]] = {}
    for error, lines in sections.items():
        for rule in map(_rule, lines.strip().split("\n")):
            found.setdefault(rule.cites, []).append((error, rule))
    return found


_RULES = tomllib.loads(Path(__file__).with_name("rules.toml").read_text("utf-8"))
SOUND, UNSOUND = _by_kinds({"": _RULES["sound"]}), _by_kinds(_RULES["unsound"])


def _conclusions(rules: Rules, known: Sequence[Statement], count: int) -> Iterator[tuple[str, Move]]:
    """What rules conclude from `count` of the known statements, with the kind of error."""
    kinds = [s.kind if s.true else f"~{s.kind}" for s in known]
    for cited, names in zip(permutations(known, count), permutations(kinds, count), strict=True):
        for error, rule in rules.get(names, ()):
            if (new := rule.conclude(*cited)) is not None:
                yield error, Move(cited, (new,))


def _from_general(s: Statement, people: Sequence[int]) -> Iterator[Statement]:
    """Yield what follows for these people from a statement about everyone."""
    for who in people if s.words[0] == ANYONE else ():
        if s.kind == "each":
            yield Statement("has", s.words[1:], (who,))
        elif s.kind == "toward":
            yield rel(s.words[1], who, s.who[0])
        elif s.kind == "from":
            yield rel(s.words[1], s.who[0], who)


def from_three(known: Sequence[Statement], rule: Statement) -> Iterator[tuple[Statement, Statement, Statement]]:
    """Yield two statements that satisfy the conditions of a two-condition rule, and what the rule then gives."""
    if rule.kind == "both":
        one, other = ([s for s in known if s.kind == "fact" and s.true and s.words[0] == word] for word in rule.words[:2])
        for s in one:
            for t in other:
                if s.who == t.who:
                    yield s, t, fact(rule.words[2], s.who[0], rule.true)
    elif rule.kind == "chain":
        one, other = ([s for s in known if s.kind == "rel" and s.true and s.words[0] == word] for word in rule.words[:2])
        for s in one:
            for t in other:
                if s.who[1] == t.who[0]:
                    yield s, t, rel(rule.words[2], s.who[0], t.who[1])


def moves(known: Sequence[Statement], people: Sequence[int], stranger: int) -> list[Move]:
    """Return all sound inferences of something new. `stranger` is the name that an unnamed individual may get."""
    found = []
    for s in known:
        found += [move for _, move in _conclusions(SOUND, [s], 1)]
        found += [Move((s,), (new,)) for new in _from_general(s, people)]
        if s.kind in ("some", "has", "one"):
            found.append(Move((s,), witness(s, stranger), stranger))
        found += [Move((a, b, s), (new,)) for a, b, new in from_three(known, s)]
    found += [move for _, move in _conclusions(SOUND, known, 2)]
    return [move for move in found if not set(move.new) & set(known)]


def mistakes(known: Sequence[Statement], people: Sequence[int]) -> list[tuple[str, Move]]:
    """Return the unsound inferences, each with its kind."""
    found = [*_conclusions(UNSOUND, known, 1), *_conclusions(UNSOUND, known, 2)]
    for s in known:
        if s.kind in ("some", "has", "one"):  # the name of a known individual for the one that the statement says there is
            found += [("witness", Move((s,), witness(s, who), who)) for who in people if who not in s.who]
    return [(kind, move) for kind, move in found if not set(move.new) & set(known)]
