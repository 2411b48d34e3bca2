"""Defaults for options from critic-prm.toml in the current folder, and which options it may set.

    style = "first-error"     # for every command that has --style
    [label]
    samples = 4               # for `label`; [dataset.build] is for `dataset build`

The folder may come from somebody else, as a cloned repository does. So the file may set only what is decided here: no address,
header or key, no code and no permission to use it, no output, and no file outside the folder. A new option may not be set until
it is added here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from critic_prm.cli.lazy import PROJECT_FILE
from critic_prm.cli.recipe import ELSEWHERE, HOLDS, NAMED, NUMBER, WORD, Holds
from critic_prm.data.trust import LONGEST, Origin, read_toml
from critic_prm.errors import CriticPrmError, InputError

if TYPE_CHECKING:
    import typer

REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("base_url", "policy_base_url", "ray_address", "host", "port", "engine"), "an address or a cluster"),
    **dict.fromkeys(("header", "api_key_env", "policy_header", "policy_api_key_env", "token_file"), "a header or a key"),
    **dict.fromkeys(("trust", "trusted", "option", "student", "tokenizer"), "code, or permission to use it"),
    **dict.fromkeys(("extra_body", "policy_options", "judge_options", "prices", "set"), "anything a request may hold or cost"),
    **dict.fromkeys(("out", "save", "removed", "tree", "trees", "plot", "plots", "kept", "escalate", "golden"), "an output"),
    **dict.fromkeys(("db", "overwrite", "check"), "a file outside its folder, or that files are replaced"),
    **dict.fromkeys(("image_root", "input", "requests", "threshold_from"), "a file outside its folder"),
    **dict.fromkeys(("styles", "ends", "step_tag", "title", "feedback_prompt", "sources"), "several names or a text"),
    **dict.fromkeys(("list", "as_json", "json", "quiet"), "what is printed"),
}
"""Options that the file may not set, and the reason: it may not name these things."""

ALSO: Mapping[str, Holds] = {
    "against": "reads",
    **dict.fromkeys(("backend", "band", "bounds", "consensus", "device", "error_rate", "name", "profile"), "word"),
    **dict.fromkeys(("annotator", "reference", "service_tier", "status"), "word"),
}
"""What further options hold, besides HOLDS of recipes."""

_PLAIN = """
across_labels ahead all_steps allow_dropped alpha answer_timeout browser folds learning_curve max_length_ratio per_prompt row
predictions answer_timeout answered attack balance baseline batch batch_size batch_tokens beta
budget budget_usd chains chat_template checkpointing clip complete contained depth dpi dry_run durable each epochs epsilon
evaluations exact exploration feedback floor follow_ups force forgiven gamma gold good grace heads index_base int8
judge_dev label_smoothing lam layers leave_out length limit literal logprobs loss lr margin matches_gold max_batch max_body
max_calls max_chars max_clients max_connections max_drift max_length max_memory max_queue max_reply_bytes max_requests
max_retries max_steps max_tokens max_usd max_written micro_tokens min_agreement min_continuations min_effect min_steps
min_words most n near offline ok once oracle_threshold orders passage patience policy_max_tokens policy_temperature
policy_top_p prior_temperature read_timeout recheck regenerate repeat resample resamples reweight right rollout
rollouts rounds rpm sampling_seed save_minutes schema searches seed simulations skip_bad soft split_seed step target_f1
tau_high tau_low temperature theta think_rounds threshold threshold_a threshold_b timeout tolerance top_p total tpm
trajectories tries verbose wait warmup weight_decay well_formed width with_reference without_digest worker_gpus workers wrong
"""
PLAIN = frozenset(_PLAIN.split())
"""Flags and numbers that the file may set."""

NAMES = HOLDS.keys() | ALSO.keys() | REFUSED.keys() | PLAIN | {"from", "json"}
"""All options, by the name of the command's parameter, and the keys that are named otherwise."""


def is_decided(parameter: Any) -> bool:
    """Whether this module says if the file may set an option."""
    name = parameter.name
    return name in REFUSED or name in HOLDS or name in ALSO or (name in PLAIN and _plain(parameter))


def defaults(command: Any, path: Sequence[str], file: Path | None = None) -> dict[str, Any]:
    """The values that the file sets for a command's parameters. `path` is the command's name in words.

    Raises InputError for a file that cannot be read, unknown keys and values that the file may not set.
    """
    file = file or Path(PROJECT_FILE)
    if not file.is_file():
        return {}
    tables = read(file)
    options = {key_of(one): one for one in command.params if one.param_type_name == "option"}
    found: dict[str, Any] = {}
    for depth, table in enumerate(_sections(tables, path)):
        for key, value in table.items():
            name = key.replace("_", "-")
            if isinstance(value, dict):
                continue
            if name in options:
                found[options[name].name] = _checked(options[name], value, " ".join(path), Origin(file))
            elif depth == len(path):
                raise _unknown(file, f"[{'.'.join(path)}] {key}", name, options, f"{' '.join(path)} has no option --{name}")
    return found


