"""Word problems: quantities and calculations, the stories that they tell, and plausible wrong numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod
from random import Random

from critic_prm.generate.families._common import NAMES, WORDS, draw_numbering, listed, say, sentence


@dataclass(frozen=True, slots=True)
class Style:
    """How one solution writes numbers and steps. Drawn once per problem, so correct and wrong solutions look alike."""

    latex: bool
    times: str
    over: str
    commas: bool
    numbering: str
    percent: str

    def number(self, value: Fraction, money: bool = False) -> str | None:
        """Format a number, with a dollar sign for money; None if it has more than two decimals."""
        if (value * 100).denominator != 1:
            return None
        whole = value.denominator == 1
        text = format(float(value), ("," if self.commas else "") + (".0f" if whole else ".2f"))
        if money:
            return ("\\$" if self.latex else "$") + text
        return text if whole else text.rstrip("0")

    def sign(self, op: str) -> str:
        """Return the symbol this solution uses for one of + - * /."""
        return {"*": self.times, "/": self.over}.get(op, op)

    def math(self, text: str) -> str:
        """Format an equation for use in a sentence."""
        return f"${text}$" if self.latex else text


def draw_style(rng: Random) -> Style:
    """Draw a writing style."""
    latex = rng.random() < 0.25
    times, over = ("\\times", "/") if latex else rng.choice((("*", "/"), ("*", "/"), ("×", "÷"), ("×", "/"), ("x", "/")))
    percent = rng.choice(("of", "decimal", "hundredths"))
    return Style(latex, times, over, not latex and rng.random() < 0.5, draw_numbering(rng), percent)


def apply(op: str, terms: Sequence[Fraction]) -> Fraction:
    """Apply `op` to the terms from left to right. "%" takes the first term as a percentage of the second."""
    if op == "+":
        return sum(terms, Fraction(0))
    if op == "*":
        return prod(terms, start=Fraction(1))
    left, right = terms
    return left - right if op == "-" else left / right if op == "/" else left * right / 100


def transposed(value: Fraction, rng: Random) -> Fraction:
    """Swap two adjacent digits of an integer; return the number itself if no swap changes it."""
    digits = str(value.numerator)
    spots = [i for i in range(len(digits) - 1) if digits[i] != digits[i + 1] and not (i == 0 and digits[1] == "0")]
    if value.denominator != 1 or not spots:
        return value
    i = rng.choice(spots)
    return Fraction(int(digits[:i] + digits[i + 1] + digits[i] + digits[i + 2 :]))


def slips(op: str, terms: Sequence[Fraction], value: Fraction, rng: Random) -> list[Fraction]:
    """Return plausible wrong results of applying `op` to `terms`; likelier ones occur more than once."""
    cent = Fraction(1) if value.denominator == 1 else Fraction(1, 2)
    found = [value + cent, value - cent, value + 10 * cent, value - 10 * cent, value + 2, value - 2, transposed(value, rng)]
    if op == "*":  # an adjacent entry of the multiplication table
        first, second = terms[0], terms[1]
        found += [value + first, value - first, value + second, value - second, *_digit(value, rng)]
    elif op in "+-" and all(term.denominator == 1 for term in terms):
        found += [_without_carry(op, terms), value + 10, value - 10, value + 100 if value > 200 else value + 10]
    else:
        found += [value + 5, value - 5, value * 2, *_digit(value, rng)]
    return [wrong for wrong in found if wrong != value and wrong > 0]


def misread(value: Fraction, rng: Random) -> list[Fraction]:
    """Return plausible misreadings of a quantity in the problem."""
    step = 1 if value < 20 else 10
    return [v for v in (transposed(value, rng), transposed(value, rng), value + step, value - step) if v != value and v > 1]


def _digit(value: Fraction, rng: Random) -> list[Fraction]:
    """Change one digit other than the first."""
    text = str(value.numerator)
    if value.denominator != 1 or len(text) < 2:
        return []
    at = rng.randrange(1, len(text))
    return [Fraction(int(text[:at] + rng.choice("0123456789") + text[at + 1 :]))]


def _without_carry(op: str, terms: Sequence[Fraction]) -> Fraction:
    """Add digit by digit without carries, or subtract the smaller digit from the larger."""
    numbers = [int(term) for term in terms]
    place, result = 1, 0
    while any(number // place for number in numbers):
        digits = [number // place % 10 for number in numbers]
        result += place * (sum(digits) % 10 if op == "+" else abs(digits[0] - digits[1]))
        place *= 10
    return Fraction(result)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number stated in the problem."""

    value: Fraction
    money: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """One calculation. Its terms are quantities or indices of earlier nodes. "@" in `say` stands for its equation.

    `joined` nodes are written in the same step as the previous node.
    """

    op: str
    terms: tuple[Quantity | int, ...]
    say: str
    money: bool = False
    joined: bool = False


