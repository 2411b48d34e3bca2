"""Texts from servers and files -> texts that may be shown and kept: without terminal control characters, without keys."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote

PART = 8
"""Letters and digits of a key in a row that are cut out, wherever in the key they stand."""

SHORTEST = 6
"""Characters of a key below which it is no key: servers of one's own are given "none" or "EMPTY"."""

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def safe_text(text: str) -> str:
    """`text` with control characters, line separators, bidirectional controls and lone surrogates written out, ESC as
    \\u001b; newlines and tabs stay. The notation is that of JSON, where it means the same character."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def without_keys(text: str, secrets: Iterable[str]) -> str:
    """`text` with every part of a secret of 8 letters and digits or more replaced by "[key]": in any case, with anything but
    letters and digits between them, in base64 and hexadecimal digits and percent-encoded."""
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
    """Every run of 8 letters and digits in what the secrets may be written as."""
    found: set[str] = set()
    for secret in secrets:
        raw = secret.encode()
        # Within a longer text that is encoded, base64 begins at any of three places; the ends belong to its neighbours.
        encoded = [b64encode(b"\0" * shift + raw).decode()[4 if shift else 0 :] for shift in range(3)]
        for form in (secret, quote(secret, safe=""), raw.hex(), *encoded):
            compact = "".join(character.lower()[0] for character in form if character.isalnum())
            found.update(compact[start : start + PART] for start in range(len(compact) - PART + 1))
    return frozenset(found)
