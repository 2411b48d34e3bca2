"""Search for a solution to a problem with a policy and a critic, and report accuracy and cost over many problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias, cast

from critic_prm.data import Critic, Label, Step, Trajectory
from critic_prm.generate.policy.answers import Grader
from critic_prm.metrics.bootstrap import mean_difference, mean_interval
from critic_prm.registry import load
from critic_prm.search.beam import sample_within_budget
from critic_prm.search.ranking import Choice, Group, choose, group_candidates, voted
from critic_prm.search.settings import SearchBudget, SearchSettings
from critic_prm.search.stepper import Stepper
from critic_prm.search.tree import UNLIMITED, UNPRICED, Node, Pricing, SearchCost, SearchTree
from critic_prm.terminal import interval

DEFAULTS = SearchSettings()

RULES = {"best": "best score", "vote": "weighted majority", "majority": "majority", "pass": "any candidate right"}
"""Selection rules, and how they are printed."""


Method: TypeAlias = Callable[[SearchTree, SearchSettings], Awaitable[list[Node]]]
"""A search method: a function of this package. It returns the finished solutions, which are the candidates to choose from."""


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

    def right(self, rule: str) -> bool | None:
        """Whether a selection rule gives a right answer. The rule "majority" takes the most frequent answer; "pass" is right if
        any candidate is. None if unknown; False without candidates."""
        candidates = self.group.candidates
        if not candidates:
            return False
        if candidates[0].right is None:
            return None
        if rule == "pass":
            return any(candidate.right for candidate in candidates)
        if rule == "majority":
            winner = voted(self.group)
            return any(candidate.right for candidate in candidates if candidate.answer == winner)
        choice = self.best if rule == "best" else self.vote
        assert choice is not None
        return choice.taken.right


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The search result for one problem. `baseline` is best-of-N with the number of tokens that the search generated, None if
    not requested. `came` is "ok" if there is a candidate, "unfinished" if the budget or depth limit ended the search, otherwise
    the failure."""

    task: SearchTask
    settings: SearchSettings
    outcome: Outcome
    baseline: Outcome | None
    tree: SearchTree
    came: str


async def search(
    task: SearchTask,
    policy: Stepper,
    critic: Critic,
    grader: Grader,
    settings: SearchSettings = DEFAULTS,
    budget: SearchBudget = UNLIMITED,
    pricing: Pricing = UNPRICED,
) -> SearchResult:
    """Search for a solution to `task`.

    For a given seed the search is as deterministic as the policy and the critic: with a cache, a repeated search sends no
    request again and finds the same solution. Another seed uses other samples. For the baseline, independent solutions of the
    same total number of generated tokens are sampled. Raises UsageError and whatever stops the policy or the critic.
    """
    method = open_method(settings.method)
    tree = SearchTree(task.problem, policy, critic, settings, budget, pricing)
    solutions = await method(tree, settings)
    outcome = await _outcome(task, tree, solutions, grader, settings.by)
    baseline = None
    if settings.baseline and settings.method != "best-of-n":
        tokens = SearchBudget(max_written=outcome.spent.written)
        other = SearchTree(task.problem, policy, critic, settings, tokens, pricing)
        baseline = await _outcome(task, other, await sample_within_budget(other), grader, settings.by)
    came = "ok" if solutions else "unfinished"
    if tree.failed and len(tree.nodes) == 1:
        came = tree.failed.most_common(1)[0][0]
    return SearchResult(task, settings, outcome, baseline, tree, came)


async def _outcome(task: SearchTask, tree: SearchTree, solutions: Sequence[Node], grader: Grader, by: str) -> Outcome:
    rows = []
    for node in solutions:
        steps = tuple(map(Step, node.path))
        trajectory = Trajectory(str(node.number), task.problem, steps, gold_answer=task.gold)
        rows.append((trajectory, Label(node.p, ((0, 0),) * len(steps), None, "ok", ())))
    groups = await group_candidates(rows, grader, by=(by,))
    if not groups:
        return Outcome(Group(task.problem, (), ()), None, None, tree.spent)
    return Outcome(groups[0], choose(groups[0], by), choose(groups[0], by, "vote"), tree.spent)


def search_row(result: SearchResult) -> dict[str, Any]:
    """The chosen solution as a native row, with scores, candidates and cost under "search"."""
    outcome, by, pick, baseline = result.outcome, result.settings.by, result.settings.pick, result.baseline
    group, choice = outcome.group, outcome.best if pick == "best" else outcome.vote
    row: dict[str, Any] = {"id": result.task.id, "problem": result.task.problem}
    row |= {"steps": [], "p_correct": [], "final_answer": None}
    if choice is not None:
        row |= {"steps": choice.taken.trajectory.texts, "p_correct": list(choice.taken.label.p_correct)}
        row["final_answer"] = group.answer_of(choice.taken)
    if result.task.gold is not None:
        row |= {"gold_answer": result.task.gold, "final_answer_correct": outcome.right(pick)}
    row["search"] = {
        "method": result.settings.method,
        "came": result.came,
        "by": by,
        "pick": pick,
        "score": choice.score if choice else None,
        "spent": asdict(outcome.spent),
        "candidates": [
            {"node": int(one.trajectory.id), "answer": group.answer_of(one), "score": one.scores[by], "right": one.right}
            for one in group.candidates
        ],
        "baseline": None
        if baseline is None
        else {
            "right": baseline.right(pick),
            "candidates": len(baseline.group.candidates),
            "spent": asdict(baseline.spent),
        },
    }
    return row


