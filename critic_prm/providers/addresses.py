"""The address of a server: is it near, whose is it, and what of it may be written down."""

from __future__ import annotations

import ipaddress
from base64 import b64encode
from urllib.parse import parse_qsl, unquote, urlsplit


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
    return urlsplit(without_credentials(url))._replace(query="", fragment="").geturl()


def secrets_in(url: str | None) -> tuple[str, ...]:
    """What in a URL nobody else may see: the password, alone and with the user's name, and values in the query."""
    parts = urlsplit(url or "")
    password = unquote(parts.password or "")
    both = f"{unquote(parts.username or '')}:{password}"
    queried = [value for name, value in parse_qsl(parts.query) if name != "api-version"]
    return tuple(filter(None, (password, both if password else "", *queried)))


def basic_credentials(url: str) -> str | None:
    """What a user and a password in a URL say in an Authorization header; None without them."""
    parts = urlsplit(url)
    if parts.username is None:
        return None
    said = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {b64encode(said.encode()).decode()}"


def without_credentials(url: str) -> str:
    """The URL for a client that is told user and password otherwise."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def with_path(url: str, path: str) -> str:
    """The address of `path` at a server, its query kept (some gateways want an api-version there), credentials left out."""
    parts = urlsplit(without_credentials(url))
    return parts._replace(path=parts.path.rstrip("/") + path).geturl()
