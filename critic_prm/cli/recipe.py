"""Read a recipe (TOML), check what an untrusted one names, run its stages as commands, and estimate costs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, Literal, get_args

import orjson

from critic_prm.critics.open import critic_in_file
from critic_prm.data.trust import Origin, is_below, read_toml
from critic_prm.errors import CriticPrmError, InputError, UsageError
from critic_prm.generate.policy.policy import prompt_names
from critic_prm.providers.models import Prices, abilities, parse_prices
from critic_prm.providers.provider import Usage, service_tier
from critic_prm.registry import resource
from critic_prm.styles.prompt import style_names

Asks = Literal["policy", "judge", "nobody"]
Needs = Literal["problems", "solutions", "runs", "nothing"]
STATE = "recipe.json"
"""File in the output folder that records the finished stages and fingerprints of their inputs."""

CACHE = "critic-prm.db"
"""The cache of a folder that an older version made; it is used where it exists, else the cache of all commands."""

KEPT = (STATE, CACHE)
"""Files shared by all stages of a folder; no stage may write them."""

_NAME = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True, slots=True)
class Stage:
    """One command of a recipe."""

    name: str
    run: tuple[str, ...]
    """Arguments of the command, with names in braces."""
    out: str
    """The file or folder that the stage writes, relative to the output folder."""
    asks: Asks = "nobody"
    """The model that the stage asks."""
    requests: tuple[str | float, ...] = ()
    """Names and numbers whose product is the maximum number of requests."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A pipeline with the settings of a paper."""

    name: str
    about: str
    paper: str
    needs: Needs
    differs: str
    parameters: Mapping[str, str | int | float]
    """Parameters that a user may set, with their defaults."""
    assumed: Mapping[str, float]
    """Assumptions for cost estimates: steps per solution, tokens per prompt and reply, shares of rows that are kept."""
    stages: tuple[Stage, ...] = ()
    file: str | None = None
    """Path of the recipe file; None for a packaged recipe."""

    @property
    def asks(self) -> set[Asks]:
        """The kinds of model that the stages ask."""
        return {stage.asks for stage in self.stages} - {"nobody"}


