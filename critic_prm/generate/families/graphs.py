"""Graph problems solved by their algorithms: shortest paths, reachability, task orders and cycle detection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from critic_prm.generate.families._common import WORDS, Impossible, Run, SimulatedTask, draw_numbering, listed, say
from critic_prm.generate.family import FamilyTask

KINDS = {
    "missed": 3.0,  # a neighbour or a free task is overlooked
    "sum": 3.0,  # a wrong sum of two lengths
    "edge": 3.0,  # the length of another road, or a link that does not exist
    "choice": 2.0,  # not the nearest place, or not the alphabetically first one
    "early": 3.0,  # taken although a predecessor remains
    "verdict": 3.0,  # a correct search with the wrong answer
}
SIZES = {1: (4, 4), 2: (5, 5), 3: (6, 6), 4: (7, 7), 5: (8, 9)}
Roads = Mapping[str, Mapping[str, int]]
"""Maps each place to its neighbours and their distances; a two-way road is listed under both places."""
Needs = Mapping[str, frozenset[str]]
"""Maps each task to the tasks that must come before it."""


def draw(rng: Random, level: int) -> FamilyTask:
    """Draw one of the four tasks."""
    return rng.choice((draw_shortest, draw_reach, draw_order, draw_cycle))(rng, level)


def draw_places(rng: Random, count: int) -> list[str]:
    """Draw letters or town names, in alphabetical order."""
    return sorted(rng.sample(WORDS["graphs"]["towns"], count) if rng.random() < 0.4 else "ABCDEFGHIJKL"[:count])


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
class ShortestPath(SimulatedTask):
    """The length of the shortest path by Dijkstra's algorithm, settling one place per step."""

    problem: str
    roads: Roads
    start: str
    target: str
    settle: str
    open: str
    numbering: str
    form: str = "shortest"

    def kinds(self, steps: int) -> Sequence[tuple[str, ...]]:
        return [("sum", "edge", "missed"), *[("sum", "edge", "missed", "choice")] * (steps - 2), ("verdict", "choice")]

    def solve(self, run: Run) -> str:
        """Settle places up to the target. An error that changes nothing or leads to a dead end is impossible."""
        waiting, settled = {self.start: 0}, set[str]()
        while waiting:
            place = min(waiting, key=lambda name: (waiting[name], name))
            if run.error == "choice":
                place = run.choose([name for name in waiting if waiting[name] > waiting[place]])
            distance = waiting.pop(place)
            if place == self.target:
                if run.error == "verdict":
                    distance = run.choose([d for d in (*waiting.values(), distance + 1, distance + 2) if d != distance])
                way = f"The shortest way from {self.start} to {place} is {distance} km long."
                run.texts.append(f"{place} is the nearest open place. {way}")
                return str(distance)
            updates = self._update(place, distance, waiting, settled, run)
            settled.add(place)
            still = ", ".join(f"{name} {waiting[name]}" for name in sorted(waiting, key=lambda name: (waiting[name], name)))
            head = self.settle.format(place, distance) if run.texts else f"Start at {place} with 0."
            run.texts.append(f"{head} {updates} {self.open} {still or 'none'}.")
        raise Impossible

    def _update(self, place: str, distance: int, waiting: dict[str, int], settled: set[str], run: Run) -> str:
        """Update the open distances via this place and return the text."""
        lengths = {name: length for name, length in sorted(self.roads[place].items()) if name not in settled}
        shorter = [name for name, length in lengths.items() if distance + length < waiting.get(name, 10**6)]
        kind = run.error if run.error != "choice" else ""
        spoilt = run.choose(shorter) if kind or shorter else ""
        said = []
        for name, length in lengths.items():
            error = kind if name == spoilt else ""
            if error == "missed":
                continue
            if error == "edge":
                others = sorted({other for near in self.roads.values() for other in near.values()} - {length})
                length = run.choose(others or [length + 1])
            total = distance + length
            if error == "sum":
                total += run.choose((-1, 1, 2, 10) if total > 2 else (1, 2))
            old = waiting.get(name)
            better = old is None or total < old
            note = "" if old is None else f", better than {old}" if better else f", no better than {old}"
            said.append(f"{name}: {distance} + {length} = {total}{note}.")
            if better:
                waiting[name] = total
        return " ".join(said) or "No open place is next to it."


