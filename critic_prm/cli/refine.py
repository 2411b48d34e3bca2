"""critic-prm refine: rewrite solutions from their weakest step on, guided by a critic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from critic_prm.cli.fields import Fields
from critic_prm.cli.options import InputOptions
from critic_prm.cli.search import CriticName, Out, PolicyName, run_guided, split_budget
from critic_prm.engine.options import JudgeOptions
from critic_prm.search.settings import RefineSettings, StepperOptions

if TYPE_CHECKING:
    from critic_prm.data.records.reading import RecordWriter
    from critic_prm.data.trajectory import Trajectory
    from critic_prm.search.refine import Refined


def refine(
    source: Annotated[
        str, typer.Argument(metavar="SOLUTIONS", help="Trajectories in any format that `convert` reads; - is stdin.")
    ],
    policy: PolicyName,
    critic: CriticName,
    out: Out = "-",
    *,
    reading: InputOptions,
    settings: RefineSettings,
    stepper: Annotated[StepperOptions, Fields(without=("cut", "ends"))],
    judging: JudgeOptions,
) -> None:
    """Rewrite solutions from their weakest step on; keep a rewrite if the critic's score rises.

    Reads solutions (SOLUTIONS) and cached replies (--db). Writes the refined solutions (-o). At the end it reports scores and
    correct answers before and after. Run the same command again to resume; cached replies are not paid for twice.

    --budget-usd and --max-requests apply to the whole run; a judge that is a model and the policy get one half each.

    Example: critic-prm refine in.jsonl --policy openai/MODEL --critic verifier
    """
    from critic_prm.cli.running import Input
    from critic_prm.critics.open import check_one_server, open_critic
    from critic_prm.generate.policy.answers import Grader
    from critic_prm.search.refine import RefineStats, refined_row
    from critic_prm.search.refine import refine as refine_one
    from critic_prm.search.stepper import open_stepper

    each = split_budget(judging, critic)
    check_one_server([critic, *([] if stepper.policy_has_own_server else [policy])], each)
    solver, opened, grader = open_stepper(policy, each, stepper), open_critic(critic, each), Grader()
    solutions = Input(source, reading)

    async def work(trajectory: Trajectory) -> Refined:
        return await refine_one(trajectory, solver, opened, grader, settings)

    def record(refined: Refined, sink: RecordWriter) -> str:
        sink.write(refined_row(refined))
        return refined.why if refined.why in ("not judged", "policy failed") else "ok"

    workers = judging.max_connections
    raise typer.Exit(
        run_guided(solutions, work, record, RefineStats(), out, solver, opened, grader, workers, solutions.skipped)
    )
