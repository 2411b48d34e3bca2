"""Every method of search against theory or direct simulation, with a policy and a critic of known accuracy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from bench.simulated import SimulatedCritic, SimulatedPolicy, chance, is_right
from critic_prm.errors import UsageError
from critic_prm.generate.policy.answers import Grader
from critic_prm.providers.models import Prices
from critic_prm.search.beam import dvts
from critic_prm.search.mcts import Place, priors, urgency
from critic_prm.search.search import SearchResult, SearchTask, search, search_row
from critic_prm.search.settings import SearchBudget, SearchSettings
from critic_prm.search.stepper import SAMPLES_PER_SEED
from critic_prm.search.tree import Node, Pricing, SearchTree

PROBLEMS = 2000
NEAR = 0.02
COMPARED = 250
"""Problems on which the library is compared with a model of a method, choice by choice. The model is compared with theory."""

Path = tuple[str, ...]


async def run(
    policy: SimulatedPolicy, critic: Any, method: str, problems: int = PROBLEMS, **options: Any
) -> list[SearchResult]:
    """Search with the settings in `options`; a `budget` and a `pricing` are passed on."""
    grader, limits = Grader(), {name: options.pop(name) for name in ("budget", "pricing") if name in options}
    settings = SearchSettings(method, **{"baseline": False} | options)
    tasks = [SearchTask(str(i), f"problem {i}", "1") for i in range(problems)]
    return [await search(task, policy, critic, grader, settings, **limits) for task in tasks]


def share(found: Sequence[SearchResult], pick: str = "best") -> float:
    return sum(bool(one.outcome.right(pick)) for one in found) / len(found)


class Plain:
    """One problem without the library: the draws of the policy and the critic, and a beam as a list of paths."""

    def __init__(self, policy: SimulatedPolicy, critic: SimulatedCritic, problem: str, by: str = "min") -> None:
        self.policy, self.critic, self.problem, self.by = policy, critic, problem, by
        self.drawn: Counter[Path] = Counter()

    def grow(self, path: Path) -> Path:
        self.drawn[path] += 1
        return (*path, self.policy.take(self.problem, path, self.drawn[path] - 1))

    def p(self, path: Path) -> float:
        """P(correct) of the last step."""
        key, critic = (self.critic.salt, self.problem, *path), self.critic
        called = (chance("agrees", *key) < critic.accuracy) == path[-1].startswith("right")
        wobble = critic.spread * (chance("spread", *key) - 0.5) if critic.spread else 0.0
        return (0.9 if called else 0.1) + wobble

    def all_p(self, path: Path) -> list[float]:
        return [self.p(path[:length]) for length in range(1, len(path) + 1)]

    def score(self, path: Path) -> float:
        return self.p(path) if self.by == "last" else min(self.all_p(path))

    def chosen(self, ends: Sequence[Path]) -> Path:
        """The best score, then the best mean, then the earlier one."""
        return max(sorted(ends, key=lambda end: -self.score(end)), key=lambda end: (self.score(end), sum(self.all_p(end))))

    def ahead(self, path: Path) -> float:
        """The score after one more greedy step, which has a sample number of its own."""
        return self.score((*path, self.policy.take(self.problem, path, SAMPLES_PER_SEED - 1, greedy=True)))

    def beam(self, n: int, width: int, ahead: int = 0) -> list[Path]:
        beams: list[Path] = [()] * n
        for step in range(self.policy.length):
            beams = [self.grow(beam) for beam in beams]
            if width > 1 and step < self.policy.length - 1:
                rank = self.ahead if ahead else self.score
                kept = sorted(beams, key=rank, reverse=True)[: n // width]
                beams = [kept[place % len(kept)] for place in range(n)]
        return beams

    def subtrees(self, n: int, width: int) -> list[Path]:
        heads: list[Path] = [()] * (n // width)
        for _ in range(self.policy.length):
            families = [[self.grow(head) for _ in range(width)] for head in heads]
            heads = [max(family, key=self.score) for family in families]
        return [end for family in families for end in family]


async def modelled(
    policy: SimulatedPolicy,
    critic: SimulatedCritic,
    method: str,
    ends: Callable[[Plain], list[Path]],
    pick: str = "best",
    kind: type[Plain] = Plain,
    **options: Any,
) -> float:
    """The share of right choices among what a model ends with, over PROBLEMS; the library must make the same choices."""
    hits = []
    for number in range(PROBLEMS):
        plain = kind(policy, critic, f"problem {number}", options.get("by", "min"))
        found = ends(plain)
        hits.append(any(map(is_right, found)) if pick == "pass" else is_right(plain.chosen(found)))
    searched = await run(policy, critic, method, COMPARED, **options)
    assert [one.outcome.right(pick) for one in searched] == hits[:COMPARED]
    return sum(hits) / len(hits)


def called_right(q: float, accuracy: float) -> float:
    return q * accuracy + (1 - q) * (1 - accuracy)


def chosen_right(q: float, accuracy: float, n: int) -> float:
    """P(the choice among n is right) when each is right with q and called what it is with `accuracy`: one that was called
    right is taken, where there is one."""
    called = called_right(q, accuracy)
    none = (1 - called) ** n
    return (1 - none) * q * accuracy / called + none * q * (1 - accuracy) / (1 - called)


async def test_best_of_n_is_what_theory_says() -> None:
    found = await run(SimulatedPolicy(1, 0.4), SimulatedCritic(0.8), "best-of-n", n=4, by="last")
    assert share(found) == pytest.approx(chosen_right(0.4, 0.8, 4), abs=NEAR)
    assert share(found, "pass") == pytest.approx(1 - 0.6**4, abs=NEAR)


async def test_weighted_majority_is_what_simulation_says() -> None:
    rng, hits, trials = Random(0), 0.0, 40_000
    for _ in range(trials):
        sums: dict[int, list[float]] = {}
        for _ in range(5):
            right = rng.random() < 0.4
            weight = 0.9 if (rng.random() < 0.8) == right else 0.1
            sums.setdefault(1 if right else rng.randint(2, 4), []).append(weight)
        ranked = sorted(((round(sum(w), 9), max(w), rng.random(), answer) for answer, w in sums.items()), reverse=True)
        hits += ranked[0][3] == 1
    found = await run(SimulatedPolicy(1, 0.4), SimulatedCritic(0.8), "best-of-n", n=5, by="last")
    assert share(found, "vote") == pytest.approx(hits / trials, abs=NEAR)


@pytest.mark.parametrize("accuracy", [1.0, 0.8])
async def test_beam_with_one_kept_prefix_is_what_theory_says(accuracy: float) -> None:
    """By the last step's score, each step is a choice among n of its own."""
    settings: dict[str, Any] = {"n": 4, "width": 4}
    policy, critic = SimulatedPolicy(4, 0.5), SimulatedCritic(accuracy)
    share_right = await modelled(policy, critic, "beam", lambda plain: plain.beam(**settings), **settings, by="last")
    assert share_right == pytest.approx(chosen_right(0.5, accuracy, 4) ** 4, abs=NEAR)


