"""OmegaPRM: binary-search promising incorrect rollouts for their first error, reusing rollouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

from critic_prm.data.judgement import combine
from critic_prm.data.label_rows import label_row
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.errors import UsageError
from critic_prm.generate.policy.answers import Grader, final_answer
from critic_prm.generate.policy.policy import Policy, unmarked
from critic_prm.generate.policy.problems import Problem
from critic_prm.generate.policy.rollout import Estimate, Prefixes, PrefixEstimates, Rollout, RolloutOptions, judgement_of
from critic_prm.generate.policy.stopping import Enough


@dataclass(frozen=True, slots=True)
class Growth:
    """Growth settings of a tree (OmegaPRM, arXiv 2406.06592)."""

    rollouts: int = 16
    """Rollouts per node."""
    searches: int = 10
    """Maximum number of binary searches."""
    budget: int = 100
    """No search starts after this many rollouts."""
    alpha: float = 0.5
    """Base of the share in Q; see `quality`."""
    beta: float = 0.9
    """Base of the length in Q."""
    length: int = 500
    """Length scale L of Q, in words."""
    exploration: float = 0.125
    """Exploration constant c of U; see `urge`."""
    least_words: int = 10
    """Drop solutions of at most this many words, as MM-PRM does."""

    def __post_init__(self) -> None:
        if min(self.rollouts, self.searches, self.budget, self.length) < 1:
            raise UsageError("rollouts, searches, budget and length of a tree must be 1 or more")
        if not (0 < self.alpha <= 1 and 0 < self.beta <= 1):
            raise UsageError(f"alpha is {self.alpha} and beta {self.beta}; both must be above 0 and at most 1")


def quality(share: float, words: int, growth: Growth) -> float:
    """Q(s, r) = alpha^(1 - MC(s)) * beta^(words(r) / L): prefers short incorrect rollouts of prefixes that mostly succeed."""
    return float(growth.alpha ** (1 - share) * growth.beta ** (words / growth.length))


def urge(visits: int, all_visits: int, growth: Growth) -> float:
    """U(s) = c * sqrt(sum of N) / (1 + N(s)): exploration bonus of prefixes that were rarely searched from."""
    return growth.exploration * sqrt(all_visits) / (1 + visits)


@dataclass(eq=False)
class RolloutNode:
    """A prefix and its estimate."""

    steps: tuple[str, ...]
    """All steps from the problem to this node."""
    estimate: Estimate
    parent: RolloutNode | None = None
    children: list[RolloutNode] = field(default_factory=list)
    visits: int = 0
    """Number of searches that started at this node."""


@dataclass(frozen=True, slots=True)
class Searched:
    """One searched rollout: all steps of the solution, the estimates of its prefixes, and its first error."""

    steps: tuple[str, ...]
    at: Mapping[int, Estimate]
    first_error: int


@dataclass
class RolloutTree:
    """The tree of one problem: its root, the searched rollouts, and the correct rollouts."""

    problem: Problem
    root: RolloutNode
    searched: list[Searched] = field(default_factory=list)
    right: list[tuple[RolloutNode, Rollout]] = field(default_factory=list)
    rollouts: int = 0

    def solutions(self, growth: Growth) -> list[tuple[tuple[str, ...], PrefixEstimates]]:
        """Return the solutions to write: all searched ones and at most as many correct ones, without duplicates."""
        wrong = [(s.steps, PrefixEstimates(s.at, s.first_error)) for s in self.searched]
        right = []
        for node, rollout in self.right:
            steps = node.steps + rollout.completion.steps
            at = {len(n.steps) - 1: n.estimate for n in _way(node) if n.steps}
            right.append((steps, PrefixEstimates({**at, len(steps) - 1: Estimate(1, 1, own=True)}, -1)))
        kept: dict[tuple[str, ...], PrefixEstimates] = {}
        for rows in (wrong, right):
            before = len(kept)
            for steps, found in rows:
                words = sum(len(step.split()) for step in steps)
                if words > growth.least_words and (rows is wrong or len(kept) - before < before):
                    kept.setdefault(tuple(unmarked(step) for step in steps), found)
        originals = {tuple(unmarked(step) for step in steps): steps for rows in (right, wrong) for steps, _ in rows}
        return [(originals[key], found) for key, found in kept.items()]


async def grow(problem: Problem, policy: Policy, grader: Grader, growth: Growth) -> RolloutTree:
    """Grow the tree of one problem.

    Makes at most `budget` + K * (floor(log2 T) + 1) rollouts, with K rollouts per node and rollouts of T steps. Raises errors
    that must stop the whole run.
    """
    prefixes = Prefixes(policy, grader, problem.text, problem.gold)
    enough = Enough(growth.rollouts)
    root = RolloutNode((), await prefixes.estimate((), enough))
    nodes: dict[tuple[str, ...], RolloutNode] = {(): root}
    tree = RolloutTree(problem, root)
    pool: list[tuple[RolloutNode, Rollout]] = []
    _offer(root, pool, tree)
    while pool and len(tree.searched) < growth.searches and prefixes.made < growth.budget:
        total = sum(node.visits for node in nodes.values())
        node, rollout = max(pool, key=lambda pair: _priority(pair, total, growth))
        pool.remove((node, rollout))  # each rollout is searched once
        at = {len(n.steps) - 1: n.estimate for n in _way(node) if n.steps}
        steps = node.steps + rollout.completion.steps
        current, low, high = node, len(node.steps), len(steps) - 1
        at[high] = Estimate(0, 1, own=True)  # the complete rollout is known to be incorrect
        while low < high:
            middle = (low + high) // 2
            prefix = steps[: middle + 1]
            if prefix not in nodes:
                child = nodes[prefix] = RolloutNode(prefix, await prefixes.estimate(prefix, enough), current)
                current.children.append(child)
                _offer(child, pool, tree)
            child = nodes[prefix]
            if child.estimate.n == 0:
                break
            at[middle] = child.estimate
            if child.estimate.k == 0:
                high = middle
            else:
                current, low = child, middle + 1
        node.visits += 1
        if low == high:
            known = {step: estimate for step, estimate in at.items() if step <= low}
            tree.searched.append(Searched(steps, known, low))
    tree.rollouts = prefixes.made
    return tree


def tree_rows(tree: RolloutTree, growth: Growth, card: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Convert the tree's solutions to label-file rows. A step has a label if its prefix was rolled out."""
    how = RolloutOptions(Enough(growth.rollouts), "halving")
    growing = {"searches": growth.searches, "budget": growth.budget, "alpha": growth.alpha, "beta": growth.beta}
    rows = []
    for number, (steps, found) in enumerate(tree.solutions(growth)):
        trajectory = Trajectory(
            id=f"{tree.problem.id}-t{number}",
            problem=tree.problem.text,
            steps=tuple(Step(text) for text in steps),
            final_answer=final_answer(steps[-1]),
            gold_answer=tree.problem.gold,
            meta={**tree.problem.meta, "problem_id": tree.problem.id, "final_answer_correct": found.first_error == -1},
        )
        label = combine([judgement_of(found, how, len(steps))], len(steps))
        whole = {"provider": "rollout", "policy": dict(card), "search": "tree", "rollouts": growth.rollouts, **growing}
        rows.append(label_row(trajectory, label, whole))
    return rows


