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
from critic_prm.engine.together import gather_all
from critic_prm.errors import UsageError
from critic_prm.generate.policy.answers import Grader, final_answer
from critic_prm.generate.policy.policy import Completion, Policy, unmarked
from critic_prm.generate.policy.problems import Problem
from critic_prm.generate.policy.rollout import Estimate, Prefixes, PrefixEstimates, Rollout, RolloutOptions, judgement_of
from critic_prm.generate.policy.stopping import Enough

_BAND = re.compile(r"(\d*\.?\d+)-(\d*\.?\d+)")


@dataclass(frozen=True, slots=True)
class Keep:
    """Which solutions to keep."""

    low: float = 0.0
    """Smallest pass rate of a problem."""
    high: float = 1.0
    """Largest pass rate of a problem."""
    mixed: bool = True
    """Drop problems that were always or never solved."""
    once: bool = True
    """Drop duplicate solutions of a problem."""
    balance: bool = False
    """Keep as many correct as incorrect solutions per problem."""
    most: int | None = None
    """Maximum number of correct and of incorrect solutions per problem."""
    seed: int = 0
    """Random seed for choosing among surplus solutions."""

    def takes(self, k: int, n: int) -> bool:
        """Return whether to keep a problem with k correct solutions of n."""
        return self.low <= k / n <= self.high and not (self.mixed and k in (0, n))


def parse_keep(text: str) -> Keep:
    """Parse "mixed" (neither all nor none correct), "all", or a range of pass rates such as "0.1-0.9". Raises UsageError."""
    if text in ("mixed", "all"):
        return Keep(mixed=text == "mixed")
    match = _BAND.fullmatch(text)
    if match is None or not float(match.group(1)) <= float(match.group(2)) <= 1:
        raise UsageError(f"--keep is {text!r}; write mixed, all, or a band of pass rates as in 0.1-0.9")
    return Keep(float(match.group(1)), float(match.group(2)), mixed=False)


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
        told = [
            f"problems: {c['problems']:,} sampled, {c['problems kept']:,} kept; {c['always solved']:,} always and"
            f" {c['never solved']:,} never solved, {c['no solution came to an end']:,} without a solution that came to an end"
        ]
        left = {name: c[name] for name in ("said twice", "for balance", "cut", "refused", "failed") if c[name]}
        words = ", ".join(f"{count:,} {name}" for name, count in left.items()) or "none"
        told.append(f"solutions: {c['right']:,} right and {c['wrong']:,} wrong written; left out: {words}")
        if c["without an answer"]:
            told.append(f"{c['without an answer']:,} of the wrong solutions state no answer")
        return told


async def sample(
    problem: Problem, policy: Policy, grader: Grader, k: int, keep: Keep, account: SampleStats
) -> list[Trajectory]:
    """Sample k solutions of one problem and return those that `keep` selects, in sample order.

    `account` counts all of them. Each trajectory's meta has `final_answer_correct`, `pass_rate` [correct, finished], `sample`,
    `policy` and the `key` of the stored reply. Raises errors that must stop the whole run.
    """
    completions = await gather_all(policy.complete(problem.text, (), s) for s in range(k))
    whole = [completion for completion in completions if completion.came == "ok"]
    account.counts["problems"] += 1
    account.counts.update(_ENDS[completion.came] for completion in completions if completion.came != "ok")
    if not whole:
        account.counts["no solution came to an end"] += 1
        return []
    made = [await _solution(problem, completion, grader) for completion in whole]
    right = sum(bool(solution.meta["final_answer_correct"]) for solution in made)
    if right in (0, len(made)):
        account.counts["always solved" if right else "never solved"] += 1
    if not keep.takes(right, len(made)):
        account.counts["solutions of problems left out"] += len(made)
        return []
    kept = _balanced(_once(made, account) if keep.once else made, keep, account)
    account.counts["problems kept"] += bool(kept)
    for solution in kept:
        account.counts["right" if solution.meta["final_answer_correct"] else "wrong"] += 1
        account.counts["without an answer"] += solution.final_answer is None
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


def _once(solutions: Sequence[Trajectory], account: SampleStats) -> list[Trajectory]:
    """Remove duplicates, ignoring case, whitespace and step markers."""
    seen: dict[str, Trajectory] = {}
    for solution in solutions:
        seen.setdefault("\n".join(re.sub(r"\s+", " ", unmarked(text)).lower() for text in solution.texts), solution)
    account.counts["said twice"] += len(solutions) - len(seen)
    return list(seen.values())


def _balanced(solutions: Sequence[Trajectory], keep: Keep, account: SampleStats) -> list[Trajectory]:
    sides = [[s for s in solutions if bool(s.meta["final_answer_correct"]) == side] for side in (True, False)]
    most = keep.most if keep.most is not None else len(solutions)
    if keep.balance:
        most = min(most, *(len(side) for side in sides))
    chosen = {s.id for side in sides for s in sorted(side, key=lambda s: _draw(s.id, keep.seed))[:most]}
    account.counts["for balance"] += len(solutions) - len(chosen)
    return [solution for solution in solutions if solution.id in chosen]


def _draw(identity: str, seed: int) -> bytes:
    """Sort key that depends only on the id and the seed."""
    return hashlib.sha256(f"{seed} {identity}".encode("utf-8", "surrogatepass")).digest()


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
