"""Topological ordering of tasks, and cycle detection by removing nodes without incoming arrows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from critic_prm.generate.families._routes import SIZES, places_named
from critic_prm.generate.families._runs import RunTask
from critic_prm.generate.families._words import NUMBERING, listed, numbered
from critic_prm.generate.family import Solution

Needs = Mapping[str, frozenset[str]]
"""Maps each task to the tasks that must come before it."""


@dataclass(frozen=True)
class Ordering:
    """Topological order of tasks that always takes the alphabetically first free task."""

    needs: Needs
    told: str
    ask: str
    free: str
    numbering: str

    @property
    def problem(self) -> str:
        return f"{self.told} {self.ask}"

    @property
    def facts(self) -> Mapping[str, object]:
        return {"form": "order"}

    def places(self, steps: int) -> tuple[tuple[str, ...], ...]:
        return (("early", "missed", "choice"),) * (steps - 1) + (("verdict",),)

    def run(self, at: int, kind: str, rng: Random) -> Solution | None:
        done, texts = list[str](), list[str]()
        while len(done) < len(self.needs):
            wrong = kind if len(texts) == at else ""
            free = [name for name in sorted(self.needs) if name not in done and self.needs[name].issubset(done)]
            blocked = [name for name in sorted(self.needs) if name not in done and name not in free]
            if wrong == "early":
                if not blocked:
                    return None
                free = sorted([*free, rng.choice(blocked)])
            elif wrong == "missed":
                free.remove(rng.choice(free))
            if not free or (wrong == "choice" and len(free) < 2):
                return None
            take = rng.choice(free[1:]) if wrong == "choice" else free[0]
            done.append(take)
            texts.append(f"{self.free}: {', '.join(free)}. Take {take}.")
        if kind == "verdict":
            i, j = sorted(rng.sample(range(len(done)), 2))
            done[i], done[j] = done[j], done[i]
        texts.append(f"The order is {', '.join(done)}.")
        return Solution(numbered(texts, self.numbering), ", ".join(done))


def draw_order(rng: Random, level: int) -> RunTask:
    """Draw a task graph in which each task needs at most three earlier ones of a random order."""
    names = places_named(rng, rng.randint(*SIZES[level]))
    order = rng.sample(names, len(names))
    needs = {
        name: frozenset(rng.sample(order[:i], min(i, rng.choice((0, 1, 1, 2, 2, 3)))) if i else ())
        for i, name in enumerate(order)
    }
    told = [
        f"{name} needs {listed(sorted(needs[name]))}" if needs[name] else f"{name} needs nothing"
        for name in rng.sample(names, len(names))
    ]
    intro = rng.choice(("Some tasks have to wait for others:", "In a project, each task may need others to be done first:",
                        "Build steps and what they need:"))  # fmt: skip
    ask = rng.choice(("In which order are they done if, of the free ones, the first in the alphabet is always taken?",
                      "Give the order that always takes the alphabetically first free one."))  # fmt: skip
    free = rng.choice(("Free now", "Available", "These can be done"))
    return RunTask(Ordering(needs, f"{intro} {'; '.join(told)}.", ask, free, rng.choice(NUMBERING)))


@dataclass(frozen=True)
class CycleSearch:
    """Cycle detection: remove nodes without incoming arrows until nothing is left or nothing can be removed."""

    needs: Needs
    told: str
    ask: str
    bare: str
    numbering: str

    @property
    def problem(self) -> str:
        return f"{self.told} {self.ask}"

    @property
    def facts(self) -> Mapping[str, object]:
        return {"form": "cycle"}

    def places(self, steps: int) -> tuple[tuple[str, ...], ...]:
        # correct solutions have at least three steps, so none stops before the third
        return (*((("early", "missed") if i > 1 else ("early",)) for i in range(steps - 1)), ("verdict",))

    def run(self, at: int, kind: str, rng: Random) -> Solution | None:
        left, texts = sorted(self.needs), list[str]()
        while True:
            wrong = kind if len(texts) == at else ""
            free = [name for name in left if not self.needs[name].intersection(left)]
            bound = [name for name in left if name not in free]
            if wrong == "early" and not bound:
                return None
            if not free or wrong == "missed":
                break
            gone = rng.choice(bound) if wrong == "early" else free[0]
            left.remove(gone)
            rest = f"Left: {', '.join(left)}." if left else "Nothing is left."
            texts.append(f"{self.bare.format(gone)} Take {gone} away. {rest}")
        cycle = bool(left) != (wrong == "verdict")
        end = f"An arrow from what is left ends at each of {listed(left)}" if left else "Everything could be taken away"
        texts.append(f"{end}, so there is {'a' if cycle else 'no'} cycle.")
        return Solution(numbered(texts, self.numbering), "yes" if cycle else "no")


def draw_cycle(rng: Random, level: int) -> RunTask:
    """Draw a graph; about half of them get one backward arrow."""
    while True:
        names = places_named(rng, rng.randint(*SIZES[level]))
        order = rng.sample(names, len(names))
        arrows = {(order[rng.randrange(i)], order[i]) for i in range(1, len(order))}
        arrows |= {(order[i], order[j]) for i, j in (sorted(rng.sample(range(len(order)), 2)) for _ in range(level))}
        if rng.random() < 0.55:
            low, high = sorted(rng.sample(range(len(order)), 2))
            arrows.add((order[high], order[low]))
        needs = {name: frozenset(a for a, b in arrows if b == name) for name in names}
        shown = rng.sample(sorted(arrows), len(arrows))
        intro = rng.choice(
            (
                "A directed graph has these arrows:",
                "These arrows are drawn between points:",
                "Each arrow means that one waits for the other:",
            )
        )
        told = f"{intro} {', '.join(f'{a} -> {b}' for a, b in shown)}."
        ask = rng.choice(
            ("Is there a cycle?", "Do some of the arrows form a cycle?", "Does the graph contain a directed cycle?")
        )
        bare = rng.choice(("No arrow from what is left ends at {}.", "Nothing that is left points to {}."))
        task = RunTask(CycleSearch(needs, told, ask, bare, rng.choice(NUMBERING)))
        if len(task.right.steps) >= 3:
            return task
