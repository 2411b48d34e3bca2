"""Look up capabilities and prices of models in models.toml, which users can override with their own table."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

from critic_prm.errors import InputError, UsageError
from critic_prm.providers.presets import preset_of, presets
from critic_prm.providers.provider import Sampling, Usage


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices in US dollars per million tokens.

    If the prompt is longer than `long_over` tokens, the `long_` prices apply to all tokens. `hour` is the price of a token
    written to the prompt cache for an hour, relative to `input`. `batch` and `tiers` are the prices of batches and service
    tiers relative to the standard tier.
    """

    input: float
    output: float
    cached: float | None = None
    written: float | None = None
    long_over: int | None = None
    long_input: float | None = None
    long_output: float | None = None
    long_cached: float | None = None
    long_written: float | None = None
    hour: float = 2.0
    batch: float = 0.5
    tiers: Mapping[str, float] = field(default_factory=dict)
    as_of: str = ""
    source: str = ""
    tiers_source: str = ""

    def factor(self, tier: str, *, batch: bool = False) -> float | None:
        """Return the price of a service tier relative to the standard one; None if unknown.

        A batch has its own price unless the reply reports another tier.
        """
        if tier == "batch" or (batch and not tier):
            return self.batch
        return 1.0 if not tier else self.tiers.get(tier, self.tiers.get(ANY_TIER))

    def cost(self, usage: Usage, *, batch: bool = False) -> float | None:
        """Return the price of one reply in US dollars; None if the price of its service tier is unknown.

        Prompt-cache tokens without their own price cost as much as input tokens.
        """
        factor = self.factor(usage.tier, batch=batch)
        if factor is None:
            return None
        long = self.long_over is not None and usage.input > self.long_over
        price_in = _first(self.long_input if long else None, self.input)
        price_out = _first(self.long_output if long else None, self.output)
        price_cached = _first(self.long_cached if long else None, self.cached, price_in)
        price_written = _first(self.long_written if long else None, self.written, price_in)
        fresh = max(usage.input - usage.cached - usage.written, 0)
        total = fresh * price_in + usage.cached * price_cached + usage.output * price_out
        total += (usage.written - usage.written_hour) * price_written + usage.written_hour * self.hour * price_in
        return total / 1e6 * factor


def parse_prices(text: str) -> Prices:
    """Parse the value of --prices: IN,OUT[,CACHED[,WRITTEN]] in USD per million tokens. Raises UsageError."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not 2 <= len(numbers) <= 4 or any(not 0 <= number < inf for number in numbers):
        raise UsageError(f"--prices is {text!r}; write IN,OUT or IN,OUT,CACHED,WRITTEN in USD per million tokens, as in 0.5,2")
    names = ("input", "output", "cached", "written")
    return Prices(**dict(zip(names, numbers, strict=False)), tiers={ANY_TIER: 1.0}, source="--prices")  # type: ignore[arg-type]


ANY_TIER = "*"
"""Key in `Prices.tiers` that stands for any tier, as for prices given by the user."""


def _first(*prices: float | None) -> float:
    """Return the first price that is not None; 0 is a price."""
    return next(price for price in prices if price is not None)


@dataclass(frozen=True, slots=True)
class Abilities:
    """One row of models.toml, which documents the fields and their values."""

    match: str
    sampling: str = "always"
    logprobs: str = "always"
    stop: bool = True
    limit: str = "max_tokens"
    efforts: tuple[str, ...] = ()
    default_effort: str = ""
    cached_from: int | None = None
    prices: Prices | None = None
    note: str = ""


def abilities(provider: str, model: str) -> Abilities:
    """Return the first row of `provider` whose `match` fits `model`. If there is none, return one that allows everything.

    A provider that serves another one's models has the rows of that provider, without prices.
    """
    own = os.environ.get("CRITIC_PRM_MODELS")
    row = _row_for(own, provider, model)
    if row.match == "*" and (maker := preset_of(provider).models):
        return replace(_row_for(own, maker, model), prices=None)
    return row


@cache
def _row_for(own: str | None, provider: str, model: str) -> Abilities:
    for row in _rows(own, provider):
        if fits(model, row.match):
            return row
    return Abilities(match="*", note="not in the table: everything is sent as asked, prices are unknown")


def unlisted(provider: str, model: str) -> str:
    """Say that no row names this model, which row it matches, and a similar name with a price; "" if a row names it."""
    match = abilities(provider, model).match
    if not _is_glob(match):
        return ""
    family = "" if match == "*" else f" (it matches {match})"
    return f"{model} is not in the model table{family}{did_you_mean(provider, model)}"


def fits(model: str, match: str) -> bool:
    """Whether a row's `match` fits `model`. A name without wildcards fits only itself, its dated snapshots and its -latest."""
    if _is_glob(match):
        return fnmatchcase(model, match)
    return model.startswith(match) and _SNAPSHOT.fullmatch(model[len(match) :]) is not None