def draw_shortest(rng: Random, level: int) -> SimulatedTask:
    """Draw a graph; the target is the last or second-to-last place to be settled."""
    names = draw_places(rng, rng.randint(*SIZES[level]))
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
    shape = say(rng, "graphs", "road")
    listing = ", ".join(shape.format(*(pair if rng.random() < 0.5 else (pair[1], pair[0], pair[2]))) for pair in pairs)
    intro = say(rng, "graphs", "roads")
    ask = say(rng, "graphs", "shortest", start=start, target=target)
    settle, numbering, still = say(rng, "graphs", "settle"), draw_numbering(rng), say(rng, "graphs", "open")
    return ShortestPath(f"{intro} {listing}. {ask}", roads, start, target, settle, still, numbering)


@dataclass(frozen=True)
class Reachability(SimulatedTask):
    """Whether one place can be reached from another, by breadth-first search, expanding one place per step."""

    problem: str
    roads: Roads
    start: str
    target: str
    numbering: str
    form: str = "reach"

    def kinds(self, steps: int) -> Sequence[tuple[str, ...]]:
        return [*[("missed", "edge")] * (steps - 1), ("verdict",)]

    def solve(self, run: Run) -> str:
        reached = [self.start]
        while len(run.texts) < len(reached) and self.target not in reached:
            place = reached[len(run.texts)]
            new = [name for name in sorted(self.roads[place]) if name not in reached]
            if run.error == "missed":
                new.remove(run.choose(new))
            elif run.error == "edge":
                first = not run.texts  # a link from the start to the target would leave nothing to search
                others = [n for n in self.roads if n not in reached and n not in new and not (first and n == self.target)]
                new = sorted([*new, run.choose(others)])
            reached += new
            found = f"New from {place}: {listed(new)}." if new else f"Nothing new from {place}."
            run.texts.append(f"{found} Reached so far: {', '.join(reached)}.")
        yes = (self.target in reached) != (run.error == "verdict")
        run.texts.append(f"So there is {'a' if yes else 'no'} way from {self.start} to {self.target}.")
        return "yes" if yes else "no"


def draw_reach(rng: Random, level: int) -> SimulatedTask:
    """Draw one-way or two-way links in which about half of the targets are reachable."""
    while True:
        names = draw_places(rng, rng.randint(*SIZES[level]) + 1)
        one_way = rng.random() < 0.5
        roads: dict[str, dict[str, int]] = {name: {} for name in names}
        links = []
        for _ in range(len(names) + (level if one_way else 0)):
            a, b = rng.sample(names, 2)
            if b not in roads[a] and (one_way or a not in roads[b]):
                links.append(f"{a}{' -> ' if one_way else '-'}{b}")
                roads[a][b] = 1
                if not one_way:
                    roads[b][a] = 1
        start, target = rng.sample(names, 2)
        intro = say(rng, "graphs", "one_way" if one_way else "two_way")
        ask = say(rng, "graphs", "reach", start=start, target=target)
        task = Reachability(f"{intro}: {', '.join(links)}. {ask}", roads, start, target, draw_numbering(rng))
        # most random pairs are either within a step or two of each other or not connected
        if 3 <= len(task.right.steps) <= level + 4:
            return task


