"""Monte Carlo tree search: PUCT with critic scores as values of prefixes and as prior over steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from critic_prm.search.beam import best_first
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


async def mcts(tree: SearchTree, settings: SearchSettings) -> list[Node]:
    """All finished solutions in the tree, best first.

    A simulation descends from the root by PUCT (Rosin 2011; Silver et al. 2017), expands the leaf by `width` steps, and backs
    up the critic's scores of the new steps. No rollout is needed; `rollout` mixes one in. Values are scaled to the range seen
    in the tree so far, since a critic's scores may drift with depth. If the critic gives no usable judgement, nothing is backed
    up. The search ends early when every branch is complete.
    """
    run = _Run(tree, settings)
    top = Place(tree.root)
    for _ in range(settings.simulations):
        if top.closed or not tree.within_budget():
            break
        await run.simulate(top)
    run.record(top)
    return best_first(list(dict.fromkeys(run.solutions)))


def urgency(q: float, prior: float, visits: int, all_visits: int, c: float) -> float:
    """PUCT: Q + c P sqrt(sum of the siblings' visits) / (1 + own visits)."""
    return q + c * prior * math.sqrt(all_visits) / (1 + visits)


def priors(scores: Sequence[float | None], settings: SearchSettings) -> list[float]:
    """A softmax of the critic's scores over siblings, or a uniform prior; a step without a score gets the mean score."""
    given = [score for score in scores if score is not None]
    if settings.prior == "uniform" or not given:
        return [1 / len(scores)] * len(scores)
    mean, highest = sum(given) / len(given), max(given)
    weights = [math.exp(((mean if score is None else score) - highest) / settings.prior_temperature) for score in scores]
    return [weight / sum(weights) for weight in weights]


@dataclass
class _Run:
    tree: SearchTree
    settings: SearchSettings
    solutions: list[Node] = field(default_factory=list)
    low: float = math.inf
    high: float = -math.inf

    async def simulate(self, top: Place) -> None:
        path = self.descend(top)
        leaf = path[-1]
        value = leaf.node.score
        if leaf.node.depth >= self.settings.depth:
            leaf.closed = True
        else:
            await self.expand(leaf)
            value = max((child.node.score for child in leaf.children if child.node.score is not None), default=value)
            value = await self.with_rollout(leaf.node, value)
        for place in reversed(path):
            place.visits += 1
            if value is not None:
                place.valued += 1
                place.total += value
                place.most = max(place.most, value) if place.valued > 1 else value
            if place.children:
                place.closed = all(child.closed for child in place.children)
        if value is not None:
            self.low, self.high = min(self.low, value), max(self.high, value)

    def descend(self, top: Place) -> list[Place]:
        """Descend from the root to a leaf, always to the child with the highest `urgency` that is not closed."""
        path = [top]
        while children := path[-1].children:
            visits = sum(child.visits for child in children)
            own = self.scaled(path[-1].value(self.settings))
            c = self.settings.exploration
            urgencies = [urgency(self.worth(child, own), child.prior, child.visits, visits, c) for child in children]
            opened = [place for place, child in enumerate(children) if not child.closed]
            path.append(children[max(opened, key=urgencies.__getitem__)])
        return path

    def worth(self, child: Place, own: float) -> float:
        """The value of a step: its backed-up value, else its own score, else FIRST_PLAY below its prefix."""
        value = child.value(self.settings)
        value = child.node.score if value is None else value
        return own - FIRST_PLAY if value is None else self.scaled(value)

    def scaled(self, value: float | None) -> float:
        if value is None:
            return 0.5
        return (value - self.low) / (self.high - self.low) if self.high > self.low else value

    async def expand(self, leaf: Place) -> None:
        """Add the children of a leaf, without duplicate steps, and collect finished solutions."""
        grown = [node for node in await self.tree.grow([leaf.node] * self.settings.width) if node is not None]
        distinct = list({node.step: node for node in reversed(grown)}.values())[::-1]
        chances = priors([node.score for node in distinct], self.settings) if distinct else []
        leaf.children = [Place(node, chance, closed=node.done) for node, chance in zip(distinct, chances, strict=True)]
        self.solutions += [node for node in distinct if node.done]
        leaf.closed = not leaf.children

    async def with_rollout(self, node: Node, value: float | None) -> float | None:
        """`value` mixed with the score of a complete rollout from `node`."""
        weight = self.settings.rollout
        end = (await self.tree.complete([node]))[0] if weight else None
        if end is None or end.score is None:
            return value
        self.solutions.append(end)
        return end.score if value is None else (1 - weight) * value + weight * end.score

    def record(self, top: Place) -> None:
        pending = [top]
        while pending:
            place = pending.pop()
            facts = {"visits": place.visits, "value": place.value(self.settings), "prior": place.prior}
            self.tree.facts[place.node.number] = facts
            pending += place.children
