"""Best-of-N: independent complete solutions, all of which are candidates."""

from __future__ import annotations

from critic_prm.search.settings import SearchSettings
from critic_prm.search.tree import Node, SearchTree


async def search(tree: SearchTree, settings: SearchSettings) -> list[Node]:
    """Sample `settings.n` solutions."""
    ends = await tree.complete([tree.root] * settings.n)
    return [end for end in ends if end is not None]


async def spend(tree: SearchTree) -> list[Node]:
    """Sample as many solutions as the token budget of the tree allows, at least one. This is the baseline of a search."""
    solutions: list[Node] = []
    limit, sampled, count = tree.budget.max_written or 0, 0, 1
    while count:
        ends = await tree.complete([tree.root] * count)
        solutions += [end for end in ends if end is not None]
        sampled += count
        tokens_each = max(tree.spent.written / sampled, 1.0)
        left = limit - tree.spent.written
        count = max(int(left / tokens_each), 1) if left > 0 and any(ends) else 0
    return solutions
