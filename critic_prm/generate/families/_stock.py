"""Draw word problems about a stock of items that changes through a series of events."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from random import Random

from critic_prm.generate.families._stories import FACTORS, LENGTHS, SIZES, Node, Quantity, Story, show, values, whole
from critic_prm.generate.families._words import ITEMS, NAMES, PLACES, sentence


@dataclass(frozen=True, slots=True)
class Event:
    """An event that changes a stock. `person` and `place` are its wordings: {n} {k} are its quantities, {it} the items."""

    name: str
    person: tuple[str, ...]
    place: tuple[str, ...]
    say: tuple[str, ...]
    first: tuple[str, ...] = ()


EVENTS = (
    Event(
        "gain",
        ("Then {he} gets {n} more {it} from a friend.", "{he} buys {n} more {it}.", "At a fair {he} wins {n} more {it}."),
        ("Then {n} more {it} arrive.", "A delivery brings {n} more {it}.", "{n} more {it} are bought."),
        ("Now there are @ {it}.", "That makes @ {it}.", "With the new ones it is @ {it}."),
    ),
    Event(
        "loss",
        ("{he} gives {n} {it} to a cousin.", "{he} loses {n} {it}.", "Then {he} sells {n} of the {it}."),
        ("Then {n} {it} are taken away.", "{n} of the {it} are sold.", "{n} {it} turn out to be damaged and are thrown away."),
        ("That leaves @ {it}.", "@ {it} remain.", "After that there are @ {it}."),
    ),
    Event(
        "packs",
        ("{he} buys {k} packs with {n} {it} each.", "For a birthday {he} gets {k} bags of {n} {it} each."),
        ("Then {k} loads of {n} {it} each arrive.", "{k} suppliers bring {n} {it} each."),
        ("Now there are @ {it}.", "Together with those from before it is @ {it}."),
        ("The new ones are @ {it}.", "First the new {it}: @."),
    ),
    Event(
        "gifts",
        ("{he} gives {n} {it} to each of {k} friends.", "{he} puts {n} {it} into each of {k} boxes and gives the boxes away."),
        ("Then {k} customers take {n} {it} each.", "{k} vans carry off {n} {it} each."),
        ("So @ {it} are left.", "What stays is @ {it}."),
        ("The {it} that go are @.", "Altogether @ {it} go away."),
    ),
    Event(
        "split",
        ("{he} shares the {it} equally among {k} people, {he} being one of them, and keeps one share.",),
        ("The {it} are split equally among {k} branches, and only the share of one branch stays.",),
        ("One share is @ {it}.", "Each part has @ {it}.", "Dividing equally gives @ {it}."),
    ),
    Event(
        "fold",
        (
            "In the next year the number of {it} grows to {k} times what it was.",
            "A year later {he} has {k} times as many {it}.",
        ),
        ("A month later there are {k} times as many {it}.", "By summer the number of {it} has become {k} times as large."),
        ("The number becomes @.", "Multiplying, there are @ {it}.", "That gives @ {it}."),
    ),
    Event(
        "percent-off",
        ("{he} sells {n}% of the {it}.", "Then {n}% of the {it} get lost in a move."),
        ("{n}% of the {it} are sold.", "Then {n}% of the {it} go to another branch."),
        ("So @ {it} are left.", "@ {it} remain."),
        ("The part that goes is @ {it}.", "{n}% of them: @."),
    ),
    Event(
        "percent-up",
        ("Within a year the number of {it} grows by {n}%.",),
        ("The number of {it} then rises by {n}%.", "Next month the number of {it} is {n}% higher."),
        ("So there are @ {it} afterwards.", "The new number is @."),
        ("The growth is @.", "The increase comes to @ {it}."),
    ),
    Event(
        "half",
        ("{he} gives half of the {it} to a school.", "Half of the {it} go to a sister."),
        ("Half of the {it} are sold in a week.", "Then half of the {it} are given away."),
        ("Half of them stay: @.", "That leaves @ {it}."),
    ),
)


def stock(rng: Random, level: int) -> Story:
    """The items of a person or a place, and the events that change them."""
    person = rng.random() < 0.5
    place, things = rng.choice(PLACES)
    owner, things = (rng.choice(NAMES), rng.choice(ITEMS)) if person else (f"the {place}", things)
    start = whole(rng.randint(*SIZES[level]))
    begin = ("{he} has {n} {it}.", "{he} starts with {n} {it}.", "{he} owns {n} {it}.")
    there = (
        f"A {place} has {{n}} {{it}}.",
        f"There are {{n}} {{it}} in a {place}.",
        f"A {place} starts the month with {{n}} {{it}}.",
    )
    lines = [rng.choice(begin if person else there).format(he=owner, it=things, n=show(start))]
    nodes: list[Node] = []
    here: Quantity | int = start
    value, last, length = start.value, "", rng.randint(*LENGTHS[level])
    while len(nodes) < length:
        event = rng.choice(EVENTS)
        found = None if event.name == last else _happen(event.name, value, rng, level)
        if found is None or len(nodes) + len(found[1]) > length:
            continue
        numbers, shapes = found
        words = {"he": owner, "it": things} | {key: show(number) for key, number in numbers.items()}
        lines.append(sentence(rng.choice(event.person if person else event.place).format(**words)))
        for position, (op, left, right) in enumerate(shapes):
            known = {**numbers, "here": here, "that": len(nodes) - 1}
            say = rng.choice(event.say if position == len(shapes) - 1 else event.first).format(**words)
            nodes.append(Node(op, (known[left], known[right]), say))
        here, last, value = len(nodes) - 1, event.name, values(nodes)[-1]
    ask = rng.choice((f"How many {things} does {owner} have in the end?", f"How many {things} are there in the end?"))
    closing = rng.choice((f"So {owner} has @ {things} in the end.", f"In the end there are @ {things}."))
    opening = rng.choice((f"{sentence(owner)} starts with @ {things}.", f"At the start there are @ {things}."))
    return Story(" ".join([*lines, ask]), tuple(nodes), closing, (opening, start))


Shapes = tuple[tuple[str, str, str], ...]


def _happen(name: str, value: Fraction, rng: Random, level: int) -> tuple[dict[str, Quantity], Shapes] | None:
    """Draw the quantities and calculations of an event if the current `value` allows it; `here` is the stock."""
    amount, factor = rng.randint(*SIZES[level]), rng.randint(*FACTORS[level])
    match name:
        case "gain":
            return {"n": whole(amount)}, (("+", "here", "n"),)
        case "loss" if value > 4:
            return {"n": whole(rng.randint(2, min(int(value) - 2, 2 * amount)))}, (("-", "here", "n"),)
        case "packs":
            each = rng.randint(*FACTORS[level]) + 1
            return {"n": whole(each), "k": whole(factor)}, (("*", "k", "n"), ("+", "here", "that"))
        case "gifts" if value >= 3 * factor:
            each = rng.randint(2, min(int(value - 1) // factor, 2 * FACTORS[level][1]))
            return {"n": whole(each), "k": whole(factor)}, (("*", "k", "n"), ("-", "here", "that"))
        case "split":
            parts = [k for k in range(3, 13) if value % k == 0 and value > 2 * k]
            return ({"k": whole(rng.choice(parts))}, (("/", "here", "k"),)) if parts else None
        case "fold" if value < 4 * SIZES[level][1]:
            return {"k": whole(rng.randint(2, min(6, FACTORS[level][1])))}, (("*", "k", "here"),)
        case "percent-off" | "percent-up" if level > 1:
            shares = [p for p in (5, 10, 15, 20, 25, 30, 40, 60, 75) if value * p % 100 == 0]
            sign = "-" if name == "percent-off" else "+"
            return ({"n": whole(rng.choice(shares))}, (("%", "n", "here"), (sign, "here", "that"))) if shares else None
        case "half" if value % 2 == 0 and value > 4:
            return {"k": whole(2)}, (("/", "here", "k"),)
    return None
