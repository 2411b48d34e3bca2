"""What reaches a terminal: whatever servers and files say, no control character and no markup of theirs."""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from critic_prm.engine.cache import Attempt, Cache, Entry
from critic_prm.providers.provider import Usage, request_key
from critic_prm.terminal import SafeStream, safe_console, safe_streams
from tests.command import on_a_terminal

HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e[red]x[/][link=http://x]y\r\x08"


def controls(text: str) -> list[str]:
    return [character for character in text if character not in "\n\t" and (ord(character) < 32 or 127 <= ord(character) < 160)]


def test_what_is_printed_is_safe() -> None:
    raw = io.StringIO()
    print(f"error: {HOSTILE}", file=SafeStream(raw))
    assert controls(raw.getvalue()) == []
    assert raw.getvalue().startswith("error: \\u001b[2J")


def test_a_progress_bar_of_a_library_still_works() -> None:
    raw = io.StringIO()
    stream = SafeStream(raw)
    stream.write("\r 50%")
    stream.write("\r 99%\r")
    assert raw.getvalue() == "\r 50%\r 99%\\u000d"


def test_tables_and_lines_of_rich_are_safe_and_keep_their_own_colours() -> None:
    from rich.table import Table
    from rich.text import Text

    raw = io.StringIO()
    console = safe_console(file=raw, force_terminal=True, width=200)
    table = Table(title=HOSTILE)
    table.add_column(HOSTILE)
    table.add_row(HOSTILE)
    console.print(table)
    console.print(Text(HOSTILE))
    console.print(HOSTILE, style="bold")
    shown = raw.getvalue()
    assert "[red]x[/]" in shown
    assert "\x1b[1m" in shown  # bold is ours
    assert "\x1b[2J" not in shown
    assert "\x1b]" not in shown
    assert "\x9b" not in shown
    assert "\u202e" not in shown


def test_rich_writes_past_the_stream_that_replaces_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.StringIO()
    monkeypatch.setattr(sys, "stderr", raw)
    with safe_streams():
        safe_console(stderr=True, force_terminal=True).print("bold", style="bold")
        print(HOSTILE, file=sys.stderr)
    assert sys.stderr is raw
    assert raw.getvalue().count("\x1b") == 2  # bold on, bold off


def test_a_cache_from_elsewhere_shown_on_a_terminal(tmp_path: Path) -> None:
    """Names and replies in a cache, in the table of `cache stats` and the JSON of `cache show`."""
    path = tmp_path / "cache.db"
    cache = Cache(path)
    wire = {"model": "m", "messages": [{"role": "user", "content": "?"}]}
    key = request_key(wire)
    raw = {"text": "\x9b31m\u202e"}
    cache.add(
        [Entry(key, wire, 0, "", "openai", HOSTILE, None, raw, "\x9b31m\u202e", "stop", Usage(1, 1), 0.0)],
        [Attempt(key, "openai", "m", HOSTILE, detail=HOSTILE)],
    )
    cache.close()
    for command in (["cache", "stats"], ["cache", "show", key[:12]], ["cache", "show", HOSTILE.replace("\x07", "")]):
        _, shown = on_a_terminal(*command, "--db", str(path))
        assert "\x1b[2J" not in shown
        assert "\x1b]0" not in shown
        assert "\x9b" not in shown
        assert "\u202e" not in shown


@pytest.mark.parametrize("place", ["message", "code", "location", "model"])
def test_a_label_run_against_a_server_that_sends_escapes(tmp_path: Path, place: str) -> None:
    """An error's message, its code and a Location header cleared the screen and set the title."""
    escapes = "\x1b[2J\x1b]0;owned\x07\u202e"

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        error = {"message": escapes if place == "message" else "no", "code": escapes if place == "code" else "bad"}
        content = orjson.dumps({"error": error})
        # Control characters in a header are refused by aiohttp; these bytes are what it lets through.
        location = b"Location: http://x/\xc2\x9b31m\xff\r\n" if place == "location" else b""
        head = f"HTTP/1.1 {301 if location else 403} X\r\nContent-Length: {len(content)}\r\n".encode()
        writer.write(head + location + b"\r\n" + content)
        await writer.drain()
        writer.close()

    async def run() -> subprocess.CompletedProcess[bytes]:
        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        source = tmp_path / "in.jsonl"
        source.write_bytes(orjson.dumps({"id": "a", "problem": "2+2?", "steps": ["4"]}))
        model = f"openai/{escapes if place == 'model' else 'm'}"
        command = [sys.executable, "-m", "critic_prm", "label", str(source), "-o", str(tmp_path / "out.jsonl")]
        command += ["--db", str(tmp_path / "c.db"), "--judge", model, "--base-url", url, "--max-retries", "0"]
        found = await asyncio.to_thread(subprocess.run, command, capture_output=True)
        server.close()
        return found

    found = asyncio.run(run())
    assert found.returncode == 4
    assert b"Traceback" not in found.stderr
    assert controls(found.stderr.decode()) == []
    assert "\u202e" not in found.stderr.decode()
