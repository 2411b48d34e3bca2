"""Read and double the token limit of a request body, whichever parameter name it uses."""

from __future__ import annotations

from critic_prm.providers.provider import Wire

NAMES = ("max_completion_tokens", "max_tokens", "max_output_tokens")


def reply_limit(wire: Wire) -> int | None:
    """Return the maximum number of reply tokens that `wire` asks for, or None."""
    for name in NAMES:
        value = wire.get(name)
        if isinstance(value, int) and value > 0:
            return value
    return None


def with_doubled_max_tokens(wire: Wire) -> Wire | None:
    """Return `wire` with twice the token limit, or None if it has no limit."""
    limit = reply_limit(wire)
    if limit is None:
        return None
    return {name: 2 * limit if name in NAMES and value is not None else value for name, value in wire.items()}
