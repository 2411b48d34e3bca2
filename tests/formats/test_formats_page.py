"""The page about formats shows the table that the formats themselves give."""

from __future__ import annotations

from pathlib import Path

from critic_prm.data.formats.convert import table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "formats.md"


def test_the_table_is_what_the_formats_say() -> None:
    expected = [
        f"| `{name}` | {what} | yes | {'yes' if writes else 'no'} | {own.labels}"
        f" | {'' if own.index_base is None else own.index_base} | {own.neutral} | {own.after_error} |"
        for name, what, writes, own in table()
    ]
    shown = [line for line in PAGE.read_text("utf-8").split("\n") if line.startswith("| `") and not line.startswith("| `--")]
    assert shown == expected
