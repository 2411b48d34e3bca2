"""critic-prm generate: trajectories with step labels, from families of problems, a policy, or logs of agents."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from critic_prm.cli import recipes
from critic_prm.cli.fields import Fields
from critic_prm.cli.options import InputOptions, PolicyOptions
from critic_prm.engine.options import JudgeOptions, RayOptions
from critic_prm.generate.options import CreditOptions, PerturbOptions, RolloutOptions, SampleOptions, TreeOptions
from critic_prm.generate.policy.stopping import Rule
from critic_prm.option import Option
from critic_prm.registry import names
from critic_prm.terminal import safe_console

if TYPE_CHECKING:
    import asyncio

    from critic_prm.cli.running import SkippedRows
    from critic_prm.data.critic import Critic, Report
    from critic_prm.data.judgement import Status
    from critic_prm.data.records.reading import RecordWriter
    from critic_prm.generate.perturb import Plan
    from critic_prm.generate.policy.answers import Grader
    from critic_prm.generate.policy.policy import LLMPolicy
    from critic_prm.generate.policy.problems import Problem

    Made = tuple[Status, Sequence[dict[str, Any]]]
    """The status and the rows of an item; the status is "ok" even if no row is kept."""

Item = TypeVar("Item")
FAMILIES = "Families: labels exact by construction, no model needed"
PANEL = "With a policy: any provider/MODEL, asked through the cache"
RUNS = "From what there is already"

FAMILY_HELP = """Generate trajectories of the family {name}, with labels that are exact by construction.

Reads nothing and asks no model. Writes trajectories with gold labels (-o).

Example: critic-prm generate {name} -n 2000 -o {name}.jsonl"""

Problems = Annotated[str, typer.Argument(metavar="PROBLEMS", help="Problems with their gold answers; - is stdin.")]
Out = Annotated[str, typer.Option("-o", "--out", metavar="FILE", help="File to write; - is stdout.")]
ProblemRows = Annotated[InputOptions, Fields(without=("format", "map", "segment", "index_base"))]


@dataclass(frozen=True, slots=True)
class FamilyRun:
    """What a command of a family generates."""

    n: Annotated[int, Option(("-n",), min=0)] = 1000
    """Generate N trajectories."""
    out: Annotated[str, Option(("-o", "--out"), metavar="FILE")] = "-"
    """File to write; - is stdout."""
    seed: int = 0
    """Random seed; the same seed and options give the same file."""
    difficulty: Annotated[str, Option(metavar="1-5")] = "1-5"
    """A difficulty level, or a range of levels."""
    wrong: Annotated[float, Option(min=0, max=1)] = 0.5
    """Share of solutions with a planted error."""
    kind: Annotated[tuple[str, ...], Option(metavar="KIND[=WEIGHT]")] = ()
    """Plant only this kind of error; may be repeated."""
    check: bool = False
    """Verify every label with a solver (logic, first-order, graphs; extra formal)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What the commands that may ask a policy have in common."""

    out: Annotated[str, Option(("-o", "--out"), metavar="FILE")] = "-"
    """File to write; - is stdout."""
    prompt: str = "solve"
    """Prompt of the policy: `solve`, or a .jinja file."""
    dry_run: bool = False
    """Print the number of requests and their estimated cost; send nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRun(Run):
    """A run that asks a policy."""

    policy: Annotated[str, Option(metavar="PROVIDER/MODEL")]
    """Model that writes or completes solutions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRun(PolicyRun):
    """Also how many completions a prefix gets."""

    k: Annotated[str, Option(("-k",), metavar="K")] = "8"
    """Completions per prefix; or by pass rate, such as 128@0,64@0.1,32@0.9."""
    stop: Rule = "all"
    """Stop after all K completions, or once the hard label is certain (curtailed) or likely (decided)."""
    theta: float = 0.0
    """A prefix is good if more than this share of completions is correct."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PerturbRun(Run):
    """A policy is optional, and a critic may confirm the errors."""

    policy: Annotated[str | None, Option(metavar="PROVIDER/MODEL")] = None
    """Model that writes steps, for kinds of error and --later that need one."""
    confirm: Annotated[str | None, Option(metavar="JUDGE")] = None
    """Keep only solutions in which this critic finds the planted error."""


