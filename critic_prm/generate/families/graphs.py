"""Graphs: shortest ways, what can be reached, orders of tasks that need each other, and cycles, by their algorithms."""

from __future__ import annotations

from random import Random

from critic_prm.generate.families._orders import draw_cycle, draw_order
from critic_prm.generate.families._routes import draw_reach, draw_shortest
from critic_prm.generate.family import FamilyTask

KINDS = {
    "missed": 3.0,  # a neighbour, or a free task, is overlooked
    "sum": 3.0,  # two lengths added wrongly
    "edge": 3.0,  # another road's length, or a link that is not there
    "choice": 2.0,  # not the nearest place, or not the first in the alphabet
    "early": 3.0,  # taken although something is still before it
    "verdict": 3.0,  # the right search, and the wrong answer
}


def draw(rng: Random, level: int) -> FamilyTask:
    """One of the four tasks."""
    return rng.choice((draw_shortest, draw_reach, draw_order, draw_cycle))(rng, level)