def read(file: Path) -> dict[str, Any]:
    """The tables of the file. Raises InputError if it cannot be read, or has keys that are no option and no command."""
    from critic_prm.cli.app import COMMANDS, GROUPS

    try:
        tables = read_toml(file)
    except (OSError, ValueError) as error:
        raise InputError(str(file), f"cannot be read: {error}", "fix it, or ignore it with critic-prm --no-config") from None
    for where, key, value in _keys(tables):
        if not where and isinstance(value, dict) and key not in (*COMMANDS, *GROUPS):
            raise _unknown(file, f"[{key}]", key, (*COMMANDS, *GROUPS), "there is no such command")
        if where and where[0] in COMMANDS and isinstance(value, dict):
            raise InputError(
                str(file),
                f"{'.'.join((*where, key))!r:.{LONGEST}}: {where[0]} has no commands",
                "write its options in its table",
            )
        if not isinstance(value, dict) and key.replace("-", "_") not in NAMES:
            shown = {name.replace("_", "-") for name in NAMES}
            raise _unknown(file, ".".join((*where, key)), key.replace("_", "-"), shown, "no command has such an option")
    return tables


def key_of(parameter: Any) -> str:
    """The key of an option in the file: its long flag without the hyphens in front."""
    return str(next((flag for flag in parameter.opts if flag.startswith("--")), parameter.opts[0])).lstrip("-")


def used_by(ctx: typer.Context) -> list[str]:
    """The options of a command that have their value from the file, as written on a command line."""
    from critic_prm.cli.messages import as_written

    return [
        as_written(one, ctx.params[one.name])
        for one in ctx.command.params
        if one.name in ctx.params and (source := ctx.get_parameter_source(one.name)) and source.name == "DEFAULT_MAP"
    ]


def _keys(tables: Mapping[str, Any], where: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str, Any]]:
    for key, value in tables.items():
        yield where, key, value
        if isinstance(value, dict):
            yield from _keys(value, (*where, key))


def _sections(tables: Mapping[str, Any], path: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """The whole file, the table of the command's group, and the command's own table."""
    yield tables
    for word in path:
        below = tables.get(word)
        tables = below if isinstance(below, dict) else {}
        yield tables


def _unknown(file: Path, where: str, name: str, known: Any, problem: str) -> InputError:
    near = get_close_matches(name, list(known), n=1)
    where = where if len(where) <= LONGEST else f"{where[:LONGEST]}..."
    return InputError(
        str(file),
        f"{where if where.isprintable() else ascii(where)}: {problem}",
        f"did you mean {near[0]}?" if near else "remove it",
    )


def _plain(parameter: Any) -> bool:
    return parameter.is_flag or parameter.type_descriptor.annotation in (int, float)


def _checked(parameter: Any, value: Any, command: str, origin: Origin) -> Any:
    """The value as the command line would get it. Raises InputError if the file may not set the option, or not to this."""
    key, name = key_of(parameter), parameter.name
    holds = ELSEWHERE.get((command, name), HOLDS.get(name, ALSO.get(name)))
    plain = name in PLAIN and _plain(parameter)
    if name in REFUSED or "-o" in parameter.opts or holds == "writes" or (holds is None and not plain):
        what = REFUSED.get(name, "an output" if holds == "writes" or "-o" in parameter.opts else "this")
        raise InputError(
            str(origin.file), f"{key} may not be set here: the file may not name {what}", "set it on the command line"
        )
    if parameter.is_flag != isinstance(value, bool):
        raise InputError(
            str(origin.file), f"{key} is {value!r:.100}", "write true or false" if parameter.is_flag else "write its value"
        )
    if parameter.is_flag:
        return value
    values = value if isinstance(value, list) and parameter.multiple else [value]
    texts = []
    for one in values:
        if isinstance(one, bool) or not isinstance(one, str | int | float):
            raise InputError(
                str(origin.file), f"{key} is {one!r:.100}", "write a text or a number, or a list if it may be repeated"
            )
        text = str(one)
        if not _may(holds, text, origin):
            raise origin.refusal(key, text, _ALLOWED.get(holds or "word", "a number"), "set it on the command line")
        texts.append(text)
    return texts if parameter.multiple else texts[0]


_ALLOWED: Mapping[str, str] = {
    "reads": "files in its own folder",
    "critic": "a packaged critic, provider/MODEL, or a verifier or .toml in its own folder",
    "policy": "provider/MODEL with a packaged provider",
    "style": "a packaged style, or a file in its own folder",
    "prompt": "a packaged prompt, or a file in its own folder",
    "word": "a word or a number",
}


def _may(holds: Holds | None, text: str, origin: Origin) -> bool:
    if holds is None:
        return NUMBER.fullmatch(text) is not None
    if holds == "word":
        return WORD.fullmatch(text) is not None
    try:
        NAMED[holds](origin, text)
    except CriticPrmError:
        return False
    return True
