"""critic-prm generate sample, rollout, tree: solutions of a policy, and step labels by what it still makes of a prefix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from critic_prm.cli.clusters import Engine, RayAddress, WorkerGpus, Workers
from critic_prm.cli.options import with_policy
from critic_prm.engine.options import JudgeOptions

if TYPE_CHECKING:
    from critic_prm.cli.making import Made
    from critic_prm.generate.perturb import Plan
    from critic_prm.generate.policy.problems import Problem

PANEL = "With a policy: any provider/MODEL, asked through the cache"
RUNS = "From what there is already"

Out = Annotated[str, typer.Option("-o", "--out", metavar="FILE", help="The file to write; - is stdout.")]
PolicyName = Annotated[str, typer.Option("--policy", metavar="PROVIDER/MODEL", help="Who solves, or goes on with a solution.")]
Prompt = Annotated[str, typer.Option(help="The policy's prompt: `solve`, or a .jinja file of your own.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Only the first so many.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Count the requests and what they may cost; ask nothing.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Report broken rows and go on; exit with 3.")]


@with_policy
def sample(
    source: Annotated[str, typer.Argument(metavar="PROBLEMS", help="Problems with their right answers; - is stdin.")],
    policy: PolicyName,
    out: Out = "-",
    k: Annotated[int, typer.Option("-k", min=1, help="Solutions a problem.")] = 8,
    keep: Annotated[
        str, typer.Option(help="Of which problems: mixed (neither always nor never solved), all, or pass rates as 0.1-0.9.")
    ] = "mixed",
    balance: Annotated[bool, typer.Option("--balance", help="As many right as wrong solutions of each problem.")] = False,
    most: Annotated[int | None, typer.Option(min=1, help="At most so many right and so many wrong ones a problem.")] = None,
    once: Annotated[bool, typer.Option("--once/--repeats", help="Drop solutions that say the same as another.")] = True,
    draw: Annotated[int, typer.Option(help="Another number chooses others where some are left out.")] = 0,
    prompt: Prompt = "solve",
    limit: Limit = None,
    skip_bad: SkipBad = False,
    dry_run: DryRun = False,
    *,
    judging: JudgeOptions,
) -> None:
    """k solutions a problem, cut into steps, their final answers compared with the right one."""
    from dataclasses import replace
    from itertools import islice

    from critic_prm.cli.making import run_making
    from critic_prm.cli.running import told
    from critic_prm.data.trajectory import trajectory_to_json
    from critic_prm.generate.forecast import forecast_samples
    from critic_prm.generate.policy.answers import Grader
    from critic_prm.generate.policy.policy import open_policy
    from critic_prm.generate.policy.problems import read_problems
    from critic_prm.generate.sample import SampleStats, parse_keep
    from critic_prm.generate.sample import sample as sample_one

    skipped: list[object] = []
    which = replace(parse_keep(keep), once=once, balance=balance, most=most, seed=draw)
    problems = islice(read_problems(source, skip_bad=skip_bad, complain=told(skipped)), limit)
    solver = open_policy(policy, judging, prompt)
    if dry_run:
        _say(forecast_samples(solver, judging, problems, k).lines("problems"))
        return
    grader, account = Grader(), SampleStats()

    async def work(problem: Problem) -> Made:
        before = account.counts["no solution came to an end"]
        rows = [trajectory_to_json(s) for s in await sample_one(problem, solver, grader, k, which, account)]
        return ("provider_error" if account.counts["no solution came to an end"] > before else "ok"), rows

    async def close() -> None:
        await grader.close()
        await solver.close()

    code = run_making(problems, work, out, solver.client, close, [account], judging.connections, skipped)
    if grader.note:
        _say([grader.note])
    raise typer.Exit(code)


@with_policy
def rollout(
    source: Annotated[str, typer.Argument(metavar="TRAJECTORIES", help="Solutions with a gold_answer; - is stdin.")],
    policy: PolicyName,
    out: Out = "-",
    k: Annotated[
        str, typer.Option("-k", metavar="K", help="Completions a prefix; by pass rate as in 128@0,64@0.1,32@0.9.")
    ] = "8",
    search: Annotated[
        str, typer.Option(help="first: step by step up to the first error; every: all steps; halving: binary search.")
    ] = "first",
    target: Annotated[
        str, typer.Option(help="P(correct) of a step: soft (share), hard (1 or 0), progress (GenPRM), dual (MedS3).")
    ] = "soft",
    stop: Annotated[
        str, typer.Option(help="all: K completions; curtailed: until the hard label is certain; decided: until it is likely.")
    ] = "all",
    theta: Annotated[float, typer.Option(help="A prefix is good when more than this share comes out right.")] = 0.0,
    epsilon: Annotated[float, typer.Option(help="The least progress of a good step, for --target progress.")] = 0.8,
    recheck: Annotated[
        bool, typer.Option("--recheck", help="Look at both sides of the error again with 2 K; say none where it moves.")
    ] = False,
    prompt: Prompt = "solve",
    limit: Limit = None,
    format: Annotated[str, typer.Option("--from", help="The input's format.")] = "auto",
    skip_bad: SkipBad = False,
    dry_run: DryRun = False,
    engine: Engine = "local",
    ray_address: RayAddress = None,
    workers: Workers = 2,
    worker_gpus: WorkerGpus = None,
    *,
    judging: JudgeOptions,
) -> None:
    """Monte Carlo step labels: how many of K completions from after each step reach the gold answer."""
    from itertools import islice

    from critic_prm.cli.clusters import on_cluster
    from critic_prm.cli.running import run_labelling, told
    from critic_prm.critics.rollout import connect
    from critic_prm.data.formats.convert import read_trajectories
    from critic_prm.generate.forecast import forecast_rollouts
    from critic_prm.generate.policy.policy import LLMPolicy
    from critic_prm.generate.policy.rollout import RolloutOptions
    from critic_prm.generate.policy.stopping import Enough, parse_rollouts

    skipped: list[object] = []
    table = parse_rollouts(k)
    enough = Enough(max(n for _, n in table), stop, theta)  # type: ignore[arg-type]  # checked there
    how = RolloutOptions(enough, search, target, epsilon, recheck, table if len(table) > 1 else ())  # type: ignore[arg-type]
    judging = on_cluster(judging, engine, ray_address, workers, worker_gpus)
    critic = connect(policy, judging, how, prompt)
    trajectories = read_trajectories(
        source,
        format,
        on_error="skip" if skip_bad else "stop",
        complain=told(skipped),
    )
    if dry_run:
        assert isinstance(critic.policy, LLMPolicy)
        _say(forecast_rollouts(critic.policy, judging, islice(trajectories, limit), how).lines("trajectories"))
        return
    code = run_labelling(trajectories, critic, out, source=source, workers=judging.connections, limit=limit, skipped=skipped)
    if critic.grader.note:
        _say([critic.grader.note])
    raise typer.Exit(code)


@with_policy
def tree(
    source: Annotated[str, typer.Argument(metavar="PROBLEMS", help="Problems with their right answers; - is stdin.")],
    policy: PolicyName,
    out: Out = "-",
    k: Annotated[int, typer.Option("-k", min=1, help="Completions a prefix.")] = 16,
    searches: Annotated[int, typer.Option(min=1, help="Wrong rollouts to search for their first error, a problem.")] = 10,
    budget: Annotated[int, typer.Option(min=1, help="No search begins after so many completions of a problem.")] = 100,
    alpha: Annotated[float, typer.Option(help="Of Q: how much a high share of right rollouts counts.")] = 0.5,
    beta: Annotated[float, typer.Option(help="Of Q: how much a short rollout counts.")] = 0.9,
    length: Annotated[int, typer.Option(min=1, help="Of Q: the words that beta is for.")] = 500,
    exploration: Annotated[float, typer.Option(help="Of U: how much seldom visited prefixes count.")] = 0.125,
    trees: Annotated[str | None, typer.Option(help="Write the trees themselves to this file, too.")] = None,
    prompt: Prompt = "solve",
    limit: Limit = None,
    skip_bad: SkipBad = False,
    dry_run: DryRun = False,
    *,
    judging: JudgeOptions,
) -> None:
    """OmegaPRM's tree: rollouts of a problem, the wrong ones searched for their first error, each used again."""
    from contextlib import nullcontext
    from itertools import islice

    from critic_prm.cli.making import run_making
    from critic_prm.cli.running import told
    from critic_prm.data.records.reading import RecordWriter
    from critic_prm.generate.forecast import forecast_trees
    from critic_prm.generate.policy.answers import Grader
    from critic_prm.generate.policy.policy import open_policy
    from critic_prm.generate.policy.problems import read_problems
    from critic_prm.generate.tree import Growth, grow, tree_rows, tree_to_json

    skipped: list[object] = []
    growth = Growth(k, searches, budget, alpha, beta, length, exploration)
    problems = islice(read_problems(source, skip_bad=skip_bad, complain=told(skipped)), limit)
    solver, grader = open_policy(policy, judging, prompt), Grader()
    if dry_run:
        _say(forecast_trees(solver, judging, problems, growth).lines("problems"))
        return

    with RecordWriter(trees) if trees else nullcontext() as forest:

        async def work(problem: Problem) -> Made:
            grown = await grow(problem, solver, grader, growth)
            if forest is not None:
                forest.write(
                    {"id": problem.id, "problem": problem.text, "rollouts": grown.rollouts, **tree_to_json(grown.root)}
                )
            return ("ok" if grown.root.estimate.n else "provider_error"), tree_rows(grown, growth, solver.card)

        async def close() -> None:
            await grader.close()
            await solver.close()

        code = run_making(problems, work, out, solver.client, close, (), judging.connections, skipped)
    if grader.note:
        _say([grader.note])
    raise typer.Exit(code)


