"""Shortest paths by Dijkstra's algorithm, and reachability by breadth-first search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from critic_prm.generate.families._runs import RunTask
from critic_prm.generate.families._words import NUMBERING, listed, numbered
from critic_prm.generate.family import Solution

TOWNS = (
    "Ambra", "Birkau", "Corvo", "Dunmere", "Elster", "Farrow", "Golm", "Hedby", "Irvine", "Jasna", "Kesten", "Lorca",
    "Morava", "Narvik", "Osby", "Palma", "Quern", "Rosko", "Selby", "Torun", "Ulster", "Varna", "Wexel", "Yarm", "Zelle",
)  # fmt: skip
SIZES = {1: (4, 4), 2: (5, 5), 3: (6, 6), 4: (7, 7), 5: (8, 9)}
Roads = Mapping[str, Mapping[str, int]]
"""Maps each place to its neighbours and their distances; a two-way road is listed under both places."""
ONE_WAY = ("There are one-way streets", "Messages can be sent along these links", "The arrows of a graph are")
TWO_WAY = ("There are two-way roads", "These pairs of places are joined by roads", "The edges of a graph are")


def places_named(rng: Random, count: int) -> list[str]:
    """Draw letters or town names, in alphabetical order."""
    return sorted(rng.sample(TOWNS, count) if rng.random() < 0.4 else "ABCDEFGHIJKL"[:count])


def connected(rng: Random, names: Sequence[str], extra: int, longest: int) -> dict[str, dict[str, int]]:
    """Draw two-way roads that connect all places, plus up to `extra` more."""
    order = rng.sample(names, len(names))
    roads: dict[str, dict[str, int]] = {name: {} for name in names}
    pairs = [(order[i], order[rng.randrange(max(0, i - 2), i)]) for i in range(1, len(order))]
    pairs += [tuple(rng.sample(names, 2)) for _ in range(extra)]  # type: ignore[misc]
    for a, b in pairs:
        roads[a].setdefault(b, rng.randint(1, longest))
        roads[b][a] = roads[a][b]
    return roads


@dataclass(frozen=True)
class ShortestWay:
    """The length of the shortest path by Dijkstra's algorithm, settling one place per step."""

    roads: Roads
    start: str
    target: str
    told: str
    ask: str
    head: str
    open: str
    numbering: str

    @property
    def problem(self) -> str:
        return f"{self.told} {self.ask}"

    @property
    def facts(self) -> Mapping[str, object]:
        return {"form": "shortest"}

    def places(self, steps: int) -> tuple[tuple[str, ...], ...]:
        return tuple(
            ("verdict", "choice") if i == steps - 1 else ("sum", "edge", "missed") + ("choice",) * bool(i) for i in range(steps)
        )

    def run(self, at: int, kind: str, rng: Random) -> Solution | None:
        """Settle places up to the target; None if the error changes nothing or leads to a dead end."""
        waiting, settled, texts = {self.start: 0}, set[str](), list[str]()
        while waiting:
            step = len(texts)
            place = min(waiting, key=lambda name: (waiting[name], name))
            if step == at and kind == "choice":
                farther = [name for name in waiting if waiting[name] > waiting[place]]
                if not farther:
                    return None
                place = rng.choice(farther)
            distance = waiting.pop(place)
            if place == self.target:
                if step == at and kind == "verdict":
                    distance = rng.choice([d for d in (*waiting.values(), distance + 1, distance + 2) if d != distance])
                texts.append(
                    f"{place} is the nearest open place. The shortest way from {self.start} to {place} is {distance} km long."
                )
                return Solution(numbered(texts, self.numbering), str(distance))
            said = self._settle(place, distance, waiting, settled, kind if step == at else "", rng)
            if said is None:
                return None
            settled.add(place)
            still = ", ".join(f"{name} {waiting[name]}" for name in sorted(waiting, key=lambda name: (waiting[name], name)))
            head = f"Start at {place} with 0." if step == 0 else self.head.format(place, distance)
            texts.append(f"{head} {said} {self.open} {still or 'none'}.")
        return None

    def _settle(
        self, place: str, distance: int, waiting: dict[str, int], settled: set[str], kind: str, rng: Random
    ) -> str | None:
        """Update the open distances via this place and return the text."""
        news = {name: length for name, length in sorted(self.roads[place].items()) if name not in settled}
        telling = [name for name, length in news.items() if distance + length < waiting.get(name, 10**6)]
        if kind in ("sum", "edge", "missed") and not telling:
            return None
        spoilt = rng.choice(telling) if telling else ""
        said = []
        for name, length in news.items():
            total = distance + length
            if name == spoilt and kind == "missed":
                continue
            if name == spoilt and kind == "edge":
                lengths = sorted({other for near in self.roads.values() for other in near.values()} - {length})
                length = rng.choice(lengths or [length + 1])
                total = distance + length
            elif name == spoilt and kind == "sum":
                total += rng.choice((-1, 1, 2, 10) if total > 2 else (1, 2))
            old = waiting.get(name)
            if old is not None and total >= old:
                said.append(f"{name}: {distance} + {length} = {total}, no better than {old}.")
                continue
            said.append(f"{name}: {distance} + {length} = {total}" + (f", better than {old}." if old is not None else "."))
            waiting[name] = total
        return " ".join(said) or "No open place is next to it."


