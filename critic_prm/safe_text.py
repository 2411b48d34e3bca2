"""Remove API keys and escape terminal control characters in text from servers and files."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote

PART = 8
"""Any run of this many consecutive letters and digits of a key is removed."""

SHORTEST = 6
"""Shorter keys are not treated as secrets: local servers are used with "none" or "EMPTY"."""

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def safe_text(text: str) -> str:
    """Escape control characters, line separators, bidirectional controls and lone surrogates, for example ESC as \\u001b.

    Newlines and tabs stay. The escapes are those of JSON, so JSON keeps its meaning.
    """
    return _UNSAFE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


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
