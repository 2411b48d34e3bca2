"""Define the server's API: errors, JSON Schemas of requests and replies, their check, and the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any, NamedTuple, TypeAlias

import orjson

from critic_prm.data.aggregate import AGGREGATIONS
from critic_prm.data.judgement import STATUSES
from critic_prm.errors import CriticPrmError

Schema: TypeAlias = dict[str, Any]

SCHEMAS: dict[str, Schema] = orjson.loads(files(__package__).joinpath("schemas.json").read_bytes())
"""The schemas of the OpenAPI document, by name."""
SCHEMAS["Aggregation"]["enum"] = list(AGGREGATIONS)
SCHEMAS["Status"]["enum"] = list(STATUSES)

MAX_STEPS: int = SCHEMAS["Steps"]["maxItems"]
"""Maximum number of steps per solution."""


class Operation(NamedTuple):
    """A scoring endpoint; `request` and `reply` name its schemas."""

    name: str
    path: str
    summary: str
    request: str
    reply: str


OPERATIONS = (
    Operation("score", "/v1/score", "P(correct) of every step", "ScoreRequest", "ScoreReply"),
    Operation("rank", "/v1/rank", "Candidates, best first", "RankRequest", "RankReply"),
    Operation("pooling", "/pooling", "Step rewards in the format of vLLM's pooling runner", "PoolingRequest", "PoolingReply"),
    Operation("reward", "/get_reward", "Rewards in the format of OpenRLHF", "RewardRequest", "RewardReply"),
)

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

ERRORS = {
    400: ("bad_request", "The body is not JSON"),
    401: ("unauthorized", "The bearer token is missing or wrong"),
    404: ("not_found", "There is no such path"),
    405: ("method_not_allowed", "The path does not support this method"),
    408: ("too_slow", "The body did not arrive in time"),
    413: ("too_large", "The body is larger than the server accepts"),
    415: ("unsupported_media_type", "The body is not application/json"),
    421: ("misdirected", "The Host header names another machine"),
    422: ("unprocessable", "The JSON does not match the schema"),
    429: ("busy", "The queue is full; Retry-After says when to try again"),
    431: ("head_too_large", "The head of the request is larger than 32 KB"),
    500: ("internal", "The critic failed; see the server's log"),
    502: ("unusable", "A judgement could not be parsed, and nothing is imputed"),
    503: ("unavailable", "The server is stopping or full, or its critic cannot work (budget, key)"),
    504: ("timeout", "The critic did not answer in time"),
}
"""All errors: HTTP status, code and meaning."""

_POST_ERRORS = (400, 401, 405, 408, 413, 415, 421, 422, 429, 500, 502, 503, 504)
_GET_ERRORS = (401, 405, 421, 500, 503)


class Refused(CriticPrmError):
    """A request that is answered with one of ERRORS. The message never contains content of the request."""

    def __init__(self, status: int, message: str = "", **headers: str) -> None:
        self.status, self.headers = status, {name.replace("_", "-"): value for name, value in headers.items()}
        super().__init__(message or ERRORS[status][1])

    @property
    def content(self) -> bytes:
        """The body of the error response."""
        return orjson.dumps({"error": {"code": ERRORS[self.status][0], "message": str(self)}})


_TYPES: dict[type, frozenset[str]] = {
    str: frozenset({"string"}),
    bool: frozenset({"boolean"}),
    int: frozenset({"integer", "number"}),
    float: frozenset({"number"}),
    list: frozenset({"array"}),
    dict: frozenset({"object"}),
    type(None): frozenset({"null"}),
}
"""JSON Schema types of the types that a JSON parser returns. A float with an integral value also counts as an integer."""

BODY = "the body"


def complaint(value: Any, schema: Schema, place: str = BODY) -> str | None:
    """Describe what is wrong with a JSON value, or return None. The description has locations and sizes, never content of the
    request.

    Supports the JSON Schema keywords of schemas.json: $ref, anyOf, type, enum, properties, required, additionalProperties,
    items, minItems, maxItems, minimum, maximum.
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
        return f"{place} matches none of its schemas ({'; '.join(complaints)})"
    if (wrong := _own_complaint(value, schema, place)) is not None:
        return wrong
    children: Iterable[tuple[str, Any, Schema]] = ()
    if isinstance(value, dict):
        known = schema.get("properties", {})
        prefix = "" if place == BODY else f"{place}."
        children = ((prefix + name, item, known[name]) for name, item in value.items() if name in known)
    elif isinstance(value, list) and schema.get("items"):
        children = ((f"{place}[{index}]", item, schema["items"]) for index, item in enumerate(value))
    for inside, item, part in children:
        if (wrong := complaint(item, part, inside)) is not None:
            return wrong
    return None


