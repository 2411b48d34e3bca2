"""Sample solutions of problems: k per problem, graded and selected, or as a tree with OmegaPRM's search for first errors."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Any

from critic_prm.data.judgement import combine
from critic_prm.data.label_rows import label_row
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.engine.concurrency import gather_all
from critic_prm.generate.options import RolloutOptions, SampleOptions, TreeOptions, summary
from critic_prm.generate.policy.answers import Grader, final_answer
from critic_prm.generate.policy.policy import Completion, Policy, unmarked
from critic_prm.generate.policy.problems import Problem
from critic_prm.generate.policy.rollout import Estimate, Prefixes, PrefixEstimates, Rollout, judgement_of
from critic_prm.generate.policy.stopping import Enough


@dataclass
class SampleStats:
    """Counts of sampled and kept problems and solutions, for the run summary and run.json."""

    name: str = "kept"
    counts: Counter[str] = field(default_factory=Counter)

    def report(self) -> Mapping[str, int]:
        """Return the counts as JSON data."""
        return dict(self.counts)

    def lines(self) -> list[str]:
        """Return the summary lines for the terminal."""
        c = self.counts
        lines = [
            f"problems: {c['problems']:,} sampled, {c['problems kept']:,} kept; {c['always solved']:,} always and"
            f" {c['never solved']:,} never solved, {c['no solution came to an end']:,} without a solution that came to an end"
        ]
        left_out = summary(c, ("said twice", "for balance", "cut", "refused", "failed"))
        lines.append(f"solutions: {c['right']:,} right and {c['wrong']:,} wrong written; left out: {left_out}")
        if c["without an answer"]:
            lines.append(f"{c['without an answer']:,} of the wrong solutions state no answer")
        return lines


async def sample(
    problem: Problem, policy: Policy, grader: Grader, options: SampleOptions, stats: SampleStats
) -> list[Trajectory]:
    """Sample solutions of one problem and return those that `options` selects, in sample order.

    `stats` counts all of them. Each trajectory's meta has `final_answer_correct`, `pass_rate` [correct, finished], `sample`,
    `policy` and the `key` of the stored reply. Raises errors that must stop the whole run.
    """
    completions = await gather_all(policy.complete(problem.text, (), s) for s in range(options.k))
    whole = [completion for completion in completions if completion.came == "ok"]
    stats.counts["problems"] += 1
    stats.counts.update(_ENDS[completion.came] for completion in completions if completion.came != "ok")
    if not whole:
        stats.counts["no solution came to an end"] += 1
        return []
    made = [await _solution(problem, completion, grader) for completion in whole]
    right = sum(bool(solution.meta["final_answer_correct"]) for solution in made)
    if right in (0, len(made)):
        stats.counts["always solved" if right else "never solved"] += 1
    if not options.takes(right, len(made)):
        stats.counts["solutions of problems left out"] += len(made)
        return []
    kept = _balanced(_once(made, stats) if options.once else made, options, stats)
    stats.counts["problems kept"] += bool(kept)
    for solution in kept:
        stats.counts["right" if solution.meta["final_answer_correct"] else "wrong"] += 1
        stats.counts["without an answer"] += solution.final_answer is None
    card = dict(policy.card)
    return [replace(s, meta={**s.meta, "pass_rate": [right, len(made)], "policy": card}) for s in kept]


_ENDS = {"truncated": "cut", "refused": "refused", "provider_error": "failed"}


async def _solution(problem: Problem, completion: Completion, grader: Grader) -> Trajectory:
    answer = final_answer(completion.text)
    return Trajectory(
        id=f"{problem.id}-s{completion.sample}",
        problem=problem.text,
        steps=tuple(Step(text) for text in completion.steps),
        final_answer=answer,
        gold_answer=problem.gold,
        meta={
            **problem.meta,
            "final_answer_correct": await grader.same(answer, problem.gold),
            "problem_id": problem.id,
            "sample": completion.sample,
            "key": completion.key,
        },
    )


def _once(solutions: Sequence[Trajectory], stats: SampleStats) -> list[Trajectory]:
    """Remove duplicates, ignoring case, whitespace and step markers."""
    seen: dict[str, Trajectory] = {}
    for solution in solutions:
        seen.setdefault("\n".join(re.sub(r"\s+", " ", unmarked(text)).lower() for text in solution.texts), solution)
    stats.counts["said twice"] += len(solutions) - len(seen)
    return list(seen.values())


def _balanced(solutions: Sequence[Trajectory], options: SampleOptions, stats: SampleStats) -> list[Trajectory]:
    sides = [[s for s in solutions if bool(s.meta["final_answer_correct"]) == side] for side in (True, False)]
    most = options.most if options.most is not None else len(solutions)
    if options.balance:
        most = min(most, *(len(side) for side in sides))
    chosen = {s.id for side in sides for s in sorted(side, key=lambda s: _draw(s.id, options.seed))[:most]}
    stats.counts["for balance"] += len(solutions) - len(chosen)
    return [solution for solution in solutions if solution.id in chosen]


def _draw(identity: str, seed: int) -> bytes:
    """Sort key that depends only on the id and the seed."""
    return hashlib.sha256(f"{seed} {identity}".encode("utf-8", "surrogatepass")).digest()


def quality(share: float, words: int, growth: TreeOptions) -> float:
    """Q(s, r) = alpha^(1 - MC(s)) * beta^(words(r) / L): prefers short incorrect rollouts of prefixes that mostly succeed."""
    return float(growth.alpha ** (1 - share) * growth.beta ** (words / growth.length))


def urge(visits: int, all_visits: int, growth: TreeOptions) -> float:
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

    def solutions(self, growth: TreeOptions) -> list[tuple[tuple[str, ...], PrefixEstimates]]:
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


async def grow(problem: Problem, policy: Policy, grader: Grader, growth: TreeOptions) -> RolloutTree:
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


def tree_rows(tree: RolloutTree, growth: TreeOptions, card: Mapping[str, Any]) -> list[dict[str, Any]]:
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


def _priority(pair: tuple[RolloutNode, Rollout], all_visits: int, growth: TreeOptions) -> float:
    node, rollout = pair
    words = len(rollout.completion.text.split())
    return quality(node.estimate.share, words, growth) + urge(node.visits, all_visits, growth)


def _way(node: RolloutNode) -> Sequence[RolloutNode]:
    """Return the path from the root to this node."""
    way = [node]
    while way[-1].parent is not None:
        way.append(way[-1].parent)
    return way[::-1]
