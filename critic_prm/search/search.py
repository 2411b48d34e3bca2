"""A problem, a policy and a critic in; the solution that a method of search finds out, with its tree and what it cost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, cast

from critic_prm.data.aggregate import open_aggregation
from critic_prm.data.critic import Critic
from critic_prm.data.judgement import Label
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.generate.policy.answers import Grader
from critic_prm.registry import load, names
from critic_prm.search.methods.best_of_n import spend
from critic_prm.search.ranking import Choice, Group, Pick, choose, group_candidates
from critic_prm.search.settings import SearchSettings
from critic_prm.search.stepper import Stepper, open_stepper
from critic_prm.search.tree import Node, Pricing, SearchBudget, SearchCost, SearchTree, open_tree

__all__ = [
    "Method",
    "Outcome",
    "Pricing",
    "SearchBudget",
    "SearchCost",
    "SearchResult",
    "SearchSettings",
    "SearchTask",
    "Stepper",
    "method_names",
    "open_method",
    "open_stepper",
    "search",
    "search_row",
    "tree_rows",
]

SETTINGS, UNLIMITED, UNPRICED = SearchSettings(), SearchBudget(), Pricing()


class Method(Protocol):
    """A module in this folder."""

    async def search(self, tree: SearchTree, settings: SearchSettings) -> list[Node]:
        """The solutions that came to an end, which are the candidates to choose from."""
        ...


def method_names() -> list[str]:
    """best-of-n, beam, dvts, lookahead, mcts."""
    return names("search method")


def open_method(name: str) -> Method:
    """The method called `name`. Raises UsageError that lists the others."""
    return cast(Method, load("search method", name))


@dataclass(frozen=True, slots=True)
class SearchTask:
    """A problem to solve. `gold` is never shown to policy or critic."""

    id: str
    problem: str
    gold: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was chosen among candidates, and what it cost. `best` is the candidate with the highest score, `vote` the one of the
    weighted majority's answer, `majority` the answer most candidates have; None without candidates."""

    group: Group
    best: Choice | None
    vote: Choice | None
    spent: SearchCost

    def right(self, pick: str) -> bool | None:
        """Whether the choice is right, by "best", "vote", "majority", or "pass": whether any candidate is. None when unknown;
        no candidate at all is wrong."""
        candidates = self.group.candidates
        if not candidates:
            return False
        if candidates[0].right is None:
            return None
        if pick == "pass":
            return any(candidate.right for candidate in candidates)
        if pick == "majority":
            answers = [candidate.answer for candidate in candidates if candidate.answer >= 0]
            most = max(dict.fromkeys(answers), key=answers.count, default=None)
            return any(candidate.right for candidate in candidates if candidate.answer == most)
        chosen = self.best if pick == "best" else self.vote
        assert chosen is not None
        return chosen.taken.right


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The search of one problem. `baseline` is best-of-N for the tokens that the search wrote, None where it was not asked for.
    `came` is "ok" when there is a candidate, else "unfinished" (the budget or depth ended it) or what failed."""

    task: SearchTask
    method: str
    outcome: Outcome
    baseline: Outcome | None
    tree: SearchTree
    came: str


async def search(
    task: SearchTask,
    policy: Stepper,
    critic: Critic,
    grader: Grader,
    *,
    method: str = "beam",
    settings: SearchSettings = SETTINGS,
    by: str = "min",
    budget: SearchBudget = UNLIMITED,
    pricing: Pricing = UNPRICED,
    baseline: bool = True,
    seed: int = 0,
    samples: int = 1,
) -> SearchResult:
    """Search for a solution of `task`. `by` is how the scores of a prefix's steps become one.

    Deterministic for one seed as far as policy and critic are: through the cache, a search that is run again asks for nothing
    twice and finds the same. Another seed draws other samples. With `baseline`, independent solutions for as many written
    tokens are drawn beside it, which is what any search has to beat. Raises UsageError, and what stops policy or critic.
    """
    how, opened = open_aggregation(by), open_method(method)
    by = by.replace("-", "_")
    settings.check(method, by)
    tree = open_tree(task.problem, policy, critic, how, budget=budget, pricing=pricing, seed=seed, samples=samples)
    ended = await opened.search(tree, settings)
    outcome = await _outcome(task, tree, ended, grader, by)
    beside = None
    if baseline and method != "best-of-n":
        tokens = SearchBudget(tokens=outcome.spent.written)
        other = open_tree(task.problem, policy, critic, how, budget=tokens, pricing=pricing, seed=seed, samples=samples)
        beside = await _outcome(task, other, await spend(other), grader, by)
    return SearchResult(task, method, outcome, beside, tree, _came(ended, tree))


def _came(ended: Sequence[Node], tree: SearchTree) -> str:
    if ended:
        return "ok"
    if len(tree.nodes) == 1 and tree.failed:
        return tree.failed.most_common(1)[0][0]
    return "unfinished"


async def _outcome(task: SearchTask, tree: SearchTree, ended: Sequence[Node], grader: Grader, by: str) -> Outcome:
    async def rows() -> AsyncIterator[tuple[Trajectory, Label]]:
        for node in ended:
            steps = tuple(map(Step, node.path))
            label = Label(node.p, ((0, 0),) * len(steps), None, "ok", ())
            yield Trajectory(str(node.number), task.problem, steps, gold_answer=task.gold), label

    groups = await group_candidates(rows(), grader, extra=(by,))
    if not groups:
        return Outcome(Group(task.problem, (), ()), None, None, tree.spent)
    return Outcome(groups[0], choose(groups[0], by), choose(groups[0], by, "vote"), tree.spent)


def search_row(found: SearchResult, by: str, pick: Pick = "best") -> dict[str, Any]:
    """The solution that was chosen as a native row, with its scores and what was found beside it under "search"."""
    outcome = found.outcome
    chosen = outcome.best if pick == "best" else outcome.vote
    row: dict[str, Any] = {"id": found.task.id, "problem": found.task.problem}
    if chosen is not None:
        taken, group = chosen.taken, outcome.group
        row |= {"steps": taken.trajectory.texts, "p_correct": list(taken.label.p_correct)}
        row["final_answer"] = group.answers[taken.answer] if taken.answer >= 0 else None
    else:
        row |= {"steps": [], "p_correct": [], "final_answer": None}
    if found.task.gold is not None:
        row |= {"gold_answer": found.task.gold, "final_answer_correct": outcome.right(pick)}
    row["search"] = {
        "method": found.method,
        "came": found.came,
        "by": by,
        "pick": pick,
        "score": chosen.score if chosen else None,
        "spent": asdict(outcome.spent),
        "candidates": [
            {
                "node": int(candidate.trajectory.id),
                "answer": outcome.group.answers[candidate.answer] if candidate.answer >= 0 else None,
                "score": candidate.scores[by],
                "right": candidate.right,
            }
            for candidate in outcome.group.candidates
        ],
        "baseline": None if found.baseline is None else _baseline(found.baseline, pick),
    }
    return row


def _baseline(outcome: Outcome, pick: Pick) -> dict[str, Any]:
    return {"right": outcome.right(pick), "candidates": len(outcome.group.candidates), "spent": asdict(outcome.spent)}


def tree_rows(found: SearchResult) -> Iterable[dict[str, Any]]:
    """The tree, a row a node: its parent, its step, whether the solution ends there, its scores, the stored reply it came from,
    and what the method knew of it."""
    for node in found.tree.nodes:
        yield {
            "id": found.task.id,
            "node": node.number,
            "parent": None if node.parent is None else node.parent.number,
            "depth": node.depth,
            "step": node.step,
            "done": node.done,
            "p_correct": node.p[-1] if node.p else None,
            "score": node.score,
            "sample": node.sample,
            "key": node.key,
            **found.tree.facts.get(node.number, {}),
        }