app = typer.Typer()


@app.command()
def families() -> None:
    """List the families with the kinds of error that they plant.

    Reads nothing. Prints a table.

    Example: critic-prm generate families
    """
    from rich.table import Table

    from critic_prm.generate.family import family_names, open_family

    table = Table("family", "what it makes", "kinds of error (weight)", show_lines=True)
    for name in family_names():
        family = open_family(name)
        kinds = ", ".join(f"{kind} ({weight:g})" for kind, weight in family.KINDS.items())
        table.add_row(name, str(family.__doc__), kinds)
    safe_console().print(table)


def _command(name: str) -> Callable[..., None]:
    def command(run: FamilyRun) -> None:
        from collections import Counter

        from critic_prm.data.records.reading import RecordWriter
        from critic_prm.data.trajectory import trajectory_to_json
        from critic_prm.generate.family import confirm, generate_family, parse_kinds, parse_levels

        made: Counter[str] = Counter()
        levels, kinds = parse_levels(run.difficulty), parse_kinds(run.kind)
        trajectories = generate_family(name, run.n, seed=run.seed, difficulty=levels, wrong=run.wrong, kinds=kinds)
        if run.check:
            trajectories = confirm(name, trajectories)
        with RecordWriter(run.out) as writer:
            for trajectory in trajectories:
                writer.write(trajectory_to_json(trajectory))
                made[{None: "undecided", -1: "right"}.get(trajectory.label, "wrong")] += 1
        place = "stdout" if run.out == "-" else run.out
        summary = f"{made.total()} trajectories to {place}: {made['right']} right, {made['wrong']} with a planted error"
        checked = f"; a solver confirmed their labels, and left {made['undecided']} undecided" if run.check else ""
        typer.echo(f"{summary}{checked}", err=True)

    return command


for _name in names("family"):
    app.command(_name, help=FAMILY_HELP.format(name=_name), rich_help_panel=FAMILIES)(_command(_name))


@app.command(rich_help_panel=PANEL)
def sample(source: Problems, run: PolicyRun, options: SampleOptions, rows: ProblemRows, judging: PolicyOptions) -> None:
    """Sample K solutions per problem from a policy and grade their final answers.

    Reads problems with gold answers (PROBLEMS) and cached replies (--db). Writes solutions split into steps (-o), each with its
    correctness. Run the same command again to resume; cached replies are not paid for twice.

    Example: critic-prm generate sample problems.jsonl --policy openai/MODEL -k 8
    """
    from critic_prm.data.trajectory import trajectory_to_json
    from critic_prm.generate.forecast import forecast_samples
    from critic_prm.generate.policy.answers import Grader
    from critic_prm.generate.policy.policy import open_policy
    from critic_prm.generate.sample import SampleStats
    from critic_prm.generate.sample import sample as sample_one

    (problems, skipped), solver = _read_problems(source, rows), open_policy(run.policy, judging, run.prompt)
    if run.dry_run:
        return _say(forecast_samples(solver, judging, problems, options.k).lines("problems"))
    grader, stats = Grader(), SampleStats()

    async def work(problem: Problem) -> Made:
        before = stats.counts["no solution came to an end"]
        made = [trajectory_to_json(s) for s in await sample_one(problem, solver, grader, options, stats)]
        return ("provider_error" if stats.counts["no solution came to an end"] > before else "ok"), made

    raise typer.Exit(_make(problems, work, run.out, judging, skipped, [grader, solver], [stats]))


