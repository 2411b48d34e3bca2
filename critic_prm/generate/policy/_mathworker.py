"""Worker process that compares answers with math-verify.

It reads one JSON pair [answer, gold answer] per line on stdin and writes true or false on stdout. The parent kills it when a
comparison hangs.
"""

from __future__ import annotations

import json
import sys


def main() -> None:
    """Answer comparisons from stdin until it closes."""
    from importlib import import_module

    math_verify = import_module("math_verify")
    parse, verify = math_verify.parse, math_verify.verify

    for line in sys.stdin:
        answer, gold = json.loads(line)
        try:
            # math-verify's own timeouts are off: the parent enforces the time limit without relying on signals.
            pair = [parse(_mathematics(text), parsing_timeout=None) for text in (gold, answer)]
            same = all(pair) and bool(verify(*pair, timeout_seconds=None))
        except Exception:  # model output is arbitrary: an answer that cannot be compared counts as wrong
            same = False
        print(json.dumps(same), flush=True)


def _mathematics(text: str) -> str:
    """Wrap a bare answer in dollar signs; math-verify reads LaTeX only inside them."""
    return text if "$" in text or "\\boxed" in text else f"${text}$"


if __name__ == "__main__":
    main()
