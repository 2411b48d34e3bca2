"""Monte Carlo tree search: PUCT with the critic's scores as values of prefixes and as prior over steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from critic_prm.search.settings import SearchSettings
from critic_prm.search.tree import Node, SearchTree

FIRST_PLAY = 0.1
"""A step that was not tried yet, and has no score, is taken to be so much worse than its prefix has been so far."""


@dataclass
class Place:
    """A node and what the search knows of it. `total` and `most` add up `valued` values that came back through it; `closed`
    says that nothing below it is left to look at."""

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
    """Every solution that came to an end in the tree, best first.

    A simulation goes down from the root by PUCT (Rosin 2011; Silver et al. 2017), grows `width` steps where it arrives, and
    brings back the critic's score of what it found there: no rollout is needed, and with `rollout` one is mixed in. Values are
    put on the range seen in the tree so far, since a critic's scores may drift with depth. Where the critic had no usable
    word, nothing is brought back. The search ends early when every branch has come to its end.
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
    """From the root to a place that has no children yet, always by the highest `urgency` among those not closed."""
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
    """A softmax of the critic's scores over siblings, or the same for all; a step without a score counts as the mean."""
    known = [score for score in scores if score is not None]
    if settings.prior == "uniform" or not known:
        return [1 / len(scores)] * len(scores)
    middle, most = sum(known) / len(known), max(known)
    weights = [math.exp(((middle if score is None else score) - most) / settings.temperature) for score in scores]
    return [weight / sum(weights) for weight in weights]


def _worth(child: Place, own: float, settings: SearchSettings, bounds: Sequence[float]) -> float:
    """What a step is worth: what came back through it, else its own score, else a little less than its prefix."""
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
    """The leaf's children, each different step once; what they end goes to `ended`."""
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