@dataclass(frozen=True, slots=True)
class Story:
    """A word problem. "@" stands for the restated quantity in `opening` and for the answer in `closing`."""

    problem: str
    nodes: tuple[Node, ...]
    closing: str
    opening: tuple[str, Quantity] | None = None


SIZES = {1: (4, 20), 2: (8, 60), 3: (20, 150), 4: (40, 600), 5: (100, 3000)}
FACTORS = {1: (2, 5), 2: (2, 9), 3: (3, 12), 4: (3, 25), 5: (4, 60)}
LENGTHS = {1: (2, 3), 2: (3, 3), 3: (4, 5), 4: (5, 6), 5: (7, 8)}
"""SIZES, FACTORS and LENGTHS give ranges per level: of counts, of factors, and of the number of calculations."""


def whole(value: int) -> Quantity:
    """Build a quantity from an integer."""
    return Quantity(Fraction(value))


def dollars(value: int) -> Quantity:
    """Build an amount of money."""
    return Quantity(Fraction(value), money=True)


def price(rng: Random, level: int) -> Quantity:
    """Draw a price: whole dollars at levels 1 and 2, multiples of 5 cents above."""
    cents = rng.randint(*FACTORS[level]) * 100 + (0 if level < 3 else rng.choice((0, 20, 25, 40, 50, 60, 75, 80, 95)))
    return Quantity(Fraction(cents, 100), money=True)


def show(quantity: Quantity) -> str:
    """Format a quantity as the problem states it."""
    if not quantity.money:
        return str(quantity.value)
    return f"${quantity.value}" if quantity.value.denominator == 1 else f"${float(quantity.value):.2f}"


def results(nodes: Sequence[Node]) -> list[Fraction]:
    """Return the correct result of every calculation."""
    done: list[Fraction] = []
    for node in nodes:
        done.append(apply(node.op, [done[term] if isinstance(term, int) else term.value for term in node.terms]))
    return done


@dataclass
class Draft:
    """A story in the making."""

    rng: Random
    section: str
    """Its section of words.toml."""
    lines: list[str] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)

    def say(self, key: str, **values: object) -> str:
        """Draw a phrase; see `_common.say`."""
        return say(self.rng, self.section, key, **values)

    def add(self, op: str, terms: Sequence[Quantity | int], key: str, money: bool = False, **values: object) -> None:
        """Add a calculation that the phrase `key` states."""
        self.nodes.append(Node(op, tuple(terms), self.say(key, **values), money))

    @property
    def last(self) -> int:
        """Index of the last calculation."""
        return len(self.nodes) - 1

    @property
    def result(self) -> Fraction:
        """Result of the last calculation."""
        return results(self.nodes)[-1]

    def story(self, ask: str, closing: str, opening: tuple[str, Quantity] | None = None) -> Story:
        """Finish the story with its question."""
        return Story(" ".join([*self.lines, ask]), tuple(self.nodes), closing, opening)


