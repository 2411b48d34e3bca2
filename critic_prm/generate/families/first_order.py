"""First-order entailment: everyone, someone, who does what to whom; each step of the derivation cites its premises."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from random import Random

from critic_prm.generate.families._inferences import GENERAL, Move, mistakes, moves, witness
from critic_prm.generate.families._phrases import BINARY, RELATIONS, Phrases, draw_style
from critic_prm.generate.families._propositions import PREDICATES
from critic_prm.generate.families._quantified import ANYONE, Statement, fact, fails, least_model, rel
from critic_prm.generate.families._words import NAMES, NUMBERING, listed, numbered, sentence
from critic_prm.generate.family import Solution, Task

KINDS = {
    "converse": 5.0,  # from "every A is B" and B to A: affirming the consequent
    "conversion": 0.5,  # from "every A is B" to "every B is A"
    "inverse": 3.0,  # from "every A is B" and not A to not B: denying the antecedent
    "middle": 5.0,  # from "every A is C" and "every B is C" to "every A is B": the undistributed middle
    "swap": 3.0,  # from "everyone has someone" to "there is one whom everyone has"
    "witness": 3.0,  # the one who is said to exist gets the name of somebody known already
    "direction": 6.0,  # the right rule, and the two people mixed up
    "missing": 2.0,  # a condition of the rule is not met
    "overreach": 1.5,  # from "someone" to "everyone"
    "verdict": 2.0,  # the right derivation, and the wrong conclusion about the statement
}
ASK = ("Does it follow that {}?", "Do the premises entail that {}?", "Is it a logical consequence that {}?",
       "Can one conclude that {}?", "Must it be the case that {}?")  # fmt: skip
GIVEN = ("Premises about a group of people:", "The following is known about some people:", "Suppose all of these are true:",
         "Given:")  # fmt: skip
BY_NUMBER = ("From {n}: {new}.", "By {n}: {new}.", "Because of {n}: {new}.")
BY_WORDS = ("By {n}, since {have}: {new}.", "Since {have}, using {n}: {new}.")
NAMING = ("{by}, let {w} be such a person: {new}.", "{by} there is such a person, say {w}: {new}.")
YES = ("So the statement follows.", "Hence the answer is yes, it follows.", "This is the statement in question, so it follows.")
OPPOSITE = ("This contradicts the statement, so it does not follow.", "The statement is thus false and does not follow.")
OPEN = ("Nothing of this gives the statement, so it does not follow.",
        "The premises do not force the statement, so it does not follow.")  # fmt: skip
STEPS = {1: (1, 2), 2: (2, 3), 3: (3, 4), 4: (4, 5), 5: (5, 7)}
SPARE = {1: 1, 2: 1, 3: 2, 4: 2, 5: 3}
TRIES = 6
STARTS = ("fact", "fact", "some", "some", "all", "all", "each", "each", "one", "one", "rel", "toward", "from", "denied")
CONTINUED = 0.5
"""How often the steps go on with the numbers of the premises and cite by number alone."""


@dataclass(frozen=True)
class FirstOrderTask:
    """Premises, a statement, and the derivation of the right solution. Individual `stranger` and those after have no part in
    the premises: their names are for those of whom the premises only say that they exist."""

    premises: tuple[Statement, ...]
    goal: Statement
    derivation: tuple[Move, ...]
    people: tuple[int, ...]
    phrases: Phrases
    ask: str
    given: str
    says: tuple[str, str, str]
    ends: Mapping[bool | None, str]
    numbering: str | None

    @property
    def problem(self) -> str:
        lines = [f"({n}) {sentence(self.phrases.text(premise))}." for n, premise in enumerate(self.premises, 1)]
        return "\n".join([self.given, *lines, self.ask.format(self.phrases.text(self.goal))])

    @property
    def facts(self) -> Mapping[str, object]:
        return {
            "form": "relations" if any(s.kind not in ("fact", "all", "both", "some") for s in self.premises) else "syllogisms"
        }

    @cached_property
    def right(self) -> Solution:
        return self._write(self.derivation)

    @cached_property
    def _wrong(self) -> tuple[tuple[tuple[str, Move], ...], ...]:
        """For each step of the derivation the mistakes that can be made there."""
        found = []
        for at in range(len(self.derivation)):
            before = self.derivation[:at]
            known = [*self.premises, *(new for move in before for new in move.new)]
            named = [move.named for move in before if move.named is not None]
            found.append(tuple(mistakes(known, [*self.people, *named])))
        return tuple(found)

    @cached_property
    def places(self) -> tuple[tuple[str, ...], ...]:
        return (*(tuple({kind: None for kind, _ in found}) for found in self._wrong), ("verdict",))

    def plant(self, at: int, kind: str, rng: Random) -> Solution | None:
        if kind == "verdict":
            status = self._status(self.derivation)
            return self._write(self.derivation, verdict=rng.choice([False, None]) if status else True, judged=True)
        before = self.derivation[:at]
        assumed = [*self.premises, *(new for move in before if move.named is not None for new in move.new)]
        wrong = [move for found, move in self._wrong[at] if found == kind]
        rng.shuffle(wrong)
        near = {*self.derivation[at].cites, *(before[-1].new if before else ())}
        wrong.sort(key=lambda move: not near.intersection(move.cites))  # one goes wrong where one is
        for move in wrong[:TRIES]:
            # an unsound inference may hit on something that does follow
            if any(fails(assumed, new) for new in move.new):
                derivation = [*before, move]
                if self._carry_on(derivation, rng):
                    return self._write(derivation)
        return None

    def _carry_on(self, derivation: list[Move], rng: Random) -> bool:
        """Derive on from the wrong conclusion until there are as many steps as in the right solution."""
        while len(derivation) < len(self.derivation):
            known = [*self.premises, *(new for move in derivation for new in move.new)]
            named = {move.named for move in derivation if move.named is not None} - set(self.people)
            stranger = next(who for who in count(len(self.people)) if who not in named)
            found = [
                move
                for move in moves(known, [*self.people, *sorted(named)], stranger)
                if move.named is None or stranger < len(self.phrases.names)
            ]
            last = len(derivation) == len(self.derivation) - 1
            found = [move for move in found if last or not {self.goal, ~self.goal} & set(move.new)]
            later = [move for move in found if set(derivation[-1].new) & set(move.cites)] or found
            if not later:
                return False
            derivation.append(rng.choice(later))
        return True

    def _status(self, derivation: Sequence[Move]) -> bool | None:
        """Whether the statement, or its opposite, or neither has been derived."""
        known = {*self.premises, *(new for move in derivation for new in move.new)}
        return True if self.goal in known else False if self.goal.kind in ("fact", "rel") and ~self.goal in known else None

    def _write(self, derivation: Sequence[Move], verdict: bool | None = None, *, judged: bool = False) -> Solution:
        status = verdict if judged else self._status(derivation)
        numbers = {premise: n for n, premise in enumerate(self.premises, 1)}
        first, texts = len(numbers) + 1, []
        for n, move in enumerate(derivation, first):
            texts.append(sentence(self._say(move, numbers)))
            if self.numbering is None:
                numbers |= dict.fromkeys(move.new, n)
        texts.append(self.ends[status])
        if self.numbering is None:
            steps = tuple(f"({n}) {text}" for n, text in enumerate(texts, first))
        else:
            steps = numbered(texts, self.numbering)
        return Solution(steps, "yes" if status else "no")

    def _say(self, move: Move, numbers: Mapping[Statement, int]) -> str:
        cited = _listed([f"({n})" for n in dict.fromkeys(numbers[s] for s in move.cites if s in numbers)])
        have = _listed([self.phrases.text(s) for s in move.cites if s not in numbers])
        new = _listed([self.phrases.text(s) for s in move.new])
        alone, both, naming = self.says
        if move.named is not None:
            by = f"By {cited}" if cited else f"Since {have}"
            return naming.format(by=by, w=self.phrases.names[move.named], new=new)
        if cited and have:
            return both.format(n=cited, have=have, new=new)
        return alone.format(n=cited, new=new) if cited else f"Since {have}: {new}."


def _listed(words: Sequence[str]) -> str:
    return listed(words) if words else ""


class _Fresh:
    """Predicates, relations and individuals that were not there before."""

    def __init__(self) -> None:
        self.predicate = count().__next__
        self.relation = count().__next__
        self.person = count().__next__


def draw(rng: Random, level: int) -> Task:
    """Premises with a derivation of the level's length, idle ones too, and a statement that follows, is refuted or is open."""
    while True:
        found = _grow(rng, rng.randint(*STEPS[level]), SPARE[level])
        if found is None:
            continue
        premises, derivation, people, predicates, relations = found
        goal = _goal(rng, premises, derivation, people)
        if goal is not None:
            break
    strangers = max([len(people) + 3, *(1 + move.named for move in derivation if move.named is not None)])
    style = draw_style(rng)
    phrases = Phrases(
        rng.sample(NAMES, strangers),
        rng.sample(range(len(PREDICATES)), predicates),
        rng.sample(range(len(RELATIONS)), relations),
        style,
    )
    says = (rng.choice(BY_NUMBER), rng.choice(BY_WORDS), rng.choice(NAMING))
    ends = {True: rng.choice(YES), False: rng.choice(OPPOSITE), None: rng.choice(OPEN)}
    numbering = None if rng.random() < CONTINUED else rng.choice([style for style in NUMBERING if not style.startswith("(")])
    return FirstOrderTask(
        premises, goal, derivation, people, phrases, rng.choice(ASK), rng.choice(GIVEN), says, ends, numbering
    )