@dataclass(frozen=True)
class TaskOrder(SimulatedTask):
    """Topological order of tasks that always takes the alphabetically first free task."""

    problem: str
    needs: Needs
    free: str
    numbering: str
    form: str = "order"

    def kinds(self, steps: int) -> Sequence[tuple[str, ...]]:
        return [*[("early", "missed", "choice")] * (steps - 1), ("verdict",)]

    def solve(self, run: Run) -> str:
        done: list[str] = []
        while len(done) < len(self.needs):
            free = [name for name in sorted(self.needs) if name not in done and self.needs[name].issubset(done)]
            if run.error == "early":
                blocked = [name for name in sorted(self.needs) if name not in done and name not in free]
                free = sorted([*free, run.choose(blocked)])
            elif run.error == "missed":
                free.remove(run.choose(free))
            if not free:
                raise Impossible
            done.append(run.choose(free[1:]) if run.error == "choice" else free[0])
            run.texts.append(f"{self.free}: {', '.join(free)}. Take {done[-1]}.")
        if run.kind == "verdict":
            i, j = sorted(run.rng.sample(range(len(done)), 2))
            done[i], done[j] = done[j], done[i]
        run.texts.append(f"The order is {', '.join(done)}.")
        return ", ".join(done)


def draw_order(rng: Random, level: int) -> SimulatedTask:
    """Draw a task graph in which each task needs at most three earlier ones of a random order."""
    names = draw_places(rng, rng.randint(*SIZES[level]))
    order = rng.sample(names, len(names))
    needs = {
        name: frozenset(rng.sample(order[:i], min(i, rng.choice((0, 1, 1, 2, 2, 3)))) if i else ())
        for i, name in enumerate(order)
    }
    listing = "; ".join(f"{name} needs {listed(sorted(needs[name])) or 'nothing'}" for name in rng.sample(names, len(names)))
    intro, ask, free = (say(rng, "graphs", key) for key in ("tasks", "order", "free"))
    return TaskOrder(f"{intro} {listing}. {ask}", needs, free, draw_numbering(rng))


@dataclass(frozen=True)
class CycleSearch(SimulatedTask):
    """Cycle detection: remove nodes without incoming arrows until nothing is left or nothing can be removed."""

    problem: str
    needs: Needs
    bare: str
    numbering: str
    form: str = "cycle"

    def kinds(self, steps: int) -> Sequence[tuple[str, ...]]:
        # correct solutions have at least three steps, so none stops before the third
        return [*((("early", "missed") if i > 1 else ("early",)) for i in range(steps - 1)), ("verdict",)]

    def solve(self, run: Run) -> str:
        left = sorted(self.needs)
        while True:
            free = [name for name in left if not self.needs[name].intersection(left)]
            bound = [name for name in left if name not in free]
            if run.error == "early" and not bound:
                raise Impossible
            if not free or run.error == "missed":
                break
            gone = run.choose(bound) if run.error == "early" else free[0]
            left.remove(gone)
            rest = f"Left: {', '.join(left)}." if left else "Nothing is left."
            run.texts.append(f"{self.bare.format(gone)} Take {gone} away. {rest}")
        cycle = bool(left) != (run.error == "verdict")
        end = f"An arrow from what is left ends at each of {listed(left)}" if left else "Everything could be taken away"
        run.texts.append(f"{end}, so there is {'a' if cycle else 'no'} cycle.")
        return "yes" if cycle else "no"


def draw_cycle(rng: Random, level: int) -> SimulatedTask:
    """Draw a graph; about half of them get one backward arrow."""
    while True:
        names = draw_places(rng, rng.randint(*SIZES[level]))
        order = rng.sample(names, len(names))
        arrows = {(order[rng.randrange(i)], order[i]) for i in range(1, len(order))}
        arrows |= {(order[i], order[j]) for i, j in (sorted(rng.sample(range(len(order)), 2)) for _ in range(level))}
        if rng.random() < 0.55:
            low, high = sorted(rng.sample(range(len(order)), 2))
            arrows.add((order[high], order[low]))
        needs = {name: frozenset(a for a, b in arrows if b == name) for name in names}
        shown = ", ".join(f"{a} -> {b}" for a, b in rng.sample(sorted(arrows), len(arrows)))
        intro, ask, bare = (say(rng, "graphs", key) for key in ("arrows", "cycle", "bare"))
        task = CycleSearch(f"{intro} {shown}. {ask}", needs, bare, draw_numbering(rng))
        if len(task.right.steps) >= 3:
            return task