@dataclass(frozen=True, slots=True)
class Order:
    """What a user asks of a recipe: input file (`source`), output folder, models, and extra options for their commands.

    Files in `trust` may name code, servers and any path (see `critic_prm.data.trust`).
    """

    out: Path
    source: str | None = None
    policy: str | None = None
    judge: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    policy_options: tuple[str, ...] = ()
    judge_options: tuple[str, ...] = ()
    trust: tuple[str | Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """A stage with its names filled in: the `arguments` of its command line and the path that it writes."""

    stage: Stage
    arguments: tuple[str, ...]
    out: Path


def recipe_names() -> list[str]:
    """Return the names of the packaged recipes, sorted."""
    return sorted(path.stem for path in resource("recipes").glob("*.toml"))


def open_recipe(name: str) -> Recipe:
    """Open a packaged recipe by name, or a .toml file by path.

    Raises UsageError for an unknown name and InputError for a file that cannot be read.
    """
    own = "/" in name or name.endswith(".toml")
    path = Path(name) if own else resource("recipes") / f"{name}.toml"
    if not own and not path.is_file():
        raise UsageError(f"there is no recipe {name!r}; available: {', '.join(recipe_names())}, or give a .toml file's path")
    try:
        return _recipe(path.stem, read_toml(path), str(path) if own else path.name, own)
    except (OSError, ValueError) as error:
        raise InputError(str(path), f"this recipe cannot be read: {error}") from None


def steps_of(recipe: Recipe, order: Order) -> list[Step]:
    """Return the command lines of a recipe, in order.

    Raises UsageError if an input or a model is missing or a parameter is unknown, and InputError if a stage writes outside the
    folder `order.out`. What the arguments name is checked by `cli.stages`.
    """
    if recipe.needs != "nothing" and order.source is None:
        raise UsageError(f"the recipe {recipe.name} needs {recipe.needs}; name their file")
    for who in sorted(recipe.asks):
        if getattr(order, who) is None:
            raise UsageError(f"the recipe {recipe.name} asks a {who}; name it with --{who} provider/MODEL")
    values = _values(recipe, order) | {"input": order.source or "", "out": str(order.out)}
    origin = None if recipe.file is None else Origin(recipe.file, order.trust)
    if origin is not None:
        values["folder"] = str(origin.folder)
    own_cache = order.out / CACHE
    cache = ("--db", str(own_cache)) if own_cache.is_file() else ()
    steps = []
    for stage in recipe.stages:
        if origin is not None and not origin.trusted and not _is_own(Path(stage.out)):
            raise origin.refusal(f"stage {stage.name!r}: out", stage.out, "files below -o")
        arguments = [_filled(part, values, recipe.name) for part in stage.run]
        out = order.out / stage.out
        arguments += ["-o", str(out)]
        if stage.asks != "nobody":
            arguments += [f"--{stage.asks}", str(getattr(order, stage.asks)), *cache]
            arguments += order.policy_options if stage.asks == "policy" else order.judge_options
        steps.append(Step(stage, tuple(arguments), out))
    return steps


def _is_own(out: Path) -> bool:
    """Return whether a stage writes only inside the run's folder, and to none of the files shared by all stages."""
    return bool(out.parts) and not out.is_absolute() and ".." not in out.parts and not out.parts[0].startswith(KEPT)


def carry_out(steps: Sequence[Step], out: Path, run: Callable[[Sequence[str]], int], say: Callable[[str], None]) -> int:
    """Run the stages that are not done yet, one after the other.

    A stage is done if it was run with the same arguments on files with the same content and its output still exists. Returns 0,
    or 3 if a stage ended with failed rows. Raises the error that stopped a stage.
    """
    out.mkdir(parents=True, exist_ok=True)
    done = _state(out)
    worst = 0
    for number, step in enumerate(steps, 1):
        title = f"{number}/{len(steps)} {step.stage.name}"
        mark = _fingerprint(step, out, [earlier.out for earlier in steps[: number - 1]])
        if done.get(step.stage.name) == mark and step.out.exists():
            say(f"{title}: done already, {step.out}")
            continue
        say(f"{title}: critic-prm {' '.join(step.arguments)}")
        code = run(step.arguments)
        if code not in (0, 3):
            raise CriticPrmError(
                f"the stage {step.stage.name} ended with exit code {code}; run the same command again to go on"
            )
        worst = max(worst, code)
        if code == 0:  # the next run retries failed rows
            done[step.stage.name] = mark
            (out / STATE).write_bytes(orjson.dumps(done, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS))
    return worst


@dataclass(frozen=True, slots=True)
class Cost:
    """Estimated upper bound for a stage: requests, input and output tokens, and USD (None if the price is unknown)."""

    stage: str
    asks: Asks
    requests: int
    tokens_in: int
    tokens_out: int
    usd: float | None


def costs(recipe: Recipe, order: Order, items: int) -> list[Cost]:
    """Estimate the cost for `items` input rows from the recipe's assumptions; cached replies are not subtracted."""
    values: dict[str, Any] = {**recipe.assumed, **_values(recipe, order), "items": items}
    found = []
    for stage in recipe.stages:
        if stage.asks == "nobody":
            continue
        try:
            factors = [float(values[part]) if isinstance(part, str) else part for part in stage.requests]
            requests = round(prod(factors))
            tokens_in, tokens_out = (round(requests * float(values[f"{stage.asks}_{kind}"])) for kind in ("prompt", "reply"))
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            problem = f"the requests of stage {stage.name!r} cannot be estimated: {error}"
            raise InputError(recipe.file or recipe.name, problem, "look at `requests` and [assumed]") from None
        model = getattr(order, stage.asks)
        provider, _, name = (model or "").partition("/")
        options = dict(pairwise(order.policy_options if stage.asks == "policy" else order.judge_options))
        prices: Prices | None
        try:
            prices = parse_prices(options["--prices"])
        except (KeyError, UsageError):  # the command that gets an invalid value reports it
            prices = abilities(provider, name).prices
        usage = Usage(tokens_in, tokens_out, tier=service_tier(options.get("--service-tier")))
        usd = prices.cost(usage) if prices else None
        found.append(Cost(stage.name, stage.asks, requests, tokens_in, tokens_out, usd))
    return found


def _values(recipe: Recipe, order: Order) -> dict[str, str]:
    for name in order.settings:
        if name not in recipe.parameters:
            there = ", ".join(recipe.parameters) or "none"
            raise UsageError(f"the recipe {recipe.name} has no parameter {name!r}; it has: {there}")
    return {name: order.settings.get(name, str(value)) for name, value in recipe.parameters.items()}


def _filled(part: str, values: Mapping[str, str], name: str) -> str:
    def value(match: re.Match[str]) -> str:
        if match.group(1) not in values:
            raise UsageError(f"the recipe {name} uses {match.group()}, which is not one of its parameters")
        return values[match.group(1)]

    return _NAME.sub(value, part)


def _fingerprint(step: Step, out: Path, earlier: Sequence[Path]) -> str:
    """Return a hash of a stage's inputs: its arguments and the content of the files that they name.

    Of files in the folder `out`, only outputs of `earlier` stages count.
    """
    digest = hashlib.sha256()
    for argument in step.arguments:
        digest.update(argument.encode("utf-8", "surrogatepass") + b"\x00")
        path = Path(argument.partition("=")[0])
        if path.is_file() and (path in earlier or not path.is_relative_to(out)):
            with path.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def _state(out: Path) -> dict[str, str]:
    path = out / STATE
    if not path.is_file():
        return {}
    try:
        found = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise InputError(
            str(path), f"this is not JSON: {error}", "remove it: the stages run again, and pay nothing twice"
        ) from None
    return {str(name): str(mark) for name, mark in found.items()} if isinstance(found, dict) else {}


_KINDS: Mapping[str, type] = {
    **dict.fromkeys(("about", "paper", "needs", "differs"), str),
    **dict.fromkeys(("parameters", "assumed"), dict),
    "stages": list,
}
_STAGE_KINDS: Mapping[str, type] = {**dict.fromkeys(("name", "out", "asks"), str), **dict.fromkeys(("run", "requests"), list)}
_CALLED: Mapping[type, str] = {str: "a text", dict: "a table", list: "a list"}


def _check_table(row: Any, required: Sequence[str], kinds: Mapping[str, type], what: str, where: str) -> None:
    """Check a table of a recipe. Raises InputError, which calls the table `what`."""
    if not isinstance(row, dict):
        raise InputError(where, f"{what} is not a table", "write it as [[stages]]")
    for key in required:
        if not row.get(key):
            raise InputError(where, f"{what} has no `{key}`")
    for key, kind in kinds.items():
        if key in row and (not isinstance(row[key], kind) or (kind is str and "\0" in row[key])):
            raise InputError(where, f"{what}: `{key}` is {row[key]!r:.100}", f"it is {_CALLED[kind]}")
    for key, choices in (("needs", get_args(Needs)), ("asks", get_args(Asks))):
        if key in row and row[key] not in choices:
            raise InputError(where, f"{what}: `{key}` is {row[key]!r}", f"it is {', '.join(choices)}")


def _recipe(name: str, row: Mapping[str, Any], where: str, own: bool) -> Recipe:
    _check_table(row, ("about", "paper", "needs", "stages"), _KINDS, "the recipe", where)
    stages = []
    for number, stage in enumerate(row["stages"], 1):
        _check_table(stage, ("name", "run", "out"), _STAGE_KINDS, f"stage {number}", where)
        lists: dict[str, Any] = {"run": tuple(map(str, stage["run"])), "requests": tuple(stage.get("requests", ()))}
        stages.append(Stage(**{key: stage[key] for key in ("name", "out", "asks") if key in stage}, **lists))
    optional = {"differs": "", "parameters": {}, "assumed": {}}
    known: dict[str, Any] = {key: row.get(key, optional.get(key)) for key in ("about", "paper", "needs", *optional)}
    return Recipe(name=name, **known, stages=tuple(stages), file=where if own else None)


Holds = Literal["reads", "writes", "critic", "policy", "style", "prompt", "word"]

_WORDS = """
after_error aggregate aggregation alternatives author backup balance bound by class_by class_weights corrected layout
critiques cut difficulty discount domain_weights dtype effort format freeze from_ human_steps k keep kind kinds language later
level license lora loss map match method neutral objective order pick preset prior progress reward salt samples schedule
search sizes segment split stop subset target to values
"""

HOLDS: Mapping[str, Holds] = {
    **dict.fromkeys(
        ("source", "data", "labels", "a", "b", "old", "new", "exclude", "answers", "adjudicated", "judged"), "reads"
    ),
    **dict.fromkeys(("disagreements", "kept", "removed", "save", "setup", "tree", "trees"), "writes"),
    **dict.fromkeys(("critic", "confirm", "first", "judge"), "critic"),
    **dict.fromkeys(("policy", "segment_judge"), "policy"),
    "style": "style",
    "prompt": "prompt",
    **dict.fromkeys(_WORDS.split(), "word"),
}
"""The kind of value of each option that is neither a flag nor a number. A recipe from a file may use no other such option: not
--base-url, --db, --extra-body, --prices or --trust, nor options that take either a file or something else, and so on."""

ELSEWHERE: Mapping[tuple[str, str], Holds | None] = {
    ("generate agent", "labels"): "word",
    ("judge-eval", "judge"): None,  # several names in one string
}
"""Exceptions by (command, option): options whose value has another kind than in other commands."""

WORD = re.compile(r"[\w.,:@=+%*-]*")
NUMBER = re.compile(r"[+-]?[\d.]+(e[+-]?\d+)?", re.IGNORECASE)

INPUT, OUT, USER = "\0input", "\0out", "\0user"
"""Placeholders for {input}, {out} and parameters set by the user, while a stage is checked."""

_MAY: Mapping[Holds | None, str] = {
    "reads": "{input}, {out}/NAME and {folder}/NAME (beside the recipe)",
    "writes": "{out}/NAME",
    "critic": "a packaged critic, provider/MODEL, {out}/NAME and {folder}/NAME (beside the recipe)",
    "policy": "provider/MODEL with a packaged provider",
    "style": "a packaged style, {out}/NAME and {folder}/NAME (beside the recipe)",
    "prompt": "a packaged prompt, {out}/NAME and {folder}/NAME (beside the recipe)",
    "word": "a word or a number",
    None: "nothing there",
}

NAMED: Mapping[Holds, Callable[[Origin, str], str | Path]] = {
    "reads": lambda origin, value: origin.path("a path", value),
    "critic": lambda origin, value: critic_in_file(value, origin),
    "policy": lambda origin, value: origin.provider("a policy", value),
    "style": lambda origin, value: origin.name("a style", value, style_names()),
    "prompt": lambda origin, value: origin.name("a prompt", value, prompt_names("policy")),
}
"""How each kind of name in the file is opened. Commands open paths relative to the current folder, so a name is allowed only if
opening leaves it unchanged: a path has to begin with {folder}."""


def check(recipe: Recipe, order: Order) -> None:
    """Check a recipe before anything runs.

    Raises InputError if the recipe comes from an untrusted file and names something that such a file may not name: code, a
    server, a path to read outside its own folder, or a path to write outside -o.
    """
    if recipe.file is None or (origin := Origin(recipe.file, order.trust)).trusted:
        return
    pretended = replace(order, out=Path(OUT), source=INPUT, settings=dict.fromkeys(order.settings, USER))
    for step in steps_of(recipe, pretended):
        where = f"stage {step.stage.name!r}"
        for command, option, value in _string_options(step.arguments[: len(step.stage.run)], origin, where):
            holds = ELSEWHERE.get((command, option), HOLDS.get(option))
            if not _allowed(holds, value, origin, order.out):
                shown = value.replace(INPUT, "{input}").replace(OUT, "{out}").replace(USER, "{...}")
                raise origin.refusal(f"{where}: {option} of {command}", shown, _MAY[holds])


def _string_options(arguments: Sequence[str], origin: Origin, where: str) -> Iterator[tuple[str, str, str]]:
    """Yield command, option and value of every string option on a command line; other values belong to flags or numbers."""
    from critic_prm.cli import build

    command, words = build(), list(arguments)
    while (within := getattr(command, "commands", None)) is not None:
        if not words or words[0] not in within:
            raise origin.refusal(where, " ".join(arguments), "commands of critic-prm")
        command = within[words.pop(0)]
    name = " ".join(arguments[: len(arguments) - len(words)])
    refusal = origin.refusal(where, " ".join(arguments), f"options of critic-prm {name}, and none after --")
    try:
        found, left, _ = command.make_parser(command.context_class(command)).parse_args(args=list(words))
    except Exception:
        raise refusal from None
    if left or "--" in words:
        raise refusal
    for option, given in found.items():
        for value in given if isinstance(given, list | tuple) else [given]:
            if isinstance(value, str):
                yield name, option, value


def _allowed(holds: Holds | None, value: str, origin: Origin, out: Path) -> bool:
    if holds is None:
        return NUMBER.fullmatch(value) is not None or value == USER
    if holds == "word":
        return WORD.fullmatch(value) is not None or value == USER
    if value.startswith(f"{OUT}/") and holds != "policy":
        path = out / value.removeprefix(f"{OUT}/")
        return is_below(path, out) and not (holds == "writes" and path.name.startswith(KEPT))
    if "\0" in value or holds == "writes":
        return holds != "writes" and (value == USER or (value == INPUT and holds == "reads"))
    try:
        return str(NAMED[holds](origin, value)) == value
    except CriticPrmError:
        return False
