"""Keep keys and passwords out of URLs and messages, and detect local servers."""

from __future__ import annotations

import ipaddress
import re
from base64 import b64encode
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from critic_prm.errors import UsageError

PART = 8
"""Any run of this many consecutive letters and digits of a key is removed."""

SHORTEST = 6
"""Shorter keys are not treated as secrets: local servers are used with "none" or "EMPTY"."""


def is_near(url: str | None) -> bool:
    """Whether a URL refers to this machine or to a private network."""
    host = (urlsplit(url).hostname or "") if url else ""
    if host == "localhost" or host.endswith((".localhost", ".local", ".internal")):
        return True
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return bool(host) and "." not in host  # a host name in the local network, a container or a cluster


def check_address(url: str | None) -> None:
    """Raise UsageError for a server's address without http:// or https://, or without a host."""
    if not url:
        return
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1) > 0:  # .port raises ValueError
            return
        bare = re.sub(r"^(?:https?|ftp|wss?):/*", "", url, flags=re.IGNORECASE).lstrip("/")
        shown = (without_secrets(f"http://{bare}") or "").removeprefix("http://")
        scheme = "http" if is_near(f"http://{bare}") else "https"
    except ValueError:
        shown, scheme = "", ""
    if not shown:
        raise UsageError("--base-url is not an address; write one such as http://localhost:8000/v1")
    raise UsageError(f"--base-url is {shown}; it needs http:// or https://: {scheme}://{shown}")


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


def without_keys(text: str, secrets: Iterable[str]) -> str:
    """Replace every part of a secret of 8 or more letters and digits by "[key]".

    A part is found in upper or lower case, with other characters between its letters and digits, and in base64, hexadecimal or
    percent encoding.
    """
    known = tuple(secret for secret in secrets if len(secret) >= SHORTEST)
    for secret in sorted(known, key=len, reverse=True):
        text = text.replace(secret, "[key]")
    parts = _parts(known)
    places = [place for place, character in enumerate(text) if character.isalnum()]
    compact = "".join(text[place].lower()[0] for place in places)
    spans: list[list[int]] = []
    for start in range(len(compact) - PART + 1):
        if compact[start : start + PART] in parts:
            first, end = places[start], places[start + PART - 1] + 1
            if spans and first <= spans[-1][1]:
                spans[-1][1] = end
            else:
                spans.append([first, end])
    for first, end in reversed(spans):
        text = f"{text[:first]}[key]{text[end:]}"
    return text


@lru_cache(maxsize=32)
def _parts(secrets: tuple[str, ...]) -> frozenset[str]:
    """Return every run of 8 letters and digits in the secrets and their encodings."""
    found: set[str] = set()
    for secret in secrets:
        raw = secret.encode()
        # Inside a longer encoded text, base64 has three possible alignments; the first and last digits mix with neighbours.
        encoded = [b64encode(b"\0" * shift + raw).decode()[4 if shift else 0 :] for shift in range(3)]
        for form in (secret, quote(secret, safe=""), raw.hex(), *encoded):
            compact = "".join(character.lower()[0] for character in form if character.isalnum())
            found.update(compact[start : start + PART] for start in range(len(compact) - PART + 1))
    return frozenset(found)
