"""Render runs as one self-contained HTML file with a content security policy that blocks other resources."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from pathlib import Path

from critic_prm.data.records.reading import write_whole
from critic_prm.errors import InputError
from critic_prm.evaluate.report.payload import data_of
from critic_prm.evaluate.report.runs import Run

PAGE = Path(__file__).with_name("page")
SCRIPTS = ("start.js", "store.js", "dom.js", "charts.js", "overview.js", "list.js", "detail.js", "main.js")
"""The scripts of the page, concatenated in this order: a page opened from disk cannot load modules."""


def render(runs: Sequence[Run], title: str = "critic-prm report") -> str:
    """Render the page. Text from judges and datasets is never inserted as markup; it is stored in packed data and shown as
    text."""
    style = (PAGE / "page.css").read_text("utf-8")
    script = "".join((PAGE / name).read_text("utf-8") for name in SCRIPTS)
    index, texts = data_of(runs)
    data = [f'<script type="application/x-packed" id="index">{index}</script>']
    data += [f'<script type="application/x-packed" class="block">{block}</script>' for block in texts]
    parts = {
        "TITLE": escape(title),
        "POLICY": _policy(style, script),
        "STYLE": style,
        "DATA": "\n".join(data),
        "SCRIPT": script,
    }
    page = (PAGE / "page.html").read_text("utf-8")
    pieces = page.split("%%")  # text, NAME, text, NAME, ..., text: inserted values are never searched for names
    return "".join(parts[piece] if place % 2 else piece for place, piece in enumerate(pieces))


def write_report(runs: Sequence[Run], out: Path, title: str = "critic-prm report") -> int:
    """Write the page to `out` atomically and return its size in bytes. Raises InputError if it cannot be written."""
    content = render(runs, title).encode("utf-8", "replace")
    try:
        write_whole(out, content)
    except OSError as error:
        raise InputError(str(out), f"cannot be written: {error.strerror}", "choose another place with -o") from None
    return len(content)


def _policy(style: str, script: str) -> str:
    """A Content-Security-Policy that allows this style and this script, and no fetching, sending or framing."""
    return "; ".join(
        (
            "default-src 'none'",
            f"style-src '{_digest(style)}'",
            f"script-src '{_digest(script)}'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
