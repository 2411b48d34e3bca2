"""critic-prm search: solve problems with a policy guided by a critic."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from critic_prm.cli.fields import Fields
from critic_prm.cli.options import InputOptions
from critic_prm.engine.options import JudgeOptions
from critic_prm.registry import names
from critic_prm.search.settings import SearchBudget, SearchSettings, StepperOptions

if TYPE_CHECKING:
    from critic_prm.cli.running import SkippedRows
    from critic_prm.data.critic import Critic
    from critic_prm.data.records.reading import RecordWriter
    from critic_prm.generate.policy.answers import Grader
    from critic_prm.search.refine import RefineStats
    from critic_prm.search.search import SearchResult, SearchStats, SearchTask
    from critic_prm.search.stepper import LLMStepper

Item = TypeVar("Item")
Result = TypeVar("Result")

PolicyName = Annotated[str, typer.Option("--policy", metavar="PROVIDER/MODEL", help="Model that writes the steps.")]
CriticName = Annotated[str, typer.Option("--critic", help="A verifier folder, `rules`, a .toml file or provider/MODEL.")]
Out = Annotated[str, typer.Option("-o", "--out", metavar="FILE", help="File of solutions to write; - is stdout.")]


def search(
    source: Annotated[str, typer.Argument(metavar="PROBLEMS", help="Problems, with gold answers if known; - is stdin.")],
    policy: PolicyName,
    critic: CriticName,
    out: Out = "-",
    tree: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write every node of every search tree to this file, one row per node.")
    ] = None,
    *,
    reading: Annotated[InputOptions, Fields(only=("skip_bad", "limit"))],
    settings: SearchSettings,
    stepper: Annotated[StepperOptions, Fields(without=("feedback_prompt",))],
    budget: SearchBudget,
    judging: JudgeOptions,
) -> None:
    """Solve problems step by step with a policy that is guided by a critic.

    Reads problems (PROBLEMS) and cached replies (--db). Writes one solution per problem (-o) and, on request, the search trees
    (--tree). Run the same command again to resume; cached replies are not paid for twice.

    At the end, the search is compared with best-of-N at the same number of generated tokens. --budget-usd and --max-requests
    apply to the whole run; a judge that is a model and the policy get one half each.

    Example: critic-prm search in.jsonl --policy openai/MODEL --critic verifier
    """
    from critic_prm.cli.running import SkippedRows, clients_of
    from critic_prm.critics.open import check_one_server, open_critic
    from critic_prm.data.records.reading import RecordWriter
    from critic_prm.errors import UsageError
    from critic_prm.generate.policy.answers import Grader
    from critic_prm.generate.policy.problems import read_problems
    from critic_prm.search.search import SearchStats, SearchTask, open_method, search_row, tree_rows
    from critic_prm.search.search import search as search_one
    from critic_prm.search.stepper import open_stepper
    from critic_prm.search.tree import Pricing

    open_method(settings.method)
    each = split_budget(judging, critic)
    check_one_server([critic, *([] if stepper.policy_has_own_server else [policy])], each)
    solver, opened = open_stepper(policy, each, stepper), open_critic(critic, each).with_prefix_cache()
    clients, grader = clients_of(opened), Grader()
    pricing = Pricing(solver.policy.client.money.prices, clients[0].money.prices if len(clients) == 1 else None)
    if budget.max_usd is not None and (pricing.policy is None or (clients and pricing.critic is None)):
        raise UsageError("--max-usd needs the prices of policy and critic; give them with --prices, or use --max-written")
    skipped = SkippedRows()
    problems = read_problems(source, skip_bad=reading.skip_bad, complain=skipped, gold_needed=False)
    tasks = (SearchTask(problem.id, problem.text, problem.gold or None) for problem in islice(problems, reading.limit))

    async def work(task: SearchTask) -> SearchResult:
        return await search_one(task, solver, opened, grader, settings, budget, pricing)

    with RecordWriter(tree) if tree else nullcontext() as forest:

        def record(result: SearchResult, sink: RecordWriter) -> str:
            sink.write(search_row(result))
            if forest is not None:
                for row in tree_rows(result):
                    forest.write(row)
            return result.came

        stats = SearchStats(settings.method)
        code = run_guided(tasks, work, record, stats, out, solver, opened, grader, judging.max_connections, skipped)
    raise typer.Exit(code)


def split_budget(judging: JudgeOptions, critic: str) -> JudgeOptions:
    """The request options of policy and critic: if the critic asks a model, too, each gets half of the run's budget."""
    if Path(critic).is_dir() or critic in names("critic"):
        return judging
    usd, requests = judging.budget_usd, judging.max_requests
    return replace(
        judging,
        budget_usd=None if usd is None else usd / 2,
        max_requests=None if requests is None else max(requests // 2, 1),
    )


def run_guided(
    items: Iterable[Item],
    work: Callable[[Item], Awaitable[Result]],
    record: Callable[[Result, RecordWriter], str],
    stats: SearchStats | RefineStats,
    out: str,
    policy: LLMStepper,
    critic: Critic,
    grader: Grader,
    workers: int,
    skipped: SkippedRows,
) -> int:
    """Run `work` on every item; `record` writes a result and returns its status. Returns the exit code: 0, or 3 if items
    failed or were skipped."""
    from critic_prm.cli.running import clients_of, run_watched
    from critic_prm.engine.concurrency import ordered_map
    from critic_prm.label.progress import RunStats

    tally, client = RunStats(), policy.policy.client

    async def work_on(part: Sequence[Item]) -> list[Result]:
        return [await work(item) for item in part]

    async def body(sink: RecordWriter, stop: asyncio.Event) -> None:
        async for _, result in ordered_map(items, work_on, workers=lambda: workers, window=256, stop=stop):
            tally.rows += 1
            tally.labels[record(result, sink)] += 1
            stats.add(result)  # type: ignore[arg-type]  # the result that belongs to these statistics
        tally.skipped = skipped.count

    async def close() -> None:
        await asyncio.gather(grader.close(), policy.close(), critic.close())

    code = run_watched(body, out, tally, client, close, [stats], [client, *clients_of(critic)])
    if grader.note:
        typer.echo(grader.note, err=True)
    return code
