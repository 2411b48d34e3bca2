"""Names of images in trajectories -> the URLs that are sent; a file is read only if it may be and if it is an image."""

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
    """An image that is not sent. It costs its own row."""


class ImageName(str):
    """The name of an image that a file of data gave; `where` is the file and line. Names that a Python caller gives are plain
    strings, and the caller's own business."""

    where: str

    def __new__(cls, name: str, where: str = "") -> ImageName:
        made = super().__new__(cls, name)
        made.where = where
        return made

    @property
    def folder(self) -> Path:
        """The folder of the file that gave the name; the current folder for stdin."""
        return Path(_PLACE.sub("", self.where)).parent


def from_data(names: Iterable[str], where: str) -> tuple[str, ...]:
    """Names of images as they stand in a file of data."""
    return tuple(ImageName(name, where) for name in names)


def data_url(image: str, root: Path | None = None) -> str:
    """What is sent for an image: `data:` and `https:` URLs as they are (nothing is fetched here), a file as a data URL.

    A file that an `ImageName` names must lie below the folder of its data or below `root`, links resolved. A relative name
    counts from the current folder or, where nothing is there, from the folder of the data. Every file must be a regular one
    that begins as a PNG, JPEG, GIF or WebP and has at most 20 MB. Raises ImageError.
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
            mend = "put it below the folder of the input, or name its folder with --image-root"
            raise ImageError(where, f"the image {shown} lies outside the folder of the input", mend)
        content = _read(path)
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ImageError(where, f"the image {shown} cannot be read: {reason}", "fix the name, or give a data URL") from None
    if isinstance(content, str):
        raise ImageError(where, f"the image {shown} {content}", "give a PNG, JPEG, GIF or WebP file of at most 20 MB")
    return f"data:{_media_type(content)};base64,{base64.b64encode(content).decode()}"


def _allowed(image: ImageName, root: Path | None) -> Path | None:
    """The file without links, None where it lies outside."""
    name = Path(image)
    if not name.is_absolute() and not os.path.lexists(name):
        name = image.folder / name
    path = name.resolve(strict=True)
    roots = [image.folder] if root is None else [image.folder, root]
    return path if any(path.is_relative_to(folder.resolve()) for folder in roots) else None


def _read(path: Path) -> bytes | str:
    """The content, or what is wrong with the file. Nothing of a file of another kind is read but its first bytes."""
    own = path.resolve(strict=True)  # a link of the caller's own is followed, one that appears meanwhile is not
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
    """Told by the first bytes, never by the name; empty for anything that is no image."""
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if content.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if content.startswith(b"RIFF") and content[8:12] == b"WEBP" else ""
