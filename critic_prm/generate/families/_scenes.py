"""Draw word problems with a fixed structure: a purchase, a comparison, a machine's output, a trip, savings."""

from __future__ import annotations

from fractions import Fraction
from random import Random

from critic_prm.generate.families._stories import FACTORS, SIZES, Node, Quantity, Story, price, show, values, whole
from critic_prm.generate.families._words import ITEMS, NAMES, article, listed, sentence, some

GOODS = (
    "loaves of bread", "jars of honey", "cups of tea", "tickets", "notebooks", "lamps", "bags of rice", "bottles of juice",
    "mugs", "towels", "potted plants", "boxes of eggs", "tins of paint", "pairs of socks", "umbrellas", "wheels of cheese",
    "cushions", "rolls of tape",
)  # fmt: skip
MACHINES = (("machine", "screws"), ("printer", "pages"), ("oven", "rolls"), ("loom", "scarves"), ("robot", "circuit boards"),
            ("press", "cans"), ("workshop", "chairs"), ("kiln", "bricks"), ("team", "parcels"))  # fmt: skip
VEHICLES = ("cyclist", "lorry", "train", "ferry", "bus", "hiker", "delivery van", "sailing boat")


def shop(rng: Random, level: int) -> Story:
    """Several goods and their prices, with an optional discount, delivery fee, voucher and change."""
    name, kinds = rng.choice(NAMES), {1: 2, 2: 2, 3: 3, 4: 3, 5: 4}[level]
    goods = some(rng, GOODS, kinds)
    counts = [whole(rng.randint(FACTORS[min(level, 3)][0], FACTORS[min(level, 3)][1] + 1)) for _ in goods]
    prices = [price(rng, min(level, 4)) for _ in goods]
    told = listed([f"{show(n)} {good} at {show(p)} each" for n, p, good in zip(counts, prices, goods, strict=True)])
    lines = [rng.choice((f"{name} buys {told}.", f"In a shop {name} takes {told}."))]
    nodes = [
        Node("*", (n, p), rng.choice((f"The {good} cost @.", f"For the {good}: @.", f"{sentence(good)}: @.")), money=True)
        for n, p, good in zip(counts, prices, goods, strict=True)
    ]
    nodes.append(
        Node("+", tuple(range(kinds)), rng.choice(("Together that is @.", "The total is @.", "Adding up: @.")), money=True)
    )
    total = values(nodes)[-1]
    shares = [p for p in (5, 10, 15, 20, 25, 30) if (total * p).denominator == 1]
    if level >= 3 and shares and rng.random() < 0.6:
        share = whole(rng.choice(shares))
        lines.append(
            rng.choice(
                (f"The shop gives a discount of {show(share)}% on everything.", f"There is {show(share)}% off the total today.")
            )
        )
        nodes.append(Node("%", (share, len(nodes) - 1), rng.choice(("The discount is @.", "What comes off: @.")), money=True))
        nodes.append(
            Node(
                "-", (len(nodes) - 2, len(nodes) - 1), rng.choice(("After the discount it is @.", "That leaves @.")), money=True
            )
        )
    if level >= 4:
        fee = price(rng, 3)
        lines.append(rng.choice((f"Delivery costs {show(fee)} more.", f"On top there is a delivery fee of {show(fee)}.")))
        nodes.append(
            Node("+", (len(nodes) - 1, fee), rng.choice(("With the delivery it is @.", "Adding the fee gives @.")), money=True)
        )
    ask, closing = f"How much does {name} have to pay?", f"{name} has to pay @."
    if rng.random() < 0.5:
        due = values(nodes)[-1]
        note = Quantity(Fraction(next(n for n in (20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000) if n > due)), money=True)
        lines.append(rng.choice((f"{name} pays with {show(note)}.", f"{name} hands over {show(note)}.")))
        nodes.append(Node("-", (note, len(nodes) - 1), rng.choice(("The change is @.", "That gives back @.")), money=True))
        ask, closing = f"How much change does {name} get?", f"{name} gets @ back."
    return Story(" ".join([*lines, ask]), tuple(nodes), closing)


