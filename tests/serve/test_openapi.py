"""The OpenAPI document and the server agree: Schemathesis looks for requests on which they do not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from critic_prm.serve.openapi import ERRORS, SCHEMAS, Schema, complaint, document

if TYPE_CHECKING:
    from tests.serve.conftest import Start

WORDS = {"$ref", "anyOf", "type", "enum", "properties", "required", "additionalProperties", "items", "minItems", "maxItems"}
NOTES = {"minimum", "maximum", "description", "example"}


def test_the_checker_knows_every_word_that_the_schemas_use() -> None:
    def walk(schema: Schema) -> None:
        assert schema.keys() <= WORDS | NOTES
        for part in (*schema.get("properties", {}).values(), *schema.get("anyOf", ()), schema.get("items")):
            if part:
                walk(part)

    for schema in SCHEMAS.values():
        walk(schema)


def test_examples_are_right() -> None:
    examples = [(name, schema) for name, schema in SCHEMAS.items() if "example" in schema]
    assert len(examples) == 4
    for _, schema in examples:
        assert complaint(schema["example"], schema) is None


@pytest.mark.parametrize(
    ("value", "schema", "wrong"),
    [
        (True, {"type": "integer"}, True),
        (1, {"type": "boolean"}, True),
        (2.0, {"type": "integer"}, False),
        (2.5, {"type": "integer"}, True),
        (None, {"type": ["string", "null"]}, False),
        (1.5, {"type": "number", "maximum": 1}, True),
        ([1], {"type": "array", "items": {"type": "string"}}, True),
        ([], {"type": "array", "items": {}, "minItems": 1}, True),
        ({"a": 1}, {"type": "object", "properties": {}, "additionalProperties": False}, True),
        ({"a": 1}, {"type": "object", "properties": {}, "additionalProperties": True}, False),
        ({}, {"type": "object", "properties": {}, "required": ["a"]}, True),
        (1, {"anyOf": [{"type": "string"}, {"type": "integer"}]}, False),
    ],
)
def test_the_checker(value: object, schema: Schema, wrong: bool) -> None:
    assert (complaint(value, schema) is not None) == wrong


def test_every_error_is_documented() -> None:
    page = document("1", token=True)
    for path, methods in page["paths"].items():
        for operation in methods.values():
            assert operation["responses"].keys() <= {"200", *map(str, ERRORS)}, path
    assert page["paths"]["/health"]["get"]["security"] == []


def test_schemathesis_finds_nothing(start: Start, tmp_path: Path) -> None:
    pytest.importorskip("schemathesis", reason="Schemathesis is not installed")
    server = start(token="0123456789abcdef")
    url = f"http://127.0.0.1:{server.port}"
    program = Path(sys.executable).with_name("st")
    command = [str(program), "run", f"{url}/openapi.json", "-u", url, "-H", "Authorization: Bearer 0123456789abcdef"]
    found = subprocess.run([*command, "-n", "8", "--seed", "1"], capture_output=True, text=True, cwd=tmp_path)
    assert found.returncode == 0, found.stdout[-4000:]
