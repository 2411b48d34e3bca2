"""Check a command's outputs before it runs: that they can be written, and that nothing is overwritten by accident."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any, get_args

import typer

OUTPUTS = ("out", "save", "tree", "trees", "removed", "plot", "kept", "escalate", "disagreements", "setup")
"""Command parameters that name an output file, the main one first."""

PLACES = (*OUTPUTS, "plots", "folder")
"""Command parameters that name a file or folder that a command writes."""

FOLDERS = ("DIR", "VERIFIER", "FOLDER")
"""Metavars of outputs that are folders; such commands check themselves that they replace only their own output."""

EITHER = "FILE|DIR"
"""Metavar of an output that is a file or a folder."""

INSTEAD = ("verifier",)
"""Arguments that are changed if the output option is not given, as in `calibrate VERIFIER`."""

NAMED_ONLY = (("tune", "escalate"),)
"""(command, parameter) of files that a command names in its output and does not write."""

FINISHED = (0, 3)
"""Exit codes of a command that ran to its end."""

JUDGES = ("judge", "critic", "policy")

_RUN: ContextVar[Mapping[str, Any] | None] = ContextVar("run", default=None)
_OWNED: ContextVar[bool] = ContextVar("owned", default=False)

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing output files; not needed to resume a run.")]


def this_run() -> Mapping[str, Any] | None:
    """Return the identity of the current run: command name, inputs and judge. None outside a command."""
    return _RUN.get()


def in_stage() -> bool:
    """Whether the command is a stage of a recipe: its options were not written by the user."""
    return _OWNED.get()


@contextmanager
def owned_outputs() -> Iterator[None]:
    """Within this context, commands are stages of a recipe. They replace existing outputs, which are in the recipe's folder."""
    token = _OWNED.set(True)
    try:
        yield
    finally:
        _OWNED.reset(token)


def check_output(
    out: str | Path, inputs: Iterable[str | Path] = (), overwrite: bool = False, resumes: Mapping[str, Any] | None = None
) -> None:
    """Check that `out` may be written.

    Raises UsageError if `out` is one of `inputs`, or if it exists, `overwrite` is not set and it was not written by an earlier
    run with the identity `resumes`. Raises InputError if it is an SQLite database. Paths that are not regular files are not
    checked.
    """
    from critic_prm.data.records.writing import refuse_database
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


def check_places(ctx: typer.Context) -> None:
    """Check all outputs of a command before it does any work.

    Raises InputError if one cannot be written, and UsageError if rows would go to a terminal that was not asked for (`-o -`).
    """
    given = ctx.params
    if given.get("dry_run") or given.get("list"):
        return
    if given.get("out") == "-" and not is_given(ctx, "out") and sys.stdout is not None and sys.stdout.isatty():
        from critic_prm.errors import UsageError

        raise UsageError("the output is rows of JSON, and stdout is a terminal; write them to a file with -o FILE (or -o -)")
    for parameter in ctx.command.params:
        place = given.get(parameter.name) if parameter.name in PLACES or "-o" in parameter.opts else None
        if place is None and parameter.name == "out":
            place = next((given[name] for name in INSTEAD if name in given), None)
        if place is not None and str(place) != "-" and (ctx.info_name, parameter.name) not in NAMED_ONLY:
            check_writable(str(place), folder=parameter.metavar in (*FOLDERS, EITHER) or place is not given[parameter.name])