def stock(rng: Random, level: int) -> Story:
    """The items of a person or a place, and the events that change them."""
    person = rng.random() < 0.5
    place, things = rng.choice(WORDS["stories"]["places"])
    owner, things = (rng.choice(NAMES), rng.choice(WORDS["stories"]["items"])) if person else (f"the {place}", things)
    draft, start = Draft(rng, "stock"), whole(rng.randint(*SIZES[level]))
    names = {"he": owner, "He": sentence(owner), "it": things, "place": place}
    draft.lines.append(draft.say("person" if person else "place", **names, n=show(start)))
    here: Quantity | int = start
    value, last, length = start.value, "", rng.randint(*LENGTHS[level])
    while len(draft.nodes) < length:
        name, event = rng.choice(list(WORDS["stock"]["events"].items()))
        numbers = None if name == last else _quantities(name, value, rng, level)
        shapes = event["calculations"]
        if numbers is None or len(draft.nodes) + len(shapes) > length:
            continue
        filled = names | {key: show(number) for key, number in numbers.items()}
        draft.lines.append(sentence(rng.choice(event["person" if person else "place"]).format(**filled)))
        for position, (op, *sides) in enumerate(shapes):
            terms: Mapping[str, Quantity | int] = {**numbers, "here": here, "that": draft.last}
            phrase = rng.choice(event["say" if position == len(shapes) - 1 else "first"]).format(**filled)
            draft.nodes.append(Node(op, tuple(terms[side] for side in sides), phrase))
        here, last, value = draft.last, name, draft.result
    return draft.story(draft.say("ask", **names), draft.say("closing", **names), (draft.say("opening", **names), start))


