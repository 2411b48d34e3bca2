"""A JSON object with a critique and a verdict per step, fenced, followed by prose or cut -> a verdict per step."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from critic_prm.judgement import Verdict, VerdictValue
from critic_prm.provider import TokenLogprob
from critic_prm.reader import Expect, Reading, Schema
from critic_prm.readers._chances import CORRECT_INCORRECT, Tokens
from critic_prm.readers._quotes import occurs
from critic_prm.readers._settle import settle
from critic_prm.readers._words import VERDICT, value_of

# Other names that models without enforced schemas give the same things, best first.
_VERDICT_KEYS = ("verdict", "judgement", "judgment", "correctness", "label", "is_correct", "correct")
_CRITIQUE_KEYS = ("critique", "reasoning", "explanation", "analysis", "reason", "comment")
_STEP_KEYS = ("step", "step_number", "index", "number", "id", "paragraph")
_LISTS = "steps|verdicts|judgements|judgments|step_verdicts|results|evaluations|critiques"

_START = re.compile(
    rf'(?<!\\)"(?:{_LISTS})"\s{{0,20}}+:\s{{0,20}}+\[|(?:\A|`(?:json)?)\s{{0,20}}+\[(?=\s{{0,20}}+\{{)', re.IGNORECASE
)
_OBJECT = re.compile(r'\{(?=\s{0,20}+")')
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\]]', re.DOTALL)
_SOLID = re.compile(r"[^\s,]")
_DIGITS = re.compile(r"(?:step|paragraph)?[ _#]?(\d{1,6})", re.IGNORECASE)
# An escape that JSON knows and a judge of mathematics may have meant, or (group 1 empty) one backslash of \( or \frac.
_ESCAPE = re.compile(r'\\([\\"/]|u[0-9a-fA-F]{4}|[bfnrt](?![a-zA-Z]{2})|)')


@dataclass(slots=True)
class _Found:
    """The verdicts of one list or object: by step, whether it ended, and whether any of it had to be mended."""

    verdicts: dict[int, Verdict] = field(default_factory=dict)
    ended: bool = False
    notes: list[str] = field(default_factory=list)


def schema(expect: Expect) -> Schema:
    """The JSON schema of a reply: the critique before the verdict that rests on it; all fields required, none besides."""
    one = {
        "critique": {"type": "string", "description": "what the step claims, whether it holds, every computation redone"},
        "verdict": {"type": "string", "enum": ["correct", "incorrect"]},
    }
    if expect.step is not None:
        return _object(one)
    number = {"step": {"type": "integer", "description": f"the number of the step, from {expect.base}"}}
    return _object({"steps": {"type": "array", "items": _object({**number, **one})}})


def read(text: str, expect: Expect, logprobs: tuple[TokenLogprob, ...] = ()) -> Reading:
    """Read the last JSON in `text` that holds verdicts. Linear in the length of `text`.

    Complete items of a list that was cut are read, and the status says so; a value that is neither a verdict word nor
    true or false is no verdict. JSON within a string (a critique that quotes) or copied from the trajectory is not read.
    """
    tokens = Tokens(text, logprobs)
    found = _last_list(text, expect, tokens) if expect.step is None else None
    if found is None:
        found = _last_object(text, expect, tokens)
    if found is None:
        return Reading("unparseable", (), ("no JSON with verdicts was found",))
    reading = settle(found.verdicts, expect, found.notes)
    if found.ended or reading.status == "ok":
        return reading
    return Reading("truncated", reading.verdicts, reading.notes)


def _object(properties: Mapping[str, Any]) -> Schema:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _last_list(text: str, expect: Expect, tokens: Tokens) -> _Found | None:
    starts = [match.end() for match in _START.finditer(text)][-8:]
    for start in reversed(starts):
        found = _Found()
        place, order = start, 0
        while True:
            solid = _SOLID.search(text, place)
            place = solid.start() if solid else len(text)
            if text.startswith("]", place):
                found.ended = True
                break
            end = _end(text, place) if text.startswith("{", place) else None
            if end is None:
                cut = place >= len(text) or text[place] == "{"
                found.notes.append("the JSON ends in the middle" if cut else "broken JSON")
                break
            item = _load(text[place:end], found)
            if item is not None:
                _add(text, (place, end), item, order, expect, tokens, found)
            order += 1
            place = end
        if found.verdicts and not occurs(text[start:place], expect.quotable):
            return found
        if not found.ended:
            # Whatever list comes before runs into the same end.
            break
    return None


def _last_object(text: str, expect: Expect, tokens: Tokens) -> _Found | None:
    """A single object with a verdict, for a style per step (or one item that stands alone)."""
    if expect.step is None:
        return None
    best: _Found | None = None
    for start, end in _spans(text):
        found = _Found(ended=True)
        item = _load(text[start:end], found)
        if item is not None and not occurs(text[start:end], expect.quotable):
            item = {key: value for key, value in item.items() if key not in _STEP_KEYS}
            _add(text, (start, end), item, expect.step, expect, tokens, found)
        best = found if found.verdicts else best
    return best


def objects(text: str) -> list[dict[str, Any]]:
    """All JSON objects in `text` that stand in no other, in order."""
    found = (_load(text[start:end], _Found()) for start, end in _spans(text))
    return [item for item in found if item is not None]


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Where objects begin and end; an object that never ends is the last."""
    place = 0
    while (match := _OBJECT.search(text, place)) is not None:
        end = _end(text, match.start())
        if end is None:
            return
        yield match.start(), end
        place = end