def _goal(rng: Random, premises: Sequence[Statement], derivation: Sequence[Move], people: Sequence[int]) -> Statement | None:
    (last,) = derivation[-1].new
    aim = rng.choice(("follows", "follows", "refuted", "open"))
    if aim == "follows":
        return last
    if aim == "refuted":
        return ~last if last.kind in ("fact", "rel") else None
    known = [*premises, *(new for move in derivation for new in move.new)]
    wrong = [move.new[0] for kind, move in mistakes(known, people) if kind != "witness" and len(move.new) == 1]
    wrong = [s for s in wrong if set(s.who) <= set(people)]
    for goal in rng.sample(wrong, min(TRIES, len(wrong))):
        if fails(premises, goal):
            return goal
    return None


def _grow(
    rng: Random, steps: int, spare: int
) -> tuple[tuple[Statement, ...], tuple[Move, ...], tuple[int, ...], int, int] | None:
    """Premises that `steps` inferences, each from the one before, go through; None when that does not work out."""
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


def _tidy(
    rng: Random, premises: list[Statement], derivation: list[Move]
) -> tuple[tuple[Statement, ...], tuple[Move, ...], tuple[int, ...], int, int] | None:
    """The premises shuffled, and individuals and words numbered from 0: first the people whom the premises name."""
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
    return new_premises, new_derivation, known_people, len(words[0]) - 1, len(words[1])


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
    """Inferences from a statement, each with the premises it needs; these speak of nobody who is `named` on the way."""
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
            rest = rng.choice(rests)  # one who got his name on the way is spoken of as somebody again
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
        # twice, as often as what else can be done with it: else the naming alone would tell a mistake
        yield from [([], Move((s,), witness(s, name), name))] * 2


def _trap(rng: Random, known: Sequence[Statement], named: Collection[int], fresh: _Fresh) -> list[Statement]:
    """A rule and a fact or two that it does not apply to: without them some mistakes could be made late in a derivation only."""
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
    """Idle premises near a statement that invite a mistake."""
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
