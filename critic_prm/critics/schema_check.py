"""Check a reply against its JSON schema; some servers silently ignore schemas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson


def matches_schema(text: str, schema: Mapping[str, Any]) -> bool:
    """Whether `text` is a JSON value that matches `schema`, with nothing around it."""
    try:
        return fits(orjson.loads(text), schema)
    except orjson.JSONDecodeError:
        return False


def fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a value matches a schema. Supports the keywords that the schemas of our readers use: type, enum, properties,
    required, additionalProperties and items. Raises KeyError for an unknown type."""
    if "enum" in schema and value not in schema["enum"]:
        return False
    return _TYPES[schema["type"]](value, schema)


def _object(value: Any, schema: Mapping[str, Any]) -> bool:
    if not isinstance(value, dict) or not set(schema["required"]) <= value.keys():
        return False
    properties = schema["properties"]
    if not schema.get("additionalProperties", True) and not value.keys() <= properties.keys():
        return False
    return all(fits(item, properties[name]) for name, item in value.items() if name in properties)


def _array(value: Any, schema: Mapping[str, Any]) -> bool:
    return isinstance(value, list) and all(fits(item, schema["items"]) for item in value)


_TYPES: Mapping[str, Callable[[Any, Mapping[str, Any]], bool]] = {
    "object": _object,
    "array": _array,
    "string": lambda value, schema: isinstance(value, str),
    "integer": lambda value, schema: isinstance(value, int) and not isinstance(value, bool),
    "boolean": lambda value, schema: isinstance(value, bool),
    "number": lambda value, schema: isinstance(value, int | float) and not isinstance(value, bool),
}
