"""Best-of-N, and the searches that extend prefixes step by step: beam search, lookahead search and DVTS."""

from __future__ import annotations

from collections.abc import Sequence

from critic_prm.search.settings import SearchSettings
from critic_prm.search.tree import Node, SearchTree


async def best_of_n(tree: SearchTree, settings: SearchSettings) -> list[Node]:
    """Sample `settings.n` independent solutions, all of which are candidates."""
    ends = await tree.complete([tree.root] * settings.n)
    return [end for end in ends if end is not None]


async def sample_within_budget(tree: SearchTree) -> list[Node]:
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


async def beam(tree: SearchTree, settings: SearchSettings) -> list[Node]:
    """Extend N beams by one step, keep copies of the best N / M prefixes, and collect finished beams.

    At most `settings.n` candidates, best first (Snell et al. 2024; the beam search of search-and-learn, with sorted beams).
    """
    return await _beams(tree, settings, ahead=0)


async def lookahead(tree: SearchTree, settings: SearchSettings) -> list[Node]:
    """Beam search that ranks each prefix by its score after `settings.ahead` more greedy steps.

    It takes about `settings.ahead` + 1 times the tokens of beam search (Snell et al. 2024).
    """
    return await _beams(tree, settings, settings.ahead)


async def _beams(tree: SearchTree, settings: SearchSettings, ahead: int) -> list[Node]:
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
    return best_first(solutions)[: settings.n]


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


async def dvts(tree: SearchTree, settings: SearchSettings) -> list[Node]:
    """Diverse verifier tree search: N / M independent subtrees, each continuing with the best of M steps.

    From each subtree, return all solutions that end in the same round as its best step (Beeching et al. 2024,
    search-and-learn).
    """
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
    return best_first(solutions)


def best_first(nodes: Sequence[Node]) -> list[Node]:
    """Sort nodes by descending score; nodes with equal scores keep their order."""
    return sorted(nodes, key=lambda node: -node.rank)
