"""Sample k solutions per problem, grade them, and select by pass rate, duplicates and balance."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.engine.together import gather_all
from critic_prm.errors import UsageError
from critic_prm.generate.policy.answers import Grader, final_answer
from critic_prm.generate.policy.policy import Completion, Policy, unmarked
from critic_prm.generate.policy.problems import Problem

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
