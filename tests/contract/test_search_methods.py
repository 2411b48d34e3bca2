"""Every search method is deterministic with a seed, keeps its budget, and returns finished solutions of its tree."""

from __future__ import annotations

from typing import Any

import pytest

from bench.simulated import SimulatedCritic, SimulatedPolicy
from critic_prm.generate.policy.answers import Grader
from critic_prm.registry import names
from critic_prm.search.search import SearchResult, SearchTask, search, search_row, tree_rows
from critic_prm.search.settings import SearchBudget, SearchSettings

UNLIMITED = SearchBudget()


async def solve(method: str, seed: int = 0, budget: SearchBudget = UNLIMITED) -> list[SearchResult]:
    settings = SearchSettings(method, n=8, width=4, simulations=40, seed=seed, baseline=False)
    policy, critic, grader = SimulatedPolicy(5, 0.6), SimulatedCritic(0.8, spread=0.1), Grader()
    tasks = [SearchTask(str(i), f"problem {i}", "1") for i in range(3)]
    return [await search(task, policy, critic, grader, settings, budget) for task in tasks]


def rows(results: list[SearchResult]) -> list[Any]:
    return [[search_row(result), *tree_rows(result)] for result in results]


@pytest.mark.parametrize("method", names("search method"))
async def test_a_seed_determines_the_search(method: str) -> None:
    assert rows(await solve(method)) == rows(await solve(method))
    assert rows(await solve(method)) != rows(await solve(method, seed=1))


@pytest.mark.parametrize("method", [name for name in names("search method") if name != "best-of-n"])  # it takes one round
async def test_the_budget_is_kept_up_to_one_round(method: str) -> None:
    for result in await solve(method, budget=SearchBudget(max_calls=16)):
        assert result.outcome.spent.calls <= 16 + 8 * 4
    for result in await solve(method, budget=SearchBudget(max_written=100)):
        assert result.outcome.spent.written <= 100 + 8 * 4 * 10


@pytest.mark.parametrize("method", names("search method"))
async def test_candidates_are_finished_solutions_of_the_tree(method: str) -> None:
    for result in await solve(method):
        assert result.came == "ok"
        nodes = {str(node.number): node for node in result.tree.nodes}
        for candidate in result.outcome.group.candidates:
            node = nodes[candidate.trajectory.id]
            assert node.done
            assert node.path == tuple(candidate.trajectory.texts)
        assert search_row(result)["search"]["method"] == method
