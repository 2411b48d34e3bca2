"""Open a critic by name: rules, a verifier folder, an LLM judge, rollouts, or a TOML cascade or mixture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from critic_prm import registry
from critic_prm.data.critic import Critic
from critic_prm.data.trust import Origin, exists, read_toml
from critic_prm.engine.options import JudgeOptions, with_keywords
from critic_prm.errors import InputError, UsageError
from critic_prm.option import parse_options, settings_of
from critic_prm.providers.models import provider_of
from critic_prm.providers.provider import official_addresses

if TYPE_CHECKING:
    from typing import Unpack

    from critic_prm.critics.keywords import JudgeKeywords

TABLES = {"cascade": "cascade", "mixture": "combined"}
"""The tables of a critic file, and the modules whose `from_table` reads them."""

Kind = Literal["verifier", "file", "rollout", "local", "judge"]

SHARED = frozenset({"db", "offline", "max_connections", "trust", "cluster"})
"""Fields of JudgeOptions that suit every critic: one that sends no request sends none with --offline, too."""


def open_critic(name: str, options: JudgeOptions | None = None, **keywords: Unpack[JudgeKeywords]) -> Critic:
    """Open a critic: "rules", a verifier folder, an LLM judge "provider/model", Monte Carlo rollouts "rollout:provider/model",
    or a .toml file with a cascade or mixture of critics.

    Options are given as JudgeOptions, as keywords such as `base_url=...` and `temperature=0`, or as both. Close the critic with
    `close`, or open it with `with` or `async with`.

    Raises UsageError for any other name, ConfigError for a missing key, InputError for a damaged verifier.
    """
    kind, options = kind_of(name), with_keywords(options or JudgeOptions(), keywords)
    if options.profile and kind not in ("verifier", "file"):
        raise UsageError(f"--profile {options.profile}: {name} is not a verifier and has no profiles")
    if options.option and kind in ("verifier", "file"):
        raise UsageError(f"--option {options.option[0]}: {name} has no options")
    if kind in ("verifier", "local") and options.cluster is not None:
        from critic_prm.critics.remote import connect as connect_cluster

        return connect_cluster(name, options)
    if kind == "verifier":
        from distill.verifier import load_verifier

        return load_verifier(name, profile=options.profile)
    if kind == "file":
        return open_file(name, options)
    if kind == "rollout":
        from critic_prm.critics.rollout import connect as connect_rollout

        return connect_rollout(name.removeprefix("rollout:"), options)
    if kind == "local":
        plugin = registry.load("critic", name)
        own = parse_options(plugin, options.option, name)
        critic: Critic = plugin.CRITIC() if own is None else plugin.CRITIC(own)
        return critic
    if kind is None:
        what = _what(name)
        if (provider := provider_of(name)) is not None:
            raise UsageError(f"{name!r} {what}; did you mean {provider}/{name}?")
        raise UsageError(
            f"{name!r} {what}; a critic is {', '.join(registry.names('critic'))}, a verifier's folder, a judge such as"
            " openai/MODEL, rollout:openai/MODEL, or a .toml with a cascade or mixture of them"
        )
    from critic_prm.critics.llm import connect

    return connect(name, options)


def _what(name: str) -> str:
    """What a name is that is not that of a critic."""
    path = Path(name)
    if not exists(path):
        return "is not a critic"
    from critic_prm.data.formats.mistaken import kind_of as kind_of_file

    kind = kind_of_file(path)
    return f"is {kind['name']}, not a critic" if kind else f"is a {'folder without verifier.json' if path.is_dir() else 'file'}"


def kind_of(name: str) -> Kind | None:
    """The kind of critic that `open_critic` opens for a name; None for an invalid name."""
    if exists(Path(name) / "verifier.json"):
        return "verifier"
    if name.endswith(".toml"):
        return "file"
    if name.startswith("rollout:"):
        return "rollout"
    if name in registry.names("critic"):
        return "local"
    return "judge" if "/" in name and not exists(Path(name)) else None


def options_read(name: str) -> frozenset[str]:
    """The fields of JudgeOptions that a critic reads, besides those of SHARED, and "samples" if its judgements differ.

    For a file, and for a name that is not valid, that is all of them.
    """
    kind, every = kind_of(name), frozenset(one.name for one in fields(JudgeOptions)) | {"samples"}
    if kind == "verifier":
        return frozenset({"profile"})
    if kind == "local":
        own = frozenset({"option"} if settings_of(registry.load("critic", name)) else ())
        return own | {"samples"} if open_critic(name).stochastic else own
    return every if kind in ("file", None) else every - {"profile"}


def open_file(path: str | Path, options: JudgeOptions) -> Critic:
    """Open the critic described by a TOML file with a single table, [cascade] or [mixture]. Relative paths are resolved against
    the folder of the file. Raises InputError if the file cannot be read or names something it may not use, and UsageError for
    invalid settings."""
    described = " or ".join(f"[{table}]" for table in TABLES)
    try:
        tables = read_toml(path)
    except (OSError, ValueError) as error:
        raise InputError(str(path), f"this critic cannot be read: {error}", f"it is TOML with a table {described}") from None
    kinds = [table for table in TABLES if isinstance(tables.get(table), dict)]
    if len(kinds) != 1 or len(tables) > 1:
        raise UsageError(f"{path} has the tables {', '.join(tables) or 'none'}; a critic has one, {described}")
    try:
        from_table = import_module(f"critic_prm.critics.{TABLES[kinds[0]]}").from_table
        critic: Critic = from_table(tables[kinds[0]], Origin(path, options.trust), options)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    except RecursionError:
        raise InputError(str(path), "this critic contains itself", "name other critics in it") from None
    except (AttributeError, OverflowError, TypeError, ValueError) as error:
        raise InputError(str(path), f"a value is of the wrong kind: {error}", "see the example in the documentation") from None
    return critic


def check_keys(table: Mapping[str, Any], name: str, needed: Set[str], allowed: Set[str]) -> None:
    """Raise UsageError for missing or unknown keys of a table."""
    if missing := needed - table.keys():
        raise UsageError(f"[{name}] lacks {', '.join(sorted(missing))}")
    if unknown := table.keys() - needed - allowed:
        known = ", ".join(sorted(needed | allowed))
        raise UsageError(f"[{name}] has no {', '.join(sorted(unknown))}; available: {known}")


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
    what = f"{', '.join(registry.names('critic'))}, provider/MODEL, or a verifier or .toml in its own folder"
    raise origin.refusal("a critic", name, what)


def check_one_server(names: Sequence[str], options: JudgeOptions) -> None:
    """Raise UsageError if a header or key variable, which belong to one server, would be used for several providers."""
    providers = sorted({name.partition("/")[0] for name in names if kind_of(name) == "judge"})
    if len(providers) > 1 and (options.header or options.api_key_env):
        flag = "--header" if options.header else "--api-key-env"
        raise UsageError(
            f"{flag} would be used for the servers of {', '.join(providers)}; a .toml with a mixture or cascade gives each"
            " judge its own"
        )


ACCESS = frozenset(("base_url", "header", "api_key_env"))
"""Settings of a judge that say where its requests go and what they carry."""


def check_access(table: Mapping[str, Any], critic: object, origin: Origin) -> None:
    """Raise InputError if a file sets what decides which of the user's keys is sent where: an address that is not the
    provider's own, headers, or a key variable. A trusted file may."""
    if origin.trusted:
        return
    provider = str(critic).removeprefix("rollout:").partition("/")[0]
    if "base_url" in table and table["base_url"] not in official_addresses(provider):
        raise origin.refusal("base_url", table["base_url"], "the provider's own address")
    for name in ("api_key_env", "header"):
        if name in table:
            raise origin.refusal(name, "[hidden]" if name == "header" else table[name], "no headers and no key variables")


def judge_options(table: Mapping[str, Any], critic: object, origin: Origin, options: JudgeOptions) -> JudgeOptions:
    """The options of a judge in a critic file whose table may have keys of ACCESS. If it has one, they replace all of those of
    the command line, which are for another server."""
    if not ACCESS & table.keys():
        return options
    check_access(table, critic, origin)
    header = table.get("header", ())
    return replace(
        options,
        base_url=table.get("base_url"),
        header=(header,) if isinstance(header, str) else tuple(header),
        api_key_env=table.get("api_key_env"),
    )


def share_of(options: JudgeOptions, judges: int) -> JudgeOptions:
    """The options of each of several judges, which share a budget and a request limit equally."""
    share = max(judges, 1)
    return replace(
        options,
        budget_usd=None if options.budget_usd is None else options.budget_usd / share,
        max_requests=None if options.max_requests is None else max(options.max_requests // share, 1),
    )