@with_policy
def perturb(
    source: Annotated[
        str, typer.Argument(metavar="SOLUTIONS", help="Solutions, of which the right ones are used; - is stdin.")
    ],
    out: Out = "-",
    kinds: Annotated[
        str, typer.Option(help="Kinds of error, with weights as in number,sign=2; program and model stand for all of each.")
    ] = "program",
    n: Annotated[int, typer.Option("-n", min=1, help="Changed solutions of each right one, at most.")] = 1,
    later: Annotated[str, typer.Option(help="The steps after the error: keep, cut, or regenerate (by --policy).")] = "keep",
    right: Annotated[bool, typer.Option("--right", help="Write the right solutions, too.")] = False,
    draw: Annotated[int, typer.Option(help="Another number plants other errors.")] = 0,
    policy: Annotated[
        str | None,
        typer.Option(metavar="PROVIDER/MODEL", help="Who writes steps and goes on, for kinds and --later that need it."),
    ] = None,
    confirm: Annotated[
        str | None, typer.Option(metavar="JUDGE", help="Keep only what this critic says of the changed solution, too.")
    ] = None,
    prompt: Prompt = "solve",
    limit: Limit = None,
    format: Annotated[str, typer.Option("--from", help="The input's format.")] = "auto",
    skip_bad: SkipBad = False,
    dry_run: DryRun = False,
    *,
    judging: JudgeOptions,
) -> None:
    """Plant one error in a right solution at a known step: by a program (the default), or written by a model."""
    from itertools import islice

    from critic_prm.cli.making import run_making
    from critic_prm.cli.running import told
    from critic_prm.critics.open import open_critic
    from critic_prm.data.formats.convert import read_trajectories
    from critic_prm.data.trajectory import trajectory_to_json
    from critic_prm.errors import UsageError
    from critic_prm.generate.forecast import forecast_writing
    from critic_prm.generate.perturb import Perturbing, PerturbStats, carry_out, parse_kinds, plans
    from critic_prm.generate.policy.policy import open_policy

    skipped: list[object] = []
    what = Perturbing(parse_kinds(kinds), n, later, right, draw)  # type: ignore[arg-type]  # checked there
    if what.needs_model and policy is None:
        raise UsageError("these kinds of error, or --later regenerate, need a model; name it with --policy")
    solutions = read_trajectories(
        source,
        format,
        on_error="skip" if skip_bad else "stop",
        complain=told(skipped),
    )
    writer = open_policy(policy, judging, prompt) if policy is not None and what.needs_model else None
    account = PerturbStats()
    planned = plans(islice(solutions, limit), what, account)
    if dry_run:
        lines = ["no requests"] if writer is None else forecast_writing(writer, judging, planned, what).lines("changes")
        _say([*lines, *account.lines()[:1]])
        return
    critic = None if confirm is None else open_critic(confirm, judging)

    async def work(plan: Plan) -> Made:
        changed = await carry_out(plan, what, writer, critic, account)
        return "ok", [] if changed is None else [trajectory_to_json(changed)]

    async def close() -> None:
        if critic is not None:
            await critic.close()
        if writer is not None:
            await writer.close()

    client = None if writer is None else writer.client
    raise typer.Exit(run_making(planned, work, out, client, close, [account], judging.connections, skipped))


