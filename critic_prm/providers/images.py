"""Convert image names in trajectories to the URLs that are sent, and restrict which files are read."""

from __future__ import annotations

import base64
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from critic_prm.errors import InputError

MOST_BYTES = 20_000_000

_PLACE = re.compile(r":\d+(?: \(record \d+\))?$")


class ImageError(InputError):
    """An image that cannot be sent. Only its own row fails."""


class ImageName(str):
    """The name of an image from a data file; `where` is the file and line.

    Names from Python callers are plain strings and are not restricted.
    """

    where: str

    def __new__(cls, name: str, where: str = "") -> ImageName:
        made = super().__new__(cls, name)
        made.where = where
        return made

    @property
    def folder(self) -> Path:
        """The folder of the data file; the current folder for stdin."""
        return Path(_PLACE.sub("", self.where)).parent


def from_data(names: Iterable[str], where: str) -> tuple[str, ...]:
    """Mark image names as coming from a data file at `where`."""
    return tuple(ImageName(name, where) for name in names)


def data_url(image: str, root: Path | None = None) -> str:
    """Return the URL to send for an image: `data:` and `https:` URLs unchanged (nothing is fetched), a file as a data URL.

    A file named by an `ImageName` must be below the folder of its data file or below `root`, after resolving links. A relative
    name is looked up in the current folder, then in the folder of the data file. Every file must be a regular file of at most
    20 MB that starts like a PNG, JPEG, GIF or WebP. Raises ImageError.
    """
    head = image[:8].lower()
    if head.startswith(("data:", "https://")):
        return str(image)
    where = getattr(image, "where", "") or "images"
    shown = repr(str(image) if len(image) <= 100 else image[:100] + "...")
    if head.startswith("http://"):
        raise ImageError(where, f"the image {shown} has an http address", "use https, a data URL or a file")
    try:
        path = _allowed(image, root) if isinstance(image, ImageName) else Path(image)
        if path is None:
            fix = "move it below the folder of the input, or name its folder with --image-root"
            raise ImageError(where, f"the image {shown} is outside the folder of the input", fix)
        content = _read(path)
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ImageError(where, f"the image {shown} cannot be read: {reason}", "fix the name, or give a data URL") from None
    if isinstance(content, str):
        raise ImageError(where, f"the image {shown} {content}", "give a PNG, JPEG, GIF or WebP file of at most 20 MB")
    return f"data:{_media_type(content)};base64,{base64.b64encode(content).decode()}"


def _allowed(image: ImageName, root: Path | None) -> Path | None:
    """Return the path with links resolved, or None if it is outside the allowed folders."""
    name = Path(image)
    if not name.is_absolute() and not os.path.lexists(name):
        name = image.folder / name
    path = name.resolve(strict=True)
    roots = [image.folder] if root is None else [image.folder, root]
    return path if any(path.is_relative_to(folder.resolve()) for folder in roots) else None


def _read(path: Path) -> bytes | str:
    """Return the content, or a string that says what is wrong. Only the first bytes of a file that is not an image are read."""
    own = path.resolve(strict=True)  # follow the caller's links, but not a link that replaces the file meanwhile
    descriptor = os.open(own, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(descriptor, "rb", buffering=0) as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return "is not a regular file"
        if status.st_size > MOST_BYTES:
            return f"has {status.st_size:,} bytes"
        content = file.read(12)
        if not _media_type(content):
            return "does not begin as an image does"
        while len(content) <= MOST_BYTES and (chunk := file.read(MOST_BYTES + 1 - len(content))):
            content += chunk
    return content if len(content) <= MOST_BYTES else "has more than 20 MB"


def _media_type(content: bytes) -> str:
    """Detect the media type by the first bytes, never by the name; empty if it is not an image."""
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if content.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if content.startswith(b"RIFF") and content[8:12] == b"WEBP" else ""
