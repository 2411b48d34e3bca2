"""Check that the stages of an untrusted recipe file name only what they may."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from critic_prm.cli.recipe import KEPT, Order, Recipe, steps_of
from critic_prm.critics.open import critic_in_file
from critic_prm.data.trust import Origin, is_below
from critic_prm.errors import CriticPrmError
from critic_prm.generate.policy.policy import prompt_names
from critic_prm.styles.prompt import style_names

Holds = Literal["reads", "writes", "critic", "policy", "style", "prompt", "word"]

HOLDS: Mapping[str, Holds] = {
    **dict.fromkeys(("source", "data", "labels", "a", "b", "old", "new", "exclude", "answers", "judged"), "reads"),
    **dict.fromkeys(("removed", "save", "tree", "trees"), "writes"),
    **dict.fromkeys(("critic", "confirm", "first", "judge"), "critic"),
    "policy": "policy",
    "style": "style",
    "prompt": "prompt",
    **dict.fromkeys(
        (
            *("after_error", "aggregation", "alternatives", "author", "backup", "balance", "bound", "by", "class_by"),
            *("class_weights", "context_format", "critiques", "cut", "difficulty", "discount", "domain_weights", "dtype"),
            *("effort", "format", "freeze", "from_", "human_steps", "k", "keep", "kept", "kind", "kinds", "language", "later"),
            *("license_", "lora", "loss", "match", "method", "n", "neutral", "objective", "pick", "preset", "prior"),
            *("progress", "reward", "salt", "samples", "schedule", "search", "split", "stop", "subset", "target", "to"),
            "values",
        ),
        "word",
    ),
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
    "reads": "{input}, {out}/NAME and {folder}/NAME, which lies beside it",
    "writes": "{out}/NAME",
    "critic": "a packaged critic, provider/MODEL, {out}/NAME and {folder}/NAME, which lies beside it",
    "policy": "provider/MODEL with a packaged provider",
    "style": "a packaged style, {out}/NAME and {folder}/NAME, which lies beside it",
    "prompt": "a packaged prompt, {out}/NAME and {folder}/NAME, which lies beside it",
    "word": "a word or a number",
    None: "nothing there",
}

_NAMED: Mapping[Holds, Callable[[Origin, str], str | Path]] = {
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
        for command, option, value in _values(step.arguments[: len(step.stage.run)], origin, where):
            holds = ELSEWHERE.get((command, option), HOLDS.get(option))
            if not _allowed(holds, value, origin, order.out):
                shown = value.replace(INPUT, "{input}").replace(OUT, "{out}").replace(USER, "{...}")
                raise origin.refusal(f"{where}: {option} of {command}", shown, _MAY[holds])


def _values(arguments: Sequence[str], origin: Origin, where: str) -> Iterator[tuple[str, str, str]]:
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
        return str(_NAMED[holds](origin, value)) == value
    except CriticPrmError:
        return False
