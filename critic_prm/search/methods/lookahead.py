"""Lookahead search: beam search that ranks each prefix by its score after a few more greedy steps."""

from __future__ import annotations

from critic_prm.search.methods.beam import beams
from critic_prm.search.settings import SearchSettings
from critic_prm.search.tree import Node, SearchTree


async def search(tree: SearchTree, settings: SearchSettings) -> list[Node]:
    """Like beam search, at about `settings.ahead` + 1 times the tokens (Snell et al. 2024)."""
    return await beams(tree, settings, settings.ahead)
