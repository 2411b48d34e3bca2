"""Monte Carlo tree search: PUCT with critic scores as values of prefixes and as prior over steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from critic_prm.search.settings import SearchSettings
from critic_prm.search.tree import Node, SearchTree

FIRST_PLAY = 0.1
"""An unvisited step without a score is valued this much below the current value of its prefix."""


@dataclass
class Place:
    """A node with its search statistics. `total` and `most` are the sum and maximum of the `valued` values backed up through
    it; `closed` means that nothing below it is left to explore."""

    node: Node
    prior: float = 1.0
    children: list[Place] = field(default_factory=list)
    visits: int = 0
    valued: int = 0
    total: float = 0.0
    most: float = 0.0
    closed: bool = False

    def value(self, settings: SearchSettings) -> float | None:
        if not self.valued:
            return None
        return self.most if settings.backup == "max" else self.total / self.valued


async def search(tree: SearchTree, settings: SearchSettings) -> list[Node]:
    """All finished solutions in the tree, best first.

    A simulation descends from the root by PUCT (Rosin 2011; Silver et al. 2017), expands the leaf by `width` steps, and backs
    up the critic's scores of the new steps. No rollout is needed; `rollout` mixes one in. Values are scaled to the range seen
    in the tree so far, since a critic's scores may drift with depth. If the critic gives no usable judgement, nothing is backed
    up. The search ends early when every branch is complete.
    """
    top = Place(tree.root)
    bounds = [math.inf, -math.inf]
    ended: list[Node] = []
    for _ in range(settings.simulations):
        if top.closed or not tree.room():
            break
        line = descend(top, settings, bounds)
        leaf = line[-1]
        value = leaf.node.score
        if leaf.node.depth >= settings.depth:
            leaf.closed = True
        else:
            await _expand(tree, leaf, settings, ended)
            best = max((child.node.score for child in leaf.children if child.node.score is not None), default=None)
            value = value if best is None else best
            value = await _rolled(tree, leaf.node, value, settings, ended)
        _back(line, value, bounds)
    _record(tree, top, settings)
    return sorted(dict.fromkeys(ended), key=lambda node: -node.rank)


def descend(top: Place, settings: SearchSettings, bounds: Sequence[float]) -> list[Place]:
    """Descend from the root to a leaf, always to the child with the highest `urgency` that is not closed."""
    line = [top]
    while line[-1].children:
        here = line[-1]
        visits = sum(child.visits for child in here.children)
        own = _scaled(here.value(settings), bounds)
        line.append(
            max(
                (child for child in here.children if not child.closed),
                key=lambda child: urgency(_worth(child, own, settings, bounds), child.prior, child.visits, visits, settings.c),
            )
        )
    return line


def urgency(q: float, prior: float, visits: int, all_visits: int, c: float) -> float:
    """PUCT: Q + c P sqrt(sum of the siblings' visits) / (1 + own visits)."""
    return q + c * prior * math.sqrt(all_visits) / (1 + visits)


def priors(scores: Sequence[float | None], settings: SearchSettings) -> list[float]:
    """A softmax of the critic's scores over siblings, or a uniform prior; a step without a score gets the mean score."""
    known = [score for score in scores if score is not None]
    if settings.prior == "uniform" or not known:
        return [1 / len(scores)] * len(scores)
    middle, most = sum(known) / len(known), max(known)
    weights = [math.exp(((middle if score is None else score) - most) / settings.temperature) for score in scores]
    return [weight / sum(weights) for weight in weights]


def _worth(child: Place, own: float, settings: SearchSettings, bounds: Sequence[float]) -> float:
    """The value of a step: its backed-up value, else its own score, else FIRST_PLAY below its prefix."""
    value = child.value(settings)
    if value is None:
        value = child.node.score
    return own - FIRST_PLAY if value is None else _scaled(value, bounds)


def _scaled(value: float | None, bounds: Sequence[float]) -> float:
    if value is None:
        return 0.5
    low, high = bounds
    return (value - low) / (high - low) if high > low else value


async def _expand(tree: SearchTree, leaf: Place, settings: SearchSettings, ended: list[Node]) -> None:
    """Add the children of a leaf, without duplicate steps; finished solutions are appended to `ended`."""
    grown = [node for node in await tree.grow([leaf.node] * settings.width) if node is not None]
    distinct = list({node.step: node for node in reversed(grown)}.values())[::-1]
    chances = priors([node.score for node in distinct], settings) if distinct else []
    leaf.children = [Place(node, chance, closed=node.done) for node, chance in zip(distinct, chances, strict=True)]
    ended += [node for node in distinct if node.done]
    leaf.closed = not leaf.children


async def _rolled(
    tree: SearchTree, node: Node, value: float | None, settings: SearchSettings, ended: list[Node]
) -> float | None:
    if not settings.rollout:
        return value
    end = (await tree.complete([node]))[0]
    if end is None or end.score is None:
        return value
    ended.append(end)
    return end.score if value is None else (1 - settings.rollout) * value + settings.rollout * end.score


def _back(line: Sequence[Place], value: float | None, bounds: list[float]) -> None:
    for place in reversed(line):
        place.visits += 1
        if value is not None:
            place.valued += 1
            place.total += value
            place.most = max(place.most, value) if place.valued > 1 else value
        if place.children:
            place.closed = all(child.closed for child in place.children)
    if value is not None:
        bounds[:] = min(bounds[0], value), max(bounds[1], value)


def _record(tree: SearchTree, top: Place, settings: SearchSettings) -> None:
    waiting = [top]
    while waiting:
        place = waiting.pop()
        value = place.value(settings)
        tree.facts[place.node.number] = {"visits": place.visits, "value": value, "prior": place.prior}
        waiting += place.children
