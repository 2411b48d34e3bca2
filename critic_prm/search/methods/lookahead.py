"""Lookahead search: beam search whose prefixes are ranked by where a few greedy steps more would take them."""

from __future__ import annotations

from critic_prm.search.methods.beam import beams
from critic_prm.search.settings import SearchSettings
from critic_prm.search.tree import Node, SearchTree


async def search(tree: SearchTree, settings: SearchSettings) -> list[Node]:
    """As beam search, for about `settings.ahead` + 1 times its tokens (Snell et al. 2024)."""
    return await beams(tree, settings, settings.ahead)
