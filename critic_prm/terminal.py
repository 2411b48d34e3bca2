"""Everything printed passes here: streams and rich consoles that let no control character of a server or a file through."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

from critic_prm.safe_text import safe_text

if TYPE_CHECKING:
    from rich.console import Console


class SafeStream:
    """A text stream that writes `safe_text` to `rich_proxied_file`: where rich, by its own rule for streams that are
    replaced, writes the control sequences of tables and colours itself."""

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        # A progress bar of a library begins each of its lines anew; at the start of a line nothing is overwritten by that.
        start = "\r" if text.startswith("\r") else ""
        self.rich_proxied_file.write(start + safe_text(text[len(start) :]))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    @property
    def buffer(self) -> Any:
        """For bytes: data, which goes to a terminal as text does."""
        buffer = self.rich_proxied_file.buffer
        return SafeBytes(buffer) if self.rich_proxied_file.isatty() else buffer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


class SafeBytes:
    """The bytes of a terminal: what is written is JSON or text in UTF-8."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, content: bytes) -> int:
        self._stream.write(safe_text(bytes(content).decode("utf-8", "replace")).encode())
        return len(content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def safe_streams() -> Iterator[None]:
    """Within it, what is printed to stderr, and to stdout where that is a terminal, is safe. Data in files and pipes stays as
    it is: it is JSON."""
    out, err = sys.stdout, sys.stderr
    sys.stderr = SafeStream(err)
    if out is not None and out.isatty():
        sys.stdout = SafeStream(out)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err


def safe_console(*, markup: bool = False, **given: Any) -> Console:
    """A rich console whose texts are safe. They are no markup unless asked for: [red] in a model's name is a name."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class SafeConsole(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else safe_text(text), style, control)

    return SafeConsole(markup=markup, emoji=False, **given)
