"""Load prompt styles, render a trajectory as messages, and describe the expected reply."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Literal

from critic_prm.data.trajectory import Trajectory
from critic_prm.errors import UsageError
from critic_prm.providers.provider import Message
from critic_prm.registry import load, names, resource
from critic_prm.styles.reader import Expect, Schema
from critic_prm.styles.template import Shown, compile_template, render_block

Per = Literal["trajectory", "step"]

_NONCE_DIGITS, _NONCE_TRIES = 8, 64
_META = re.compile(r"\{#-?[ \t]*(.*?)[ \t]*-?#\}")


@dataclass(frozen=True, slots=True)
class Style:
    """A prompt template and the reader for its replies."""

    name: str
    """The style's name; for a template file, the file name without its suffix."""
    reader: str
    """The reader that parses the replies."""
    per: Per
    """Whether one reply judges a whole trajectory or one step."""
    base: int
    """The number the prompt gives to the first step, 0 or 1."""
    stops: bool
    """Whether judging ends at the first error."""
    stop: tuple[str, ...]
    """Stop strings."""
    max_tokens: int | None
    """A hint for the length of a reply; None uses the model's default."""
    about: str
    """A one-line description."""
    source: str = field(repr=False)
    """The template's source."""
    where: str
    """The template's location, for error messages."""
    fingerprint: str
    """The first 12 hex digits of the SHA-256 of `source`."""


@dataclass(frozen=True, slots=True)
class Question:
    """One question to a judge: what to send, and how to read the reply."""

    style: Style
    """The style that rendered the question; its reader parses the reply."""
    messages: tuple[Message, ...]
    """The messages to send."""
    expect: Expect
    """What the reply should contain; `expect.step` is the step asked about."""
    schema: Schema | None
    """The JSON schema of the reply; None for a style whose replies are plain text."""


def style_names() -> list[str]:
    """The names of the packaged styles, sorted."""
    return sorted(path.stem for path in resource("prompts").glob("*.jinja"))


def open_style(name: str | Path) -> Style:
    """Open a packaged style by name, or a template file by path (anything with a `/` or ending in `.jinja`).

    Raises UsageError for an unknown name, and for an invalid template, naming file and line.
    """
    text = str(name)
    if "/" in text or text.endswith(".jinja"):
        path = Path(text)
    elif text in style_names():
        path = resource("prompts") / f"{text}.jinja"
    else:
        raise UsageError(
            f"there is no style {text!r}; available: {', '.join(style_names())}, or give the path of a .jinja file"
        )
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read the prompt {text}: {reason}") from None
    return style_from_source(path.stem, source, where=str(path) if text != path.stem else f"{text}.jinja")


def style_in_data(name: object, where: str) -> Style:
    """Open the packaged style named in a data row or folder; `where` identifies it. A name from data never opens a file.

    Raises UsageError for any other name.
    """
    if name not in style_names():
        raise UsageError(f"{where} names the style {name!r:.100}, and only a packaged one can be opened by its name")
    return open_style(str(name))


def style_from_source(name: str, source: str, where: str | None = None) -> Style:
    """Build a style from a template's text; `where` names it in errors. Raises UsageError like `open_style`."""
    where = where or f"{name}.jinja"
    meta = _metadata(source, where)
    only = getattr(load("reader", meta["reader"]), "PER", meta["per"])
    if only != meta["per"]:
        raise UsageError(f"{where}:1: the reader {meta['reader']} reads one verdict; it needs `per: {only}`")
    compile_template(source, where)
    fingerprint = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return Style(name=name, source=source, where=where, fingerprint=fingerprint, **meta)


