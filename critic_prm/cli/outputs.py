"""Check a command's outputs before it runs, so that it never overwrites files by accident."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

OUTPUTS = ("out", "save", "tree", "trees", "removed", "plot")
"""Command parameters that name an output file, the main one first."""

FOLDERS = ("DIR", "VERIFIER")
"""Metavars of outputs that are folders; such commands check themselves that they replace only their own output."""

FINISHED = (0, 3)
"""Exit codes of a command that ran to its end."""

JUDGES = ("judge", "critic", "policy")

_RUN: ContextVar[Mapping[str, Any] | None] = ContextVar("run", default=None)
_OWNED: ContextVar[bool] = ContextVar("owned", default=False)

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing output files, unless this run resumes them.")]


def this_run() -> Mapping[str, Any] | None:
    """Return the identity of the current run: command name, inputs and judge. None outside a command."""
    return _RUN.get()


@contextmanager
def owned_outputs() -> Iterator[None]:
    """Within this context, existing outputs are replaced: they are in a folder that the caller created for them."""
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
    written = [name for name in OUTPUTS if name in own.parameters and _metavar(own.parameters[name]) not in FOLDERS]
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
    values = value if isinstance(value, list | tuple) else [value]
    texts = [str(item) for item in values if isinstance(item, str | Path) and str(item) not in ("", "-")]
    return [text for text in texts if name == "db" or Path(text).is_file()]


def _plain(value: Any) -> Any:
    return [str(item) for item in value] if isinstance(value, list | tuple) else str(value)


def _metavar(parameter: Parameter) -> str | None:
    return next((part.metavar for part in get_args(parameter.annotation) if hasattr(part, "metavar")), None)


def _is_argument(parameter: Parameter) -> bool:
    return any(isinstance(part, typer.models.ArgumentInfo) for part in get_args(parameter.annotation))
