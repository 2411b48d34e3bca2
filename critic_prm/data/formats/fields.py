"""Rename the fields of rows to those of a format, as --map asks, and suggest a --map for rows that no format fits."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from shlex import quote
from typing import Any

import orjson

from critic_prm.data.trajectory import KNOWN
from critic_prm.errors import InputError, UsageError

TARGETS = (
    "problem",
    "steps",
    "label",
    "step_labels",
    "id",
    "final_answer",
    "gold_answer",
    "images",
    "tools",
    "meta",
    "messages",
)
"""What a field can be mapped to, besides the fields of the format that --from names."""

_REQUIRED = ("problem", "steps", "messages")
_DEPTH = 3
"""How deep in a row fields are looked for to suggest them."""

PROBLEMS = ("question", "prompt", "query", "instruction", "input")
"""Names of the problem that are read without --map, next to a list of steps."""

assert {*TARGETS} == KNOWN | {"messages"}


def parse_map(given: Sequence[str], more: Collection[str] = ()) -> Mapping[str, str]:
    """The source of each target of texts like "problem=prompt,steps=reasoning". `more` are targets of the chosen format.

    Raises UsageError for an unknown target, a target given twice, and a text without "=".
    """
    found: dict[str, str] = {}
    for text in given:
        for part in re.split(r",(?=\s*\w+\s*=)", text):
            target, equals, field = (piece.strip() for piece in part.partition("="))
            if not equals:
                raise UsageError(f"--map {text!r} has no '='; write TARGET=FIELD, such as --map problem=prompt,steps=reasoning")
            if target not in TARGETS and target not in more:
                close = get_close_matches(target, TARGETS, 1)
                hint = f"did you mean {close[0]}={field}? " if close else ""
                known = ", ".join(dict.fromkeys((*TARGETS, *sorted(more))))
                raise UsageError(f"--map cannot set {target!r}; {hint}it sets {known}")
            if target in found:
                raise UsageError(f"--map sets {target!r} twice, from {found[target]!r} and from {field!r}")
            found[target] = field
    return found


class Renamer:
    """Renames the fields of the rows of one file. `names` maps targets to fields; "" removes the row's own field."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names
        self._first = True

    def __call__(self, row: Mapping[str, Any], where: str, columns: Collection[str] = ()) -> dict[str, Any]:
        """The renamed row, with the other fields unchanged. `columns` are those of a table, in which null values are missing.

        A field of the row that has the name of a target, but is not its source, is kept in `meta`. Raises InputError for a
        missing field, if the target is required or the row is the first one.
        """
        taken: dict[str, Any] = {}
        rest: dict[str, Any] = dict(row)
        for target, field in self.names.items():
            if not field:
                continue
            try:
                taken[target] = _value(row, field)
            except RecursionError:
                raise InputError(
                    where, f"{field!r:.100} leads too deep into the row", "name a field nearer to its top"
                ) from None
            except KeyError:
                null = field in columns or field.partition(".")[0] in columns
                if target in _REQUIRED or (self._first and not null):
                    raise _missing(target, field, row, where, null) from None
        for field in self.names.values():
            rest = _without(rest, field)
        displaced = {target: rest.pop(target) for target in self.names if target in rest}
        self._first = False
        made = {**taken, **rest}
        if displaced and isinstance(made.get("meta", {}), dict):
            made["meta"] = {**made.get("meta", {}), **displaced}
        return typed(made)