@app.command(rich_help_panel=PANEL)
def rollout(
    source: Annotated[str, typer.Argument(metavar="TRAJECTORIES", help="Solutions with a gold_answer; - is stdin.")],
    run: RolloutRun,
    options: RolloutOptions,
    rows: InputOptions,
    ray: RayOptions,
    judging: PolicyOptions,
) -> None:
    """Label steps by Monte Carlo rollouts: the share of K completions that reach the gold answer.

    Reads solutions with a gold_answer (TRAJECTORIES) and cached replies (--db). Writes a label file (-o). Run the same command
    again to resume; cached replies are not paid for twice.

    Example: critic-prm generate rollout solutions.jsonl --policy openai/MODEL
    """
    from dataclasses import replace

    from critic_prm.cli.running import Input, run_labelling
    from critic_prm.critics.rollout import connect
    from critic_prm.engine.options import on_workers
    from critic_prm.generate.forecast import forecast_rollouts
    from critic_prm.generate.policy.policy import LLMPolicy
    from critic_prm.generate.policy.stopping import Enough, parse_rollouts

    table = parse_rollouts(run.k)
    enough = Enough(max(n for _, n in table), run.stop, run.theta)
    options = replace(options, enough=enough, table=table if len(table) > 1 else ())
    judging = on_workers(judging, ray)
    critic = connect(run.policy, judging, options, run.prompt)
    trajectories = Input(source, rows)
    if run.dry_run:
        assert isinstance(critic.policy, LLMPolicy)
        return _say(forecast_rollouts(critic.policy, judging, trajectories, options).lines("trajectories"))
    code = run_labelling(trajectories, critic, run.out, workers=judging.max_connections)
    _say([critic.grader.note] if critic.grader.note else [])
    raise typer.Exit(code)


@app.command(rich_help_panel=PANEL)
def tree(
    source: Problems,
    run: PolicyRun,
    options: TreeOptions,
    rows: ProblemRows,
    judging: PolicyOptions,
    trees: Annotated[str | None, typer.Option(help="Also write the search trees to this file.")] = None,
) -> None:
    """Label steps with OmegaPRM: binary-search wrong rollouts for their first error in a shared tree.

    Reads problems with gold answers (PROBLEMS) and cached replies (--db). Writes label rows (-o) and, on request, the trees
    (--trees). Run the same command again to resume; cached replies are not paid for twice.

    Example: critic-prm generate tree problems.jsonl --policy openai/MODEL
    """
    from contextlib import nullcontext

    from critic_prm.data.records.reading import RecordWriter
    from critic_prm.generate.forecast import forecast_trees
    from critic_prm.generate.policy.answers import Grader
    from critic_prm.generate.policy.policy import open_policy
    from critic_prm.generate.sample import grow, tree_rows, tree_to_json

    (problems, skipped), grader = _read_problems(source, rows), Grader()
    solver = open_policy(run.policy, judging, run.prompt)
    if run.dry_run:
        return _say(forecast_trees(solver, judging, problems, options).lines("problems"))

    with RecordWriter(trees) if trees else nullcontext() as forest:

        async def work(problem: Problem) -> Made:
            grown = await grow(problem, solver, grader, options)
            if forest is not None:
                about = {"id": problem.id, "problem": problem.text, "rollouts": grown.rollouts}
                forest.write(about | tree_to_json(grown.root))
            return ("ok" if grown.root.estimate.n else "provider_error"), tree_rows(grown, options, solver.card)

        code = _make(problems, work, run.out, judging, skipped, [grader, solver])
    raise typer.Exit(code)


@app.command(rich_help_panel=RUNS)
def perturb(
    source: Annotated[str, typer.Argument(metavar="SOLUTIONS", help="Solutions; only correct ones are used; - is stdin.")],
    run: PerturbRun,
    options: PerturbOptions,
    rows: InputOptions,
    judging: PolicyOptions,
) -> None:
    """Plant one error at a known step of each correct solution.

    Reads solutions (SOLUTIONS) and cached replies (--db). Writes the changed solutions with gold labels (-o). By default a
    program plants the errors and no model is asked; --kinds model lets a model write them.

    Example: critic-prm generate perturb solutions.jsonl --right -o planted.jsonl
    """
    from critic_prm.cli.running import Input
    from critic_prm.critics.open import open_critic
    from critic_prm.data.trajectory import trajectory_to_json
    from critic_prm.errors import UsageError
    from critic_prm.generate.forecast import forecast_writing
    from critic_prm.generate.perturb import PerturbStats, carry_out, plans
    from critic_prm.generate.policy.policy import open_policy

    if options.needs_model and run.policy is None:
        raise UsageError("these kinds of error, or --later regenerate, need a model; name it with --policy")
    writer = open_policy(run.policy, judging, run.prompt) if run.policy is not None and options.needs_model else None
    solutions, stats = Input(source, rows), PerturbStats()
    planned = plans(solutions, options, stats)
    if run.dry_run:
        lines = ["no requests"] if writer is None else forecast_writing(writer, judging, planned, options).lines("changes")
        return _say([*lines, *stats.lines()[:1]])
    critic = None if run.confirm is None else open_critic(run.confirm, judging)

    async def work(plan: Plan) -> Made:
        changed = await carry_out(plan, options, writer, critic, stats)
        return "ok", [] if changed is None else [trajectory_to_json(changed)]

    raise typer.Exit(_make(planned, work, run.out, judging, solutions.skipped, [critic, writer], [stats]))


