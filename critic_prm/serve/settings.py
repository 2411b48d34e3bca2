"""Settings of a server: address, authentication, limits and scoring options."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from critic_prm.errors import ConfigError, UsageError
from critic_prm.option import Option

TOKEN = "CRITIC_PRM_TOKEN"
SHORTEST = 16
"""Minimum number of characters of a token; a shorter one can be guessed."""


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """Settings of a server, and the options of `critic-prm serve`. Requests beyond a limit are refused with 429 or 503."""

    host: str = "127.0.0.1"
    """Address to listen on; any but a loopback address requires a token."""
    port: Annotated[int, Option(min=0, max=65535)] = 8000
    """Port to listen on; 0 selects a free one."""
    token: Annotated[str | None, Option(hidden=True)] = None
    """Bearer token that clients must send; None for no authentication."""
    aggregation: str = "min"
    """Aggregation of step scores, unless a request names another."""
    step_tag: str = "<extra_0>"
    """Tag that ends a step in texts sent to /pooling and /get_reward."""
    samples: Annotated[int, Option(min=1)] = 1
    """Judgements per solution, if the critic is a judge."""
    max_connections: Annotated[int, Option(min=1)] = 64
    """Keep at most N requests to a judge in flight."""
    grace: Annotated[float, Option(min=0)] = 10.0
    """Seconds to wait for requests in flight when the server is stopped."""
    max_batch: Annotated[int | None, Option(min=1, panel="Limits")] = None
    """Pass at most N solutions to the critic at once."""
    max_queue: Annotated[int, Option(min=1)] = 1024
    """Queue at most N solutions; then reply with 429."""
    max_body: Annotated[int, Option(min=1024)] = 4 << 20
    """Maximum size of a request body in bytes."""
    max_memory: Annotated[int, Option(min=1024)] = 256 << 20
    """Maximum total size of the requests in memory, in bytes."""
    max_clients: Annotated[int, Option(min=1)] = 512
    """Maximum number of open connections."""
    read_timeout: Annotated[float, Option(min=0.1)] = 10.0
    """Seconds within which a request must arrive."""
    answer_timeout: Annotated[float, Option(min=0.1)] = 120.0
    """Seconds within which a request is answered."""


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
            f"the token in {source} has {len(token)} characters; use {SHORTEST} or more ASCII characters, no spaces, as from "
            "`openssl rand -hex 24`"
        )
    return token


def check(settings: ServeSettings) -> None:
    """Raises ConfigError for a public address without a token, and UsageError for invalid settings."""
    from critic_prm.data.aggregate import AGGREGATIONS

    if settings.token is None and not is_loopback(settings.host):
        raise ConfigError(
            f"--host {settings.host} can be reached from other machines, and there is no token; set {TOKEN} (as from "
            "`openssl rand -hex 24`), or listen on 127.0.0.1"
        )
    if settings.aggregation not in AGGREGATIONS:
        raise UsageError(f"--aggregation is {settings.aggregation!r}; choose one of {', '.join(AGGREGATIONS)}")
    if not settings.step_tag.strip():
        raise UsageError("--step-tag is blank; give the tag that ends a step, such as <extra_0>")


def is_loopback(host: str) -> bool:
    """Whether an address is reachable only from this machine. A name other than localhost may resolve to anything."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