def _is_glob(match: str) -> bool:
    return any(sign in match for sign in "*?[")


_SNAPSHOT = re.compile(r"|-latest|[-@]\d{4}-\d\d-\d\d|[-@]\d{8}|-\d{4}")


def did_you_mean(provider: str, model: str) -> str:
    """Return a hint ("; did you mean NAME?") for a name similar to that of a model with a price, else "".

    A name with other digits denotes another version and is not a misspelling.
    """
    rows = _rows(os.environ.get("CRITIC_PRM_MODELS"), provider)
    names = [
        row.match for row in rows if "*" not in row.match and row.prices is not None and _digits(row.match) == _digits(model)
    ]
    near = [name for name in get_close_matches(model, names, cutoff=0.8) if name != model]
    return f"; did you mean {near[0]}?" if near else ""


def provider_of(model: str) -> str | None:
    """Return the provider in the table whose model this name is or seems to be, for a hint; None if there is none."""
    own = os.environ.get("CRITIC_PRM_MODELS")
    providers = [name for path in (own, PACKAGED) if path for name in _table(path)]
    for wanted in (lambda row: "*" not in row.match, lambda row: row.match.strip("*")):
        for provider in providers:
            if any(wanted(row) and fits(model, row.match) for row in _rows(own, provider)):
                return provider
    return None


def _digits(name: str) -> str:
    return "".join(filter(str.isdigit, name))


def check(provider: str, model: str, sampling: Sampling) -> None:
    """Check sampling parameters. Raises UsageError for a value that the provider would reject, or that would be billed without
    being used."""
    preset = preset_of(provider)
    stated = {"temperature": (0.0, preset.temperature), "logprobs": (0.0, preset.most_logprobs)}
    for name, (low, high) in (COMMON | stated | RANGES.get(provider, {})).items():
        value = getattr(sampling, name)
        if value is not None and not low <= value <= high:
            span = f"at least {low:g}" if high == inf else f"{low:g} to {high:g}"
            raise UsageError(f"{name} is {value:g}; {provider}/{model} takes {span}")
    efforts = abilities(provider, model).efforts or preset.efforts
    if sampling.effort is not None and efforts and sampling.effort not in efforts:
        raise UsageError(f"effort is {sampling.effort!r}; {provider}/{model} takes {', '.join(efforts)}")
    if any(not text for text in sampling.stop):
        raise UsageError("a stop string is empty; every answer would end before it begins")
    if provider in presets() and len(sampling.stop) > preset.stops:
        raise UsageError(f"there are {len(sampling.stop)} stop strings; {provider} takes {preset.stops} at most")
    if isinstance(n := sampling.extra.get("n"), int) and n > 1:
        raise UsageError(f"n is {n} in --extra-body: {n} answers would be paid for and one read; use --samples {n}")
    if sampling.extra.get("stream"):
        raise UsageError("stream is on in --extra-body, and replies are read whole; leave it out")


COMMON = {"top_p": (0.0, 1.0), "max_tokens": (1, inf)}
RANGES: dict[str, dict[str, tuple[float, float]]] = {"vllm": {"logprobs": (-1, inf)}}
"""The (minimum, maximum) values of all providers and of one, besides those in presets.toml. vLLM's limit for logprobs is a
server option, and -1 asks for the whole vocabulary. Claude accepts neither temperature nor top_p."""

PACKAGED = str(Path(__file__).with_name("models.toml"))


@cache
def _rows(own: str | None, provider: str) -> list[Abilities]:
    """Return all rows of a provider, those of the user's table first."""
    return [row for path in (own, PACKAGED) if path for row in _table(path).get(provider, ())]


@cache
def _table(path: str) -> dict[str, list[Abilities]]:
    try:
        data = tomllib.loads(Path(path).read_text("utf-8"))
        return {provider: [_row(row) for row in rows] for provider, rows in data.items()}
    except (OSError, tomllib.TOMLDecodeError, TypeError, AttributeError) as error:
        raise InputError(
            path, f"this model table cannot be read: {error}", "it has the shape of critic_prm/providers/models.toml"
        ) from error


def _row(row: dict[str, Any]) -> Abilities:
    unknown = set(row) - {f.name for f in fields(Abilities)}
    if unknown:
        raise TypeError(f"unknown field {sorted(unknown)[0]!r}")
    prices = row.pop("prices", None)
    if "efforts" in row:
        row["efforts"] = tuple(row["efforts"])
    return Abilities(**row, prices=Prices(**prices) if prices else None)