def _quantities(name: str, value: Fraction, rng: Random, level: int) -> dict[str, Quantity] | None:
    """Draw the quantities of an event; None if the stock of `value` items does not allow it."""
    amount, factor = rng.randint(*SIZES[level]), rng.randint(*FACTORS[level])
    match name:
        case "gain":
            return {"n": whole(amount)}
        case "loss" if value > 4:
            return {"n": whole(rng.randint(2, min(int(value) - 2, 2 * amount)))}
        case "packs":
            return {"n": whole(rng.randint(*FACTORS[level]) + 1), "k": whole(factor)}
        case "gifts" if value >= 3 * factor:
            return {"n": whole(rng.randint(2, min(int(value - 1) // factor, 2 * FACTORS[level][1]))), "k": whole(factor)}
        case "split":
            parts = [k for k in range(3, 13) if value % k == 0 and value > 2 * k]
            return {"k": whole(rng.choice(parts))} if parts else None
        case "fold" if value < 4 * SIZES[level][1]:
            return {"k": whole(rng.randint(2, min(6, FACTORS[level][1])))}
        case "percent-off" | "percent-up" if level > 1:
            shares = [p for p in (5, 10, 15, 20, 25, 30, 40, 60, 75) if value * p % 100 == 0]
            return {"n": whole(rng.choice(shares))} if shares else None
        case "half" if value % 2 == 0 and value > 4:
            return {"k": whole(2)}
    return None


def shop(rng: Random, level: int) -> Story:
    """Several goods and their prices, with an optional discount, delivery fee, voucher and change."""
    draft, name, kinds = Draft(rng, "shop"), rng.choice(NAMES), {1: 2, 2: 2, 3: 3, 4: 3, 5: 4}[level]
    goods = rng.sample(WORDS["stories"]["goods"], kinds)
    low, high = FACTORS[min(level, 3)]
    counts = [whole(rng.randint(low, high + 1)) for _ in goods]
    prices = [price(rng, min(level, 4)) for _ in goods]
    items = list(zip(counts, prices, goods, strict=True))
    bought = listed([f"{show(n)} {good} at {show(p)} each" for n, p, good in items])
    draft.lines.append(draft.say("buys", name=name, goods=bought))
    for n, p, good in items:
        draft.add("*", (n, p), "cost", True, good=good, Good=sentence(good))
    draft.add("+", range(kinds), "total", True)
    total = draft.result
    shares = [p for p in (5, 10, 15, 20, 25, 30) if (total * p).denominator == 1]
    if level >= 3 and shares and rng.random() < 0.6:
        share = whole(rng.choice(shares))
        draft.lines.append(draft.say("offer", n=show(share)))
        draft.add("%", (share, draft.last), "discount", True)
        draft.add("-", (draft.last - 1, draft.last), "reduced", True)
    if level >= 4:
        fee = price(rng, 3)
        draft.lines.append(draft.say("delivery", n=show(fee)))
        draft.add("+", (draft.last, fee), "with_fee", True)
    if rng.random() >= 0.5:
        return draft.story(f"How much does {name} have to pay?", f"{name} has to pay @.")
    due = draft.result
    note = dollars(next(n for n in (20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000) if n > due))
    draft.lines.append(draft.say("pays", name=name, n=show(note)))
    draft.add("-", (note, draft.last), "change", True)
    return draft.story(f"How much change does {name} get?", f"{name} gets @ back.")


COMPARISONS = {
    "more": ("+", "{who} has {n} more than {other}."),
    "fewer": ("-", "{who} has {n} fewer than {other}."),
    "times": ("*", "{who} has {n} times as many as {other}."),
    "half": ("/", "{who} has half as many as {other}."),
}


def compare(rng: Random, level: int) -> Story:
    """Quantities defined relative to each other; the question asks for their sum or the difference of two."""
    people = rng.sample(NAMES, rng.randint(2, 3) if level == 1 else level + 1)
    things, draft = rng.choice(WORDS["stories"]["items"]), Draft(rng, "compare")
    start = whole(rng.randint(*SIZES[min(level, 4)]))
    draft.lines.append(f"{people[0]} has {show(start)} {things}.")
    held: list[Quantity | int] = [start]
    amounts = [start.value]
    for index, who in enumerate(people[1:], 1):
        base = rng.randrange(index) if rng.random() < 0.4 else index - 1
        has = amounts[base]
        ways = ["more", "times"] if has < 400 else ["more"]
        ways += ["fewer"] * (has > 6) + ["half"] * (has % 2 == 0)
        way = rng.choice(ways)
        number = whole(rng.randint(2, min(int(has) - 2, SIZES[level][1])) if way == "fewer" else rng.randint(*SIZES[level]))
        number = whole(2) if way == "half" else whole(rng.randint(2, min(5, FACTORS[level][1]))) if way == "times" else number
        op, line = COMPARISONS[way]
        draft.lines.append(line.format(who=who, n=show(number), other=people[base]))
        draft.add(op, (number, held[base]) if way == "times" else (held[base], number), "has", who=who, things=things)
        held.append(draft.last)
        amounts.append(draft.result)
    high, low = max(range(len(people)), key=amounts.__getitem__), min(range(len(people)), key=amounts.__getitem__)
    opening = (f"{people[0]} has @ {things}.", start)
    if rng.random() < 0.35 and amounts[high] > amounts[low]:
        more, fewer = people[high], people[low]
        draft.add("-", (held[high], held[low]), "difference", more=more, fewer=fewer)
        return draft.story(f"How many more {things} does {more} have than {fewer}?", f"{more} has @ more.", opening)
    draft.add("+", held, "total", things=things)
    return draft.story(f"How many {things} do they have altogether?", f"Altogether they have @ {things}.", opening)


def machine(rng: Random, level: int) -> Story:
    """Output at a constant rate per hour; some items are faulty; the rest is packed and possibly sold."""
    maker, things = rng.choice(WORDS["stories"]["machines"])
    draft = Draft(rng, "machine")
    while True:
        rate, hours = rng.randint(*SIZES[min(level, 3)]) + 3, rng.randint(*FACTORS[min(level, 3)])
        made, pack = rate * hours, rng.randint(*FACTORS[min(level, 4)])
        shares = [p for p in (5, 10, 20, 25) if made * p % 100 == 0]
        share = rng.choice(shares) if shares else 0
        good = made - made * share // 100
        if share and good % pack == 0 and good > pack:
            break
    article = "An" if maker[0] in "aeiou" else "A"
    draft.lines += [
        f"{article} {maker} makes {rate} {things} an hour and runs for {hours} hours.",
        f"{share}% of the {things} are faulty and are thrown away.",
    ]
    draft.add("*", (whole(rate), whole(hours)), "made", things=things)
    draft.add("%", (whole(share), 0), "faulty", things=things)
    draft.add("-", (0, 1), "good", things=things)
    ask, closing = f"How many good {things} are there?", f"There are @ good {things}."
    if level >= 2:
        draft.lines.append(f"The good ones are packed into boxes of {pack}.")
        draft.add("/", (2, whole(pack)), "boxes")
        ask, closing = "How many boxes are filled?", "@ boxes are filled."
    if level >= 3:
        each = price(rng, level)
        draft.lines.append(f"Each box is sold for {show(each)}.")
        draft.add("*", (3, each), "sales", True)
        ask, closing = "How much money do the boxes bring in?", "The boxes bring in @."
    if level >= 4:
        wage = dollars(rng.randint(1, max(1, int(draft.result / hours) - 1)))
        draft.lines.append(f"Running the {maker} costs {show(wage)} an hour.")
        draft.add("*", (whole(hours), wage), "cost", True)
        draft.add("-", (4, 5), "profit", True)
        ask, closing = "How much is left of the sales after the running cost?", "@ is left."
    return draft.story(ask, closing)


def trip(rng: Random, level: int) -> Story:
    """Legs at different speeds; asks for the distance, the remaining distance or the time."""
    draft, who, legs = Draft(rng, "trip"), rng.choice(WORDS["stories"]["vehicles"]), {1: 2, 2: 2, 3: 3, 4: 3, 5: 4}[level]
    speeds = [whole(rng.randint(*SIZES[min(level, 3)]) + 4) for _ in range(legs)]
    hours = [whole(rng.randint(2, 3 + level)) for _ in range(legs)]
    parts = list(zip(hours, speeds, strict=True))
    draft.lines.append(f"A {who} travels {listed([f'{show(h)} hours at {show(v)} km/h' for h, v in parts], 'and then')}.")
    for i, part in enumerate(parts, 1):
        draft.add("*", part, "leg", i=i)
    draft.add("+", range(legs), "total")
    ask, closing = "How many kilometres is that in all?", "In all it is @ km."
    if level >= 2 and rng.random() < 0.7:
        goal = whole(int(draft.result) + rng.randint(*SIZES[level]))
        draft.lines.append(f"The whole way is {show(goal)} km long.")
        draft.add("-", (goal, legs), "left")
        ask, closing = "How many kilometres are still to go?", "@ km are still to go."
        rest = int(draft.result)
        if level >= 3 and (speeds_left := [v for v in range(3, 90) if rest % v == 0 and rest > v]):
            speed = whole(rng.choice(speeds_left))
            draft.lines.append(f"For the rest it goes at {show(speed)} km/h.")
            draft.add("/", (draft.last, speed), "time")
            ask, closing = "How many hours does the rest take?", "The rest takes @ hours."
    return draft.story(ask, closing)


def savings(rng: Random, level: int) -> Story:
    """Weekly savings plus an initial amount, minus expenses; the result is shared or compared with a goal."""
    draft, name = Draft(rng, "savings"), rng.choice(NAMES)
    weekly, weeks = dollars(rng.randint(*SIZES[min(level, 3)])), whole(rng.randint(3, 6 + 3 * level))
    own = dollars(rng.randint(*SIZES[level]))
    draft.lines.append(f"{name} has {show(own)} and saves {show(weekly)} a week for {show(weeks)} weeks.")
    draft.add("*", (weeks, weekly), "saved", True, name=name)
    draft.add("+", (own, 0), "total", True, name=name)
    ask, closing = f"How much money does {name} have then?", f"{name} then has @."
    if level >= 2:
        spent = dollars(rng.randint(2, int(draft.result) - 2))
        draft.lines.append(f"Then {name} spends {show(spent)} on a present.")
        draft.add("-", (1, spent), "left", True)
        ask, closing = f"How much money does {name} have left?", f"{name} has @ left."
    if level >= 3:
        left, before = draft.result, draft.last
        count, each = rng.randint(2, 5 * level), price(rng, level)
        draft.lines.append(f"{name} wants to buy {count} {rng.choice(WORDS['stories']['goods'])} at {show(each)} each.")
        draft.add("*", (whole(count), each), "price", True)
        if draft.result > left:
            draft.add("-", (draft.last, before), "missing", True)
            ask, closing = f"How much money is {name} short?", f"{name} is @ short."
        else:
            draft.add("-", (before, draft.last), "rest", True)
            ask, closing = "How much money is left after that?", "@ is left after that."
    return draft.story(ask, closing)