def render(style: Style, trajectory: Trajectory, step: int | None = None, *, reference: bool = False) -> tuple[Message, ...]:
    """The messages that ask about `trajectory`, or about its step `step` (0-based) for a style that judges per step.

    The reference answer is included only if `reference` is true and the trajectory has one. The system message is the same for
    all trajectories, and for the steps of one trajectory the user messages share a prefix, so providers can reuse cached
    prefixes. Raises UsageError if `step` does not fit the style or the trajectory, and for a template that fails.
    """
    if (step is None) == (style.per == "step"):
        raise UsageError(
            f"the style {style.name!r} judges a whole trajectory at once; leave the step out"
            if step is not None
            else f"the style {style.name!r} judges one step at a time; say which, from 0"
        )
    shown = [Shown(i, s.text, s.observation or "") for i, s in enumerate(trajectory.steps, style.base)]
    if step is not None and not 0 <= step < len(shown):
        raise UsageError(f"step {step} does not exist: the trajectory {trajectory.id!r} has steps 0 to {len(shown) - 1}")
    variables = {
        "problem": trajectory.problem,
        "steps": shown,
        "asked": None if step is None else shown[step],
        "count": len(shown),
        "first": style.base,
        "last": style.base + len(shown) - 1,
        "nonce": nonce(trajectory),
        "tools": tools_text(trajectory),
        "images": len(trajectory.images),
        "reference": (trajectory.gold_answer or "") if reference else "",
    }
    template = compile_template(style.source, style.where)
    system, user = (_sendable(render_block(template, block, variables, style.where)) for block in ("system", "user"))
    if not user:
        raise UsageError(f"{style.where}: the block `user` came out empty for the trajectory {trajectory.id!r}")
    question = Message("user", user, trajectory.images)
    return (Message("system", system), question) if system else (question,)


def question(style: Style, trajectory: Trajectory, step: int | None = None, *, reference: bool = False) -> Question:
    """The question about all of `trajectory`, or about its step `step` for a style that judges per step. Raises UsageError like
    `render`."""
    return _question(style, trajectory, expect(style, trajectory, step), reference)


def questions(style: Style, trajectory: Trajectory, *, reference: bool = False, shared: bool = False) -> Iterator[Question]:
    """Yield the questions that judge `trajectory`, in order: a single one, or one per step. They are rendered lazily.

    With `shared`, each user message records the prefixes it shares with earlier and later questions (`Message.shared`), for
    providers whose prompt cache needs markers. Questions are then rendered one ahead of the caller.
    """
    rendered = (_question(style, trajectory, expected, reference) for expected in expectations(style, trajectory))
    yield from _with_shared_prefixes(rendered) if shared else rendered


def _question(style: Style, trajectory: Trajectory, expected: Expect, reference: bool) -> Question:
    messages = render(style, trajectory, expected.step, reference=reference)
    return Question(style, messages, expected, schema(style, expected))


def _with_shared_prefixes(rendered: Iterator[Question]) -> Iterator[Question]:
    shared: tuple[int, ...] = ()
    for here, following in pairwise(chain(rendered, [None])):
        assert here is not None  # only the last one is None
        if following is not None:
            (*before, text), (*other, next_text) = here.messages, following.messages
            end = _shared_end(text.content, next_text.content) if before == other else 0
            shared = tuple(dict.fromkeys(place for place in (*shared, end) if 0 < place <= end))
        yield replace(here, messages=(*here.messages[:-1], replace(here.messages[-1], shared=shared)))