def tree_to_json(node: RolloutNode) -> dict[str, Any]:
    """Convert a subtree to JSON: the steps each node adds, k, n, visits and children."""
    before = len(node.parent.steps) if node.parent else 0
    row: dict[str, Any] = {
        "steps": list(node.steps[before:]),
        "k": node.estimate.k,
        "n": node.estimate.n,
        "visits": node.visits,
    }
    if node.children:
        row["children"] = [tree_to_json(child) for child in node.children]
    return row


def _offer(node: RolloutNode, pool: list[tuple[RolloutNode, Rollout]], tree: RolloutTree) -> None:
    """Add the incorrect rollouts of a node to the search pool if some of its rollouts are correct; collect the correct ones."""
    tree.right += [(node, rollout) for rollout in node.estimate.rollouts if rollout.right and rollout.completion.steps]
    if 0 < node.estimate.k < node.estimate.n:
        pool += [(node, rollout) for rollout in node.estimate.rollouts if not rollout.right and rollout.completion.steps]


def _priority(pair: tuple[RolloutNode, Rollout], all_visits: int, growth: Growth) -> float:
    node, rollout = pair
    words = len(rollout.completion.text.split())
    return quality(node.estimate.share, words, growth) + urge(node.visits, all_visits, growth)


def _way(node: RolloutNode) -> Sequence[RolloutNode]:
    """Return the path from the root to this node."""
    way = [node]
    while way[-1].parent is not None:
        way.append(way[-1].parent)
    return way[::-1]
