"""Diverse verifier tree search: N / M independent subtrees, each continuing with the best of M steps."""

from __future__ import annotations

from critic_prm.search.settings import SearchSettings
from critic_prm.search.tree import Node, SearchTree


async def search(tree: SearchTree, settings: SearchSettings) -> list[Node]:
    """From each subtree, return all solutions that end in the same round as its best step (Beeching et al. 2024,
    search-and-learn)."""
    heads = [tree.root] * settings.kept
    solutions: list[Node] = []
    for _ in range(settings.depth):
        if not heads or not tree.within_budget():
            break
        grown = await tree.grow([head for head in heads for _ in range(settings.width)])
        growing = []
        for place in range(len(heads)):
            siblings = [c for c in grown[place * settings.width : (place + 1) * settings.width] if c is not None]
            if not siblings:
                continue
            best = max(siblings, key=lambda node: node.rank)
            if best.done:
                solutions += [child for child in siblings if child.done]
            else:
                growing.append(best)
        heads = growing
    return sorted(solutions, key=lambda node: -node.rank)
