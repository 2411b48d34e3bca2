"""Search for a solution to a problem with a policy and a critic, and record the tree and its cost."""

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
    """A search method: a module in `methods/`."""

    async def search(self, tree: SearchTree, settings: SearchSettings) -> list[Node]:
        """Return the finished solutions, which are the candidates to choose from."""
        ...


def method_names() -> list[str]:
    """The registered methods: best-of-n, beam, dvts, lookahead, mcts."""
    return names("search method")


def open_method(name: str) -> Method:
    """The method called `name`. Raises UsageError with the available names."""
    return cast(Method, load("search method", name))


@dataclass(frozen=True, slots=True)
class SearchTask:
    """A problem to solve. `gold` is never shown to the policy or the critic."""

    id: str
    problem: str
    gold: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The candidates of a search, the choices among them, and the cost. `best` is the candidate with the highest score and
    `vote` the best one with the score-weighted majority answer; both are None if there are no candidates."""

    group: Group
    best: Choice | None
    vote: Choice | None
    spent: SearchCost

    def right(self, pick: str) -> bool | None:
        """Whether a choice is right. `pick` is "best", "vote", "majority" (the most frequent answer) or "pass" (any candidate
        is right). None if unknown; False without candidates."""
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
    """The search result for one problem. `baseline` is best-of-N with the number of tokens that the search generated, None if
    not requested. `came` is "ok" if there is a candidate, "unfinished" if the budget or depth limit ended the search, otherwise
    the failure."""

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
    """Search for a solution to `task`. `by` is the aggregation of the step scores of a prefix.

    For a given seed the search is as deterministic as the policy and the critic: with a cache, a repeated search sends no
    request again and finds the same solution. Another seed uses other samples. With `baseline`, independent solutions of the
    same total number of generated tokens are sampled for comparison. Raises UsageError and whatever stops the policy or the
    critic.
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
    """The chosen solution as a native row, with scores, candidates and cost under "search"."""
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
    """The tree, one row per node: parent, step, whether the solution ends there, scores, the key of its stored reply, and data
    recorded by the method."""
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
