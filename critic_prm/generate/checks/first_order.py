"""Find the first unsound step of a first-order derivation in English, decided by z3 from the cited statements."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

from critic_prm.data.trajectory import Trajectory
from critic_prm.errors import InputError
from critic_prm.generate.checks.logic import entails, satisfiable, unnumbered, z3
from critic_prm.generate.families._common import PREDICATES, RELATIONS
from critic_prm.generate.family import Finding

UNARY = {text: (pair[0], text == pair[0]) for pair in PREDICATES for text in pair}
BINARY = {text: (pair[0], text == pair[0]) for pair in RELATIONS for text in pair}
NAME = r"[A-Z][a-z]+"


@cache
def _person() -> Any:
    return z3().DeclareSort("Person")


@cache
def who(name: str) -> Any:
    """Return the individual of this name."""
    return z3().Const(name, _person())


@cache
def _symbol(name: str, places: int) -> Any:
    return z3().Function(name, *[_person()] * places, z3().BoolSort())


def p(text: str | None, x: Any) -> Any:
    """Return the formula of a predicate such as "does not play chess" applied to x; the constant true if `text` is None."""
    if text is None:
        return z3().BoolVal(True)
    name, true = UNARY[text]
    said = _symbol(name, 1)(x)
    return said if true else z3().Not(said)


def r(text: str, x: Any, y: Any) -> Any:
    """Return the formula of a relation such as "does not trust" applied to x and y."""
    name, true = BINARY[text]
    said = _symbol(name, 2)(x, y)
    return said if true else z3().Not(said)


def every(*parts: Any) -> Any:
    """For all x, y, z: the last part follows from the others."""
    return z3().ForAll([who(v) for v in "xyz"], z3().Implies(z3().And(parts[:-1]), parts[-1]))


def some(v: str, *parts: Any) -> Any:
    """Build an existential formula: an individual satisfies all parts."""
    return z3().Exists([who(v)], z3().And(parts))


def _x() -> tuple[Any, Any, Any]:
    return who("x"), who("y"), who("z")


def _general(*words: str) -> Any:
    return every(*(p(word, _x()[0]) for word in words))


def _each(w: str | None, r1: str, w2: str | None) -> Any:
    x, y, _ = _x()
    return z3().ForAll([x], z3().Implies(p(w, x), some("y", p(w2, y), r(r1, x, y))))


def _one(w2: str | None, w: str | None, r1: str) -> Any:
    x, y, _ = _x()
    return z3().Exists([y], z3().And(p(w2, y), z3().ForAll([x], z3().Implies(p(w, x), r(r1, x, y)))))


def _no(*words: str) -> Any:
    x = _x()[0]
    return every(*(p(word, x) for word in words[:-1]), z3().Not(p(words[-1], x)))


GRAMMAR: Sequence[tuple[str, Callable[..., Any]]] = (
    ("<N> <P>", lambda a, q: p(q, who(a))),
    ("<N> <R> <N>", lambda a, s, b: r(s, who(a), who(b))),
    ("(?:everyone who|whoever) <P> <P>", _general),
    ("if someone <P>, then that person <P>", _general),
    ("no one who <P> <P>", _no),
    ("(?:everyone who|whoever) <P> and <P> <P>", _general),
    ("if someone <P> and <P>, then that person <P>", _general),
    ("no one who <P> and <P> <P>", _no),
    ("(?:someone|at least one person) who <P> <P>", lambda a, b: some("x", p(a, _x()[0]), p(b, _x()[0]))),
    ("there is someone who <P> and <P>", lambda a, b: some("x", p(a, _x()[0]), p(b, _x()[0]))),
    ("everyone<W> <R> (?:at least one person|someone or other)<W>", _each),
    ("there is (?:one and the same|a particular) person(?: who <P> and)? whom everyone<W> <R>", _one),
    ("<N> <R> (?:at least one person|someone)<W>", lambda a, s, w: some("y", p(w, _x()[1]), r(s, who(a), _x()[1]))),
    ("everyone<W> <R> <N>", lambda w, s, a: every(p(w, _x()[0]), r(s, _x()[0], who(a)))),
    ("<N> <R> everyone<W>", lambda a, s, w: every(p(w, _x()[0]), r(s, who(a), _x()[0]))),
    ("if X <R> Y, then Y <R> X, whoever X and Y are", lambda s, t: every(r(s, *_x()[:2]), r(t, *_x()[1::-1]))),
    ("if one person <R> a second, then the second <R> the first", lambda s, t: every(r(s, *_x()[:2]), r(t, *_x()[1::-1]))),
    ("if X <R> Y, then X <R> Y, whoever X and Y are", lambda s, t: every(r(s, *_x()[:2]), r(t, *_x()[:2]))),
    ("if one person <R> a second, then the first <R> the second", lambda s, t: every(r(s, *_x()[:2]), r(t, *_x()[:2]))),
    ("(?:everyone who|whoever) <R> anyone <P>", lambda s, q: every(r(s, *_x()[:2]), p(q, _x()[0]))),
    ("everyone whom anyone <R> <P>", lambda s, q: every(r(s, *_x()[:2]), p(q, _x()[1]))),
    ("if X <R> Y, then Y <P>, whoever X and Y are", lambda s, q: every(r(s, *_x()[:2]), p(q, _x()[1]))),
    (
        "if (?:X|one person) <R> (?:Y|a second) and (?:Y|the second) <R> (?:Z|a third), then (?:X|the first) <R> "
        "(?:Z, whoever X, Y and Z are|the third)",
        lambda s, t, u: every(r(s, *_x()[:2]), r(t, *_x()[1:]), r(u, *_x()[::2])),
    ),
)  # fmt: skip


@cache
def _patterns() -> list[tuple[re.Pattern[str], Callable[..., Any]]]:
    unary, binary = ("|".join(sorted(map(re.escape, words), key=len, reverse=True)) for words in (UNARY, BINARY))
    parts = {"<P>": f"({unary})", "<R>": f"({binary})", "<W>": f"(?: who ({unary}))?", "<N>": f"({NAME})"}
    return [(re.compile(re.sub("<[PRWN]>", lambda m: parts[m.group()], pattern)), build) for pattern, build in GRAMMAR]


@lru_cache(100_000)
def statement(text: str) -> Any:
    """Return the formula of one statement; None if the text is not a statement."""
    for pattern, build in _patterns():
        if match := pattern.fullmatch(text):
            return build(*match.groups())
    return None


def statements(text: str) -> list[Any]:
    """Return the formulas of statements joined by commas and "and"; empty if the text does not parse completely."""
    if (whole := statement(text)) is not None:
        return [whole]
    for joint in re.finditer(", | and ", text):
        first = statement(text[: joint.start()])
        if first is not None and (rest := statements(text[joint.end() :])):
            return [first, *rest]
    return []


def _read(text: str, where: str) -> list[Any]:
    start = (
        text[0]
        if re.match(NAME + " ", text) and not re.match("(Everyone|Whoever|Someone|If|No|There|At) ", text)
        else text[0].lower()
    )
    found = statements(start + text[1:])
    if not found:
        raise InputError(where, f"{text!r} is not a statement that this checker can read")
    return found


def examine(trajectory: Trajectory) -> Finding:
    """Return the first step that does not follow from what it cites. A step may give a new name to an individual known to
    exist.
    """
    _, *lines, question = trajectory.problem.split("\n")
    numbered = {}
    for line in lines:
        number, text = line.removesuffix(".").split(") ", 1)
        numbered[int(number[1:])] = _read(text, f"{trajectory.id}, problem")
    premises = [formula for said in numbered.values() for formula in said]
    consistent = satisfiable(premises)
    if not consistent:
        return Finding(
            None, "the solver gave up on the premises" if consistent is None else "the premises contradict each other"
        )
    known, spoken = list(premises), trajectory.problem
    *derivation, verdict = trajectory.texts
    for index, step in enumerate(derivation):
        where = f"{trajectory.id}, step {index}"
        head, conclusion = unnumbered(step).removesuffix(".").split(": ", 1)
        new = _read(conclusion, where)
        cited = [formula for n in re.findall(r"\((\d+)\)", head) for formula in numbered.get(int(n), [])]
        if have := re.search(r"[Ss]ince (.*?)(?:, using \(|, let [A-Z]| there is such|$)", head):
            restated = _read(have.group(1), where)
            if not all(any(formula.eq(other) for other in known) for formula in restated):
                return Finding(index)
            cited += restated
        claim = z3().And(new)
        name = re.search(rf"(?:let |say )({NAME})", head)
        if name and not re.search(rf"\b{name.group(1)}\b", spoken):
            claim = z3().Exists([who(name.group(1))], claim)
        follows = entails(cited, claim)
        if follows is None:
            return Finding(None, f"the solver gave up on step {index}")
        if not follows:
            return Finding(index)
        known += new
        spoken += step
        if own := re.match(r"\((\d+)\) ", step):
            numbered[int(own.group(1))] = new
    (goal,) = _read(re.sub(r"^[^?]*? (?:that|case that) ", "", question).removesuffix("?"), f"{trajectory.id}, question")
    follows = entails(premises, goal)
    if follows is None:
        return Finding(None, "the solver gave up on the statement")
    return Finding(-1 if follows == ("not follow" not in verdict) else len(derivation))
