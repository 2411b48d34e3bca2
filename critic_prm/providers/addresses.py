"""Inspect server URLs: detect local servers, and separate credentials from the address."""

from __future__ import annotations

import ipaddress
from base64 import b64encode
from urllib.parse import parse_qsl, unquote, urlsplit


def is_near(url: str | None) -> bool:
    """Whether a URL refers to this machine or to a private network."""
    host = (urlsplit(url).hostname or "") if url else ""
    if host == "localhost" or host.endswith((".localhost", ".local", ".internal")):
        return True
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return bool(host) and "." not in host  # a host name in the local network, a container or a cluster


def without_secrets(url: str | None) -> str | None:
    """Return a URL that may be stored and shown: without user, password, query and fragment."""
    if url is None:
        return None
    return urlsplit(without_credentials(url))._replace(query="", fragment="").geturl()


def secrets_in(url: str | None) -> tuple[str, ...]:
    """Return the secrets in a URL: the password, alone and as user:password, and query values other than api-version."""
    parts = urlsplit(url or "")
    password = unquote(parts.password or "")
    both = f"{unquote(parts.username or '')}:{password}"
    queried = [value for name, value in parse_qsl(parts.query) if name != "api-version"]
    return tuple(filter(None, (password, both if password else "", *queried)))


def basic_credentials(url: str) -> str | None:
    """Return the Authorization header value for a URL's user and password; None without them."""
    parts = urlsplit(url)
    if parts.username is None:
        return None
    said = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {b64encode(said.encode()).decode()}"


def without_credentials(url: str) -> str:
    """Return a URL without user and password, for a client that gets them another way."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def with_path(url: str, path: str) -> str:
    """Append `path` to a server's URL without credentials. The query is kept: some gateways need an api-version there."""
    parts = urlsplit(without_credentials(url))
    return parts._replace(path=parts.path.rstrip("/") + path).geturl()
