"""sqlite-utils, imported without pandas.

It imports pandas where that is installed, only to know the type of its timestamps. That takes as long as everything else that
`critic-prm label` imports.
"""

from __future__ import annotations

import sys

__all__ = ["Database", "Migrations"]

if "pandas" in sys.modules:
    from sqlite_utils import Database, Migrations
else:
    sys.modules["pandas"] = None  # type: ignore[assignment]  # an import of it fails, and sqlite-utils does without
    try:
        from sqlite_utils import Database, Migrations
    finally:
        del sys.modules["pandas"]
