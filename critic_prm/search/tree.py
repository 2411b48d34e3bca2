"""Nodes in, their children out: steps asked of a policy, scored by a critic, counted against a budget, kept for the record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from critic_prm.data.aggregate import Aggregation, aggregate
from critic_prm.data.critic import Critic
from critic_prm.engine.together import gather_all
from critic_prm.providers.models import Prices
from critic_prm.providers.provider import Usage
from critic_prm.search.prefix_scorer import Path, Scorer, Scores
from critic_prm.search.stepper import Stepper

APART = 1_000_000
"""Samples that belong to one seed: another seed asks for others."""


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A prefix of a solution, by its last step. `p` has P(correct) of every step up to here, `score` what they aggregate to:
    None where nothing could be judged. `done` says that the solution ends here."""

    number: int
    parent: Node | None = None
    step: str = ""
    done: bool = False
    p: Scores = ()
    score: float | None = None
    sample: int = 0
    key: str = ""

    @property
    def path(self) -> Path:
        steps = [node.step for node in self.line()]
        return tuple(reversed(steps))

    @property
    def depth(self) -> int:
        return sum(1 for _ in self.line())

    def line(self) -> Iterator[Node]:
        """This node and those above it, without the root."""
        node: Node | None = self
        while node is not None and node.parent is not None:
            yield node
            node = node.parent

    @property
    def rank(self) -> float:
        """The score to sort by: unknown comes last."""
        return -1.0 if self.score is None else self.score


@dataclass(frozen=True, slots=True)
class SearchBudget:
    """What the search of one problem may use, None for no limit: requests to policy and critic, tokens that both of them
    write, USD. Looked at before each round, so the last round may go beyond it."""

    calls: int | None = None
    tokens: int | None = None
    usd: float | None = None


@dataclass(frozen=True, slots=True)
class Pricing:
    """What the policy's and the critic's tokens cost, None where unknown."""

    policy: Prices | None = None
    critic: Prices | None = None


@dataclass(frozen=True, slots=True)
class SearchCost:
    """What the search of one problem asked for, whenever it was paid: a search that is run again has spent the same.

    `written` are tokens that policy and critic wrote, `read` those in their prompts. `usd` is None when a price is unknown.
    """

    calls: int
    judged: int
    written: int
    read: int
    usd: float | None


@dataclass
class SearchTree:
    """The search of one problem: what methods ask for goes through here."""

    problem: str
    policy: Stepper
    scorer: Scorer
    how: Aggregation
    budget: SearchBudget = SearchBudget()
    pricing: Pricing = Pricing()
    seed: int = 0
    nodes: list[Node] = field(default_factory=lambda: [Node(0)])
    failed: Counter[str] = field(default_factory=Counter)
    facts: dict[int, dict[str, Any]] = field(default_factory=dict)
    """What a method wants to have on record about a node, by its number."""
    _calls: int = 0
    _usage: Usage = Usage()
    _written: int = 0
    _samples: Counter[Path] = field(default_factory=Counter)

    @property
    def root(self) -> Node:
        return self.nodes[0]

    @property
    def spent(self) -> SearchCost:
        usage, price = self.scorer.usage, self.pricing
        free = not self.scorer.calls
        usd = None
        if price.policy is not None and (free or price.critic is not None):
            parts = (price.policy.cost(self._usage), price.critic.cost(usage) if price.critic else 0.0)
            usd = None if None in parts else sum(part or 0.0 for part in parts)
        return SearchCost(self._calls, self.scorer.calls, self._written + usage.output, self._usage.input + usage.input, usd)

    def room(self) -> bool:
        """Whether the budget lets another round begin."""
        spent, budget = self.spent, self.budget
        return (
            (budget.calls is None or spent.calls + spent.judged < budget.calls)
            and (budget.tokens is None or spent.written < budget.tokens)
            and (budget.usd is None or (spent.usd is not None and spent.usd < budget.usd))
        )

    async def grow(self, parents: Sequence[Node]) -> list[Node | None]:
        """One new child of each of `parents`, which may name a node several times; None where the policy failed."""
        asked = [(parent, parent.path) for parent in parents]
        samples = [self._next(path) for _, path in asked]
        proposals = await gather_all(
            self.policy.step(self.problem, path, n) for (_, path), n in zip(asked, samples, strict=True)
        )
        whole = [(*path, found.step) for (_, path), found in zip(asked, proposals, strict=True) if found.step]
        scores = iter(await self.scorer.score(whole))
        children: list[Node | None] = []
        for (parent, _), found, sample in zip(asked, proposals, samples, strict=True):
            self._count(found.usage, found.step)
            if not found.step:
                self.failed[found.came] += 1
                children.append(None)
                continue
            children.append(self._put(parent, found.step, found.done, next(scores), sample, found.key))
        return children

    async def complete(self, parents: Sequence[Node]) -> list[Node | None]:
        """All steps that are left, from each of `parents`; the last node of each solution, None where the policy failed."""
        asked = [(parent, parent.path) for parent in parents]
        samples = [self._next(path) for _, path in asked]
        found = await gather_all(
            self.policy.complete(self.problem, path, n) for (_, path), n in zip(asked, samples, strict=True)
        )
        whole = [(*path, *completion.steps) for (_, path), completion in zip(asked, found, strict=True) if completion.steps]
        scores = iter(await self.scorer.score(whole))
        ends: list[Node | None] = []
        for (parent, path), completion, sample in zip(asked, found, samples, strict=True):
            self._count(completion.usage, completion.text)
            if not completion.steps:
                self.failed[completion.came] += 1
                ends.append(None)
                continue
            p, node, last = next(scores), parent, len(completion.steps) - 1
            for place, step in enumerate(completion.steps):
                node = self._put(node, step, place == last, p[: len(path) + place + 1], sample, completion.key)
            ends.append(node)
        return ends

    async def foresee(self, nodes: Sequence[Node], steps: int) -> list[float | None]:
        """The score of each node with up to `steps` greedy steps after it; its own where it is done or the policy fails."""
        paths = [node.path for node in nodes]
        going = [not node.done for node in nodes]
        for _ in range(steps):
            places = [place for place, on in enumerate(going) if on]
            found = await gather_all(self.policy.step(self.problem, paths[i], APART - 1, greedy=True) for i in places)
            for place, proposal in zip(places, found, strict=True):
                self._count(proposal.usage, proposal.step)
                if proposal.step:
                    paths[place] = (*paths[place], proposal.step)
                going[place] = bool(proposal.step) and not proposal.done
        return [aggregate(p, self.how) for p in await self.scorer.score(paths)]

    def _put(self, parent: Node, step: str, done: bool, p: Scores, sample: int, key: str) -> Node:
        node = Node(len(self.nodes), parent, step, done, p, aggregate(p, self.how), sample, key)
        self.nodes.append(node)
        return node

    def _next(self, path: Path) -> int:
        """A sample of this prefix that was not asked for yet: copies of a beam draw different steps."""
        sample = self.seed * APART + self._samples[path]
        self._samples[path] += 1
        return sample

    def _count(self, usage: Usage, text: str) -> None:
        self._calls += 1
        self._usage += usage
        # A server that does not say what it used still wrote the text.
        self._written += usage.output or -(-len(text) // 4)


def open_tree(
    problem: str,
    policy: Stepper,
    critic: Critic,
    how: Aggregation,
    *,
    budget: SearchBudget,
    pricing: Pricing,
    seed: int,
    samples: int,
) -> SearchTree:
    return SearchTree(problem, policy, Scorer(critic, problem, samples), how, budget, pricing, seed)
