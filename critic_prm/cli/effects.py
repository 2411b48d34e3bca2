"""Refuse options that have no effect: the chosen critics do not read them, or they belong to another option."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import typer

CRITICS = ("judge", "critic", "first", "confirm", "segment_judge")
"""Command parameters that name critics."""

DEFAULT_CRITICS = {"label": "rules"}
"""The critic of a command that was given none."""

NEEDED: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], bool]]] = {
    **dict.fromkeys(("wait", "batch_size"), ("--batch", lambda given: given["batch"])),
    **dict.fromkeys(("ray_address", "workers", "worker_gpus"), ("--engine ray", lambda given: given.get("engine") != "local")),
    "consensus": ("several judges", lambda given: len(critics_of({"judge": given.get("judge")})) > 1),
    "judge_dev": ("--objective sft", lambda given: given["objective"] == "sft"),
}
"""What an option has no effect without, and whether that was given."""


def check_effects(ctx: typer.Context) -> None:
    """Raise UsageError for options on the command line that change nothing. Those in the environment and in critic-prm.toml are
    meant for several commands, and those of a recipe's stages for several critics; they are not checked."""
    from critic_prm.cli.outputs import in_stage
    from critic_prm.errors import UsageError

    flags = {one.name: one.opts[-1] for one in ctx.command.params if one.param_type_name == "option"}
    named = [name for name in flags if (source := ctx.get_parameter_source(name)) and source.name == "COMMANDLINE"]
    if in_stage():
        return
    for name in named:
        needs, fulfilled = NEEDED.get(name, ("", bool))
        if needs and not fulfilled(ctx.params):
            raise UsageError(f"{flags[name]} has no effect without {needs}; leave it out or add that")
    if any(name in ctx.params for name in CRITICS) and (idle := _not_read(ctx, named)):
        critics = critics_of(ctx.params, str(ctx.info_name))
        which = f"with {' and '.join(critics)}" if critics else "without a critic that is asked now"
        has = "have" if len(idle) > 1 else "has"
        raise UsageError(f"{', '.join(flags[name] for name in idle)} {has} no effect {which}; leave {_it(idle)} out")


def critics_of(given: Mapping[str, Any], command: str = "") -> list[str]:
    """The critics that a command's parameters name."""
    found: list[str] = []
    for name in CRITICS:
        value = given.get(name)
        values = value if isinstance(value, list | tuple) else [] if value is None else re.split(r"[,+]", str(value))
        found += map(str, values)
    return found or [DEFAULT_CRITICS[command]] if command in DEFAULT_CRITICS else found


def _not_read(ctx: typer.Context, named: Iterable[str]) -> list[str]:
    """The options among `named` that configure how critics are asked and that none of the chosen critics and policies reads."""
    from critic_prm.cli.fields import names_of
    from critic_prm.engine.options import JudgeOptions

    fields = {**names_of(JudgeOptions), "samples": "samples", "styles": "style"}
    fields = {name: fields[name] for name in named if name in fields}
    if not fields:
        return []
    from critic_prm.cli.options import VERDICTS
    from critic_prm.critics.open import SHARED, options_read

    read = set(SHARED).union(*map(options_read, critics_of(ctx.params, str(ctx.info_name))))
    if "backend" in ctx.params or ctx.info_name == "doctor":
        read.add("base_url")  # also the address of a verifier on a vLLM server
    if ctx.params.get("policy") is not None:
        read |= set(fields.values()) - {*VERDICTS, "samples"}
    return [name for name, field in fields.items() if field not in read]


def _it(several: list[str]) -> str:
    return "them" if len(several) > 1 else "it"
