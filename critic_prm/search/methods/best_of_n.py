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
    found: list[Node] = []
    tokens = tree.budget.tokens
    asked = 0
    while asked == 0 or (tokens is not None and tree.spent.written < tokens):
        each = max(tree.spent.written / asked, 1.0) if asked else 1.0
        more = 1 if asked == 0 or tokens is None else max(int((tokens - tree.spent.written) / each), 1)
        ends = await tree.complete([tree.root] * more)
        asked += more
        found += [end for end in ends if end is not None]
        if not any(ends):
            break
    return found
