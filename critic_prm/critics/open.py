"""Open a critic by name: rules, a verifier folder, an LLM judge, rollouts, or a TOML cascade or mixture."""

from __future__ import annotations

from collections.abc import Mapping, Set
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from critic_prm import registry
from critic_prm.data.critic import Critic
from critic_prm.data.toml_files import read_toml
from critic_prm.data.trust import Origin, exists
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import InputError, UsageError

KINDS = ("cascade", "mixture")


def open_file(path: str | Path, judging: JudgeOptions) -> Critic:
    """Open the critic described by a TOML file with a single table, [cascade] or [mixture]. Relative paths are resolved against
    the folder of the file. Raises InputError if the file cannot be read or names something it may not use, and UsageError for
    invalid settings."""
    try:
        tables = read_toml(path)
    except (OSError, ValueError) as error:
        raise InputError(str(path), f"this critic cannot be read: {error}", f"it is TOML with a table {_tables()}") from None
    kinds = [kind for kind in KINDS if isinstance(tables.get(kind), dict)]
    if len(kinds) != 1 or len(tables) > 1:
        raise UsageError(f"{path} has the tables {', '.join(tables) or 'none'}; a critic has one, {_tables()}")
    try:
        origin = Origin(path, judging.trust)
        critic: Critic = import_module(f"critic_prm.critics.{kinds[0]}").from_table(tables[kinds[0]], origin, judging)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    except RecursionError:
        raise InputError(str(path), "this critic contains itself", "name other critics in it") from None
    except (AttributeError, OverflowError, TypeError, ValueError) as error:
        raise InputError(str(path), f"a value is of the wrong kind: {error}", "see the example in the documentation") from None
    return critic


def _tables() -> str:
    return " or ".join(f"[{kind}]" for kind in KINDS)


def check(table: Mapping[str, Any], name: str, needed: Set[str], allowed: Set[str]) -> None:
    """Raise UsageError for missing or unknown keys."""
    if missing := needed - table.keys():
        raise UsageError(f"[{name}] lacks {', '.join(sorted(missing))}")
    if unknown := table.keys() - needed - allowed:
        known = ", ".join(sorted(needed | allowed))
        raise UsageError(f"[{name}] has no {', '.join(sorted(unknown))}; there are: {known}")


Kind = Literal["verifier", "file", "rollout", "local", "judge"]


def kind_of(name: str) -> Kind | None:
    """The kind of critic that `open_critic` opens for a name; None for an invalid name."""
    if exists(Path(name) / "verifier.json"):
        return "verifier"
    if name.endswith(".toml"):
        return "file"
    if name.startswith("rollout:"):
        return "rollout"
    if name in local_critics():
        return "local"
    return "judge" if "/" in name and not (exists(Path(name)) and Path(name).is_dir()) else None


def local_critics() -> list[str]:
    """The registered critics that send no requests and are opened by name alone."""
    return registry.names("critic")


def critic_in_file(name: object, origin: Origin) -> str:
    """Resolve a critic name found in a file for `open_critic`: a path next to the file if one exists, otherwise the name
    unchanged. Raises InputError for a name that the file may not use (see `Origin`)."""
    text = str(name)
    if exists(origin.folder / text):
        return str(origin.path("a critic", name))
    if origin.trusted:
        return text
    kind = kind_of(text)
    if kind in ("local", None):  # open_critic reports names that are not valid critics
        return text
    if kind == "rollout":
        return "rollout:" + origin.provider("a critic", text.removeprefix("rollout:"))
    if kind == "judge":
        return origin.provider("a critic", name)
    what = f"{', '.join(local_critics())}, provider/MODEL, or a verifier or .toml in its own folder"
    raise origin.refusal("a critic", name, what)


def open_critic(name: str, judging: JudgeOptions | None = None) -> Critic:
    """Open a critic: "rules", a verifier folder, an LLM judge "provider/model", Monte Carlo rollouts "rollout:provider/model",
    or a .toml file with a cascade or mixture of critics.

    Raises UsageError for any other name, ConfigError for a missing key, InputError for a damaged verifier.
    """
    kind = kind_of(name)
    if (name == "rules" or kind == "verifier") and judging is not None and judging.cluster is not None:
        from critic_prm.critics.remote import connect as connect_cluster

        return connect_cluster(name, judging.cluster)
    if kind == "verifier":
        from distill.verifier import load_verifier

        verifier: Critic = load_verifier(name)
        return verifier
    if kind == "file":
        return open_file(name, judging or JudgeOptions())
    if kind == "rollout":
        from critic_prm.critics.rollout import connect as connect_rollout

        return connect_rollout(name.removeprefix("rollout:"), judging or JudgeOptions())
    if kind == "local":
        critic: Critic = registry.load("critic", name).connect()
        return critic
    if kind is None:
        what = "is a folder without verifier.json" if Path(name).is_dir() else "is no critic"
        raise UsageError(
            f"{name!r} {what}; a critic is {', '.join(local_critics())}, a verifier's folder, a judge such as openai/MODEL,"
            " rollout:openai/MODEL, or a .toml with a cascade or mixture of them"
        )
    from critic_prm.critics.llm import connect

    return connect(name, judging or JudgeOptions())