def compare(rng: Random, level: int) -> Story:
    """Quantities defined relative to each other; the question asks for their sum or the difference of two."""
    people, things = some(rng, NAMES, rng.randint(2, 3) if level == 1 else level + 1), rng.choice(ITEMS)
    start = whole(rng.randint(*SIZES[min(level, 4)]))
    lines, nodes = [f"{people[0]} has {show(start)} {things}."], list[Node]()
    held: list[Quantity | int] = [start]
    amounts = [start.value]
    for index, who in enumerate(people[1:], 1):
        base = rng.randrange(index) if rng.random() < 0.4 else index - 1
        other, has = people[base], amounts[base]
        ways = ["more", "times"] if has < 400 else ["more"]
        ways += ["fewer"] * (has > 6) + ["half"] * (has % 2 == 0)
        way = rng.choice(ways)
        number = whole(rng.randint(2, min(int(has) - 2, SIZES[level][1])) if way == "fewer" else rng.randint(*SIZES[level]))
        number = whole(2) if way == "half" else whole(rng.randint(2, min(5, FACTORS[level][1]))) if way == "times" else number
        lines.append({
            "more": f"{who} has {show(number)} more than {other}.",
            "fewer": f"{who} has {show(number)} fewer than {other}.",
            "times": f"{who} has {show(number)} times as many as {other}.",
            "half": f"{who} has half as many as {other}.",
        }[way])  # fmt: skip
        op = {"more": "+", "fewer": "-", "times": "*", "half": "/"}[way]
        terms = (number, held[base]) if way == "times" else (held[base], number)
        nodes.append(Node(op, terms, rng.choice((f"{who} has @ {things}.", f"{who}: @.", f"For {who} that means @."))))
        held.append(len(nodes) - 1)
        amounts.append(values(nodes)[-1])
    high, low = max(range(len(people)), key=amounts.__getitem__), min(range(len(people)), key=amounts.__getitem__)
    if rng.random() < 0.35 and amounts[high] > amounts[low]:
        nodes.append(
            Node(
                "-",
                (held[high], held[low]),
                rng.choice(("The difference is @.", f"Comparing {people[high]} and {people[low]}: @.")),
            )
        )
        ask, closing = f"How many more {things} does {people[high]} have than {people[low]}?", f"{people[high]} has @ more."
    else:
        nodes.append(
            Node("+", tuple(held), rng.choice(("Together that is @.", "Adding all of them: @.", f"In all it is @ {things}.")))
        )
        ask, closing = f"How many {things} do they have altogether?", f"Altogether they have @ {things}."
    return Story(" ".join([*lines, ask]), tuple(nodes), closing, (f"{people[0]} has @ {things}.", start))


def machine(rng: Random, level: int) -> Story:
    """Output at a constant rate per hour; some items are faulty; the rest is packed and possibly sold."""
    maker, things = rng.choice(MACHINES)
    while True:
        rate, hours = rng.randint(*SIZES[min(level, 3)]) + 3, rng.randint(*FACTORS[min(level, 3)])
        made, pack = rate * hours, rng.randint(*FACTORS[min(level, 4)])
        shares = [p for p in (5, 10, 20, 25) if made * p % 100 == 0]
        share = rng.choice(shares) if shares else 0
        good = made - made * share // 100
        if share and good % pack == 0 and good > pack:
            break
    lines = [
        f"{sentence(article(maker))} makes {rate} {things} an hour and runs for {hours} hours.",
        f"{share}% of the {things} are faulty and are thrown away.",
    ]
    nodes = [
        Node("*", (whole(rate), whole(hours)), rng.choice((f"It makes @ {things}.", f"In that time @ {things} are made."))),
        Node("%", (whole(share), 0), rng.choice(("Faulty ones: @.", f"Of these @ {things} are faulty."))),
        Node("-", (0, 1), rng.choice((f"So @ {things} are good.", "That leaves @ good ones."))),
    ]
    ask, closing = f"How many good {things} are there?", f"There are @ good {things}."
    if level >= 2:
        lines.append(f"The good ones are packed into boxes of {pack}.")
        nodes.append(Node("/", (2, whole(pack)), rng.choice(("That fills @ boxes.", "Number of boxes: @."))))
        ask, closing = "How many boxes are filled?", "@ boxes are filled."
    if level >= 3:
        each = price(rng, level)
        lines.append(f"Each box is sold for {show(each)}.")
        nodes.append(Node("*", (3, each), rng.choice(("The boxes bring in @.", "The sales come to @.")), money=True))
        ask, closing = "How much money do the boxes bring in?", "The boxes bring in @."
    if level >= 4:
        wage = Quantity(Fraction(rng.randint(1, max(1, int(values(nodes)[-1] / hours) - 1))), money=True)
        lines.append(f"Running the {maker} costs {show(wage)} an hour.")
        nodes.append(Node("*", (whole(hours), wage), rng.choice(("The running cost is @.", "Running it costs @.")), money=True))
        nodes.append(Node("-", (4, 5), rng.choice(("What remains is @.", "The profit is @.")), money=True))
        ask, closing = "How much is left of the sales after the running cost?", "@ is left."
    return Story(" ".join([*lines, ask]), tuple(nodes), closing)


