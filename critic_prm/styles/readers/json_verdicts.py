"""Read JSON with a critique and a verdict per step, tolerating code fences, surrounding prose and truncation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from critic_prm.data.judgement import Verdict, VerdictValue
from critic_prm.providers.provider import TokenLogprob
from critic_prm.styles.quotes import occurs
from critic_prm.styles.reader import Expect, Reading, Schema, settle
from critic_prm.styles.readers._chances import CORRECT_INCORRECT, Tokens
from critic_prm.styles.readers._patterns import VERDICT, value_of

# Alternative field names used by models without enforced schemas, in order of preference.
_VERDICT_KEYS = ("verdict", "judgement", "judgment", "correctness", "label", "is_correct", "correct")
_CRITIQUE_KEYS = ("critique", "reasoning", "explanation", "analysis", "reason", "comment")
_STEP_KEYS = ("step", "step_number", "index", "number", "id", "paragraph")
_LISTS = "steps|verdicts|judgements|judgments|step_verdicts|results|evaluations|critiques"

_LIST = re.compile(r"\[(?=\s{0,20}+\{)")
# The text before a list of verdicts: its name, or the start of the reply or of a code block.
_BEFORE = re.compile(rf'(?:(?<!\\)"(?:{_LISTS})"\s{{0,20}}:|`(?:json)?)\s{{0,20}}\Z', re.IGNORECASE)
_OBJECT = re.compile(r'\{(?=\s{0,20}+")')
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\]]', re.DOTALL)
_DECODER = json.JSONDecoder(strict=False)
_SOLID = re.compile(r"[^\s,]")
_DIGITS = re.compile(r"(?:step|paragraph)?[ _#]?(\d{1,6})", re.IGNORECASE)
# A JSON escape that is probably meant as one, or (group 1 empty) a single backslash of \( or \frac.
_ESCAPE = re.compile(r'\\([\\"/]|u[0-9a-fA-F]{4}|[bfnrt](?![a-zA-Z]{2})|)')


@dataclass(slots=True)
class _VerdictList:
    """The verdicts of one list or object by step, whether it is complete, and notes on repairs."""

    verdicts: dict[int, Verdict] = field(default_factory=dict)
    ended: bool = False
    notes: list[str] = field(default_factory=list)


def schema(expect: Expect) -> Schema:
    """The JSON schema of a reply: the critique comes before the verdict based on it; all fields are required, no others
    allowed."""
    one = {
        "critique": {"type": "string", "description": "what the step claims, whether it holds, every computation redone"},
        "verdict": {"type": "string", "enum": ["correct", "incorrect"]},
    }
    if expect.step is not None:
        return _object(one)
    number = {"step": {"type": "integer", "description": f"the number of the step, from {expect.base}"}}
    return _object({"steps": {"type": "array", "items": _object({**number, **one})}})


def read(text: str, expect: Expect, logprobs: tuple[TokenLogprob, ...] = ()) -> Reading:
    """Parse the last JSON in `text` that contains verdicts. Linear in the length of `text`.

    Complete items of a truncated list are read, and the status says so. A value that is neither a verdict word nor a boolean is
    not a verdict. JSON within a string (a critique that quotes) or copied from the trajectory is not read.
    """
    tokens = Tokens(text, logprobs)
    result = _last_list(text, expect, tokens) if expect.step is None else None
    if result is None:
        result = _last_object(text, expect, tokens)
    if result is None:
        return Reading("unparseable", (), ("no JSON with verdicts was found",))
    reading = settle(result.verdicts, expect, result.notes)
    if result.ended or reading.status == "ok":
        return reading
    return Reading("truncated", reading.verdicts, reading.notes)


def write(verdicts: Sequence[Verdict], expect: Expect) -> str:
    """Write a reply with these verdicts, for `read`, that conforms to `schema`."""
    items = [{"critique": verdict.critique.strip(), "verdict": verdict.value} for verdict in verdicts]
    if expect.step is not None:
        return json.dumps(items[0], ensure_ascii=False)
    numbered = [{"step": v.step + expect.base, **item} for v, item in zip(verdicts, items, strict=True)]
    return json.dumps({"steps": numbered}, ensure_ascii=False)


def _object(properties: Mapping[str, Any]) -> Schema:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _last_list(text: str, expect: Expect, tokens: Tokens) -> _VerdictList | None:
    starts = [match.end() for match in _LIST.finditer(text)]
    for start in [place for place in starts[-64:] if _begins(text, place - 1)][:-9:-1]:
        result = _VerdictList()
        place, order = start, 0
        while True:
            solid = _SOLID.search(text, place)
            place = solid.start() if solid else len(text)
            if text.startswith("]", place):
                result.ended = True
                break
            item, end = _load(text, place, result) if text.startswith("{", place) else (None, None)
            if end is None:
                cut = place >= len(text) or text[place] == "{"
                result.notes.append("the JSON ends in the middle" if cut else "broken JSON")
                break
            if item is not None:
                _add(text, (place, end), item, order, expect, tokens, result)
            order += 1
            place = end
        if result.verdicts and not occurs(text[start:place], expect.quotable):
            return result
        if not result.ended:
            # Any earlier list runs into the same truncated end.
            break
    return None


def _begins(text: str, place: int) -> bool:
    return _BEFORE.search(text, max(0, place - 80), place) is not None or (place < 200 and not text[:place].strip())


def _last_object(text: str, expect: Expect, tokens: Tokens) -> _VerdictList | None:
    """A single object with a verdict, for a style that judges per step."""
    if expect.step is None:
        return None
    best: _VerdictList | None = None
    for start, end, item, notes in _objects(text):
        if occurs(text[start:end], expect.quotable):
            continue
        result = _VerdictList(ended=True, notes=notes)
        item = {key: value for key, value in item.items() if key not in _STEP_KEYS}
        _add(text, (start, end), item, expect.step, expect, tokens, result)
        best = result if result.verdicts else best
    return best


def objects(text: str) -> list[dict[str, Any]]:
    """All top-level JSON objects in `text`, in order."""
    return [item for _, _, item, _ in _objects(text)]


def _objects(text: str) -> Iterator[tuple[int, int, dict[str, Any], list[str]]]:
    """Objects with their position and notes on repairs. An object that never ends is the last one and is left out."""
    place = 0
    while (match := _OBJECT.search(text, place)) is not None:
        result = _VerdictList()
        item, end = _load(text, match.start(), result)
        if end is None:
            return
        if item is not None:
            yield match.start(), end, item, result.notes
        place = end


def _add(
    text: str, span: tuple[int, int], item: Mapping[str, Any], order: int, expect: Expect, tokens: Tokens, result: _VerdictList
) -> None:
    key = next((k for k in _VERDICT_KEYS if k in item), None)
    number = next((_number(item[k]) for k in _STEP_KEYS if k in item), order + expect.base)
    if key is None or number is None:
        result.notes.append(f"item {order + 1} has no {'verdict' if key is None else 'step number'}")
        return
    step = number - expect.base
    value = _value(item[key])
    if value is None:
        result.notes.append(f"step {number}: {str(item[key])[:40]!r} is not a verdict")
        result.verdicts.pop(step, None)
        return
    if step in result.verdicts and result.verdicts[step].value != value:
        result.notes.append(f"step {number}: a later verdict replaces an earlier one")
    critique = next((item[k] for k in _CRITIQUE_KEYS if isinstance(item.get(k), str)), "")
    chance = None
    if tokens.logprobs:
        chance, note = tokens.p_correct(_word(text, span, key), CORRECT_INCORRECT)
        if note and note not in result.notes:
            result.notes.append(note)
    result.verdicts[step] = Verdict(step, value, critique.strip(), chance, span)


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
    """The start of the value of `key`, after its quotation mark."""
    place = span[0]
    for match in re.compile(rf'(?<!\\)"{key}"\s{{0,20}}:\s{{0,20}}"?').finditer(text, *span):
        place = match.end()
    return place


def _end(text: str, start: int) -> int | None:
    """The end of the object that begins at `start`; None if it does not end."""
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


def _load(text: str, start: int, result: _VerdictList) -> tuple[dict[str, Any] | None, int | None]:
    """The object that begins at `start`, and its end (None if it does not end).

    Backslashes that are not valid JSON escapes are repaired, with a note. The object is None if it is still invalid JSON.
    """
    try:
        return _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        end = _end(text, start)
    if end is None:
        return None, None
    repaired = _ESCAPE.sub(lambda escape: escape.group() if escape.group(1) else "\\\\", text[start:end])
    try:
        item = _DECODER.decode(repaired)
    except (ValueError, RecursionError):
        result.notes.append("broken JSON")
        return None, end
    result.notes.append("backslashes repaired")
    return item, end
