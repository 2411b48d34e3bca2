"""Runs in, one self-contained HTML file out: markup, style, script and data, and a policy that lets it load nothing else."""

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
"""The page's script, in this order, as one: a page that opens from a disk cannot load modules."""


def render(runs: Sequence[Run], title: str = "critic-prm report") -> str:
    """The page. Nothing that a judge or a dataset said is markup in it: all of it is in packed data, shown as text."""
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
    pieces = page.split("%%")  # text, NAME, text, NAME, ..., text: what is put in is never searched for names again
    return "".join(parts[piece] if place % 2 else piece for place, piece in enumerate(pieces))


def write_report(runs: Sequence[Run], out: Path, title: str = "critic-prm report") -> int:
    """Write the page to `out`, whole or not at all; its size in bytes. Raises InputError when it cannot be written."""
    content = render(runs, title).encode("utf-8", "replace")
    try:
        write_whole(out, content)
    except OSError as error:
        raise InputError(str(out), f"cannot be written: {error.strerror}", "choose another place with -o") from None
    return len(content)


def _policy(style: str, script: str) -> str:
    """A Content-Security-Policy under which this style and this script work, and nothing is fetched, sent or framed."""
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
