"""Build the command-line interface; each command has its own module."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from critic_prm import signals
from critic_prm.terminal import safe_streams

COMMANDS = (
    "label",
    "distill",
    "calibrate",
    "evaluate",
    "judge-eval",
    "annotate",
    "score",
    "export",
    "rank",
    "search",
    "refine",
    "serve",
    "report",
    "convert",
    "doctor",
    "explain",
    "config",
    "quickstart",
    "examples",
)
GROUPS = {
    "labels": "Change label files and merge people's answers: reread, import, merge, export.",
    "dataset": "Build training sets from labels.",
    "generate": "Generate trajectories with step labels.",
    "analyze": "Find weaknesses of a critic's scores.",
    "cascade": "Tune a cascade: a cheap critic, and a judge for uncertain cases.",
    "prompts": "Inspect the prompts of judges: list, show, render.",
    "cache": "Inspect the cache of replies: stats, show, explain, export, import.",
    "batch": "Manage batches: list, status, cancel, fetch, forget, export, import.",
}


def build() -> Any:
    """Build the command tree. A command imports its module when it is used, and the library when it runs."""
    import typer

    from critic_prm.cli.lazy import LazyGroup, RootGroup, command
    from critic_prm.cli.root import root
    from critic_prm.cli.values import type_shown

    app = typer.Typer(
        name="critic-prm",
        cls=RootGroup,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"auto_envvar_prefix": "CRITIC_PRM", "help_option_names": ["-h", "--help"]},
        help="Label solution steps with an LLM judge, build PRM training sets, and distill a small local verifier.",
        epilog="Example: critic-prm label in.jsonl --judge openai/gpt-5.4-mini -o labels.jsonl\n\n"
        "Every option can be set in the environment: CRITIC_PRM_LABEL_SAMPLES=4 is `label --samples 4`. critic-prm.toml in the"
        " current folder sets defaults; `critic-prm config` shows them.",
    )
    app.callback()(root)
    tree: Any = typer.main.get_command(app)
    for parameter in tree.params:
        parameter.show_envvar = False
        parameter.display_type_rich = partial(type_shown, parameter)
    for lazy in (*map(command, COMMANDS), *(LazyGroup(*group) for group in GROUPS.items())):
        tree.add_command(lazy)
    return tree


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit. An error that the user can fix is printed as one line on stderr and sets the exit code.

    Exit codes: 0 done, 1 error, 2 usage, 3 finished with failed rows, 4 key or configuration, 5 stopped by a budget or quota,
    130 interrupted. An interrupt (Ctrl-C, SIGTERM, SIGHUP) always prints one line; for `serve` it is the normal end, with 0.
    """
    with safe_streams(), signals.handled(ending=arguments is None):
        try:
            code = _carry_out(arguments)
        except BaseException:
            if not signals.stopped():
                raise
            code = 130  # also if a library turned the interrupt into another exception
        if signals.stopped() and code not in (0, 3):
            signals.report()
            code = 130
    sys.exit(code)


def _carry_out(arguments: list[str] | None) -> Any:
    """Run a command and return its exit code."""
    from critic_prm.errors import CriticPrmError, Interrupted

    try:
        build()(arguments)
    except SystemExit as end:
        return end.code or 0
    except Interrupted:
        return Interrupted.exit_code
    except CriticPrmError as error:
        if not signals.stopped():
            print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0