def _shared_end(first: str, second: str) -> int:
    """The length of the whole lines that both texts share as a prefix."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return first.rfind("\n", 0, low) + 1


def expect(style: Style, trajectory: Trajectory, step: int | None = None) -> Expect:
    """What a reply to `render(style, trajectory, step)` should contain."""
    return _expect(style, trajectory, [step])[0]


def expectations(style: Style, trajectory: Trajectory) -> list[Expect]:
    """What the replies to all questions about `trajectory` should contain, in order, without rendering the questions."""
    return _expect(style, trajectory, [None] if style.per == "trajectory" else range(len(trajectory.steps)))


def _expect(style: Style, trajectory: Trajectory, steps: Sequence[int | None]) -> list[Expect]:
    quotable = tuple(_quotable(trajectory))
    return [Expect(len(trajectory.steps), style.base, style.stops, step, quotable) for step in steps]


def transcript(style: Style, trajectory: Trajectory, step: int | None = None, *, reference: bool = False) -> str:
    """The output of `render` as readable text: each message under a line with its role."""
    about = trajectory.id if step is None else f"{trajectory.id}, step {step}"
    parts = [f"=== {style.name}: {about} ==="]
    for message in render(style, trajectory, step, reference=reference):
        images = f" ({len(message.images)} images)" if message.images else ""
        parts.append(f"--- {message.role}{images} ---\n{message.content}\n")
    return "\n".join(parts)


def schema(style: Style, expected: Expect) -> Schema | None:
    """The JSON schema for a reply; None for styles whose replies are plain text."""
    make = getattr(load("reader", style.reader), "schema", None)
    return None if make is None else make(expected)


def nonce(trajectory: Trajectory) -> str:
    """Eight hex digits derived from the trajectory's problem and steps that occur in none of its texts. They are
    deterministic, so equal content has equal cache keys, and a step cannot contain them.

    The first candidate is the start of the content's SHA-256. A candidate that occurs in a text is replaced by one hashed from
    the same content and a counter. Raises UsageError if no candidate is free, which takes gigabytes of text.
    """
    digest = hashlib.sha256(trajectory.problem.encode("utf-8", "surrogatepass"))
    for step in trajectory.steps:
        digest.update(f"\x00{step.text}\x01{step.observation or ''}".encode("utf-8", "surrogatepass"))
    texts = [*_quotable(trajectory), trajectory.gold_answer or ""]
    candidate = digest.hexdigest()[:_NONCE_DIGITS]
    for counter in range(1, _NONCE_TRIES):
        if not any(candidate in text for text in texts):
            return candidate
        candidate = hashlib.sha256(digest.digest() + counter.to_bytes(8)).hexdigest()[:_NONCE_DIGITS]
    raise UsageError(
        f"the trajectory {trajectory.id!r} contains every code its fences could have; remove it or shorten its steps"
    )


def _quotable(trajectory: Trajectory) -> list[str]:
    """Every text of the trajectory that is shown to a judge."""
    texts = [trajectory.problem]
    for part in trajectory.steps:
        texts.append(part.text)
        if part.observation:
            texts.append(part.observation)
    if trajectory.tools:
        texts.append(tools_text(trajectory))
    return texts


def tools_text(trajectory: Trajectory) -> str:
    """An agent's tool definitions as shown in a template, one JSON object per line; empty without tools."""
    return "\n".join(json.dumps(tool, ensure_ascii=False, default=str) for tool in trajectory.tools)


def _metadata(source: str, where: str) -> dict[str, Any]:
    """Parse the metadata in the first line. Every key except `reader` has a default."""
    line = source.split("\n", 1)[0].strip()
    match = _META.fullmatch(line)
    if match is None:
        raise UsageError(
            f"{where}:1: the first line must say how replies are read, for example"
            " {# reader: boxed-verdicts | per: trajectory #}"
        )
    given: dict[str, str] = {}
    for part in match.group(1).split(" | "):
        key, colon, value = (piece.strip() for piece in part.partition(":"))
        if not colon or key not in _KEYS:
            raise UsageError(f"{where}:1: {part.strip()!r} is not `key: value` with a key of {', '.join(_KEYS)}")
        if key in given:
            raise UsageError(f"{where}:1: `{key}` is given twice")
        given[key] = value
    found: dict[str, Any] = {}
    for key, (default, parse, allowed) in _KEYS.items():
        text = given.get(key)
        try:
            found[key] = default if text is None else parse(text)
        except (KeyError, ValueError):
            raise UsageError(f"{where}:1: `{key}` is {text!r}; it must be {allowed}") from None
    if found["reader"] not in names("reader"):
        problem = f"is {found['reader']!r}" if "reader" in given else "is missing"
        raise UsageError(f"{where}:1: `reader` {problem}; it must be one of {', '.join(names('reader'))}")
    return found


def _stop_strings(text: str) -> tuple[str, ...]:
    strings = json.loads(text)
    if not isinstance(strings, list) or not all(isinstance(item, str) and item for item in strings):
        raise ValueError(text)
    return tuple(strings)


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError(text)
    return int(text)


_KEYS: Mapping[str, tuple[Any, Callable[[str], Any], str]] = {
    "reader": (None, str, "the name of a reader"),
    "per": ("trajectory", {"trajectory": "trajectory", "step": "step"}.__getitem__, "trajectory or step"),
    "base": (1, {"0": 0, "1": 1}.__getitem__, "0 or 1"),
    "stops": (False, {"yes": True, "no": False}.__getitem__, "yes or no"),
    "stop": ((), _stop_strings, 'a JSON list of texts, for example ["</verdict>"]'),
    "max_tokens": (None, _positive, "a whole number above 0"),
    "about": ("", str, "a text"),
}
"""The keys of the first line of a template: the default, the parser, and what is allowed."""


def _sendable(text: str) -> str:
    """Strip the text and replace lone surrogates, which cannot be sent to a provider."""
    text = text.strip()
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
