"""Compare Monte Carlo labels with a simulated policy of known success rates: python bench/rollout.py [--short]

The policy finishes a problem right from a prefix with a chance that is drawn once a problem and falls to 0 at a planted step.

    coverage   how often the interval of an estimate contains the truth, for each stopping rule (bar 0.95)
    search     binary search against the sequential method, 8 steps and K = 8: errors found (bar 0.99), completions (bar 0.40)
    noise      the same if the policy recovers with a probability of 0.02 to 0.10, with and without --recheck; no bar
    adaptive   fewer completions by stopping early, at the accuracy of all (bar 0.60 of them)
    tree       labelled solutions of OmegaPRM's tree, and how many of their first errors are the planted ones; no bar
"""

from __future__ import annotations

import argparse
import asyncio
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from critic_prm.critics.rollout import RolloutCritic
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.engine.options import JudgeOptions
from critic_prm.generate.options import RolloutOptions, TreeOptions
from critic_prm.generate.policy.answers import Grader
from critic_prm.generate.policy.policy import LLMPolicy, with_provider
from critic_prm.generate.policy.problems import Problem
from critic_prm.generate.policy.rollout import Prefixes
from critic_prm.generate.policy.stopping import Enough
from critic_prm.generate.sample import grow
from critic_prm.label.run import label
from critic_prm.providers.provider import Wire
from critic_prm.providers.scripted import ScriptedProvider

STEPS, K = 8, 8
Chance = Callable[[int, int], float]
"""The problem's number and the length of the prefix -> the chance that a completion of it is right."""


def pretended(chance: Chance, seed: int) -> ScriptedProvider:
    """The n-th completion of a prefix is the same in every world with this seed, whatever else is asked."""
    turns: Counter[tuple[int, int]] = Counter()

    def answer(wire: Wire) -> Mapping[str, Any]:
        asked = str(wire["messages"][-1]["content"])
        number = int(re.findall(r"Problem no\. (\d+)", asked)[0])
        shown = len(re.findall(r"^Step \d+: ", asked, re.MULTILINE))
        turns[number, shown] += 1
        right = Random(f"{seed} {number} {shown} {turns[number, shown]}").random() < chance(number, shown)
        return {"text": f"Step {shown + 1}: the rest.\n\nStep {shown + 2}: it is \\boxed{{{42 if right else 41}}}"}

    return ScriptedProvider(answer)


def solution(number: int) -> Trajectory:
    steps = tuple(Step(f"This is what is done in step {i}.") for i in range(STEPS))
    return Trajectory(f"t{number}", f"Problem no. {number}", steps, final_answer="41", gold_answer="42")


def planted(number: int) -> int:
    return number % STEPS


def erring(good: tuple[float, float], rescue: tuple[float, float] = (0.0, 0.0)) -> Chance:
    """Right with a chance between `good` until the planted step, with one between `rescue` from there on."""

    def chance(number: int, shown: int) -> float:
        rng = Random(number)
        before, after = rng.uniform(*good), rng.uniform(*rescue)
        return before if shown <= planted(number) else after

    return chance


class World:
    """A policy with a cache of its own; `asked` counts what it was sent."""

    def __init__(self, chance: Chance, seed: int = 0) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.provider = pretended(chance, seed)
        self.policy: LLMPolicy = with_provider(self.provider, JudgeOptions(db=Path(self.folder.name) / "cache.db"))

    @property
    def asked(self) -> int:
        return len(self.provider.asked)

    async def __aenter__(self) -> World:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.policy.close()
        self.folder.cleanup()


async def errors_found(chance: Chance, how: RolloutOptions, count: int) -> tuple[float, float, int]:
    """(share of planted first errors found among those that were said, share said, completions)."""
    async with World(chance) as world:
        critic = RolloutCritic(world.policy, how)
        found = [(t, told) async for t, told in label(map(solution, range(count)), critic)]
        said = [(planted(int(t.id[1:])), told.first_error) for t, told in found if told.first_error is not None]
        return sum(a == b for a, b in said) / max(len(said), 1), len(said) / count, world.asked


async def coverage(count: int) -> None:
    ways = {"8, all": Enough(8), "16, all": Enough(16), "8, curtailed": Enough(8, "curtailed")}
    ways |= {"16, curtailed at 0.25": Enough(16, "curtailed", 0.25), "32, decided at 0.3": Enough(32, "decided", 0.3)}
    for name, enough in ways.items():
        inside = width = 0.0
        async with World(lambda number, shown: Random(number).random()) as world:
            for number in range(count):
                prefixes = Prefixes(world.policy, Grader(), f"Problem no. {number}", "42")
                estimate = await prefixes.estimate([], enough)
                low, high = estimate.interval
                inside += low <= Random(number).random() <= high
                width += high - low
            asked = world.asked
        bar(
            f"coverage, {name} ({asked / count:.1f} completions, mean width {width / count:.2f})",
            inside / count,
            0.95,
            least=True,
        )


