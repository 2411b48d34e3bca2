"""JSON Schemas of requests and replies, for the OpenAPI document and for checking requests."""

from __future__ import annotations

from typing import Any, TypeAlias

from critic_prm.data.aggregate import AGGREGATIONS
from critic_prm.data.judgement import STATUSES

Schema: TypeAlias = dict[str, Any]

STEPS, SOLUTIONS = 1024, 256
"""Maximum number of steps per solution and of solutions per request."""


def ref(name: str) -> Schema:
    """A reference to a schema of the OpenAPI document."""
    return {"$ref": f"#/components/schemas/{name}"}


def _object(properties: Schema, required: tuple[str, ...] = (), more: bool = False, **said: Any) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": more, **said}


def _list(items: Schema, most: int, least: int = 0) -> Schema:
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


_TEXT: Schema = {"type": "string"}
_TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
_P: Schema = {"type": ["number", "null"], "minimum": 0, "maximum": 1, "description": "P(the step is correct); null: unjudged"}
_HOW: Schema = {"type": "string", "enum": list(AGGREGATIONS), "description": "How step scores become the solution's score"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_STEP: Schema = {
    "anyOf": [_TEXT, _object({"text": _TEXT, "observation": _TEXT_OR_NULL}, ("text",))],
    "description": "A step's text, or with a tool's output beside it that is shown but not judged",
}
_SOLUTION: Schema = {
    "id": {"type": ["string", "integer", "null"], "description": "Comes back with the result"},
    "steps": _list(ref("Step"), STEPS, 1),
    "final_answer": _TEXT_OR_NULL,
}
_TURN = _object({"role": {"type": "string", "enum": ["system", "user", "assistant"]}, "content": _TEXT}, ("role", "content"))
_SCORED: Schema = {
    "id": {"type": ["string", "integer", "null"]},
    "p_correct": _list(_P, STEPS),
    "first_error": {"type": ["integer", "null"], "minimum": -1, "description": "0-based; -1: no error; null: not known"},
    "score": {"type": ["number", "null"], "description": "null: nothing was judged"},
    "status": {"type": "string", "enum": list(STATUSES)},
}
_CRITIQUES: Schema = {"critiques": _list(_list(_TEXT, 10_000), STEPS)}
_USAGE = _object({"solutions": _COUNT, "steps": _COUNT}, ("solutions", "steps"))

SCHEMAS: dict[str, Schema] = {
    "Step": _STEP,
    "Solution": _object(
        {"problem": _TEXT, **_SOLUTION},
        ("problem", "steps"),
        more=True,
        description="A trajectory; other fields, gold labels among them, are ignored and never shown to the critic",
    ),
    "Candidate": _object(_SOLUTION, ("steps",), more=True),
    "ScoreRequest": _object(
        {
            "trajectories": _list(ref("Solution"), SOLUTIONS),
            "aggregation": _HOW,
            "critiques": {"type": "boolean", "description": "Also return what was said of each step, a text a judgement"},
        },
        ("trajectories",),
        example={"trajectories": [{"problem": "What is 6 * 7?", "steps": ["6 * 7 = 41.", "The answer is 41."]}]},
    ),
    "Scored": _object({**_SCORED, **_CRITIQUES}, tuple(_SCORED)),
    "ScoreReply": _object(
        {"model": _TEXT, "aggregation": _HOW, "results": _list(ref("Scored"), SOLUTIONS), "usage": _USAGE},
        ("model", "aggregation", "results", "usage"),
    ),
    "RankRequest": _object(
        {"problem": _TEXT, "candidates": _list(ref("Candidate"), SOLUTIONS), "aggregation": _HOW},
        ("problem", "candidates"),
        example={"problem": "What is 6 * 7?", "candidates": [{"steps": ["6 * 7 = 41."]}, {"steps": ["6 * 7 = 42."]}]},
    ),
    "Ranked": _object({"index": _COUNT, **_SCORED}, ("index", *_SCORED)),
    "RankReply": _object(
        {
            "model": _TEXT,
            "aggregation": _HOW,
            "best": {"type": ["integer", "null"], "description": "The index of the best candidate; null: none has a score"},
            "ranking": _list(ref("Ranked"), SOLUTIONS),
            "usage": _USAGE,
        },
        ("model", "aggregation", "best", "ranking", "usage"),
    ),
    "PoolingRequest": _object(
        {
            "model": _TEXT_OR_NULL,
            "input": {
                "anyOf": [_TEXT, _list(_TEXT, SOLUTIONS)],
                "description": "Problem and steps as one text, each step ended by the server's step tag",
            },
            "messages": _list(_TURN, STEPS, 1),
            "task": {"type": ["string", "null"], "enum": ["token_classify", None]},
            "encoding_format": {"type": "string", "enum": ["float"]},
            "use_activation": {"type": ["boolean", "null"], "enum": [True, None]},
            "add_special_tokens": {"type": "boolean"},
            "user": _TEXT_OR_NULL,
        },
        description="vLLM's /pooling for step rewards. `messages` comes before `input`; without either nothing is scored",
        example={"input": "What is 6 * 7?\n\n6 * 7 = 41.<extra_0>The answer is 41.<extra_0>"},
    ),
    "PoolingReply": _object(
        {
            "id": _TEXT,
            "object": {"type": "string", "enum": ["list"]},
            "created": _COUNT,
            "model": _TEXT,
            "data": _list(
                _object(
                    {
                        "index": _COUNT,
                        "object": {"type": "string", "enum": ["pooling"]},
                        "data": _list({**_list(_P, 2, 2), "description": "[P(incorrect), P(correct)] of a step"}, STEPS),
                    },
                    ("index", "object", "data"),
                ),
                SOLUTIONS,
            ),
            "usage": _object({}, more=True),
        },
        ("id", "object", "created", "model", "data", "usage"),
    ),
    "RewardRequest": _object(
        {
            "query": _list(_TEXT, SOLUTIONS),
            "prompts": _list(_TEXT_OR_NULL, SOLUTIONS),
            "labels": {"type": ["array", "null"], "items": {}, "description": "Ignored: a critic sees no gold"},
        },
        ("query",),
        description="OpenRLHF's remote reward model. A query is the prompt and the response; its prompt is taken off it",
        example={"query": ["What is 6 * 7?\nIt is 42."], "prompts": ["What is 6 * 7?\n"], "labels": ["42"]},
    ),
    "RewardReply": _object(
        {
            "rewards": _list({"type": "number"}, SOLUTIONS),
            "scores": _list({"type": "number"}, SOLUTIONS),
            "extra_logs": _object({}, more=True),
        },
        ("rewards", "scores", "extra_logs"),
    ),
    "Health": _object({"status": {"type": "string", "enum": ["ok"]}}, ("status",)),
    "Error": _object({"error": _object({"code": _TEXT, "message": _TEXT}, ("code", "message"))}, ("error",)),
}

_KINDS: dict[type, frozenset[str]] = {
    str: frozenset({"string"}),
    bool: frozenset({"boolean"}),
    int: frozenset({"integer", "number"}),
    float: frozenset({"number"}),
    list: frozenset({"array"}),
    dict: frozenset({"object"}),
    type(None): frozenset({"null"}),
}
"""JSON Schema types of the types that a JSON parser returns. A float with an integral value also counts as an integer."""


def complaint(value: Any, schema: Schema, place: str = "the body") -> str | None:
    """Describe what is wrong with a JSON value, or return None. The description has locations and sizes, never content of the
    request.

    Supports the JSON Schema keywords used above: $ref, anyOf, type, enum, properties, required, additionalProperties, items,
    minItems, maxItems, minimum, maximum.
    """
    if not schema:
        return None  # any value is allowed, and it may be nested too deeply for recursion
    if "$ref" in schema:
        return complaint(value, SCHEMAS[schema["$ref"].rpartition("/")[2]], place)
    if "anyOf" in schema:
        complaints = []
        for choice in schema["anyOf"]:
            if (wrong := complaint(value, choice, place)) is None:
                return None
            complaints.append(wrong)
        return f"{place} has none of the shapes it may have ({'; '.join(complaints)})"
    if (wrong := _of_type(value, schema, place)) is not None:
        return wrong
    if isinstance(value, dict):
        return _in_object(value, schema, place)
    if isinstance(value, list):
        return _in_list(value, schema, place)
    return None


def _of_type(value: Any, schema: Schema, place: str) -> str | None:
    if (names := schema.get("type")) is not None:
        names = (names,) if isinstance(names, str) else names
        whole = type(value) is float and "integer" in names and value.is_integer()
        if _KINDS[type(value)].isdisjoint(names) and not whole:
            return f"{place} must be {' or '.join(names)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{place} must be one of {', '.join(map(str, schema['enum']))}"
    if ("minimum" in schema or "maximum" in schema) and isinstance(value, int | float):
        low, high = schema.get("minimum", value), schema.get("maximum", value)
        return None if low <= value <= high else f"{place} is out of its range"
    return None


def _in_object(value: dict[str, Any], schema: Schema, place: str) -> str | None:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            return f"{place} lacks {name!r}"
    for name, item in value.items():
        if name in properties:
            inside = name if place == "the body" else f"{place}.{name}"
            if (wrong := complaint(item, properties[name], inside)) is not None:
                return wrong
        elif not schema.get("additionalProperties", True):
            return f"{place} has a field it does not know; it knows {', '.join(properties)}"
    return None


def _in_list(value: list[Any], schema: Schema, place: str) -> str | None:
    least, most = schema.get("minItems", 0), schema.get("maxItems", len(value))
    if not least <= len(value) <= most:
        return f"{place} has {len(value)} entries; it may have {least} to {most}"
    if not (items := schema.get("items")):
        return None
    for index, item in enumerate(value):
        if (wrong := complaint(item, items, f"{place}[{index}]")) is not None:
            return wrong
    return None
