"""critic-prm search: problems in, the solutions that a policy finds under a critic's guidance out."""

from __future__ import annotations

from typing import Annotated

import typer

from critic_prm.cli.options import with_judging
from critic_prm.engine.options import JudgeOptions

HOW, POLICY, LIMITS = "The method", "How the policy is asked (the judge has the options below)", "Limits of one problem"


@with_judging
def search(
    source: Annotated[str, typer.Argument(metavar="PROBLEMS", help="Problems, with right answers where known; - is stdin.")],
    policy: Annotated[str, typer.Option("--policy", metavar="PROVIDER/MODEL", help="Who takes the steps.")],
    critic: Annotated[str, typer.Option(help="A verifier's folder, `rules`, a .toml or provider/MODEL.")],
    method: Annotated[str, typer.Option(help="best-of-n, beam, dvts, lookahead or mcts.", rich_help_panel=HOW)] = "beam",
    out: Annotated[str, typer.Option("-o", "--out", metavar="FILE", help="The solutions; - is stdout.")] = "-",
    tree: Annotated[str | None, typer.Option(metavar="FILE", help="Every node of every tree, a row each.")] = None,
    by: Annotated[str, typer.Option(help="How step scores become one: min, product, mean, last, cvar:0.2, ...")] = "min",
    pick: Annotated[str, typer.Option(help="best: the highest score; vote: the answer with the largest sum.")] = "best",
    baseline: Annotated[
        bool, typer.Option("--baseline/--no-baseline", help="Also draw best-of-N for as many written tokens, to compare.")
    ] = True,
    draw: Annotated[int, typer.Option(help="Another number draws other samples; the same one finds them in the cache.")] = 0,
    n: Annotated[int, typer.Option("-n", help="Solutions or beams.", rich_help_panel=HOW)] = 16,
    width: Annotated[int, typer.Option(help="Steps drawn from each prefix that goes on.", rich_help_panel=HOW)] = 4,
    depth: Annotated[int, typer.Option(help="The most steps.", rich_help_panel=HOW)] = 40,
    ahead: Annotated[int, typer.Option(help="Greedy steps that lookahead looks ahead.", rich_help_panel=HOW)] = 3,
    simulations: Annotated[int, typer.Option(help="Of mcts.", rich_help_panel=HOW)] = 64,
    exploration: Annotated[float, typer.Option(help="PUCT's c.", rich_help_panel=HOW)] = 0.25,
    prior: Annotated[str, typer.Option(help="PUCT's prior: critic or uniform.", rich_help_panel=HOW)] = "critic",
    backup: Annotated[str, typer.Option(help="What mcts brings back: mean or max.", rich_help_panel=HOW)] = "mean",
    rollout: Annotated[
        float, typer.Option(help="Weight of a whole solution's score in a leaf's value, 0 to 1.", rich_help_panel=HOW)
    ] = 0.0,
    cut: Annotated[
        str, typer.Option(help="stop: a stop string after each step; split: write on, take the first.", rich_help_panel=POLICY)
    ] = "stop",
    ends: Annotated[
        str | None, typer.Option(help="A pattern in the step that ends a solution.", rich_help_panel=POLICY)
    ] = None,
    prompt: Annotated[str, typer.Option(help="`solve`, or a .jinja file of your own.", rich_help_panel=POLICY)] = "solve",
    policy_temperature: Annotated[float | None, typer.Option(help="The policy's.", rich_help_panel=POLICY)] = None,
    policy_top_p: Annotated[float | None, typer.Option(help="The policy's.", rich_help_panel=POLICY)] = None,
    policy_max_tokens: Annotated[int | None, typer.Option(help="The policy's.", rich_help_panel=POLICY)] = None,
    policy_base_url: Annotated[str | None, typer.Option(help="The policy's server.", rich_help_panel=POLICY)] = None,
    max_calls: Annotated[int | None, typer.Option(min=1, help="Requests to both.", rich_help_panel=LIMITS)] = None,
    max_written: Annotated[int | None, typer.Option(min=1, help="Tokens both write.", rich_help_panel=LIMITS)] = None,
    max_usd: Annotated[float | None, typer.Option(min=0, help="Dollars.", rich_help_panel=LIMITS)] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many problems.")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Report broken rows and go on; exit with 3.")] = False,
    *,
    judging: JudgeOptions,
) -> None:
    """Step-wise generation guided by a critic: run the same command again to go on where it stopped, nothing is paid twice.

    At the end the search is compared with as many independent solutions as its tokens would have bought. --budget-usd and
    --max-requests hold for the whole run, one half for the policy and one for the judge.
    """
    from critic_prm.cli.searching import asked_policy, run_search
    from critic_prm.errors import UsageError
    from critic_prm.search.search import SearchBudget, SearchSettings
    from critic_prm.search.stepper import ENDS, open_stepper

    for name, value, allowed in (
        ("--prior", prior, ("critic", "uniform")),
        ("--backup", backup, ("mean", "max")),
        ("--pick", pick, ("best", "vote")),
    ):
        if value not in allowed:
            raise UsageError(f"{name} is {value!r}; it is {' or '.join(allowed)}")
    settings = SearchSettings(
        n=n,
        width=width,
        depth=depth,
        ahead=ahead,
        simulations=simulations,
        c=exploration,
        prior="uniform" if prior == "uniform" else "critic",
        backup="max" if backup == "max" else "mean",
        rollout=rollout,
    )
    policys, critics = asked_policy(
        judging, critic, policy_base_url, temperature=policy_temperature, top_p=policy_top_p, max_tokens=policy_max_tokens
    )
    raise typer.Exit(
        run_search(
            source,
            open_stepper(policy, policys, prompt, cut, ends or ENDS),
            critic,
            critics,
            method=method,
            settings=settings,
            by=by,
            pick=pick,
            budget=SearchBudget(max_calls, max_written, max_usd),
            baseline=baseline,
            seed=draw,
            out=out,
            tree=tree,
            limit=limit,
            skip_bad=skip_bad,
        )
    )