def is_given(ctx: typer.Context, name: str) -> bool:
    """Whether the user gave a parameter, on the command line or in the environment."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT")


def check_writable(path: str, *, folder: bool = False) -> None:
    """Raise InputError if the file `path`, or the folder, which may be made with the folders above it, cannot be written.

    A nameless temporary file is made there, because permissions do not tell: the superuser may write where they forbid it,
    and a file system can be read-only or full. Devices and pipes are not checked.
    """
    from critic_prm.errors import InputError

    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not target.is_file() and not target.is_dir():
            return
        nearest = target if target.is_dir() and folder else target.parent
        while folder and not nearest.exists():
            nearest = nearest.parent
        if not nearest.exists():
            raise InputError(path, f"cannot be written: the folder {nearest} does not exist", "make the folder first")
        if target.is_dir() and not folder:
            raise InputError(path, "cannot be written: it is a folder", "choose another output")
        with TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise InputError(path, f"cannot be written: {error.strerror or error}", "choose another output") from None


def _is_of(out: str | Path, run: Mapping[str, Any] | None) -> bool:
    """Return whether the run.json next to an output belongs to this run."""
    import orjson

    try:
        report = orjson.loads(Path(f"{out}.run.json").read_bytes())
    except (OSError, ValueError):
        return False
    return run is not None and isinstance(report, dict) and report.get("run") == run


def with_parameters(command: Callable[..., Any], parameters: Iterable[Parameter]) -> Callable[..., Any]:
    """Give a function of keyword arguments the parameters that typer turns into options."""
    named = {one.name: one.replace(kind=Parameter.KEYWORD_ONLY) for one in reversed([*parameters])}
    signed: Any = command
    signed.__signature__ = Signature([*reversed(named.values())])
    signed.__annotations__ = {name: one.annotation for name, one in named.items()}
    return command


def guarded(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command that checks the output files it writes, with the option --overwrite."""
    own = signature(command, eval_str=True)
    files = [name for name in OUTPUTS if name in own.parameters and (command.__name__, name) not in NAMED_ONLY]
    written = [name for name in files if _metavar(own.parameters[name]) not in FOLDERS]
    if not written:
        return command
    arguments = [name for name, parameter in own.parameters.items() if _is_argument(parameter)]

    @wraps(command)
    def run(**given: Any) -> Any:
        overwrite = given.pop("overwrite") or _OWNED.get()
        identity = {"command": command.__name__}
        identity |= {name: _plain(given[name]) for name in (*arguments, *JUDGES) if given.get(name) is not None}
        outs = [str(given[name]) for name in written if given[name] is not None]
        token = _RUN.set(identity)
        try:
            if not given.get("dry_run"):
                _check(written, given, overwrite, identity)
            with _claimed(outs, identity):
                return command(**given)
        finally:
            _RUN.reset(token)

    option = Parameter("overwrite", Parameter.KEYWORD_ONLY, default=False, annotation=Overwrite)
    return with_parameters(run, [*own.parameters.values(), option])


@contextmanager
def _claimed(outs: list[str], run: Mapping[str, Any]) -> Iterator[None]:
    """Within this context, write a run.json that claims the outputs for `run` before the first output file appears.

    The same command can then resume after it was stopped or killed at any point. The claim is removed at the end if the command
    writes no run.json of its own.
    """
    import orjson

    from critic_prm.data.records.writing import before_keep, write_whole

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


def _check(written: list[str], given: Mapping[str, Any], overwrite: bool, identity: Mapping[str, Any]) -> None:
    inputs = [path for name, value in given.items() if name not in OUTPUTS for path in _paths(name, value)]
    main = next((given[name] for name in written if given[name] is not None), None)
    resumed = main is not None and _is_of(main, identity)  # the run's other outputs belong to its main output
    for name in written:
        if given[name] is not None:
            check_output(given[name], inputs, overwrite or resumed, identity)


def _paths(name: str, value: Any) -> list[str]:
    """Return the existing files that a parameter's value names; the cache is included even if it does not exist yet."""
    if name == "db":
        from critic_prm.engine.place import cache_path

        return [str(cache_path(value))]
    values = value if isinstance(value, list | tuple) else [value]
    texts = [str(item) for item in values if isinstance(item, str | Path) and str(item) not in ("", "-")]
    return [text for text in texts if Path(text).is_file()]


def _plain(value: Any) -> Any:
    return [str(item) for item in value] if isinstance(value, list | tuple) else str(value)


def _metavar(parameter: Parameter) -> str | None:
    return next((part.metavar for part in get_args(parameter.annotation) if hasattr(part, "metavar")), None)


def _is_argument(parameter: Parameter) -> bool:
    return any(isinstance(part, typer.models.ArgumentInfo) for part in get_args(parameter.annotation))