def tree_rows(result: SearchResult) -> Iterator[dict[str, Any]]:
    """The tree, one row per node: parent (the root has the problem instead), step, whether the solution ends there, scores, the
    key of its stored reply, and data recorded by the method."""
    for node in result.tree.nodes:
        yield {
            "id": result.task.id,
            "node": node.number,
            "parent": None if node.parent is None else node.parent.number,
            **({"problem": result.task.problem} if node.parent is None else {}),
            "depth": node.depth,
            "step": node.step,
            "done": node.done,
            "p_correct": node.p[-1] if node.p else None,
            "score": node.score,
            "sample": node.sample,
            "key": node.key,
            **result.tree.facts.get(node.number, {}),
        }


@dataclass
class Side:
    """Results of the search or of the baseline. `right` has one entry per problem with a gold answer, for each selection
    rule."""

    right: dict[str, list[bool]] = field(default_factory=lambda: {rule: [] for rule in RULES})
    problems: int = 0
    candidates: int = 0
    spent: SearchCost = field(default_factory=SearchCost)

    def add(self, outcome: Outcome, gold_known: bool) -> None:
        for rule, hits in self.right.items():
            if gold_known and (right := outcome.right(rule)) is not None:
                hits.append(right)
        self.problems += 1
        self.candidates += len(outcome.group.candidates)
        self.spent += outcome.spent

    def accuracy(self, rule: str, keys: Sequence[str]) -> dict[str, float | None] | None:
        """The share of right answers with its 95% interval over problems; None if there are none."""
        if not (hits := self.right[rule]):
            return None
        around = mean_interval(keys, hits)
        return {"value": sum(hits) / len(hits), "low": around.low, "high": around.high}

    def report(self, keys: Sequence[str]) -> dict[str, Any]:
        return {
            "problems": self.problems,
            "candidates": self.candidates,
            "accuracy": {rule: self.accuracy(rule, keys) for rule in RULES},
            "calls": self.spent.calls,
            "judge_calls": self.spent.judged,
            "tokens_written": self.spent.written,
            "tokens_read": self.spent.read,
            "cost_usd": self.spent.usd,
        }


@dataclass
class SearchStats:
    """Accumulates search results. `lines` is the table printed at the end of a run; `report` goes into run.json."""

    method: str
    name: str = "search"
    search: Side = field(default_factory=Side)
    baseline: Side = field(default_factory=Side)
    came: Counter[str] = field(default_factory=Counter)
    keys: list[str] = field(default_factory=list)
    """The problems with a gold answer."""

    def add(self, result: SearchResult) -> None:
        self.came[result.came] += 1
        gold_known = result.task.gold is not None
        if gold_known:
            self.keys.append(result.task.problem)
        self.search.add(result.outcome, gold_known)
        if result.baseline is not None:
            self.baseline.add(result.baseline, gold_known)

    def report(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "came": dict(self.came),
            "search": self.search.report(self.keys),
            "baseline": self.baseline.report(self.keys) if self.baseline.problems else None,
            "difference": self.difference(),
        }

    def difference(self) -> dict[str, Any] | None:
        """Accuracy of the search minus that of the baseline, choosing by best score, with its 95% interval over the same
        problems."""
        ours, theirs = self.search.right["best"], self.baseline.right["best"]
        if not ours or len(ours) != len(theirs):
            return None
        gap = mean_difference(self.keys, ours, theirs)
        return {"value": gap.difference, "low": gap.interval.low, "high": gap.interval.high, "p": gap.p}

    def lines(self) -> list[str]:
        lines = []
        for name, side in ((self.method, self.search), ("best-of-N, equal tokens", self.baseline)):
            if not side.problems and side is self.baseline:
                continue
            spent, each = side.spent, side.candidates / max(side.problems, 1)
            cost = "price unknown" if spent.usd is None else f"${spent.usd:.4f}"
            lines.append(
                f"{name}: {side.problems:,} problems, {each:.1f} candidates each, {spent.calls:,} policy and"
                f" {spent.judged:,} judge requests, {spent.written:,} tokens written, {spent.read:,} read, {cost}"
            )
            if side.right["best"]:
                cells = [f"{text} {_percent(side.accuracy(rule, self.keys))}" for rule, text in RULES.items()]
                lines.append("  right: " + ", ".join(cells))
        if (gap := self.difference()) is not None:
            lines.append(f"{self.method} less best-of-N for equal tokens: {points(gap['value'], gap['low'], gap['high'])}")
        without = {name: count for name, count in self.came.items() if name != "ok"}
        if without:
            lines.append("without a solution: " + ", ".join(f"{count:,} {name}" for name, count in without.items()))
        return lines


def points(value: float, low: float | None, high: float | None) -> str:
    """A difference of shares in percentage points, with its interval if known."""
    return f"{100 * value:+.1f} points{interval(low, high, '+.1f', 100)}"


def _percent(share: dict[str, float | None] | None) -> str:
    if share is None or share["value"] is None:
        return "-"
    return f"{share['value']:.1%}{interval(share['low'], share['high'], '.1f', 100)}"
