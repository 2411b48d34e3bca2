"""End with one line if Ctrl-C is pressed while Python still imports the program; later, `critic_prm.signals` does more."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

_before = sys.excepthook


def _ended(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        _before(kind, error, trace)
        return
    os.write(2, b"interrupted: nothing was done yet; run the same command again\n")
    os._exit(130)


if sys.argv and os.path.basename(sys.argv[0]) in ("critic-prm", "__main__.py", "-m"):  # not where the package is a library
    sys.excepthook = _ended
