"""critic-prm refine: solutions in, the same with their weakest steps written anew out."""

from __future__ import annotations

from typing import Annotated

import typer

from critic_prm.cli.options import with_judging
from critic_prm.engine.options import JudgeOptions

POLICY = "How the policy is asked (the judge has the options below)"


@with_judging
def refine(
    source: Annotated[str, typer.Argument(metavar="SOLUTIONS", help="Trajectories in any format `convert` reads; - is stdin.")],
    policy: Annotated[str, typer.Option("--policy", metavar="PROVIDER/MODEL", help="Who writes steps anew.")],
    critic: Annotated[str, typer.Option(help="A verifier's folder, `rules`, a .toml or provider/MODEL.")],
    out: Annotated[str, typer.Option("-o", "--out", metavar="FILE", help="The solutions; - is stdout.")] = "-",
    by: Annotated[str, typer.Option(help="How step scores become one: min, product, mean, last, cvar:0.2, ...")] = "min",
    rounds: Annotated[int, typer.Option(min=1, help="At most so many rounds a solution.")] = 3,
    tries: Annotated[int, typer.Option(min=1, help="New endings a round; the best one is taken, if any.")] = 4,
    margin: Annotated[float, typer.Option(min=0, help="An ending is taken only if the score rises by more than this.")] = 0.0,
    feedback: Annotated[
        bool, typer.Option("--feedback/--no-feedback", help="Show the policy the step it replaces, and its critique.")
    ] = True,
    floor: Annotated[
        float, typer.Option(min=0, max=1, help="Go on below this score, also where the critic finds no error.")
    ] = 0.0,
    draw: Annotated[int, typer.Option(help="Another number draws other endings; the same one finds them in the cache.")] = 0,
    prompt: Annotated[str, typer.Option(help="`solve`, or a .jinja file of your own.", rich_help_panel=POLICY)] = "solve",
    feedback_prompt: Annotated[
        str, typer.Option(help="`feedback`, or a .jinja file of your own.", rich_help_panel=POLICY)
    ] = "feedback",
    policy_temperature: Annotated[float | None, typer.Option(help="The policy's.", rich_help_panel=POLICY)] = None,
    policy_top_p: Annotated[float | None, typer.Option(help="The policy's.", rich_help_panel=POLICY)] = None,
    policy_max_tokens: Annotated[int | None, typer.Option(help="The policy's.", rich_help_panel=POLICY)] = None,
    policy_base_url: Annotated[str | None, typer.Option(help="The policy's server.", rich_help_panel=POLICY)] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many solutions.")] = None,
    format: Annotated[str, typer.Option("--from", help="The input's format.")] = "auto",
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Report broken rows and go on; exit with 3.")] = False,
    *,
    judging: JudgeOptions,
) -> None:
    """Find the weakest step, keep what stands before it, write the rest anew; take it if the critic's score rises.

    At the end: score and right answers before and after. Run the same command again to go on where it stopped. --budget-usd and
    --max-requests hold for the whole run, one half for the policy and one for the judge.
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
