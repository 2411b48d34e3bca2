"""Draw premises with quantifiers, a derivation of a given length from them, and distracting premises."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import count
from random import Random
from typing import NamedTuple

from critic_prm.generate.families._common import PREDICATES, RELATIONS
from critic_prm.generate.families._statements import ANYONE, BINARY, GENERAL, Move, Statement, fact, least_model, rel, witness

STARTS = ("fact", "fact", "some", "some", "all", "all", "each", "each", "one", "one", "rel", "toward", "from", "denied")


class Grown(NamedTuple):
    """Premises, a derivation, the individuals that the premises name, and the number of predicates and relations."""

    premises: tuple[Statement, ...]
    derivation: tuple[Move, ...]
    people: tuple[int, ...]
    predicates: int
    relations: int


class _Fresh:
    """Generators of unused predicates, relations and individuals."""

    def __init__(self) -> None:
        self.predicate = count().__next__
        self.relation = count().__next__
        self.person = count().__next__


def grow(rng: Random, steps: int, spare: int) -> Grown | None:
    """Draw premises and a derivation of `steps` inferences, each using the previous one; None if the draw fails."""
    fresh = _Fresh()
    current = _start(rng, fresh)
    premises, derivation, known, named = [current], list[Move](), [current], set[int]()
    for at in range(steps):
        options = list(_ways_on(rng, current, known, named, fresh, last=at == steps - 1))
        if not options:
            return None
        added, move = rng.choice(options)
        if set(move.new) & set(known):
            return None
        premises += added
        known += [*added, *move.new]
        derivation.append(move)
        named |= set() if move.named is None else {move.named}
        current = rng.choice(move.new)
    if len(derivation[-1].new) > 1 or named & set(derivation[-1].new[0].who):
        return None
    for _ in range(spare):
        premises += _astray(rng, rng.choice(known), named, fresh)
    return _tidy(rng, premises + _trap(rng, known, named, fresh), derivation)


def _tidy(rng: Random, premises: list[Statement], derivation: list[Move]) -> Grown | None:
    """Shuffle the premises and renumber individuals and words from 0, starting with the individuals named in the premises."""
    premises = list(dict.fromkeys(premises))
    rng.shuffle(premises)
    if least_model(premises) is None:
        return None
    said = [*premises, *(new for move in derivation for new in move.new)]
    people = {who: i for i, who in enumerate(dict.fromkeys(who for s in said for who in s.who))}
    words: tuple[dict[int, int], dict[int, int]] = ({ANYONE: ANYONE}, {})
    for s in said:
        for place, word in enumerate(s.words):
            found = words[place in BINARY.get(s.kind, ())]
            found.setdefault(word, len(found) - (ANYONE in found))

    def renamed(s: Statement) -> Statement:
        numbers = [words[place in BINARY.get(s.kind, ())][word] for place, word in enumerate(s.words)]
        return s._replace(words=tuple(numbers), who=tuple(people[who] for who in s.who))

    new_premises = tuple(map(renamed, premises))
    new_derivation = tuple(
        Move(tuple(map(renamed, m.cites)), tuple(map(renamed, m.new)), None if m.named is None else people[m.named])
        for m in derivation
    )
    known_people = tuple(sorted({who for s in new_premises for who in s.who}))
    if len(words[0]) - 1 > len(PREDICATES) or len(words[1]) > len(RELATIONS):
        return None
    return Grown(new_premises, new_derivation, known_people, len(words[0]) - 1, len(words[1]))


def _anyone(rng: Random, fresh: _Fresh, share: float = 0.4) -> int:
    return ANYONE if rng.random() < share else fresh.predicate()


def _start(rng: Random, fresh: _Fresh) -> Statement:
    kind = rng.choice(STARTS)
    if kind == "fact":
        return fact(fresh.predicate(), fresh.person())
    if kind == "denied":
        return fact(fresh.predicate(), fresh.person(), False)
    if kind == "rel":
        return rel(fresh.relation(), fresh.person(), fresh.person())
    if kind in ("toward", "from"):
        return Statement(kind, (_anyone(rng, fresh), fresh.relation()), (fresh.person(),))
    if kind in ("all", "some"):
        return Statement(kind, (fresh.predicate(), fresh.predicate()))
    return Statement(kind, (_anyone(rng, fresh), fresh.relation(), _anyone(rng, fresh)))


Way = tuple[list[Statement], Move]


def _ways_on(
    rng: Random, s: Statement, known: Sequence[Statement], named: Collection[int], fresh: _Fresh, *, last: bool
) -> Iterator[Way]:
    """Yield inferences from a statement with the premises they need. New premises mention nobody in `named`."""
    words, who = s.words, s.who
    true = rng.random() < (0.6 if last else 0.85)

    def by(rule: Statement, new: Statement) -> Way:
        return [rule], Move((s, rule), (new,))

    if s.kind == "fact" and s.true:
        p, q, r, other = words[0], fresh.predicate(), fresh.relation(), fresh.person()
        yield by(Statement("all", (p, q), (), true), fact(q, who[0], true))
        far = _anyone(rng, fresh)
        yield by(Statement("each", (p, r, far)), Statement("has", (r, far), who))
        yield by(Statement("toward", (p, r), (other,)), rel(r, who[0], other))
        yield by(Statement("from", (p, r), (other,)), rel(r, other, who[0]))
        if rests := [t for t in known if who[0] in named and t.kind == "rel" and t.true and t.who[1] == who[0]]:
            rest = rng.choice(rests)  # an individual that was named on the way is existentially quantified again
            yield [], Move((rest, s), (Statement("has", (rest.words[0], p), rest.who[:1]),))
        elif who[0] not in named:
            more = fact(fresh.predicate(), who[0])
            rule = Statement("both", (p, more.words[0], q) if rng.random() < 0.5 else (more.words[0], p, q), (), true)
            yield [more, rule], Move((s, more, rule), (fact(q, who[0], true),))
    elif s.kind == "fact":
        q = fresh.predicate()
        yield by(Statement("all", (q, words[0])), fact(q, who[0], False))
    elif s.kind == "rel" and s.true:
        r, q = fresh.relation(), fresh.predicate()
        yield by(Statement("turn", (words[0], r)), rel(r, who[1], who[0]))
        yield by(Statement("along", (words[0], r)), rel(r, *who))
        yield by(Statement("subject", (words[0], q)), fact(q, who[0]))
        yield by(Statement("object", (words[0], q)), fact(q, who[1]))
        if who[1] not in named:
            more = rel(fresh.relation(), who[1], fresh.person())
            rule = Statement("chain", (words[0], more.words[0], r))
            yield [more, rule], Move((s, more, rule), (rel(r, who[0], more.who[1]),))
    elif s.kind == "has":
        if words[1] != ANYONE:
            q = fresh.predicate()
            yield by(Statement("all", (words[1], q)), Statement("has", (words[0], q), who))
        q = fresh.predicate()
        yield by(Statement("subject", (words[0], q)), fact(q, who[0]))
    elif s.kind == "all" and s.true:
        q, r = fresh.predicate(), fresh.relation()
        yield by(Statement("all", (words[1], q), (), true), Statement("all", (words[0], q), (), true))
        far = _anyone(rng, fresh)
        yield by(Statement("each", (words[1], r, far)), Statement("each", (words[0], r, far)))
    elif s.kind == "some" and s.true:
        q = fresh.predicate()
        yield by(Statement("all", (words[1], q), (), true), Statement("some", (words[0], q), (), true))
    elif s.kind == "each" and words[2] != ANYONE:
        q = fresh.predicate()
        yield by(Statement("all", (words[2], q)), s._replace(words=(*words[:2], q)))
    elif s.kind == "one":
        yield [], Move((s,), (s._replace(kind="each"),))
        if words[2] != ANYONE:
            q = fresh.predicate()
            yield by(Statement("all", (words[2], q)), s._replace(words=(*words[:2], q)))
    elif s.kind == "toward":
        said = [t for t in known if t.kind == "fact" and t.true and t.who == who]
        yield [], Move((s, *said[:1]), (Statement("one", (*words, said[0].words[0] if said else ANYONE)),))
    if (s.kind, s.true) in (("some", True), ("all", False)):
        yield [], Move((s,), (s._replace(words=words[::-1]),))
    if s.kind in GENERAL and words[0] != ANYONE:
        q = fresh.predicate()
        yield by(Statement("all", (q, words[0])), s._replace(words=(q, *words[1:])))
    if s.kind in ("all", "each", "toward", "from"):
        a = fresh.person()
        given = [fact(words[0], a)] if words[0] != ANYONE else []
        new = {
            "all": fact(words[1], a, s.true),
            "each": Statement("has", words[1:], (a,)),
            "toward": rel(words[1], a, who[0] if who else a),
            "from": rel(words[1], who[0] if who else a, a),
        }[s.kind]
        yield given, Move((*given, s), (new,))
    if s.kind in ("has", "some", "one") and not last:
        name = fresh.person()
        # twice, to match its other continuations: otherwise a naming step would indicate an error
        yield from [([], Move((s,), witness(s, name), name))] * 2


def _trap(rng: Random, known: Sequence[Statement], named: Collection[int], fresh: _Fresh) -> list[Statement]:
    """Draw a rule and a fact to which it does not apply. Without them some errors could only occur late."""
    people = [who for who in dict.fromkeys(who for s in known for who in s.who) if who not in named] or [fresh.person()]
    who, p, q = rng.choice(people), fresh.predicate(), fresh.predicate()
    shape = rng.choice(("converse", "converse", "converse", "inverse", "direction", "direction", "witness"))
    if shape == "converse":
        return [Statement("all", (q, p)), fact(p, who)]
    if shape == "inverse":
        return [Statement("all", (p, q)), fact(p, who, False)]
    if shape == "direction":
        kind, r, other = rng.choice(("turn", "along")), fresh.relation(), fresh.person()
        return [Statement(kind, (r, fresh.relation())), rel(r, who, other)]
    return [Statement("has", (fresh.relation(), _anyone(rng, fresh)), (who,))]


def _astray(rng: Random, s: Statement, named: Collection[int], fresh: _Fresh) -> list[Statement]:
    """Draw unused premises about the statement's words that invite an error."""
    ends = s.words[-1] if s.kind in ("fact", "all", "some", "each", "has") and s.words[-1] != ANYONE and s.true else None
    if s.kind == "rel" and s.true:
        r = fresh.relation()
        return [Statement(rng.choice(("along", "turn")), (r, s.words[0]))]
    if ends is None:
        return [Statement("all", (fresh.predicate(), fresh.predicate()), (), rng.random() < 0.7)]
    shape = rng.choice(("converse", "converse", "inverse", "missing", "idle"))
    if shape == "converse":
        return [Statement("all", (fresh.predicate(), ends))]
    if shape == "inverse" and s.kind == "fact":
        who = fresh.person() if s.who[0] in named else s.who[0]
        return [Statement("all", (no := fresh.predicate(), fresh.predicate())), fact(no, who, False)]
    if shape == "missing":
        return [Statement("both", (ends, fresh.predicate(), fresh.predicate()))]
    return [Statement("all", (ends, fresh.predicate()), (), rng.random() < 0.6)]
