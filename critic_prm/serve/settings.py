"""Options and environment in, settings of a server out: where it listens, who may ask, and how much at once."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from critic_prm.errors import ConfigError, UsageError

TOKEN = "CRITIC_PRM_TOKEN"
SHORTEST = 16
"""The fewest characters of a token: less can be guessed."""


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """How a server runs. Sizes are bytes, times seconds.

    `token` is what a client must bring, None for no check. A request may hold `body` bytes and must have arrived `reading`
    seconds after it began; it is answered within `timeout`. `queue` trajectories may wait, `held` bytes of requests may be in
    memory, `connections` may be open: more is refused with 429 or 503. `batch` bounds how many trajectories the critic gets
    at once, None for what it likes. `samples` judgements are asked of a critic that can give different ones, `workers` of
    them at once where it waits for a network. `aggregation` makes a solution's score where a request does not say. `tag`
    ends a step in the texts of /pooling and /get_reward.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    batch: int | None = None
    queue: int = 1024
    body: int = 4 << 20
    held: int = 256 << 20
    connections: int = 512
    reading: float = 10.0
    timeout: float = 120.0
    grace: float = 10.0
    samples: int = 1
    workers: int = 64
    aggregation: str = "min"
    tag: str = "<extra_0>"


def find_token(file: Path | None, environment: Mapping[str, str] | None = None) -> str | None:
    """The token from a file or the environment variable CRITIC_PRM_TOKEN, None without either; never from the command line,
    where every user of the machine can read it. Raises ConfigError for one that is empty or too short."""
    environment = os.environ if environment is None else environment
    if file is not None:
        try:
            token, source = file.read_text("utf-8").strip(), str(file)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--token-file {file} cannot be read: {error}") from None
    elif TOKEN in environment:
        token, source = environment[TOKEN].strip(), TOKEN
    else:
        return None
    if len(token) < SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(
            f"the token in {source} has {len(token)} characters; it needs {SHORTEST} or more, ASCII without spaces, as from "
            "`openssl rand -hex 24`"
        )
    return token


def check(settings: ServeSettings) -> None:
    """Raises ConfigError for an address that others can reach when there is no token, UsageError for what cannot be read."""
    from critic_prm.data.aggregate import AGGREGATIONS

    if settings.token is None and not is_loopback(settings.host):
        raise ConfigError(
            f"--host {settings.host} can be reached from other machines, and there is no token; set {TOKEN} (as from "
            "`openssl rand -hex 24`), or leave the server on 127.0.0.1"
        )
    if settings.aggregation not in AGGREGATIONS:
        raise UsageError(f"--aggregation is {settings.aggregation!r}; it is one of {', '.join(AGGREGATIONS)}")
    if not settings.tag.strip():
        raise UsageError("--step-tag is blank; it is what ends a step, as in <extra_0>")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address. A name other than localhost may resolve to anything."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