def typed(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with values of the types that native rows have: steps as a list, the label as a number.

    Steps may be a list, the JSON of one, or a text. A text is one step, which is split later (--segment), but here if the row
    has labels, because they refer to its steps. Values of other types are left to the format.
    """
    made = dict(row)
    if isinstance(steps := made.get("steps"), str):
        parsed = _json(steps, "[")
        made["steps"] = parsed if isinstance(parsed, list) else _steps_of(steps, made)
    if "label" in made:
        made["label"] = _index(made["label"])
    for name in ("problem", "id"):
        if isinstance(made.get(name), int | float) and not isinstance(made[name], bool):
            made[name] = str(made[name])
    for name, mark in (("step_labels", "["), ("tools", "["), ("images", "["), ("messages", "["), ("meta", "{")):
        if isinstance(value := made.get(name), str):
            if (parsed := _json(value, mark)) is not None:
                made[name] = parsed
            elif name == "images":
                made[name] = [value]
    return made


def _steps_of(text: str, row: Mapping[str, Any]) -> list[str]:
    if row.get("label") is None and row.get("step_labels") is None:
        return [text]
    from critic_prm.data.segment.methods import segment

    return segment(text)[0]


def implied(row: Mapping[str, Any]) -> Mapping[str, str]:
    """The --map for a row in which `steps` is a list and the problem has one of its usual names; empty for other rows."""
    names = [name for name in PROBLEMS if isinstance(row.get(name), str) and row[name].strip()]
    return {"problem": names[0]} if len(names) == 1 and "problem" not in row and _is_steps(row.get("steps")) else {}


def _json(text: str, mark: str) -> Any:
    """The list or object that a text holds as JSON, None if it holds something else."""
    if not text.lstrip().startswith(mark):
        return None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _index(value: Any) -> Any:
    """The whole number that a text or a float stands for, such as "3" or 3.0; null for an empty text; else the value itself."""
    if isinstance(value, str):
        text = value.strip().lower()
        if text in ("", "null", "none", "nan"):
            return None
        if not re.fullmatch(r"[+-]?\d{1,9}(\.0*)?", text):
            return value
        return int(float(text))
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _value(row: Any, path: str) -> Any:
    """The value of a field, or of a path with dots through objects and lists. Raises KeyError.

    In a list, a number is an index, and a name gives the list of that field of all its objects.
    """
    if isinstance(row, Mapping) and path in row:
        return row[path]
    head, dot, tail = path.partition(".")
    if isinstance(row, list):
        if head.isdigit() and int(head) < len(row):
            return _value(row[int(head)], tail) if dot else row[int(head)]
        if not row or head.isdigit():
            raise KeyError(path)
        return [_value(item, path) for item in row]
    if not dot or not isinstance(row, Mapping) or head not in row:
        raise KeyError(path)
    return _value(row[head], tail)


def _without(row: Mapping[str, Any], path: str) -> dict[str, Any]:
    """The row without a field. Of a list, nothing is removed; an object that becomes empty is."""
    if path in row:
        return {key: value for key, value in row.items() if key != path}
    head, _, tail = path.partition(".")
    if not isinstance(inner := row.get(head), Mapping):
        return dict(row)
    left = _without(inner, tail)
    return {key: left if key == head else value for key, value in row.items() if key != head or left}


def _missing(target: str, field: str, row: Mapping[str, Any], where: str, null: bool) -> InputError:
    if null:
        return InputError(
            where, f"{field!r}, which --map takes as {target}, is empty in this row", "fill it in or delete the row"
        )
    names = [path for path, _ in _flat(row)]
    close = get_close_matches(field, names, 1, 0.7)
    hint = f"did you mean --map {target}={close[0]}? " if close else ""
    return InputError(where, f"--map takes {target} from {field!r}, which this row lacks", f"{hint}it has {_shown(names)}")


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")


def suggestion(row: Mapping[str, Any]) -> str:
    """How to read a row that no format fits: the --map that its field names suggest, or a pattern for one."""
    found = guess(row)
    if "messages" in found and not {"problem", "steps"} <= found.keys():
        return f"did you mean {_option({'messages': found['messages']})}?"
    found.pop("messages", None)
    renamed = {target: field for target, field in found.items() if target != field}
    missing = [target for target in ("problem", "steps") if target not in found]
    if not missing:
        return f"did you mean {_option(renamed)}?"
    if len(missing) == 1:
        holds = "the problem" if missing == ["problem"] else "the solution"
        return f"which field holds {holds}? Name it: {_option(renamed | {missing[0]: 'FIELD'})}"
    return 'name its fields with --map problem=FIELD,steps=FIELD, or write "problem" (text) and "steps" (a list of texts)'


def _option(names: Mapping[str, str]) -> str:
    return "--map " + quote(",".join(f"{target}={field}" for target, field in names.items()))


def guess(row: Mapping[str, Any]) -> dict[str, str]:
    """The field for each target that its name and value suggest. A nested field is written with dots."""
    fields = list(_flat(row))
    found: dict[str, str] = {}
    for target in ("problem", "steps", "messages", "label", "step_labels", "id", "final_answer", "gold_answer"):
        fitting = {path: value for path, value in fields if path not in found.values() and _fits(target, value, row, found)}
        if path := _nearest(target, list(fitting)):
            found[target] = path
    return found


@cache
def _synonyms() -> Mapping[str, Sequence[str]]:
    table: dict[str, list[str]] = tomllib.loads(Path(__file__).with_name("synonyms.toml").read_text("utf-8"))
    return {target: [_plain(target), *names] for target, names in table.items()}


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).lower()


def _nearest(target: str, paths: Sequence[str]) -> str | None:
    """The field whose name is the first of the target's synonyms, or spelled almost like the target."""
    known = _synonyms()[target]
    ranked = [
        (known.index(name), path.count("."), path) for path in paths if (name := _plain(path.rpartition(".")[2])) in known
    ]
    if ranked:
        return min(ranked)[2]
    others = {name for other, names in _synonyms().items() if other != target for name in names}
    plain = {_plain(path): path for path in paths if _plain(path) not in others}
    close = get_close_matches(_plain(target), list(plain), 1, 0.8)
    return plain[close[0]] if close else None


def _flat(value: Mapping[str, Any], prefix: str = "", depth: int = 1) -> Iterator[tuple[str, Any]]:
    """The fields of a row and of the objects in it, with their paths. A list of objects gives the lists of their fields."""
    for name, inner in value.items():
        path = f"{prefix}{name}"
        yield path, inner
        if depth >= _DEPTH:
            continue
        if isinstance(inner, Mapping):
            yield from _flat(inner, f"{path}.", depth + 1)
        elif isinstance(inner, list) and inner and all(isinstance(item, Mapping) for item in inner):
            shared = [key for key in inner[0] if all(key in item for item in inner)]
            yield from ((f"{path}.{key}", [item[key] for item in inner]) for key in shared)


def _fits(target: str, value: Any, row: Mapping[str, Any], found: Mapping[str, str]) -> bool:
    """Whether a value could be that of a target."""
    if target == "steps":
        return (isinstance(value, str) and bool(value.strip())) or _is_steps(value)
    if target == "messages":
        return (
            isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) and "content" in item for item in value)
        )
    if target == "step_labels":
        steps = _value(row, found["steps"]) if "steps" in found else None
        return isinstance(value, list) and isinstance(steps, list) and len(steps) == len(value)
    if target == "label":
        return isinstance(index := _index(value), int) and not isinstance(index, bool)
    if target == "problem":
        return isinstance(value, str) and bool(value.strip())
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _is_steps(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(item, str) or (isinstance(item, Mapping) and isinstance(item.get("text"), str)) for item in value)
