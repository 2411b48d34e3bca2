"""critic-prm search: solve problems with a policy guided by a critic."""

from __future__ import annotations

from typing import Annotated

import typer

from critic_prm.engine.options import JudgeOptions

HOW, POLICY, LIMITS = "The method", "How the policy is asked (the judge has the options below)", "Limits of one problem"


def search(
    source: Annotated[str, typer.Argument(metavar="PROBLEMS", help="Problems, with gold answers if known; - is stdin.")],
    policy: Annotated[str, typer.Option("--policy", metavar="PROVIDER/MODEL", help="Model that writes the steps.")],
    critic: Annotated[str, typer.Option(help="A verifier folder, `rules`, a .toml file or provider/MODEL.")],
    method: Annotated[
        str, typer.Option(help="Search method: best-of-n, beam, dvts, lookahead or mcts.", rich_help_panel=HOW)
    ] = "beam",
    out: Annotated[str, typer.Option("-o", "--out", metavar="FILE", help="File of solutions to write; - is stdout.")] = "-",
    tree: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write every node of every search tree to this file, one row per node.")
    ] = None,
    by: Annotated[str, typer.Option(help="Aggregation of step scores: min, product, mean, last, cvar:0.2, ...")] = "min",
    pick: Annotated[
        str, typer.Option(help="best: the highest score; vote: the answer with the largest sum of scores.")
    ] = "best",
    baseline: Annotated[
        bool, typer.Option("--baseline/--no-baseline", help="Also run best-of-N with as many generated tokens, to compare.")
    ] = True,
    draw: Annotated[int, typer.Option(help="Random seed for sampling; the same seed reuses cached samples.")] = 0,
    n: Annotated[int, typer.Option("-n", help="Number of solutions or beams.", rich_help_panel=HOW)] = 16,
    width: Annotated[int, typer.Option(help="Steps sampled from each prefix that is expanded.", rich_help_panel=HOW)] = 4,
    depth: Annotated[int, typer.Option(help="Maximum number of steps per solution.", rich_help_panel=HOW)] = 40,
    ahead: Annotated[int, typer.Option(help="For lookahead: number of greedy steps.", rich_help_panel=HOW)] = 3,
    simulations: Annotated[int, typer.Option(help="For mcts: simulations per problem.", rich_help_panel=HOW)] = 64,
    exploration: Annotated[
        float, typer.Option(help="For mcts: the exploration constant c of PUCT.", rich_help_panel=HOW)
    ] = 0.25,
    prior: Annotated[str, typer.Option(help="For mcts: the prior of PUCT, critic or uniform.", rich_help_panel=HOW)] = "critic",
    backup: Annotated[str, typer.Option(help="For mcts: value backup, mean or max.", rich_help_panel=HOW)] = "mean",
    rollout: Annotated[
        float, typer.Option(help="For mcts: weight of a full rollout's score in a leaf's value, 0 to 1.", rich_help_panel=HOW)
    ] = 0.0,
    cut: Annotated[
        str,
        typer.Option(
            help="How to get one step: stop (a stop string ends it) or split (generate more, keep the first step).",
            rich_help_panel=POLICY,
        ),
    ] = "stop",
    ends: Annotated[
        str | None, typer.Option(help="Regular expression that marks the last step of a solution.", rich_help_panel=POLICY)
    ] = None,
    prompt: Annotated[
        str, typer.Option(help="Prompt of the policy: `solve`, or a .jinja file.", rich_help_panel=POLICY)
    ] = "solve",
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
    max_calls: Annotated[
        int | None, typer.Option(min=1, help="Send at most N requests to policy and critic.", rich_help_panel=LIMITS)
    ] = None,
    max_written: Annotated[
        int | None, typer.Option(min=1, help="Generate at most N tokens, policy and critic together.", rich_help_panel=LIMITS)
    ] = None,
    max_usd: Annotated[
        float | None, typer.Option(min=0, help="Spend at most this many dollars.", rich_help_panel=LIMITS)
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Process at most N problems.")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Report and skip invalid rows; exit with code 3.")] = False,
    *,
    judging: JudgeOptions,
) -> None:
    """Solve problems step by step with a policy that is guided by a critic.

    Reads problems (PROBLEMS) and cached replies (--db). Writes one solution per problem (-o) and, on request, the search trees
    (--tree). Run the same command again to resume; cached replies are not paid for twice.

    At the end, the search is compared with best-of-N at the same number of generated tokens. --budget-usd and --max-requests
    apply to the whole run; a judge that is a model and the policy get one half each.

    Example: critic-prm search in.jsonl --policy openai/MODEL --critic verifier
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