async def search(count: int) -> None:
    chance = erring((0.5, 0.95))
    sequential = RolloutOptions(Enough(K), "every")
    binary = RolloutOptions(Enough(K, "curtailed"), "halving", "hard")
    plain = RolloutOptions(Enough(K), "halving", "hard")
    _, _, everything = await errors_found(chance, sequential, count)
    right, _, asked = await errors_found(chance, binary, count)
    bar("binary search: planted first errors found", right, 0.99, least=True)
    bar("binary search: completions of the sequential method's", asked / everything, 0.40, least=False)
    right, _, asked = await errors_found(chance, plain, count)
    print(f"  with all {K} completions of each prefix: {right:.3f} found with {asked / everything:.2f} of the completions")
    first = RolloutOptions(Enough(K, "curtailed"), "first", "hard")
    right, _, asked = await errors_found(chance, first, count)
    print(f"  step by step up to the error, curtailed: {right:.3f} found with {asked / everything:.2f} of the completions")


async def noise(count: int) -> None:
    chance = erring((0.5, 0.95), (0.02, 0.10))
    for name, how in {
        "sequential": RolloutOptions(Enough(K), "every", "hard"),
        "binary": RolloutOptions(Enough(K, "curtailed"), "halving", "hard"),
        "binary, rechecked": RolloutOptions(Enough(K, "curtailed"), "halving", "hard", recheck=True),
        "binary, theta 0.25 of 16": RolloutOptions(Enough(16, "decided", 0.25), "halving", "hard"),
    }.items():
        right, said, asked = await errors_found(chance, how, count)
        print(f"  {name}: {right:.3f} right of {said:.0%} said, {asked / count:.1f} completions a solution")


async def adaptive(count: int) -> None:
    """Labels of prefixes whose chances are spread over [0, 1]: is it above theta?"""

    def chance(number: int, shown: int) -> float:
        return Random(number).betavariate(0.6, 0.6)

    async def accuracy(enough: Enough) -> tuple[float, int]:
        async with World(chance) as world:
            right = 0
            for number in range(count):
                estimate = await Prefixes(world.policy, Grader(), f"Problem no. {number}", "42").estimate([], enough)
                right += estimate.good == (chance(number, 0) > enough.theta)
            return right / count, world.asked

    for most, theta in ((16, 0.25), (16, 0.5), (32, 0.3)):
        fixed, everything = await accuracy(Enough(most, "all", theta))
        for rule in ("curtailed", "decided"):
            right, asked = await accuracy(Enough(most, rule, theta))
            what = f"{rule} at {theta} of {most}: accuracy {right:.3f} (all: {fixed:.3f}), completions"
            if rule == "decided":
                bar(what, asked / everything, 0.60, least=False)
            else:
                print(f"  {what} {asked / everything:.2f}")
    # Hard labels of whole solutions: the same ones exactly.
    trees = erring((0.3, 0.95))
    fixed, _, everything = await errors_found(trees, RolloutOptions(Enough(K), "first", "hard"), count // 4)
    right, _, asked = await errors_found(trees, RolloutOptions(Enough(K, "curtailed"), "first", "hard"), count // 4)
    bar(f"hard labels, curtailed: accuracy {right:.3f} (all: {fixed:.3f}), completions", asked / everything, 0.60, least=False)


async def tree(count: int) -> None:
    def script(wire: Wire) -> Mapping[str, Any]:
        asked = str(wire["messages"][-1]["content"]).partition("so far:")[2]
        words = re.findall(r"^Step \d+: (\w+)", asked, re.MULTILINE)
        shown = len(words)
        while len(words) < STEPS:
            words.append("wrong" if "wrong" in words or rng.random() < 0.1 else "right")
        told = [f"Step {i}: {word} as far as one can tell, {rng.random():.9f}" for i, word in enumerate(words, 1)]
        told[-1] += f" \\boxed{{{41 if 'wrong' in words else 42}}}"
        return {"text": "\n\n".join(told[shown:])}

    rng = Random(0)
    searched = right = made = 0
    with tempfile.TemporaryDirectory() as folder:
        policy = with_provider(ScriptedProvider(script), JudgeOptions(db=Path(folder) / "cache.db"))
        for number in range(count):
            grown = await grow(Problem(str(number), f"Problem no. {number}", "42"), policy, Grader(), TreeOptions())
            made += grown.rollouts
            for one in grown.searched:
                searched += 1
                right += [step.split()[2] for step in one.steps].index("wrong") == one.first_error
        await policy.close()
    each = f"{made} completions ({made / searched:.1f} each)"
    print(f"  {searched} rollouts searched with {each}, {right / searched:.3f} at the planted step")


def bar(what: str, figure: float, limit: float, *, least: bool) -> None:
    met = figure >= limit if least else figure <= limit
    print(f"{what}: {figure:.3f} (bar {limit:g}){'' if met else '  MISSED'}", flush=True)


PARTS: Sequence[tuple[str, Callable[[int], Any], int]] = (
    ("coverage", coverage, 2000),
    ("search", search, 800),
    ("noise", noise, 800),
    ("adaptive", adaptive, 2000),
    ("tree", tree, 60),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("parts", nargs="*", help=", ".join(name for name, _, _ in PARTS))
    parser.add_argument("--short", action="store_true", help="a tenth of the problems")
    given = parser.parse_args()
    for name, part, count in PARTS:
        if not given.parts or name in given.parts:
            started = time.perf_counter()
            print(f"{name}:")
            asyncio.run(part(count // 10 if given.short else count))
            print(f"  {time.perf_counter() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
