"""critic-prm refine: rewrite solutions from their weakest step on, guided by a critic."""

from __future__ import annotations

from typing import Annotated

import typer

from critic_prm.engine.options import JudgeOptions

POLICY = "How the policy is asked (the judge has the options below)"


def refine(
    source: Annotated[
        str, typer.Argument(metavar="SOLUTIONS", help="Trajectories in any format that `convert` reads; - is stdin.")
    ],
    policy: Annotated[str, typer.Option("--policy", metavar="PROVIDER/MODEL", help="Model that rewrites the steps.")],
    critic: Annotated[str, typer.Option(help="A verifier folder, `rules`, a .toml file or provider/MODEL.")],
    out: Annotated[str, typer.Option("-o", "--out", metavar="FILE", help="File of solutions to write; - is stdout.")] = "-",
    by: Annotated[str, typer.Option(help="Aggregation of step scores: min, product, mean, last, cvar:0.2, ...")] = "min",
    rounds: Annotated[int, typer.Option(min=1, help="Maximum number of rounds per solution.")] = 3,
    tries: Annotated[
        int, typer.Option(min=1, help="Candidate rewrites per round; the best one is kept if it is accepted.")
    ] = 4,
    margin: Annotated[float, typer.Option(min=0, help="Accept a rewrite only if it raises the score by more than this.")] = 0.0,
    feedback: Annotated[
        bool,
        typer.Option("--feedback/--no-feedback", help="Show the policy the step that it replaces and the step's critique."),
    ] = True,
    floor: Annotated[
        float, typer.Option(min=0, max=1, help="Refine solutions below this score even if the critic finds no error.")
    ] = 0.0,
    draw: Annotated[int, typer.Option(help="Random seed for sampling; the same seed reuses cached samples.")] = 0,
    prompt: Annotated[
        str, typer.Option(help="Prompt of the policy: `solve`, or a .jinja file.", rich_help_panel=POLICY)
    ] = "solve",
    feedback_prompt: Annotated[
        str, typer.Option(help="Prompt that shows the critique: `feedback`, or a .jinja file.", rich_help_panel=POLICY)
    ] = "feedback",
    policy_temperature: Annotated[
        float | None, typer.Option(help="Sampling temperature of the policy.", rich_help_panel=POLICY)
    ] = None,
    policy_top_p: Annotated[float | None, typer.Option(help="Top-p of the policy.", rich_help_panel=POLICY)] = None,
    policy_max_tokens: Annotated[
        int | None, typer.Option(help="Maximum tokens per reply of the policy.", rich_help_panel=POLICY)
    ] = None,
    policy_base_url: Annotated[
        str | None, typer.Option(help="Base URL of the policy's server.", rich_help_panel=POLICY)
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Process at most N solutions.")] = None,
    format: Annotated[str, typer.Option("--from", help="Input format.")] = "auto",
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Report and skip invalid rows; exit with code 3.")] = False,
    *,
    judging: JudgeOptions,
) -> None:
    """Rewrite solutions from their weakest step on; keep a rewrite if the critic's score rises.

    Reads solutions (SOLUTIONS) and cached replies (--db). Writes the refined solutions (-o). At the end it reports scores and
    correct answers before and after. Run the same command again to resume; cached replies are not paid for twice.

    --budget-usd and --max-requests apply to the whole run; a judge that is a model and the policy get one half each.

    Example: critic-prm refine in.jsonl --policy openai/MODEL --critic verifier
    """
    from critic_prm.cli.refining import run_refining
    from critic_prm.cli.running import told
    from critic_prm.cli.searching import asked_policy
    from critic_prm.data.formats.convert import read_trajectories
    from critic_prm.search.refine import Refining
    from critic_prm.search.rewriting import open_mender

    skipped: list[object] = []
    policys, critics = asked_policy(
        judging, critic, policy_base_url, temperature=policy_temperature, top_p=policy_top_p, max_tokens=policy_max_tokens
    )
    raise typer.Exit(
        run_refining(
            read_trajectories(
                source,
                format,
                on_error="skip" if skip_bad else "stop",
                complain=told(skipped),
            ),
            open_mender(policy, policys, prompt, feedback_prompt),
            critic,
            critics,
            settings=Refining(rounds, tries, margin, feedback, floor),
            by=by,
            seed=draw,
            out=out,
            limit=limit,
            skipped=skipped,
        )
    )
