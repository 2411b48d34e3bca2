"""What a command is about to write -> a refusal, before any work, where that would destroy something."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

OUTPUTS = ("out", "save", "tree", "trees", "removed", "plot")
"""The parameters of commands that name a file to be written, the main one first."""

FOLDERS = ("DIR", "VERIFIER")
"""What the help calls an output that is a folder: such a command replaces only what it can tell for its own."""

FINISHED = (0, 3)
"""The exit codes of a command that came to its end."""

JUDGES = ("judge", "critic", "policy")

_RUN: ContextVar[Mapping[str, Any] | None] = ContextVar("run", default=None)
_OWNED: ContextVar[bool] = ContextVar("owned", default=False)

Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace an output that exists and that this command would not go on with.")
]


def guarded(app: typer.Typer) -> typer.Typer:
    """The same tree of commands, with --overwrite for every one that writes a file and a check of its outputs before it."""
    tree = copy(app)
    tree.registered_commands = [copy(one) for one in app.registered_commands]
    tree.registered_groups = [copy(one) for one in app.registered_groups]
    for command in tree.registered_commands:
        if command.callback is not None:
            command.callback = _guarded(command.callback)
    for group in tree.registered_groups:
        if group.typer_instance is not None:
            group.typer_instance = guarded(group.typer_instance)
    return tree


def this_run() -> Mapping[str, Any] | None:
    """What tells the run of this command from others: its name, inputs and judge; None outside a command."""
    return _RUN.get()


@contextmanager
def owned_outputs() -> Iterator[None]:
    """Within it, outputs that exist are replaced: they are in a folder that the caller made for them."""
    token = _OWNED.set(True)
    try:
        yield
    finally:
        _OWNED.reset(token)


def check_output(
    out: str | Path, inputs: Iterable[str | Path] = (), overwrite: bool = False, resumes: Mapping[str, Any] | None = None
) -> None:
    """Raise UsageError where `out` is one of `inputs`, or exists and is neither to be overwritten nor what an earlier run of
    `resumes` left; InputError where it is an SQLite database. What is not a regular file is left to who writes it."""
    from critic_prm.data.records.parts import refuse_database
    from critic_prm.errors import UsageError

    target = Path(os.path.realpath(out))
    if str(out) == "-" or (target.exists() and not target.is_file()):
        return
    for given in inputs:
        if os.path.realpath(given) == str(target):
            raise UsageError(f"{out} is also what this command reads ({given}); choose another output")
    refuse_database(target, str(out))
    if overwrite or not target.is_file() or not target.stat().st_size or _is_of(out, resumes):
        return
    raise UsageError(f"{out} exists and is not the output of an earlier run of this command; --overwrite replaces it")


def _is_of(out: str | Path, run: Mapping[str, Any] | None) -> bool:
    """Whether the run.json beside an output says that it is of this run."""
    import orjson

    try:
        said = orjson.loads(Path(f"{out}.run.json").read_bytes())
    except (OSError, ValueError):
        return False
    return run is not None and isinstance(said, dict) and said.get("run") == run


def _guarded(command: Callable[..., Any]) -> Callable[..., Any]:
    told = signature(command, eval_str=True)
    written = [name for name in OUTPUTS if name in told.parameters and _metavar(told.parameters[name]) not in FOLDERS]
    if not written:
        return command
    arguments = [name for name, one in told.parameters.items() if any(_is_argument(part) for part in get_args(one.annotation))]

    @wraps(command)
    def run(**given: Any) -> Any:
        overwrite = given.pop("overwrite") or _OWNED.get()
        which = {"command": command.__name__}
        which |= {name: _plain(given[name]) for name in (*arguments, *JUDGES) if given.get(name) is not None}
        outs = [str(given[name]) for name in written if given[name] is not None]
        token = _RUN.set(which)
        try:
            if not given.get("dry_run"):
                _check(written, given, overwrite, which)
            with _claimed(outs, which):
                return command(**given)
        finally:
            _RUN.reset(token)

    option = Parameter("overwrite", Parameter.KEYWORD_ONLY, default=False, annotation=Overwrite)
    parameters = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in told.parameters.values()]
    run.__signature__ = told.replace(parameters=[*parameters, option])  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in [*parameters, option]}
    return run


@contextmanager
def _claimed(outs: list[str], run: Mapping[str, Any]) -> Iterator[None]:
    """Within it, no output appears before the run.json of the main one says that `run` writes it: the same command goes on
    wherever the first was stopped or killed. A command that writes no run.json of its own leaves none when it is done."""
    import orjson

    from critic_prm.data.records.parts import before_keep, write_whole

    targets = {Path(os.path.realpath(out)) for out in outs}
    claim = orjson.dumps({"run": run, "unfinished": True}, option=orjson.OPT_APPEND_NEWLINE)

    def announce(target: Path) -> None:
        if target in targets and not _is_of(outs[0], run):
            write_whole(f"{outs[0]}.run.json", claim)

    token = before_keep.set(announce)
    try:
        yield
    except typer.Exit as done:
        if done.exit_code in FINISHED:
            _withdraw(outs, claim)
        raise
    else:
        _withdraw(outs, claim)
    finally:
        before_keep.reset(token)


def _withdraw(outs: list[str], claim: bytes) -> None:
    """Remove the claim, unless the command's own run.json has taken its place."""
    place = Path(f"{outs[0]}.run.json") if outs else None
    if place is not None and place.is_file() and place.read_bytes() == claim:
        place.unlink()


def _check(written: list[str], given: Mapping[str, Any], overwrite: bool, which: Mapping[str, Any]) -> None:
    inputs = [one for name, value in given.items() if name not in OUTPUTS for one in _paths(name, value)]
    main = next((given[name] for name in written if given[name] is not None), None)
    resumed = main is not None and _is_of(main, which)  # what else the run wrote goes with its main output
    for name in written:
        if given[name] is not None:
            check_output(given[name], inputs, overwrite or resumed, which)


def _paths(name: str, value: Any) -> list[str]:
    """The files that the value of a parameter may name: the cache also where it does not exist yet."""
    values = value if isinstance(value, list | tuple) else [value]
    texts = [str(one) for one in values if isinstance(one, str | Path) and str(one) not in ("", "-")]
    return [text for text in texts if name == "db" or Path(text).is_file()]


def _plain(value: Any) -> Any:
    return [str(one) for one in value] if isinstance(value, list | tuple) else str(value)


def _metavar(parameter: Parameter) -> str | None:
    return next((part.metavar for part in get_args(parameter.annotation) if hasattr(part, "metavar")), None)


def _is_argument(part: Any) -> bool:
    return isinstance(part, typer.models.ArgumentInfo)
