"""Messages on stderr by --quiet and --verbose; streams and consoles that escape what servers and files send; plain tables."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Verbosity = Literal["quiet", "normal", "verbose"]
_verbosity: Verbosity = "normal"

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def verbosity() -> Verbosity:
    """What the user wants to read on stderr."""
    return _verbosity


@contextmanager
def with_verbosity(wanted: Verbosity) -> Iterator[None]:
    """Context manager: set the verbosity of this process."""
    global _verbosity
    before, _verbosity = _verbosity, wanted
    try:
        yield
    finally:
        _verbosity = before


def say(text: str) -> None:
    """Print a message to stderr at once: an error, a warning or a result."""
    print(text, file=sys.stderr, flush=True)


def note(text: str) -> None:
    """Print what is good to know while a command runs; nothing with --quiet."""
    if _verbosity != "quiet":
        say(text)


def detail(text: str) -> None:
    """Print what helps to find out why something went wrong; only with --verbose."""
    if _verbosity == "verbose":
        say(text)


def safe_text(text: str) -> str:
    """Escape control characters, line separators, bidirectional controls and lone surrogates, for example ESC as \\u001b.

    Newlines and tabs stay. The escapes are those of JSON, so JSON keeps its meaning.
    """
    return _UNSAFE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


class SafeStream:
    """A text stream that escapes text with `safe_text` before writing it to `rich_proxied_file`.

    rich looks for an attribute of this name on replaced streams and writes its own control sequences there directly.
    """

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        # Progress bars of libraries begin with a carriage return; a leading one cannot overwrite other text of this write.
        start = "\r" if text.startswith("\r") else ""
        self.rich_proxied_file.write(start + safe_text(text[len(start) :]))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    @property
    def buffer(self) -> Any:
        """The byte stream. On a terminal, bytes are escaped like text."""
        buffer = self.rich_proxied_file.buffer
        return SafeBytes(buffer) if self.rich_proxied_file.isatty() else buffer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


class SafeBytes:
    """The byte stream of a terminal. It escapes what is written, which must be JSON or other UTF-8 text."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, content: bytes) -> int:
        self._stream.write(safe_text(bytes(content).decode("utf-8", "replace")).encode())
        return len(content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def safe_streams() -> Iterator[None]:
    """Context manager: escape what is printed to stderr, and to stdout if it is a terminal.

    Output to files and pipes is not changed, because it is JSON.
    """
    out, err = sys.stdout, sys.stderr
    sys.stderr = SafeStream(err)
    if out is not None and out.isatty():
        sys.stdout = SafeStream(out)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err


def safe_console(*, markup: bool = False, **given: Any) -> Console:
    """Create a rich console that escapes its text. Markup is off by default, so "[red]" in a model's name is printed as is."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class SafeConsole(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else safe_text(text), style, control)

    return SafeConsole(markup=markup, emoji=False, **given)


def plain_table(headings: Iterable[str], rows: Iterable[Iterable[object]], gap: int = 2, no_wrap: bool = False) -> Table:
    """Create a table without lines. The first column is left-aligned, the others are right-aligned; long words are broken."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, gap, 0, 0))
    for place, heading in enumerate(headings):
        table.add_column(Text(heading), justify="right" if place else "left", no_wrap=no_wrap, overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    return table


def percent(value: float | None, low: float | None = None, high: float | None = None, sign: str = "") -> str:
    """Format a share in percent, with its interval if known: "71.2 [68.0, 74.1]". `sign` is "+" to show the sign."""
    if value is None:
        return "-"
    return f"{100 * value:{sign}.1f}{interval(low, high, f'{sign}.1f', 100)}"


def interval(low: float | None, high: float | None, form: str, scale: int = 1) -> str:
    """Format an interval in brackets, after a space; "" if it is unknown."""
    return "" if low is None or high is None else f" [{scale * low:{form}}, {scale * high:{form}}]"
