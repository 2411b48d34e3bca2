"""Compare every search method, with a policy and a critic of known accuracy, with best-of-N at equal tokens.

    python -m bench.search
    python -m bench.search --problems 2000 --q 0.8 --length 8 --accuracy 0.85

The policy takes `length` steps, each right with probability q (for each problem its own, around `--q`); the critic calls a
step what it is with probability `accuracy`, consistently for the same step. It uses no model and no network and measures
the accuracy of each method and its cost in tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from dataclasses import replace

from bench.simulated import SimulatedCritic, SimulatedPolicy, chance
from critic_prm.generate.policy.answers import Grader
from critic_prm.registry import names
from critic_prm.search.search import SearchStats, SearchTask, search
from critic_prm.search.settings import SearchSettings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=500)
    parser.add_argument("--length", type=int, default=6)
    parser.add_argument("--q", type=float, default=0.75)
    parser.add_argument("--accuracy", type=float, nargs="*", default=[1.0, 0.9, 0.8])
    parser.add_argument("--by", default="geometric_mean")
    args = parser.parse_args()
    print(f"{args.problems} problems of {args.length} steps, each step right with P around {args.q}; scores by {args.by}")
    heads = f"{'critic':>6} {'method':12} {'best':>6} {'vote':>6} {'pass':>6} {'tokens':>7}"
    print(f"{heads}   {'equal-token best-of-N':>21} {'gap':>6} {'ms':>6}")
    for accuracy in args.accuracy:
        for method in names("search method"):
            print(asyncio.run(measure(method, args, accuracy)))


async def measure(method: str, args: argparse.Namespace, accuracy: float) -> str:
    account, grader = SearchStats(method), Grader()
    settings = SearchSettings(method, args.by, n=16, width=4, ahead=2, simulations=24)
    critic = SimulatedCritic(accuracy, spread=0.05)
    started = time.process_time()
    for number in range(args.problems):
        problem = f"problem {number}"
        q = min(max(args.q + 0.3 * (chance("difficulty", problem) - 0.5), 0.0), 1.0)
        policy = replace(SimulatedPolicy(args.length, q), greedy_q=min(q + 0.1, 1.0))
        account.add(await search(SearchTask(str(number), problem, "1"), policy, critic, grader, settings))
    seconds = time.process_time() - started
    cells = []
    for pick in ("best", "vote", "pass"):
        value = account.search.accuracy(pick, account.keys)
        assert value is not None
        cells.append(f"{100 * (value['value'] or 0):6.1f}")
    tokens = account.search.spent.written / args.problems
    gap = account.difference()
    baseline = account.baseline.accuracy("best", account.keys)
    beside = f"{100 * (baseline['value'] or 0):21.1f} {100 * gap['value']:+6.1f}" if baseline and gap else f"{'':>28}"
    return f"{accuracy:6.2f} {method:12} {' '.join(cells)} {tokens:7.0f}   {beside} {1000 * seconds / args.problems:6.1f}"


if __name__ == "__main__":
    main()
