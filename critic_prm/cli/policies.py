"""critic-prm generate sample, rollout, tree, perturb, agent: solutions and step labels from a policy or from logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from critic_prm.cli.options import PolicyOptions
from critic_prm.engine.options import RayOptions

if TYPE_CHECKING:
    from critic_prm.cli.making import Made
    from critic_prm.generate.perturb import Plan
    from critic_prm.generate.policy.problems import Problem

PANEL = "With a policy: any provider/MODEL, asked through the cache"
RUNS = "From what there is already"

Out = Annotated[str, typer.Option("-o", "--out", metavar="FILE", help="File to write; - is stdout.")]
PolicyName = Annotated[
    str, typer.Option("--policy", metavar="PROVIDER/MODEL", help="Model that writes or completes solutions.")
]
Prompt = Annotated[str, typer.Option(help="Prompt of the policy: `solve`, or a .jinja file.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Process at most N input rows.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the number of requests and their estimated cost; send nothing.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Report and skip invalid rows; exit with code 3.")]


def sample(
    source: Annotated[str, typer.Argument(metavar="PROBLEMS", help="Problems with their gold answers; - is stdin.")],
    policy: PolicyName,
    out: Out = "-",
    k: Annotated[int, typer.Option("-k", min=1, help="Sample K solutions per problem.")] = 8,
    keep: Annotated[
        str, typer.Option(help="Problems to keep: mixed (solved sometimes, not always), all, or a pass rate such as 0.1-0.9.")
    ] = "mixed",
    balance: Annotated[bool, typer.Option("--balance", help="Keep as many correct as wrong solutions per problem.")] = False,
    most: Annotated[int | None, typer.Option(min=1, help="Keep at most N correct and N wrong solutions per problem.")] = None,
    once: Annotated[bool, typer.Option("--once/--repeats", help="Drop duplicate solutions of a problem.")] = True,
    draw: Annotated[int, typer.Option(help="Random seed for choosing among surplus solutions.")] = 0,
    prompt: Prompt = "solve",
    limit: Limit = None,
    skip_bad: SkipBad = False,
    dry_run: DryRun = False,
    *,
    judging: PolicyOptions,
) -> None:
    """Sample K solutions per problem from a policy and grade their final answers.

    Reads problems with gold answers (PROBLEMS) and cached replies (--db). Writes solutions split into steps (-o), each with its
    correctness. Run the same command again to resume; cached replies are not paid for twice.

    Example: critic-prm generate sample problems.jsonl --policy openai/MODEL -k 8
    """
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

    code = run_making(problems, work, out, solver.client, close, [account], judging.max_connections, skipped)
    if grader.note:
        _say([grader.note])
    raise typer.Exit(code)


def rollout(
    source: Annotated[str, typer.Argument(metavar="TRAJECTORIES", help="Solutions with a gold_answer; - is stdin.")],
    policy: PolicyName,
    out: Out = "-",
    k: Annotated[
        str, typer.Option("-k", metavar="K", help="Completions per prefix; or by pass rate, such as 128@0,64@0.1,32@0.9.")
    ] = "8",
    search: Annotated[
        str, typer.Option(help="Prefixes to test: first (up to the first error), every (all steps) or halving (binary search).")
    ] = "first",
    target: Annotated[
        str, typer.Option(help="Step label: soft (share), hard (1 or 0), progress (GenPRM) or dual (MedS3).")
    ] = "soft",
    stop: Annotated[
        str,
        typer.Option(help="Stop after all K completions, or once the hard label is certain (curtailed) or likely (decided)."),
    ] = "all",
    theta: Annotated[float, typer.Option(help="A prefix is good if more than this share of completions is correct.")] = 0.0,
    epsilon: Annotated[float, typer.Option(help="With --target progress: minimum progress of a good step.")] = 0.8,
    recheck: Annotated[
        bool,
        typer.Option("--recheck", help="With halving: test both sides of the error with 2 K; no first error if it moves."),
    ] = False,
    prompt: Prompt = "solve",
    limit: Limit = None,
    format: Annotated[str, typer.Option("--from", help="Input format.")] = "auto",
    skip_bad: SkipBad = False,
    dry_run: DryRun = False,
    *,
    ray: RayOptions,
    judging: PolicyOptions,
) -> None:
    """Label steps by Monte Carlo rollouts: the share of K completions that reach the gold answer.

    Reads solutions with a gold_answer (TRAJECTORIES) and cached replies (--db). Writes a label file (-o). Run the same command
    again to resume; cached replies are not paid for twice.

    Example: critic-prm generate rollout solutions.jsonl --policy openai/MODEL
    """
    from critic_prm.cli.options import InputOptions
    from critic_prm.cli.running import Input, run_labelling
    from critic_prm.critics.rollout import connect
    from critic_prm.engine.options import on_workers
    from critic_prm.generate.forecast import forecast_rollouts
    from critic_prm.generate.policy.policy import LLMPolicy
    from critic_prm.generate.policy.rollout import RolloutOptions
    from critic_prm.generate.policy.stopping import Enough, parse_rollouts

    table = parse_rollouts(k)
    enough = Enough(max(n for _, n in table), stop, theta)  # type: ignore[arg-type]  # checked there
    how = RolloutOptions(enough, search, target, epsilon, recheck, table if len(table) > 1 else ())  # type: ignore[arg-type]
    judging = on_workers(judging, ray)
    critic = connect(policy, judging, how, prompt)
    rows = Input(source, InputOptions(format, skip_bad, limit))
    if dry_run:
        assert isinstance(critic.policy, LLMPolicy)
        _say(forecast_rollouts(critic.policy, judging, rows, how).lines("trajectories"))
        return
    code = run_labelling(rows, critic, out, workers=judging.max_connections)
    if critic.grader.note:
        _say([critic.grader.note])
    raise typer.Exit(code)


def tree(
    source: Annotated[str, typer.Argument(metavar="PROBLEMS", help="Problems with their gold answers; - is stdin.")],
    policy: PolicyName,
    out: Out = "-",
    k: Annotated[int, typer.Option("-k", min=1, help="Completions per prefix.")] = 16,
    searches: Annotated[int, typer.Option(min=1, help="Run at most N binary searches for a first error per problem.")] = 10,
    budget: Annotated[int, typer.Option(min=1, help="Start no search after N completions of a problem.")] = 100,
    alpha: Annotated[float, typer.Option(help="Alpha of Q; a lower value favours prefixes with more correct rollouts.")] = 0.5,
    beta: Annotated[float, typer.Option(help="Beta of Q; a lower value favours short rollouts.")] = 0.9,
    length: Annotated[int, typer.Option(min=1, help="L of Q: the rollout length in words at which beta applies once.")] = 500,
    exploration: Annotated[float, typer.Option(help="Weight of U, which favours rarely visited prefixes.")] = 0.125,
    trees: Annotated[str | None, typer.Option(help="Also write the search trees to this file.")] = None,
    prompt: Prompt = "solve",
    limit: Limit = None,
    skip_bad: SkipBad = False,
    dry_run: DryRun = False,
    *,
    judging: PolicyOptions,
) -> None:
    """Label steps with OmegaPRM: binary-search wrong rollouts for their first error in a shared tree.

    Reads problems with gold answers (PROBLEMS) and cached replies (--db). Writes label rows (-o) and, on request, the trees
    (--trees). Run the same command again to resume; cached replies are not paid for twice.

    Example: critic-prm generate tree problems.jsonl --policy openai/MODEL
    """
    from contextlib import nullcontext
    from itertools import islice

    from critic_prm.cli.making import run_making
    from critic_prm.cli.running import told
    from critic_prm.data.records.reading import RecordWriter
    from critic_prm.generate.forecast import forecast_trees
    from critic_prm.generate.policy.answers import Grader
    from critic_prm.generate.policy.policy import open_policy
    from critic_prm.generate.policy.problems import read_problems
    from critic_prm.generate.sample import Growth, grow, tree_rows, tree_to_json

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

        code = run_making(problems, work, out, solver.client, close, (), judging.max_connections, skipped)
    if grader.note:
        _say([grader.note])
    raise typer.Exit(code)


def perturb(
    source: Annotated[str, typer.Argument(metavar="SOLUTIONS", help="Solutions; only correct ones are used; - is stdin.")],
    out: Out = "-",
    kinds: Annotated[
        str, typer.Option(help="Kinds of error with weights, such as number,sign=2; program or model selects all of that sort.")
    ] = "program",
    n: Annotated[int, typer.Option("-n", min=1, help="Make at most N changed solutions from each correct one.")] = 1,
    later: Annotated[str, typer.Option(help="Steps after the error: keep, cut, or regenerate (by --policy).")] = "keep",
    right: Annotated[bool, typer.Option("--right", help="Also write the correct solutions.")] = False,
    draw: Annotated[int, typer.Option(help="Random seed for the errors.")] = 0,
    policy: Annotated[
        str | None,
        typer.Option(metavar="PROVIDER/MODEL", help="Model that writes steps, for kinds of error and --later that need one."),
    ] = None,
    confirm: Annotated[
        str | None, typer.Option(metavar="JUDGE", help="Keep only solutions in which this critic finds the planted error.")
    ] = None,
    prompt: Prompt = "solve",
    limit: Limit = None,
    format: Annotated[str, typer.Option("--from", help="Input format.")] = "auto",
    skip_bad: SkipBad = False,
    dry_run: DryRun = False,
    *,
    judging: PolicyOptions,
) -> None:
    """Plant one error at a known step of each correct solution.

    Reads solutions (SOLUTIONS) and cached replies (--db). Writes the changed solutions with gold labels (-o). By default a
    program plants the errors and no model is asked; --kinds model lets a model write them.

    Example: critic-prm generate perturb solutions.jsonl --right -o planted.jsonl
    """
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
    raise typer.Exit(run_making(planned, work, out, client, close, [account], judging.max_connections, skipped))


def agent(
    source: Annotated[str, typer.Argument(metavar="LOGS", help="Agent runs with a reward, several per task; - is stdin.")],
    out: Out = "-",
    method: Annotated[str, typer.Option(help="td: promise and progress by TD(lambda); returns: discounted returns.")] = "td",
    gamma: Annotated[float, typer.Option(help="Discount factor per step.")] = 1.0,
    lam: Annotated[
        float, typer.Option("--lambda", help="Lambda of TD: 1 uses only the run's return, 0 only the next value.")
    ] = 0.95,
    discount: Annotated[
        str, typer.Option(help="With returns: discount by steps to-go, or elapsed as in the paper's code.")
    ] = "to-go",
    values: Annotated[
        str, typer.Option(help="With td: state values from a table (runs with the same history) or labels (p_correct).")
    ] = "table",
    prior: Annotated[float, typer.Option(help="Pseudo-runs at the task's mean, added to each history in the table.")] = 1.0,
    progress: Annotated[str, typer.Option(help="Progress: diff (change of the promise) or gae (the advantage).")] = "diff",
    labels: Annotated[str, typer.Option(help="Step label: promise (a probability) or progress (1 or 0).")] = "promise",
    tolerance: Annotated[float, typer.Option(help="With --labels progress: a good step may lose up to this.")] = 0.0,
    reward: Annotated[str | None, typer.Option(help="Field of the reward; default: detected.")] = None,
    format: Annotated[str, typer.Option("--from", help="Input format.")] = "auto",
    skip_bad: SkipBad = False,
) -> None:
    """Label the steps of agent runs from the reward at their end, by TD(lambda) or discounted returns.

    Reads runs with a reward (LOGS); no model is asked. Writes trajectories with step labels (-o).

    Example: critic-prm generate agent runs.jsonl -o labelled.jsonl
    """
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
    """Add these commands to a Typer group."""
    for command in (sample, rollout, tree):
        app.command(rich_help_panel=PANEL)(command)
    for other in (perturb, agent):
        app.command(rich_help_panel=RUNS)(other)