@app.command(rich_help_panel=RUNS)
def agent(
    source: Annotated[str, typer.Argument(metavar="LOGS", help="Agent runs with a reward, several per task; - is stdin.")],
    options: CreditOptions,
    rows: Annotated[InputOptions, Fields(without=("limit",))],
    out: Out = "-",
) -> None:
    """Label the steps of agent runs from the reward at their end, by TD(lambda) or discounted returns.

    Reads runs with a reward (LOGS); no model is asked. Writes trajectories with step labels (-o).

    Example: critic-prm generate agent runs.jsonl -o labelled.jsonl
    """
    from critic_prm.cli.running import Input
    from critic_prm.data.records.reading import write_records
    from critic_prm.data.trajectory import trajectory_to_json
    from critic_prm.generate.agent import AgentStats, credited

    runs, stats = Input(source, rows), AgentStats()
    write_records(out, map(trajectory_to_json, credited(runs, options, stats)))
    _say(stats.lines())
    raise typer.Exit(3 if runs.skipped.count else 0)


def _read_problems(source: str, options: InputOptions) -> tuple[Iterable[Problem], SkippedRows]:
    from itertools import islice

    from critic_prm.cli.running import SkippedRows
    from critic_prm.generate.policy.problems import read_problems

    skipped = SkippedRows()
    return islice(read_problems(source, skip_bad=options.skip_bad, complain=skipped), options.limit), skipped


def _make(
    items: Iterable[Item],
    work: Callable[[Item], Awaitable[Made]],
    out: str,
    judging: JudgeOptions,
    skipped: SkippedRows,
    parts: Sequence[LLMPolicy | Grader | Critic | None],
    stats: Sequence[Report] = (),
) -> int:
    """Apply `work` to every item and write the rows to `out` in input order, with progress, a summary and run.json.

    Closes `parts` at the end. Returns the exit code: 0, or 3 if items failed or were skipped. Raises the error that stopped the
    run; rows finished by then are in `out`.
    """
    from critic_prm.cli.running import run_watched
    from critic_prm.engine.concurrency import ordered_map
    from critic_prm.generate.policy.answers import Grader
    from critic_prm.generate.policy.policy import LLMPolicy
    from critic_prm.label.progress import RunStats

    run, client = RunStats(), next((part.client for part in parts if isinstance(part, LLMPolicy)), None)

    async def work_on(part: Sequence[Item]) -> list[Made]:
        return [await work(item) for item in part]

    def workers() -> int:
        return max(judging.max_connections, client.gate.most) if client is not None else judging.max_connections

    async def body(sink: RecordWriter, stop: asyncio.Event) -> None:
        async for _, (status, made) in ordered_map(items, work_on, workers=workers, stop=stop):
            run.rows += 1
            run.labels[status] += 1
            for row in made:
                sink.write(row)
        run.skipped = skipped.count

    async def close() -> None:
        for part in parts:
            if part is not None:
                await part.close()

    code = run_watched(body, out, run, client, close, stats)
    _say([part.note for part in parts if isinstance(part, Grader) and part.note])
    return code


def _say(lines: Sequence[str]) -> None:
    for line in lines:
        typer.echo(line, err=True)


recipes.register(app)
