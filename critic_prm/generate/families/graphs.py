"""Graph problems solved by their algorithms: shortest paths, reachability, task orders and cycle detection."""

from __future__ import annotations

from random import Random

from critic_prm.generate.families._orders import draw_cycle, draw_order
from critic_prm.generate.families._routes import draw_reach, draw_shortest
from critic_prm.generate.family import FamilyTask

KINDS = {
    "missed": 3.0,  # a neighbour or a free task is overlooked
    "sum": 3.0,  # a wrong sum of two lengths
    "edge": 3.0,  # the length of another road, or a link that does not exist
    "choice": 2.0,  # not the nearest place, or not the alphabetically first one
    "early": 3.0,  # taken although a predecessor remains
    "verdict": 3.0,  # a correct search with the wrong answer
}


def draw(rng: Random, level: int) -> FamilyTask:
    """Draw one of the four tasks."""
    return rng.choice((draw_shortest, draw_reach, draw_order, draw_cycle))(rng, level)
