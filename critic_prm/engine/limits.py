"""A request's own limit of reply tokens, under whichever name it goes, and the same request with twice as much room."""

from __future__ import annotations

from critic_prm.providers.provider import Wire

NAMES = ("max_completion_tokens", "max_tokens", "max_output_tokens")


def reply_limit(wire: Wire) -> int | None:
    """The most tokens a reply to `wire` may have, None where it does not say."""
    for name in NAMES:
        value = wire.get(name)
        if isinstance(value, int) and value > 0:
            return value
    return None


def with_doubled_max_tokens(wire: Wire) -> Wire | None:
    """`wire` with room for twice as many tokens, None where it has no limit to widen."""
    limit = reply_limit(wire)
    if limit is None:
        return None
    return {name: 2 * limit if name in NAMES and value is not None else value for name, value in wire.items()}