async def test_beam_with_several_kept_prefixes_is_what_simulation_says() -> None:
    """A beam is a list of its steps' scores and whether it is still right; nothing of the library is used."""
    length, q, accuracy, n, width = 4, 0.5, 0.8, 6, 3
    rng, hits, trials = Random(1), 0, 20_000
    for _ in range(trials):
        beams: list[tuple[float, bool]] = [(1.0, True)] * n
        for step in range(length):
            grown = []
            for least, right in beams:
                good = rng.random() < q
                p = 0.9 if (rng.random() < accuracy) == good else 0.1
                grown.append((min(least, p + 0.05 * (rng.random() - 0.5)), right and good))
            grown.sort(key=lambda beam: -beam[0])
            kept = grown[: n // width]
            beams = [kept[place % len(kept)] for place in range(n)] if step < length - 1 else grown
        hits += beams[0][1]
    policy, critic = SimulatedPolicy(length, q), SimulatedCritic(accuracy, spread=0.05)
    share_right = await modelled(policy, critic, "beam", lambda plain: plain.beam(n, width), n=n, width=width)
    assert share_right == pytest.approx(hits / trials, abs=NEAR)


async def test_a_beam_finds_the_best_path_where_it_can_be_reached() -> None:
    """Every second step drawn is right; the score counts right steps, so the path of right steps alone must come out."""
    policy = SimulatedPolicy(6, 0.0, decide=lambda problem, path, sample: sample % 2 == 1)
    (found,) = await run(policy, SimulatedCritic(), "beam", 1, n=4, width=2, by="sum")
    assert found.outcome.best is not None
    assert is_right(found.outcome.best.taken.trajectory.texts)


async def test_a_beam_that_prunes_nothing_is_independent_sampling() -> None:
    settings: dict[str, Any] = {"n": 4, "width": 1}
    policy, critic = SimulatedPolicy(3, 0.7), SimulatedCritic()
    passed = await modelled(policy, critic, "beam", lambda plain: plain.beam(**settings), "pass", **settings)
    assert passed == pytest.approx(1 - (1 - 0.7**3) ** 4, abs=NEAR)
    found = await run(policy, critic, "beam", 100, **settings)
    assert all(len(one.outcome.group.candidates) == 4 for one in found)


async def test_dvts_is_what_theory_says() -> None:
    policy, critic = SimulatedPolicy(3, 0.5), SimulatedCritic()
    subtree = (1 - 0.5**2) ** 3
    assert await modelled(policy, critic, "dvts", lambda plain: plain.subtrees(4, 2), n=4, width=2) == pytest.approx(
        1 - (1 - subtree) ** 2, abs=NEAR
    )


async def test_subtrees_of_dvts_exchange_nothing() -> None:
    """Both subtrees draw from the root, and then each from its own head alone; scores go with their own steps."""
    settings = SearchSettings("dvts", n=4, width=2)
    tree = SearchTree("p", SimulatedPolicy(3, 0.5), SimulatedCritic(spread=0.1), settings)
    ended = await dvts(tree, settings)
    assert {node.path[0].split()[1] in "01" for node in ended} == {True, False}
    (again,) = {tuple(s) for s in await tree.scorer.score([ended[0].path])}
    assert ended[0].p == again
    assert all(node.score == min(p for p in node.p if p is not None) for node in ended)


async def test_lookahead_sees_what_the_next_step_gives_away() -> None:
    """A critic that is blind to the first step but not to what comes of it: with one step ahead the choice is as good as
    theory says, without it is chance."""

    class Blind(SimulatedCritic):
        def one(self, trajectory: Any, sample: int) -> Any:
            judgement = super().one(trajectory, sample)
            first = judgement.verdicts[0]
            from dataclasses import replace

            if len(trajectory.steps) == 1:
                return replace(judgement, verdicts=(replace(first, p_correct=0.5),))
            return judgement

    class PlainBlind(Plain):
        def score(self, path: Path) -> float:
            return 0.5 if len(path) == 1 else super().score(path)

    policy, critic = SimulatedPolicy(2, 0.5, greedy_q=1.0), Blind(causal=False)
    settings: dict[str, Any] = {"n": 4, "width": 4, "ahead": 1}
    ahead = await modelled(policy, critic, "lookahead", lambda one: one.beam(**settings), kind=PlainBlind, **settings)
    plain = await modelled(policy, critic, "beam", lambda one: one.beam(4, 4), kind=PlainBlind, **settings)
    assert ahead == pytest.approx((1 - 0.5**4) ** 2, abs=NEAR)
    assert plain == pytest.approx(0.5 * (1 - 0.5**4), abs=NEAR)


async def test_mcts_with_a_perfect_critic_finds_what_its_tree_holds() -> None:
    """Where every prefix has `width` steps to go on with, a solution exists by the law of branching processes; and where one
    exists, it is found."""
    q, width, length = 0.4, 3, 3
    policy = SimulatedPolicy(length, q)

    def solvable(problem: str, path: tuple[str, ...] = ()) -> bool:
        steps = [policy.take(problem, path, sample) for sample in range(width)]
        return len(path) == length or any(solvable(problem, (*path, step)) for step in steps if step.startswith("right"))

    solved = 1.0
    for _ in range(length):
        solved = 1 - (1 - q * solved) ** width
    assert sum(solvable(f"problem {i}") for i in range(6000)) / 6000 == pytest.approx(solved, abs=NEAR)
    settings: dict[str, Any] = {"width": width, "simulations": 20}
    found = await run(policy, SimulatedCritic(), "mcts", COMPARED, **settings)
    assert [one.outcome.right("best") for one in found] == [solvable(one.task.problem) for one in found]


async def test_mcts_that_sees_its_whole_tree_takes_the_best_leaf() -> None:
    """A fallible critic, by the last step's score alone: each of the 9 leaves is what it is called with P = accuracy, so the
    choice among right and wrong leaves can be simulated without a search."""
    q, width, accuracy = 0.5, 3, 0.8
    rng, hits, trials = Random(2), 0, 40_000
    for _ in range(trials):
        leaves = []
        for _ in range(width):
            first = rng.random() < q
            for _ in range(width):
                good = rng.random() < q
                leaves.append((0.9 if (rng.random() < accuracy) == good else 0.1, rng.random(), first and good))
        hits += max(leaves)[2]
    settings: dict[str, Any] = {"width": width, "simulations": 20}
    critic = SimulatedCritic(accuracy, spread=0.01)

    def whole(plain: Plain) -> list[Path]:
        heads = [plain.grow(()) for _ in range(width)]
        return [plain.grow(head) for head in heads for _ in range(width)]

    right = await modelled(SimulatedPolicy(2, q), critic, "mcts", whole, **settings, by="last")
    assert right == pytest.approx(hits / trials, abs=NEAR)


async def test_mcts_solves_every_solvable_problem_of_planted_ones() -> None:
    """Each prefix has three steps to go on with. Of 50 problems, one hidden path is right; of 10 others, none."""
    length, width = 5, 3
    rng = Random(3)
    paths = {f"problem {i}": [rng.randrange(width) for _ in range(length)] if i % 6 else None for i in range(60)}

    def decide(problem: str, path: Sequence[str], sample: int) -> bool:
        hidden = paths[problem]
        return hidden is not None and is_right(path) and sample == hidden[len(path)]

    policy = SimulatedPolicy(length, 0.0, decide=decide)
    found = await run(policy, SimulatedCritic(), "mcts", problems=60, width=width, simulations=400)
    solved = {one.task.problem for one in found if one.outcome.right("best")}
    assert solved == {problem for problem, path in paths.items() if path is not None}
    assert max(one.outcome.spent.calls for one in found if one.task.problem in solved) < 400 * width


def test_urgency_worked() -> None:
    assert urgency(0.7, 0.4, 2, 9, 1.5) == pytest.approx(1.3)
    assert urgency(0.5, 0.6, 0, 9, 1.5) == pytest.approx(3.2)


def test_priors_are_a_softmax_of_scores_and_unknown_is_the_mean() -> None:
    settings = SearchSettings(prior_temperature=0.1)
    assert priors([0.5, 0.5], settings) == [0.5, 0.5]
    sure = priors([0.9, None, 0.1], settings)
    assert sum(sure) == pytest.approx(1.0)
    assert sure[0] > sure[1] > sure[2]
    assert priors([0.9, 0.1], SearchSettings(prior="uniform")) == [0.5, 0.5]
    assert priors([None, None], settings) == [0.5, 0.5]


async def test_visits_sum_up_and_without_exploration_the_best_path_is_taken() -> None:
    (found,) = await run(SimulatedPolicy(4, 0.6), SimulatedCritic(spread=0.1), "mcts", 1, width=3, simulations=30)
    facts = found.tree.facts
    assert facts[0]["visits"] == 30
    children = [node.number for node in found.tree.nodes if node.parent is found.tree.root]
    assert sum(facts[number]["visits"] for number in children) == 29
    exact = {"width": 3, "simulations": 4, "exploration": 0.0, "backup": "max"}
    (greedy,) = await run(SimulatedPolicy(4, 0.6), SimulatedCritic(spread=0.1), "mcts", 1, **exact)
    visited = [n for n in greedy.tree.nodes if greedy.tree.facts[n.number]["visits"] and n.parent is not None]
    for node in visited:
        siblings = [n for n in greedy.tree.nodes if n.parent is node.parent]
        assert node.rank == max(sibling.rank for sibling in siblings)


async def test_a_rollout_counts_as_much_as_it_is_told_to() -> None:
    settings: dict[str, Any] = {"width": 2, "simulations": 1, "rollout": 1.0}
    (found,) = await run(SimulatedPolicy(3, 0.6), SimulatedCritic(spread=0.1), "mcts", 1, **settings)
    (end,) = found.outcome.group.candidates
    assert found.tree.facts[0]["value"] == pytest.approx(end.scores["min"])


async def test_the_baseline_writes_as_much_as_the_search() -> None:
    found = await run(SimulatedPolicy(4, 0.5), SimulatedCritic(), "beam", 50, n=4, width=2, baseline=True)
    for one in found:
        assert one.baseline is not None
        assert 0 <= one.baseline.spent.written - one.outcome.spent.written < 40
    assert (await run(SimulatedPolicy(4, 0.5), SimulatedCritic(), "best-of-n", 1, baseline=True))[0].baseline is None


async def test_a_causal_critic_is_asked_once_for_a_whole_solution() -> None:
    critic = SimulatedCritic()
    (found,) = await run(SimulatedPolicy(6, 0.9), critic, "best-of-n", 1, n=2)
    assert critic.judged == 2
    await found.tree.scorer.score([node.path for node in found.tree.nodes[1:]])
    assert critic.judged == 2


async def test_what_cannot_be_solved_or_asked_says_so() -> None:
    (found,) = await run(SimulatedPolicy(9, 0.5), SimulatedCritic(), "beam", 1, n=4, width=4, depth=3)
    assert found.came == "unfinished"
    assert found.outcome.right("best") is False
    assert search_row(found)["steps"] == []
    for options in ({"method": "beam", "n": 6}, {"n": 0}, {"rollout": 2}, {"exploration": -1}, {"by": "median"}):
        with pytest.raises(UsageError):
            SearchSettings(**options)
    with pytest.raises(UsageError, match="geometric_mean"):
        SearchSettings("mcts", by="product")
    with pytest.raises(UsageError, match="astar"):
        await run(SimulatedPolicy(1, 1), SimulatedCritic(), "astar", 1)


def test_a_node_knows_its_path() -> None:
    root = Node(0)
    child = Node(2, Node(1, root, "a"), "b")
    assert (child.path, child.depth, root.path, root.depth) == (("a", "b"), 2, (), 0)
    assert Place(root).value(SearchSettings()) is None


async def test_dollars_are_counted_and_bound_a_search() -> None:
    """Each step reads 5 tokens and writes 10; the policy costs 1 and 2 dollars a million."""
    pricing = Pricing(policy=Prices(input=1.0, output=2.0, source="test"))
    (free,) = await run(SimulatedPolicy(5, 0.6), SimulatedCritic(), "beam", 1, n=4, width=2, pricing=pricing)
    spent = free.outcome.spent
    assert spent.usd == pytest.approx(spent.calls * 25e-6)
    assert (spent.written, spent.read) == (spent.calls * 10, spent.calls * 5)
    budget = SearchBudget(max_usd=2.5 * 4 * 25e-6)
    (bound,) = await run(SimulatedPolicy(5, 0.6), SimulatedCritic(), "beam", 1, n=4, width=2, pricing=pricing, budget=budget)
    assert bound.outcome.spent.calls == 3 * 4
    (unknown,) = await run(SimulatedPolicy(5, 0.6), SimulatedCritic(), "beam", 1, n=4, width=2)
    assert unknown.outcome.spent.usd is None
