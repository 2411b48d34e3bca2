"""Rules that plant an error in one step of a correct solution, with evidence that it is an error."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import Literal, TypeVar

from critic_prm.arithmetic import Claim, check
from critic_prm.arithmetic.claims import judge_one
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.generate.policy.policy import unmarked

Item = TypeVar("Item")

Shown = Literal["rules", "equality"]
"""Evidence that a change is an error.

"rules": the rule critic calls the step false. "equality": the step now states a different value, unit or name.
"""

_NUMBER = re.compile(r"(?<![\w.\\^_,])(?<!\^\{)(?<!_\{)\d+(?:,\d{3})*(?:\.\d+)?(?![\w^]|\.\d|,\d{3})")
_EQUATION = re.compile(
    r"(?P<left>[^=]*[^=<>!\s][ \t]*)=(?P<gap>[ \t$\\]*)(?P<sign>-?)(?P<right>\d+(?:,\d{3})*(?:\.\d+)?)(?P<tail>[^\d=]*)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Planted:
    """The new text of a step (None if the step is removed) and the evidence that it is incorrect."""

    text: str | None
    shown: Shown


@dataclass(frozen=True, slots=True)
class Place:
    """A step of a correct solution. `known` holds the numbers of the problem and of the earlier steps."""

    trajectory: Trajectory
    at: int
    known: frozenset[Fraction]

    @property
    def text(self) -> str:
        """The text of the step."""
        return self.trajectory.steps[self.at].text

    @property
    def before(self) -> str:
        """The problem and the earlier steps as one text."""
        return "\n".join([self.trajectory.problem, *self.trajectory.texts[: self.at]])

    def false_with(self, text: str) -> bool:
        """Return whether the rule critic finds its first error at this step if the step had this text."""
        steps = (*self.trajectory.steps[: self.at], Step(text))
        changed = Trajectory("", self.trajectory.problem, steps)
        return judge_one(changed).first_error == self.at


Kind = Callable[[Place, Random], Planted | None]


def place_of(trajectory: Trajectory, at: int) -> Place:
    """Build the `Place` of step `at` (0-based)."""
    texts = [trajectory.problem, *(unmarked(text) for text in trajectory.texts[:at])]
    return Place(trajectory, at, frozenset(value for text in texts for _, value in numbers(text)))


def numbers(text: str) -> Iterator[tuple[re.Match[str], Fraction]]:
    """Yield the numbers of a text and their values, except exponents, indices, parts of words and the step marker."""
    start = len(text) - len(unmarked(text)) if unmarked(text) != text.strip() else 0
    for match in _NUMBER.finditer(text, start):
        yield match, Fraction(match.group().replace(",", ""))


@dataclass(frozen=True, slots=True)
class Equation:
    """A true equation whose right side is a number: its start, its left side, the span of the number and its value."""

    start: int
    left: str
    right: tuple[int, int]
    value: Fraction


def equations(place: Place) -> list[Equation]:
    """Return the true equations of a step whose right side is a number."""
    found = []
    for claim in check(place.text, place.trajectory.problem):
        match = _EQUATION.fullmatch(place.text, *claim.span) if _holds(claim) else None
        if match is None:
            continue
        value = Fraction(match["right"].replace(",", "")) * (-1 if match["sign"] else 1)
        if claim.right == value:
            found.append(Equation(claim.span[0], match["left"], (match.start("sign"), match.end("right")), value))
    return found


def _holds(claim: Claim) -> bool:
    return claim.finding == "true" and claim.relation == "=" and claim.left is not None


_HEDGE = re.compile(r"\b(?:try|suppose|assume|assuming|example|instance|let|say|about|approximately)\b", re.IGNORECASE)
"""Words after which a number may be chosen freely."""
_LISTED = re.compile(
    r"(?:\b(?:part|step|case|equation|figure|type|method|number|no\.|answer)[ \t]*\(?|^[ \t]*)$", re.IGNORECASE | re.MULTILINE
)
"""Matches before a number that only enumerates, as in "Step 2"."""


def number(place: Place, rng: Random) -> Planted | None:
    """Change the result of a calculation or, in a step without calculations, a number copied from the problem."""
    for equation in _shuffled(equations(place), rng):
        old = place.text[slice(*equation.right)]
        new = _another(old.lstrip("-"), rng, place.known)
        if new is not None:
            text = _with_result(place.text, equation, ("-" if old.startswith("-") else "") + new)
            if place.false_with(text):
                return Planted(text, "rules")
    if check(place.text, place.trajectory.problem) or _HEDGE.search(place.text):
        return None
    given = {value for _, value in numbers(place.trajectory.problem)}
    copied = [(m, value) for m, value in numbers(place.text) if value in given and not _LISTED.search(place.text, 0, m.start())]
    for match, _ in _shuffled(copied, rng):
        new = _another(match.group(), rng, place.known)
        # Replace every occurrence in the step: changing only one would read as a typo.
        if new is not None:
            text = _everywhere(place.text, match.group(), new)
            return Planted(
                place.text[: match.start()] + new + place.text[match.end() :] if text == place.text else text, "equality"
            )
    return None


_OPERATORS = {"+": "-", "-": "+", "*": "+", "/": "*", "×": "+", "÷": "×", "\\times": "+", "\\cdot": "+", "\\div": "\\times"}
_OPERATOR = re.compile(r"(?<=[\d)\s}$])(?:[-+*/×÷]|\\times|\\cdot|\\div)(?=[\s\d($\\{])")


def operator(place: Place, rng: Random) -> Planted | None:
    """Replace an operator and keep the result."""
    for equation in _shuffled(equations(place), rng):
        for match in _shuffled(list(_OPERATOR.finditer(equation.left)), rng):
            at = equation.start + match.start()
            new = _OPERATORS[match.group()]
            text = place.text[:at] + new + place.text[at + len(match.group()) :]
            if place.false_with(text):
                return Planted(text, "rules")
    return None


def sign(place: Place, rng: Random) -> Planted | None:
    """Flip the sign of a result."""
    for equation in _shuffled(equations(place), rng):
        old = place.text[slice(*equation.right)]
        # nobody writes "$-5"
        if equation.value and not place.text[: equation.right[0]].rstrip().endswith("$"):
            text = _with_result(place.text, equation, old[1:] if old.startswith("-") else "-" + old)
            if place.false_with(text):
                return Planted(text, "rules")
    return None


_UNITS: tuple[tuple[str, ...], ...] = (
    ("millimeters", "centimeters", "meters", "kilometers"),
    ("mm", "cm", "km"),
    ("inches", "feet", "yards", "miles"),
    ("seconds", "minutes", "hours", "days", "weeks", "months", "years"),
    ("cents", "dollars"),
    ("grams", "kilograms"),
    ("ounces", "pounds"),
    ("milliliters", "liters"),
)


def _one(unit_name: str) -> str:
    """Return the singular of a unit."""
    return {"feet": "foot", "inches": "inch"}.get(unit_name, unit_name.removesuffix("s"))


def unit(place: Place, rng: Random) -> Planted | None:
    """Replace a unit with another of the same dimension that neither the problem nor the earlier steps use."""
    words = set(re.findall(r"[A-Za-z]+", place.text))
    before = set(re.findall(r"[A-Za-z]+", place.before))
    for family in _shuffled(list(_UNITS), rng):
        used = [word for word in family if word in words]
        others = [word for word in family if not before & {word, _one(word)}]
        # A step with two of these units converts between them; a unit that is new in this step may be correct.
        if len(used) != 1 or used[0] not in before or not others or _one(used[0]) in words - {used[0]}:
            continue
        amounts = re.findall(rf"(\d+(?:\.\d+)?)[ ]?(?:\\text\{{[ ]?)?{used[0]}(?![A-Za-z])", place.text)
        if any(Fraction(amount) for amount in amounts):  # 0 is the same in any unit
            text = re.sub(rf"(?<![A-Za-z]){used[0]}(?![A-Za-z])", rng.choice(others), place.text)
            return Planted(text, "equality")
    return None


_EITHER = re.compile(
    r"(?P<one>(?P<name>\$?[a-z]\s*=\s*)-?\$?-?\d+(?:[/.]\d+)*\$?)\s*(?:,?\s+or\s+|\s*\\text\{\s*or\s*\}\s*)(?:\$?[a-z]\s*=\s*)?\$?(?P<two>-?\d+(?:[/.]\d+)*)\$?"
)
_PLUS_MINUS = re.compile(r"(?:\\pm(?![a-z])|±)\s*(?=[\d(\\a-z{])")


def dropped_case(place: Place, rng: Random) -> Planted | None:
    """Drop one of two cases: "x = 2 or x = -3" becomes "x = 2", plus-minus becomes plus."""
    if (match := _EITHER.search(place.text)) is not None:
        one = match["one"]
        if match["two"] not in _rest(place.text, match):
            closed = one + ("$" if one.count("$") % 2 else "")
            return Planted(place.text[: match.start()] + closed + place.text[match.end() :], "equality")
    if len(found := list(_PLUS_MINUS.finditer(place.text))) == 1 and " or " not in place.text:
        return Planted(place.text[: found[0].start()] + place.text[found[0].end() :], "equality")
    return None


_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]{2,}(?![\w-])")
_NO_NAME = frozenset(
    re.findall(
        r"\w+",
        "The This That Then There They She Her His Let Since How What When Which Who Find Each One Two Three Answer Step Mrs"
        " January February March April May June July August September October November December"
        " Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    )
)
_TOGETHER = re.compile(r"\b(?:both|together|total|altogether|sum|each|same|equal|combined)\b", re.IGNORECASE)


def swapped_names(place: Place, rng: Random) -> Planted | None:
    """Replace the name in a step with another name from the problem."""
    names = sorted({name for name in _NAME.findall(place.trajectory.problem) if name not in _NO_NAME})
    here = [name for name in names if re.search(rf"\b{name}\b", place.text)]
    others = [name for name in names if name not in here]
    # A step about two people, or about both together, may stay true after the swap.
    if len(here) != 1 or not others or _TOGETHER.search(place.text):
        return None
    return Planted(re.sub(rf"\b{here[0]}\b", rng.choice(others), place.text), "equality")


def substitution(place: Place, rng: Random) -> Planted | None:
    """Redo a calculation with a wrong number; its result is consistent with that number."""
    for equation in _shuffled(equations(place), rng):
        for match in _shuffled(list(_NUMBER.finditer(equation.left)), rng):
            old = Fraction(match.group().replace(",", ""))
            if old not in place.known:
                continue
            for value in _shuffled(sorted(place.known - {old, Fraction(0), Fraction(1)}), rng):
                used = _written(value, match.group())
                if used is None:
                    continue
                left = equation.left[: match.start()] + used + equation.left[match.end() :]
                result = _worth(left, place)
                written = None if result is None else _written(result, place.text[slice(*equation.right)])
                if result is None or written is None or result == equation.value or result < 0 <= equation.value:
                    continue
                text = place.text[: equation.start] + left + place.text[equation.start + len(equation.left) :]
                shift = len(left) - len(equation.left)
                moved = Equation(equation.start, left, (equation.right[0] + shift, equation.right[1] + shift), equation.value)
                text = _with_result(text, moved, written)
                if not place.false_with(text):
                    return Planted(text, "equality")
    return None


def skipped_step(place: Place, rng: Random) -> Planted | None:
    """Remove a step whose result the next step uses, so that the result has no source."""
    steps = place.trajectory.texts
    if place.at + 1 >= len(steps):
        return None
    brought = {equation.value for equation in equations(place)} - place.known
    used = {value for _, value in numbers(unmarked(steps[place.at + 1]))}
    # A result that the next step computes itself still has a source.
    own = {e.value for e in equations(place_of(place.trajectory, place.at + 1))}
    return Planted(None, "equality") if (brought & used) - own else None


KINDS: Mapping[str, Kind] = {
    "number": number,
    "operator": operator,
    "sign": sign,
    "unit": unit,
    "dropped-case": dropped_case,
    "swapped-names": swapped_names,
    "skipped-step": skipped_step,
    "substitution": substitution,
}


def differs(old: str, new: str) -> bool:
    """Return whether two wordings differ in more than typography: in a number, a sign or at least one word."""
    if [value for _, value in numbers(old)] != [value for _, value in numbers(new)]:
        return True
    return _content(old) != _content(new)


def _content(text: str) -> Counter[str]:
    return Counter(re.findall(r"\\?[^\W\d_]+|[-+*/=<>^×÷≤≥≠]", unmarked(text).lower()))


def plant(kind: str, place: Place, rng: Random) -> Planted | None:
    """Plant an error of this kind; None if it does not fit or would change only typography."""
    planted = KINDS[kind](place, rng)
    return planted if planted and (planted.text is None or differs(place.text, planted.text)) else None


def _shuffled(items: Sequence[Item], rng: Random) -> list[Item]:
    return rng.sample(items, len(items))


def _with_result(text: str, equation: Equation, new: str) -> str:
    """Replace a result, including its later uses in the step."""
    start, end = equation.right
    old = text[start:end]
    # A single digit later in the step may be unrelated.
    rest = _everywhere(text[end:], old, new) if len(old.lstrip("-")) > 1 else text[end:]
    return text[:start] + new + rest


def _everywhere(text: str, old: str, new: str) -> str:
    return re.sub(rf"(?<![\w.,^-]){re.escape(old)}(?![\w^]|[.,]\d)", new.replace("\\", "\\\\"), text)


def _rest(text: str, match: re.Match[str]) -> str:
    return text[: match.start()] + text[match.end() :]


def _another(written: str, rng: Random, avoided: frozenset[Fraction]) -> str | None:
    """Return a plausible wrong number in the same format, or None. Numbers in `avoided` are not used."""
    value = Fraction(written.replace(",", ""))
    digits = [i for i, c in enumerate(written) if c.isdigit()]
    tries = [value + 1, value + 10, value * 10, value + 2]
    tries += [value - 1, value - 10] if value > 10 else []
    for i in digits:
        other = written[:i] + rng.choice([d for d in "123456789" if d != written[i]]) + written[i + 1 :]
        tries.append(Fraction(other.replace(",", "")))
    for candidate in _shuffled(tries, rng):
        if candidate > 0 and candidate != value and candidate not in avoided:
            new = _written(candidate, written)
            if new is not None and new != written:
                return new
    return None


def _written(value: Fraction, like: str) -> str | None:
    """Format a number like another one (thousands separators, decimals); None if it needs more than two decimals."""
    if (value * 100).denominator != 1 or abs(value) >= 10**12:
        return None
    places = len(like.partition(".")[2])
    while (value * 10**places).denominator != 1:
        places += 1
    return format(float(value), ("," if "," in like else "") + f".{places}f")


def _worth(left: str, place: Place) -> Fraction | None:
    """Evaluate the left side of an equation."""
    claims = check(f"{left}= 1", place.trajectory.problem)
    value = claims[-1].left if claims else None
    return Fraction(value) if isinstance(value, int | Fraction) else None