def agent(
    source: Annotated[str, typer.Argument(metavar="LOGS", help="Runs with a reward, several a task; - is stdin.")],
    out: Out = "-",
    method: Annotated[str, typer.Option(help="td: promise and progress by TD(lambda); returns: discounted outcomes.")] = "td",
    gamma: Annotated[float, typer.Option(help="What a step further from the reward counts.")] = 1.0,
    lam: Annotated[float, typer.Option("--lambda", help="1 is the return of the run alone, 0 the next value alone.")] = 0.95,
    discount: Annotated[
        str, typer.Option(help="For returns: by the steps still to-go, or elapsed (the paper's code).")
    ] = "to-go",
    values: Annotated[
        str, typer.Option(help="For td: table (runs with the same history) or labels (p_correct of a label file).")
    ] = "table",
    prior: Annotated[float, typer.Option(help="Runs of the task's mean that are added to each history of the table.")] = 1.0,
    progress: Annotated[str, typer.Option(help="diff: what a step adds to the promise; gae: the advantage.")] = "diff",
    labels: Annotated[str, typer.Option(help="Of a step: promise (a probability), or 1 and 0 by its progress.")] = "promise",
    tolerance: Annotated[float, typer.Option(help="A step may lose so much and still be right, with --labels progress.")] = 0.0,
    reward: Annotated[str | None, typer.Option(help="The field of the reward, where it is not found of itself.")] = None,
    format: Annotated[str, typer.Option("--from", help="The input's format.")] = "auto",
    skip_bad: SkipBad = False,
) -> None:
    """Step labels of tool-using runs from the reward at their end; no model needed."""
    from critic_prm.cli.running import told
    from critic_prm.data.formats.convert import read_trajectories
    from critic_prm.data.records.reading import write_records
    from critic_prm.data.trajectory import trajectory_to_json
    from critic_prm.generate.agent import AgentStats, Credit, credited

    skipped: list[object] = []
    credit = Credit(method, gamma, lam, discount, values, prior, progress, labels, tolerance, reward)  # type: ignore[arg-type]
    credit.check()
    runs = read_trajectories(
        source,
        format,
        on_error="skip" if skip_bad else "stop",
        complain=told(skipped),
    )
    account = AgentStats()
    write_records(out, map(trajectory_to_json, credited(runs, credit, account)))
    _say(account.lines())
    raise typer.Exit(3 if skipped else 0)


def _say(lines: list[str]) -> None:
    for line in lines:
        typer.echo(line, err=True)


def register(app: typer.Typer) -> None:
    """Add these commands to a group."""
    for command in (sample, rollout, tree):
        app.command(rich_help_panel=PANEL)(command)
    for command in (perturb, agent):
        app.command(rich_help_panel=RUNS)(command)