def trip(rng: Random, level: int) -> Story:
    """Legs at different speeds; asks for the distance, the remaining distance or the fuel."""
    who, legs = rng.choice(VEHICLES), {1: 2, 2: 2, 3: 3, 4: 3, 5: 4}[level]
    speeds = [whole(rng.randint(*SIZES[min(level, 3)]) + 4) for _ in range(legs)]
    hours = [whole(rng.randint(2, 3 + level)) for _ in range(legs)]
    told = [f"{show(h)} hours at {show(v)} km/h" for h, v in zip(hours, speeds, strict=True)]
    lines = [f"A {who} travels {listed(told, 'and then')}."]
    nodes = [
        Node("*", (h, v), rng.choice((f"Part {i} of the trip: @ km.", f"On leg {i} it covers @ km.", f"Leg {i}: @ km.")))
        for i, (h, v) in enumerate(zip(hours, speeds, strict=True), 1)
    ]
    nodes.append(Node("+", tuple(range(legs)), rng.choice(("In all that is @ km.", "The distance is @ km."))))
    ask, closing, total = "How many kilometres is that in all?", "In all it is @ km.", values(nodes)[-1]
    if level >= 2 and rng.random() < 0.7:
        goal = whole(int(total) + rng.randint(*SIZES[level]))
        lines.append(f"The whole way is {show(goal)} km long.")
        nodes.append(Node("-", (goal, legs), rng.choice(("Still to go: @ km.", "That leaves @ km."))))
        ask, closing = "How many kilometres are still to go?", "@ km are still to go."
        rest = int(values(nodes)[-1])
        if level >= 3 and (speeds_left := [v for v in range(3, 90) if rest % v == 0 and rest > v]):
            speed = whole(rng.choice(speeds_left))
            lines.append(f"For the rest it goes at {show(speed)} km/h.")
            nodes.append(Node("/", (len(nodes) - 1, speed), rng.choice(("This takes @ hours.", "Time for the rest: @ hours."))))
            ask, closing = "How many hours does the rest take?", "The rest takes @ hours."
    return Story(" ".join([*lines, ask]), tuple(nodes), closing)


def savings(rng: Random, level: int) -> Story:
    """Weekly savings plus an initial amount, minus expenses; the result is shared or compared with a goal."""
    name = rng.choice(NAMES)
    weekly, weeks = Quantity(Fraction(rng.randint(*SIZES[min(level, 3)])), money=True), whole(rng.randint(3, 6 + 3 * level))
    own = Quantity(Fraction(rng.randint(*SIZES[level])), money=True)
    lines = [f"{name} has {show(own)} and saves {show(weekly)} a week for {show(weeks)} weeks."]
    nodes = [
        Node("*", (weeks, weekly), rng.choice(("The weekly savings come to @.", f"{name} puts aside @.")), money=True),
        Node("+", (own, 0), rng.choice(("With what was there before it is @.", f"Now {name} has @.")), money=True),
    ]
    ask, closing = f"How much money does {name} have then?", f"{name} then has @."
    if level >= 2:
        spent = Quantity(Fraction(rng.randint(2, int(values(nodes)[-1]) - 2)), money=True)
        lines.append(f"Then {name} spends {show(spent)} on a present.")
        nodes.append(Node("-", (1, spent), rng.choice(("After the present @ is left.", "That leaves @.")), money=True))
        ask, closing = f"How much money does {name} have left?", f"{name} has @ left."
    if level >= 3:
        left = values(nodes)[-1]
        count, each = rng.randint(2, 5 * level), price(rng, level)
        lines.append(f"{name} wants to buy {count} {rng.choice(GOODS)} at {show(each)} each.")
        nodes.append(
            Node("*", (whole(count), each), rng.choice(("What is to be bought costs @.", "The wish costs @.")), money=True)
        )
        cost, index = values(nodes)[-1], len(nodes)
        if cost > left:
            nodes.append(Node("-", (index - 1, index - 2), rng.choice(("So @ is missing.", "The gap is @.")), money=True))
            ask, closing = f"How much money is {name} short?", f"{name} is @ short."
        else:
            nodes.append(Node("-", (index - 2, index - 1), rng.choice(("So @ would remain.", "The rest is @.")), money=True))
            ask, closing = "How much money is left after that?", "@ is left after that."
    return Story(" ".join([*lines, ask]), tuple(nodes), closing)
