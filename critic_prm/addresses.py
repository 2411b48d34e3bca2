"""The address of a server: is it near, whose is it, and what of it may be written down."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def is_near(url: str | None) -> bool:
    """Whether a URL names this machine or an address of a private network."""
    host = (urlsplit(url).hostname or "") if url else ""
    if host == "localhost" or host.endswith((".localhost", ".local", ".internal")):
        return True
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return bool(host) and "." not in host  # a name of the local network, of a container or a cluster


def without_secrets(url: str | None) -> str | None:
    """A URL as it may be stored and shown: no user, password or query."""
    if url is None:
        return None
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=host, query="", fragment="").geturl()