def _own_complaint(value: Any, schema: Schema, place: str) -> str | None:
    """What is wrong with the value itself, without its items."""
    if (names := schema.get("type")) is not None:
        names = (names,) if isinstance(names, str) else names
        whole = type(value) is float and "integer" in names and value.is_integer()
        if _TYPES[type(value)].isdisjoint(names) and not whole:
            return f"{place} must be {' or '.join(names)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{place} must be one of {', '.join(map(str, schema['enum']))}"
    if isinstance(value, int | float) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        return f"{place} is out of its range"
    if isinstance(value, list):
        least, most = schema.get("minItems", 0), schema.get("maxItems", len(value))
        return None if least <= len(value) <= most else f"{place} has {len(value)} entries; it may have {least} to {most}"
    if isinstance(value, dict):
        if missing := [name for name in schema.get("required", ()) if name not in value]:
            return f"{place} lacks {missing[0]!r}"
        known = schema.get("properties", {})
        if not schema.get("additionalProperties", True) and not value.keys() <= known.keys():
            return f"{place} has an unknown field; known fields: {', '.join(known)}"
    return None


def document(version: str, token: bool) -> dict[str, Any]:
    """The OpenAPI 3.1 document of this server; with `token`, every path except /health requires it."""
    paths: dict[str, Any] = {}
    for name, path, summary, request, reply in OPERATIONS:
        body = {"required": True, "content": {"application/json": {"schema": _ref(request)}}}
        post = {"operationId": name, "summary": summary, "requestBody": body}
        paths[path] = {"post": post | _responses("The scores", _ref(reply), _POST_ERRORS)}
    for name, path, summary, schema, media in (
        ("health", "/health", "Whether the server is up; needs no token", _ref("Health"), "application/json"),
        ("metrics", "/metrics", "Metrics for Prometheus", {"type": "string"}, METRICS_TYPE),
        ("openapi", "/openapi.json", "This document", {"type": "object"}, "application/json"),
    ):
        errors = [status for status in _GET_ERRORS if status != 401 or name != "health"]
        paths[path] = {"get": {"operationId": name, "summary": summary} | _responses(summary, schema, errors, media)}
    components: dict[str, Any] = {"schemas": SCHEMAS}
    info = {"title": "critic-prm", "version": version, "description": "Score the steps of solutions with a critic."}
    page: dict[str, Any] = {"openapi": "3.1.0", "info": info, "paths": paths, "components": components}
    if token:
        components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        page["security"] = [{"bearer": []}]
        paths["/health"]["get"]["security"] = []
    return page


def _responses(about: str, schema: Schema, errors: Sequence[int], media: str = "application/json") -> dict[str, Any]:
    responses: dict[str, Any] = {"200": {"description": about, "content": {media: {"schema": schema}}}}
    for status in errors:
        responses[str(status)] = {"description": ERRORS[status][1], "content": {"application/json": {"schema": _ref("Error")}}}
        if status in (429, 503):
            responses[str(status)]["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds"}}
    return {"responses": responses}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}
