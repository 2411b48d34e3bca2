"""Sound inferences from quantified statements, and the unsound ones that resemble common mistakes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import NamedTuple

from critic_prm.generate.families._quantified import ANYONE, Statement, fact, rel

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


def from_one(s: Statement, people: Sequence[int]) -> Iterator[Statement]:
    """Yield what follows from a statement alone about these people."""
    if s.kind == "one":
        yield s._replace(kind="each")
    if s.kind == "toward":
        yield Statement("one", (*s.words, ANYONE))
    if (s.kind, s.true) in (("some", True), ("all", False)):
        yield s._replace(words=s.words[::-1])
    if s.words[0] == ANYONE:
        for who in people:
            if s.kind == "each":
                yield Statement("has", s.words[1:], (who,))
            elif s.kind == "toward":
                yield rel(s.words[1], who, s.who[0])
            elif s.kind == "from":
                yield rel(s.words[1], s.who[0], who)


def from_two(s: Statement, t: Statement) -> Iterator[Statement]:
    """Yield what follows from a statement and a second, more general one."""
    if s.kind in GENERAL and t.kind == "all" and t.true and s.words[0] == t.words[1]:
        yield s._replace(words=(t.words[0], *s.words[1:]))
    match s.kind, t.kind:
        case "fact", "all" if s.true and s.words[0] == t.words[0]:
            yield fact(t.words[1], s.who[0], t.true)
        case "fact", "all" if s.words[0] == t.words[1] and s.true != t.true:
            yield fact(t.words[0], s.who[0], False)
        case "fact", "each" if s.true and s.words[0] == t.words[0]:
            yield Statement("has", t.words[1:], s.who)
        case "fact", "toward" if s.true and s.words[0] == t.words[0]:
            yield rel(t.words[1], s.who[0], t.who[0])
        case "fact", "from" if s.true and s.words[0] == t.words[0]:
            yield rel(t.words[1], t.who[0], s.who[0])
        case (("all" | "some"), "all") if s.true and s.words[1] == t.words[0] and s.words[0] != t.words[1]:
            yield Statement(s.kind, (s.words[0], t.words[1]), (), t.true)
        case "all", "each" if s.true and s.words[1] == t.words[0]:
            yield t._replace(words=(s.words[0], *t.words[1:]))
        case (("each" | "one" | "has"), "all") if t.true and s.words[-1] == t.words[0]:
            yield s._replace(words=(*s.words[:-1], t.words[1]))
        case (("has" | "rel"), "subject") if s.true and s.words[0] == t.words[0]:
            yield fact(t.words[1], s.who[0])
        case "rel", "object" if s.true and s.words[0] == t.words[0]:
            yield fact(t.words[1], s.who[1])
        case "rel", "turn" if s.true and s.words[0] == t.words[0]:
            yield rel(t.words[1], s.who[1], s.who[0])
        case "rel", "along" if s.true and s.words[0] == t.words[0]:
            yield rel(t.words[1], s.who[0], s.who[1])
        case "rel", "fact" if s.true and t.true and s.who[1] == t.who[0]:
            yield Statement("has", (s.words[0], t.words[0]), s.who[:1])
        case "toward", "fact" if t.true and s.who == t.who:
            yield Statement("one", (*s.words, t.words[0]))


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
        found += [Move((s,), (new,)) for new in from_one(s, people)]
        if s.kind in ("some", "has", "one"):
            found.append(Move((s,), witness(s, stranger), stranger))
        found += [Move((a, b, s), (new,)) for a, b, new in from_three(known, s)]
    found += [Move((s, t), (new,)) for s, t in permutations(known, 2) for new in from_two(s, t)]
    return [move for move in found if not set(move.new) & set(known)]


def mistakes(known: Sequence[Statement], people: Sequence[int]) -> list[tuple[str, Move]]:
    """Return the unsound inferences, each with its kind."""
    found = [(kind, Move((s,), new)) for s in known for kind, new in _from_one_wrongly(s, people)]
    found += [(kind, Move((s, t), (new,))) for s, t in permutations(known, 2) for kind, new in _from_two_wrongly(s, t)]
    named = [(kind, move) for kind, move in found if kind != "witness"]
    named += [(kind, move._replace(named=move.new[0].who[-1])) for kind, move in found if kind == "witness"]
    return [(kind, move) for kind, move in named if not set(move.new) & set(known)]


def _from_one_wrongly(s: Statement, people: Sequence[int]) -> Iterator[tuple[str, tuple[Statement, ...]]]:
    if s.kind == "each":
        yield "swap", (s._replace(kind="one"),)
    if s.kind in ("some", "has") and s.words[-1] != ANYONE:
        general = Statement("all", s.words, (), s.true) if s.kind == "some" else Statement("from", s.words[::-1], s.who)
        yield "overreach", (general,)
    if s.kind in ("some", "has", "one"):
        for who in people:
            if who not in s.who:
                yield "witness", witness(s, who)
    if s.kind == "all" and s.true:
        yield "conversion", (s._replace(words=s.words[::-1]),)


def _from_two_wrongly(s: Statement, t: Statement) -> Iterator[tuple[str, Statement]]:
    """`s` is the particular statement and `t` the rule, as in from_two."""
    if not s.true:
        if s.kind == "fact" and t.kind == "all" and t.true and s.words[0] == t.words[0]:
            yield "inverse", fact(t.words[1], s.who[0], False)
        if s.kind == "rel" and t.kind in ("turn", "along") and s.words == t.words[:1]:
            yield "inverse", rel(t.words[1], *(s.who[::-1] if t.kind == "turn" else s.who), true=False)
        return
    match s.kind, t.kind:
        case "fact", "all" if t.true and s.words[0] == t.words[1]:
            yield "converse", fact(t.words[0], s.who[0])
        case "has", "each" if s.words == t.words[1:] and t.words[0] != ANYONE:
            yield "converse", fact(t.words[0], s.who[0])
        case "rel", ("turn" | "along") if s.words[0] == t.words[1]:
            yield "converse", rel(t.words[0], *(s.who[::-1] if t.kind == "turn" else s.who))
        case "rel", ("turn" | "along") if s.words[0] == t.words[0]:
            yield "direction", rel(t.words[1], *(s.who if t.kind == "turn" else s.who[::-1]))
        case "rel", ("subject" | "object") if s.words[0] == t.words[0]:
            yield "direction", fact(t.words[1], s.who[t.kind == "subject"])
        case "fact", "toward" if s.words[0] == t.words[0]:
            yield "direction", rel(t.words[1], t.who[0], s.who[0])
        case "fact", "from" if s.words[0] == t.words[0]:
            yield "direction", rel(t.words[1], s.who[0], t.who[0])
        case (("all" | "some"), "all") if t.true and s.words[1] == t.words[1] and s.words[0] != t.words[0]:
            yield "middle", s._replace(words=(s.words[0], t.words[0]))
        case (("has" | "each" | "one"), "all") if t.true and s.words[-1] == t.words[1]:
            yield "middle", s._replace(words=(*s.words[:-1], t.words[0]))
        case "fact", "both" if s.words[0] in t.words[:2]:
            yield "missing", fact(t.words[2], s.who[0], t.true)
    # a fact other than the one the rule requires
    if s.kind == "fact" and s.words[0] not in t.words:
        if t.kind == "all":
            yield "missing", fact(t.words[1], s.who[0], t.true)
        elif t.kind == "each" and t.words[0] != ANYONE:
            yield "missing", Statement("has", t.words[1:], s.who)
        elif t.kind in ("toward", "from") and t.words[0] != ANYONE:
            yield "missing", rel(t.words[1], *((s.who[0], t.who[0]) if t.kind == "toward" else (t.who[0], s.who[0])))
