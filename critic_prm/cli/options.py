"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from critic_prm.cli.fields import Fields
from critic_prm.data.formats.common import IndexBase, MapOption, Options
from critic_prm.data.segment.rows import Segment
from critic_prm.engine.options import JudgeOptions
from critic_prm.option import Option

VERDICTS = ("style", "profile", "logprobs", "follow_ups", "force", "think_rounds", "schema", "with_reference", "image_root")
"""Options of a judge that concern verdicts."""

PolicyOptions = Annotated[JudgeOptions, Fields(without=VERDICTS)]
"""The options of a policy: those of a judge that do not concern verdicts."""


@dataclass(frozen=True, slots=True)
class InputOptions:
    """How a command reads trajectories."""

    format: Annotated[str, Option(("--from",), metavar="FORMAT")] = "auto"
    """Input format; auto detects it from the fields."""
    map: MapOption = ()
    """Read a field under another name, such as problem=prompt or steps=log.reasoning; may be repeated."""
    segment: Segment = "auto"
    """How to split a solution text into steps; auto chooses by its layout and keeps steps that are given."""
    index_base: IndexBase = None
    """Number of the first step in the gold labels, if it differs from the format's."""
    skip_bad: bool = False
    """Report and skip invalid rows; exit with code 3."""
    limit: Annotated[int | None, Option(min=1)] = None
    """Process at most N trajectories."""

    def conversion(self) -> Options:
        """The options for `read_trajectories`."""
        return Options(map=self.map, segment=self.segment, index_base=self.index_base)


ALL_ROWS = InputOptions()

ReadingOptions = Annotated[InputOptions, Fields(without=("skip_bad", "limit"))]
"""How a command reads trajectories that it needs all of."""

FieldNames = Annotated[InputOptions, Fields(only=("map", "index_base"))]
"""The names of the fields of trajectories with gold labels, and how their steps are numbered."""


@dataclass(frozen=True, slots=True)
class JsonOutput:
    """Where the result of a command goes, besides the tables on stdout."""

    as_json: Annotated[bool, Option(("--json",))] = False
    """Print JSON instead of tables."""
    out: Annotated[Path | None, Option(("-o", "--out"), metavar="FILE")] = None
    """Also write the JSON to this file."""

    def write(self, row: Mapping[str, Any]) -> bool:
        """Write the result to the file and, if wanted, to stdout; return whether tables are to be printed."""
        from critic_prm.data.records.writing import encode, write_records

        if self.out is not None:
            write_records(self.out, [row])
        if self.as_json:
            typer.echo(encode(row), nl=False)
        return not self.as_json


CacheOptions = Annotated[JudgeOptions, Fields(only=("db",))]
BatchOptions = Annotated[JudgeOptions, Fields(only=("db", "base_url", "header", "api_key_env", "trust"))]
TrustOptions = Annotated[JudgeOptions, Fields(only=("trust",))]
ScoringOptions = Annotated[JudgeOptions, Fields(only=("profile", "trust"))]