def _add(
    text: str, span: tuple[int, int], item: Mapping[str, Any], order: int, expect: Expect, tokens: Tokens, found: _Found
) -> None:
    key = next((k for k in _VERDICT_KEYS if k in item), None)
    number = next((_number(item[k]) for k in _STEP_KEYS if k in item), order + expect.base)
    if key is None or number is None:
        found.notes.append(f"item {order + 1} has no {'verdict' if key is None else 'step number'}")
        return
    step = number - expect.base
    value = _value(item[key])
    if value is None:
        found.notes.append(f"step {number}: {str(item[key])[:40]!r} is no verdict")
        found.verdicts.pop(step, None)
        return
    if step in found.verdicts and found.verdicts[step].value != value:
        found.notes.append(f"step {number}: a later verdict replaces an earlier one")
    critique = next((item[k] for k in _CRITIQUE_KEYS if isinstance(item.get(k), str)), "")
    chance = None
    if tokens.logprobs:
        chance, note = tokens.p_correct(_word(text, span, key), CORRECT_INCORRECT)
        if note and note not in found.notes:
            found.notes.append(note)
    found.verdicts[step] = Verdict(step, value, critique.strip(), chance, span)


def _value(value: Any) -> VerdictValue | None:
    if isinstance(value, bool):
        return "correct" if value else "incorrect"
    return value_of(value, VERDICT) if isinstance(value, str) else None


def _number(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        match = _DIGITS.fullmatch(value.strip())
        return int(match.group(1)) if match else None
    return value if isinstance(value, int) else None


def _word(text: str, span: tuple[int, int], key: str) -> int:
    """Where the value of `key` begins, after its quotation mark."""
    place = span[0]
    for match in re.finditer(rf'(?<!\\)"{key}"\s{{0,20}}:\s{{0,20}}"?', text[span[0] : span[1]]):
        place = span[0] + match.end()
    return place


def _end(text: str, start: int) -> int | None:
    """Where the object that begins at `start` ends, None when it does not."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        character = token.group()[0]
        if character in "{[":
            depth += 1
        elif character in "}]":
            depth -= 1
            if depth == 0:
                return token.end()
    return None


def _load(source: str, found: _Found) -> dict[str, Any] | None:
    """An object, with backslashes that were not meant as JSON escapes mended; None for what is still not JSON."""
    for mended in (source, _ESCAPE.sub(lambda escape: escape.group() if escape.group(1) else "\\\\", source)):
        try:
            value = json.loads(mended, strict=False)
        except (ValueError, RecursionError):
            continue
        if mended is not source:
            found.notes.append("backslashes mended")
        return value if isinstance(value, dict) else None
    found.notes.append("broken JSON")
    return None