def draw_shortest(rng: Random, level: int) -> RunTask:
    """Draw a graph; the target is the last or second-to-last place to be settled."""
    names = places_named(rng, rng.randint(*SIZES[level]))
    roads = connected(rng, names, len(names) // 2 + level // 2, 9 if level < 4 else 30)
    start = rng.choice(names)
    far: dict[str, int] = {}
    waiting = {start: 0}
    while waiting:
        place = min(waiting, key=waiting.__getitem__)
        far[place] = waiting.pop(place)
        for name, length in roads[place].items():
            if name not in far:
                waiting[name] = min(waiting.get(name, 10**6), far[place] + length)
    target = list(far)[-1 - (rng.random() < 0.3)]
    pairs = [(a, b, roads[a][b]) for a in names for b in sorted(roads[a]) if a < b]
    rng.shuffle(pairs)
    shape = rng.choice(("{}-{} {}", "{} to {}: {}", "between {} and {} {}"))
    told = ", ".join(shape.format(*(pair if rng.random() < 0.5 else (pair[1], pair[0], pair[2]))) for pair in pairs)
    intro = rng.choice(
        ("These roads join some places, with lengths in km:", "A map shows these roads (km):", "Road lengths in km:")
    )
    ask = rng.choice(
        (
            f"How long is the shortest way from {start} to {target}?",
            f"Find the length of the shortest way from {start} to {target}.",
        )
    )
    head = rng.choice(("The nearest open place is {} with {}.", "Next comes {} with {}.", "Settle {} at {}."))
    numbering = rng.choice(NUMBERING)
    still = rng.choice(("Open:", "Still open:"))
    return RunTask(ShortestWay(roads, start, target, f"{intro} {told}.", ask, head, still, numbering))


@dataclass(frozen=True)
class Reaching:
    """Whether one place can be reached from another, by breadth-first search, expanding one place per step."""

    roads: Roads
    start: str
    target: str
    told: str
    ask: str
    numbering: str

    @property
    def problem(self) -> str:
        return f"{self.told} {self.ask}"

    @property
    def facts(self) -> Mapping[str, object]:
        return {"form": "reach"}

    def places(self, steps: int) -> tuple[tuple[str, ...], ...]:
        return (("missed", "edge"),) * (steps - 1) + (("verdict",),)

    def run(self, at: int, kind: str, rng: Random) -> Solution | None:
        reached, texts = [self.start], list[str]()
        while len(texts) < len(reached) and self.target not in reached:
            place = reached[len(texts)]
            new = [name for name in sorted(self.roads[place]) if name not in reached]
            if len(texts) == at and kind == "missed":
                if not new:
                    return None
                new.remove(rng.choice(new))
            elif len(texts) == at and kind == "edge":
                others = [
                    name for name in self.roads if name not in reached and name not in new and (at or name != self.target)
                ]
                if not others:
                    return None
                new = sorted([*new, rng.choice(others)])
            reached += new
            found = f"New from {place}: {listed(new)}." if new else f"Nothing new from {place}."
            texts.append(f"{found} Reached so far: {', '.join(reached)}.")
        yes = (self.target in reached) != (kind == "verdict" and len(texts) == at)
        end = (
            f"So there is a way from {self.start} to {self.target}."
            if yes
            else f"So there is no way from {self.start} to {self.target}."
        )
        return Solution(numbered([*texts, end], self.numbering), "yes" if yes else "no")


def draw_reach(rng: Random, level: int) -> RunTask:
    """Draw one-way or two-way links in which about half of the targets are reachable."""
    while True:
        names = places_named(rng, rng.randint(*SIZES[level]) + 1)
        one_way = rng.random() < 0.5
        roads: dict[str, dict[str, int]] = {name: {} for name in names}
        links = []
        for _ in range(len(names) + (level if one_way else 0)):
            a, b = rng.sample(names, 2)
            if b not in roads[a] and (one_way or a not in roads[b]):
                links.append((a, b))
                roads[a][b] = 1
                if not one_way:
                    roads[b][a] = 1
        start, target = rng.sample(names, 2)
        sign = " -> " if one_way else "-"
        intro = rng.choice(ONE_WAY if one_way else TWO_WAY)
        told = f"{intro}: {', '.join(f'{a}{sign}{b}' for a, b in links)}."
        ask = rng.choice((f"Can one get from {start} to {target}?", f"Is there a way from {start} to {target}?"))
        task = RunTask(Reaching(roads, start, target, told, ask, rng.choice(NUMBERING)))
        # most random pairs are either within a step or two of each other or not connected
        if 3 <= len(task.right.steps) <= level + 4:
            return task
