"""Build the OpenAPI document from the tables of endpoints and schemas."""

from __future__ import annotations

from typing import Any

from critic_prm.serve.bodies import SHAPES, Shape
from critic_prm.serve.metrics import CONTENT_TYPE
from critic_prm.serve.schemas import SCHEMAS, ref

ERRORS = {
    400: ("bad_request", "The body is not JSON"),
    401: ("unauthorized", "The bearer token is missing or wrong"),
    404: ("not_found", "There is no such path"),
    405: ("method_not_allowed", "The path does not take this method"),
    408: ("too_slow", "The body did not arrive in time"),
    413: ("too_large", "The body is larger than the server takes"),
    415: ("unsupported_media_type", "The body is not application/json"),
    421: ("misdirected", "The Host header names another machine"),
    422: ("unprocessable", "The JSON is not what the schema asks for"),
    429: ("busy", "The queue is full; Retry-After says when to try again"),
    431: ("head_too_large", "The head of the request is larger than 32 KB"),
    500: ("internal", "The critic failed; the server's log says how"),
    502: ("unusable", "A judgement could not be read, and nothing is made up for it"),
    503: ("unavailable", "The server is stopping, full, or its critic cannot work (budget, key)"),
    504: ("timeout", "The critic did not answer in time"),
}
"""All errors: HTTP status, code and meaning."""

_ASKED = (400, 401, 405, 408, 413, 415, 421, 422, 429, 500, 502, 503, 504)
_LOOKED = (401, 405, 421, 500, 503)


def document(version: str, token: bool) -> dict[str, Any]:
    """The OpenAPI 3.1 document of this server; with `token`, every path except /health requires it."""
    paths: dict[str, Any] = {shape.path: {"post": _post(shape)} for shape in SHAPES}
    paths["/health"] = {"get": _get("health", "Is the server up? Answers without a token", {"schema": ref("Health")})}
    paths["/metrics"] = {"get": _get("metrics", "Counts for Prometheus", {"schema": {"type": "string"}}, CONTENT_TYPE)}
    paths["/openapi.json"] = {"get": _get("openapi", "This document", {"schema": {"type": "object"}})}
    components: dict[str, Any] = {"schemas": SCHEMAS}
    page: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "critic-prm", "version": version, "description": "A critic scores the steps of solutions."},
        "paths": paths,
        "components": components,
    }
    if token:
        components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        page["security"] = [{"bearer": []}]
        paths["/health"]["get"]["security"] = []
    return page


def _post(shape: Shape) -> dict[str, Any]:
    return {
        "operationId": shape.name,
        "summary": shape.summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": ref(shape.request)}}},
        "responses": {"200": _reply("The scores", {"schema": ref(shape.reply)}), **_errors(_ASKED)},
    }


def _get(name: str, summary: str, content: dict[str, Any], media: str = "application/json") -> dict[str, Any]:
    responses = {"200": _reply(summary, content, media), **_errors(_LOOKED)}
    if name == "health":
        del responses["401"]
    return {"operationId": name, "summary": summary, "responses": responses}


def _reply(said: str, content: dict[str, Any], media: str = "application/json") -> dict[str, Any]:
    return {"description": said, "content": {media: content}}


def _errors(statuses: tuple[int, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {str(status): _reply(ERRORS[status][1], {"schema": ref("Error")}) for status in statuses}
    for status in ("429", "503"):
        if status in found:
            found[status]["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds"}}
    return found
