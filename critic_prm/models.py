"""What a model family can do and cost, from models.toml: data that users may put their own in front of."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from critic_prm.errors import InputError
from critic_prm.provider import Usage


@dataclass(frozen=True, slots=True)
class Prices:
    """USD per million tokens. Where the prompt is longer than `long_over` tokens, the `long_` prices hold for all of them."""

    input: float
    output: float
    cached: float | None = None
    written: float | None = None
    long_over: int | None = None
    long_input: float | None = None
    long_output: float | None = None
    long_cached: float | None = None
    long_written: float | None = None
    batch: float = 0.5
    as_of: str = ""
    source: str = ""

    def cost(self, usage: Usage, *, batch: bool = False) -> float:
        """The price of one reply in USD. Tokens of a prompt cache that has no price of its own cost as input."""
        long = self.long_over is not None and usage.input > self.long_over
        price_in = _first(self.long_input if long else None, self.input)
        price_out = _first(self.long_output if long else None, self.output)
        price_cached = _first(self.long_cached if long else None, self.cached, price_in)
        price_written = _first(self.long_written if long else None, self.written, price_in)
        fresh = max(usage.input - usage.cached - usage.written, 0)
        total = fresh * price_in + usage.cached * price_cached + usage.written * price_written + usage.output * price_out
        return total / 1e6 * (self.batch if batch else 1.0)


def _first(*prices: float | None) -> float:
    """The first price that is known; 0 is one."""
    return next(price for price in prices if price is not None)


@dataclass(frozen=True, slots=True)
class Abilities:
    """One row of models.toml; see there for what the words mean."""

    match: str
    sampling: str = "always"
    logprobs: str = "always"
    stop: bool = True
    default_effort: str = ""
    prices: Prices | None = None
    note: str = ""


def abilities(provider: str, model: str) -> Abilities:
    """The first row for `provider` whose `match` fits `model`; one that allows everything for a provider not in the table."""
    return _row_for(os.environ.get("CRITIC_PRM_MODELS"), provider, model)


@cache
def _row_for(own: str | None, provider: str, model: str) -> Abilities:
    for path in (own, str(Path(__file__).with_name("models.toml"))):
        for row in _table(path).get(provider, ()) if path else ():
            if fnmatchcase(model, row.match):
                return row
    return Abilities(match="*", note="not in the table: everything is sent as asked, prices are unknown")


@cache
def _table(path: str) -> dict[str, list[Abilities]]:
    try:
        data = tomllib.loads(Path(path).read_text("utf-8"))
        return {provider: [_row(row) for row in rows] for provider, rows in data.items()}
    except (OSError, tomllib.TOMLDecodeError, TypeError, AttributeError) as error:
        raise InputError(
            path, f"this model table cannot be read: {error}", "it has the shape of critic_prm/models.toml"
        ) from error


def _row(row: dict[str, Any]) -> Abilities:
    unknown = set(row) - {f.name for f in fields(Abilities)}
    if unknown:
        raise TypeError(f"unknown field {sorted(unknown)[0]!r}")
    prices = row.pop("prices", None)
    return Abilities(**row, prices=Prices(**prices) if prices else None)
