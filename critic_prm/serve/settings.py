"""Settings of a server: address, authentication, limits and scoring options."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from critic_prm.errors import ConfigError, UsageError

TOKEN = "CRITIC_PRM_TOKEN"
SHORTEST = 16
"""Minimum number of characters of a token; a shorter one can be guessed."""


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """Settings of a server. Sizes are in bytes, times in seconds. Requests beyond a limit are refused with 429 or 503."""

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    """The bearer token that clients must send; None for no authentication."""
    max_batch: int | None = None
    """Maximum number of solutions passed to the critic at once; by default, the critic's own batch size."""
    max_queue: int = 1024
    """Maximum number of waiting solutions; further requests get status 429."""
    max_body: int = 4 << 20
    """Maximum size of a request body in bytes."""
    max_memory: int = 256 << 20
    """Maximum total size of the requests in memory, in bytes."""
    max_clients: int = 512
    """Maximum number of open connections."""
    read_timeout: float = 10.0
    """Seconds within which a request must arrive."""
    answer_timeout: float = 120.0
    """Seconds within which a request is answered."""
    grace: float = 10.0
    """Time to finish the requests in flight at shutdown."""
    samples: int = 1
    """Judgements per trajectory, for a critic that is not deterministic."""
    workers: int = 64
    """Trajectories judged concurrently by a critic that waits for the network."""
    aggregation: str = "min"
    """Default aggregation of step scores into the score of a solution."""
    step_tag: str = "<extra_0>"
    """Marks the end of a step in the texts of /pooling and /get_reward."""


def find_token(file: Path | None, environment: Mapping[str, str] | None = None) -> str | None:
    """The token from a file or the environment variable CRITIC_PRM_TOKEN; None without either. It is never taken from the
    command line, which every user of the machine can read. Raises ConfigError if it is empty or too short."""
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
    """Raises ConfigError for a public address without a token, and UsageError for invalid settings."""
    from critic_prm.data.aggregate import AGGREGATIONS

    if settings.token is None and not is_loopback(settings.host):
        raise ConfigError(
            f"--host {settings.host} can be reached from other machines, and there is no token; set {TOKEN} (as from "
            "`openssl rand -hex 24`), or leave the server on 127.0.0.1"
        )
    if settings.aggregation not in AGGREGATIONS:
        raise UsageError(f"--aggregation is {settings.aggregation!r}; it is one of {', '.join(AGGREGATIONS)}")
    if not settings.step_tag.strip():
        raise UsageError("--step-tag is blank; it is what ends a step, as in <extra_0>")


def is_loopback(host: str) -> bool:
    """Whether an address is reachable only from this machine. A name other than localhost may resolve to anything."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
