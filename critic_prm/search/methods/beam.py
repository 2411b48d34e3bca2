"""Beam search: extend N beams by one step, keep copies of the best N / M prefixes, collect finished beams."""

from __future__ import annotations

from collections.abc import Sequence

from critic_prm.search.settings import SearchSettings
from critic_prm.search.tree import Node, SearchTree


async def search(tree: SearchTree, settings: SearchSettings) -> list[Node]:
    """At most `settings.n` candidates, best first (Snell et al. 2024; the beam search of search-and-learn, with sorted
    beams)."""
    return await beams(tree, settings, ahead=0)


async def beams(tree: SearchTree, settings: SearchSettings, ahead: int) -> list[Node]:
    """Beam search. With `ahead`, prefixes are ranked by their score after that many more greedy steps."""
    slots = [tree.root] * settings.n
    solutions: list[Node] = []
    for _ in range(settings.depth):
        if not tree.within_budget():
            break
        grown = [child for child in await tree.grow(slots) if child is not None]
        solutions += [child for child in grown if child.done]
        growing = [child for child in grown if not child.done]
        if len(solutions) >= settings.n or not growing:
            break
        kept = await _best(tree, growing, settings, ahead)
        # Copies sample different steps; each kept prefix gets an equal share of the n beams.
        slots = [kept[place % len(kept)] for place in range(settings.n)]
    return sorted(solutions, key=lambda node: -node.rank)[: settings.n]


async def _best(tree: SearchTree, growing: Sequence[Node], settings: SearchSettings, ahead: int) -> list[Node]:
    """The best n / M prefixes without duplicates; with M = 1 nothing is pruned."""
    if settings.width == 1:
        return list(growing)
    distinct = list({node.path: node for node in reversed(growing)}.values())[::-1]
    if len(distinct) <= settings.kept:
        return distinct
    ranks = {node: node.rank for node in distinct}
    if ahead:
        for node, score in zip(distinct, await tree.foresee(distinct, ahead), strict=True):
            ranks[node] = -1.0 if score is None else score
            tree.facts[node.number] = {"ahead": ranks[node]}
    return sorted(distinct, key=lambda node: -ranks[node])[: settings.kept]
