"""Run a search over problems: write solutions and trees, and report the comparison at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import UsageError

if TYPE_CHECKING:
    from critic_prm.engine.client import Client
    from critic_prm.providers.models import Prices
    from critic_prm.search.search import SearchBudget, SearchSettings, SearchTask
    from critic_prm.search.stepper import LLMStepper


def asked_policy(
    judging: JudgeOptions,
    critic: str,
    base_url: str | None,
    *,
    temperature: float | None,
    top_p: float | None,
    max_tokens: int | None,
) -> tuple[JudgeOptions, JudgeOptions]:
    """Return the request options of the policy and of the critic.

    The policy has its own sampling parameters. If the critic asks a model too, each gets half of the run's budget.
    """
    share = 1 if is_local(critic) else 2
    each = replace(
        judging,
        budget_usd=None if judging.budget_usd is None else judging.budget_usd / share,
        max_requests=None if judging.max_requests is None else max(judging.max_requests // share, 1),
    )
    sampling = replace(
        judging.sampling, temperature=temperature, top_p=top_p, max_tokens=max_tokens, seed=None, logprobs=None, effort=None
    )
    return replace(each, sampling=sampling, base_url=base_url or judging.base_url), each


def is_local(critic: str) -> bool:
    """Return whether a critic runs locally, without requests to a model: a verifier folder or a packaged critic."""
    from pathlib import Path

    from critic_prm.registry import names

    return Path(critic).is_dir() or critic in names("critic")


def prices_of(critic: object) -> Prices | None:
    """Return the token prices of a critic; None unless it uses exactly one model with a known price."""
    from critic_prm.cli.running import clients_of

    clients = clients_of(critic)
    return clients[0].money.prices if len(clients) == 1 else None


def run_search(
    source: str,
    policy: LLMStepper,
    critic: str,
    judging: JudgeOptions,
    *,
    method: str,
    settings: SearchSettings,
    by: str,
    pick: str,
    budget: SearchBudget,
    baseline: bool,
    seed: int,
    out: str,
    tree: str | None,
    limit: int | None,
    skip_bad: bool,
) -> int:
    """Search every problem. Returns the exit code: 0, or 3 if problems could not be read or have no solution."""
    import typer

    from critic_prm.cli.running import clients_of, run_watched, told
    from critic_prm.critics.open import open_critic
    from critic_prm.data.aggregate import open_aggregation
    from critic_prm.data.records.reading import RecordWriter
    from critic_prm.engine.ordered_map import ordered_map
    from critic_prm.generate.policy.answers import Grader
    from critic_prm.generate.policy.problems import read_problems
    from critic_prm.label.run import RunStats
    from critic_prm.search.ranking import Pick
    from critic_prm.search.search import Pricing, SearchTask, open_method, search, search_row, tree_rows
    from critic_prm.search.stats import SearchStats

    settings.check(method, by.replace("-", "_"))
    open_method(method)
    open_aggregation(by)
    by = by.replace("-", "_")
    opened = open_critic(critic, judging).with_prefix_cache()
    client: Client = policy.policy.client
    pricing = Pricing(client.money.prices, prices_of(opened))
    if budget.usd is not None and (pricing.policy is None or (clients_of(opened) and pricing.critic is None)):
        raise UsageError("--max-usd needs the prices of policy and critic; name them with --prices, or use --max-written")
    grader, account, tally = Grader(), SearchStats(method), RunStats()
    skipped: list[object] = []
    problems = read_problems(source, skip_bad=skip_bad, complain=told(skipped), gold_needed=False)
    tasks = (SearchTask(problem.id, problem.text, problem.gold or None) for problem in islice(problems, limit))

    async def one(part: Sequence[SearchTask]) -> list[Any]:
        return [
            await search(
                task,
                policy,
                opened,
                grader,
                method=method,
                settings=settings,
                by=by,
                budget=budget,
                pricing=pricing,
                baseline=baseline,
                seed=seed,
            )
            for task in part
        ]

    async def body(sink: RecordWriter, stop: asyncio.Event) -> None:
        with RecordWriter(tree) if tree else nullcontext() as forest:
            async for _, found in ordered_map(tasks, one, workers=lambda: judging.max_connections, window=256, stop=stop):
                tally.rows += 1
                tally.labels["ok" if found.came == "ok" else found.came] += 1
                account.add(found)
                sink.write(search_row(found, by, cast(Pick, pick)))
                if forest is not None:
                    for row in tree_rows(found):
                        forest.write(row)
        tally.skipped = len(skipped)

    async def close() -> None:
        await asyncio.gather(grader.close(), policy.close(), opened.close())

    code = run_watched(body, out, tally, client, close, [account], [client, *clients_of(opened)])
    if grader.note:
        typer.echo(grader.note, err=True)
    return code
