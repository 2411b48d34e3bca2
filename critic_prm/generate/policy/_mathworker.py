"""Lines of JSON with an answer and the gold answer on stdin -> true or false on stdout, by math-verify; killed when it
hangs."""

from __future__ import annotations

import json
import sys


def main() -> None:
    from importlib import import_module

    math_verify = import_module("math_verify")
    parse, verify = math_verify.parse, math_verify.verify

    for line in sys.stdin:
        answer, gold = json.loads(line)
        try:
            # Without its own timeouts: the parent process keeps the time, and does not depend on signals.
            pair = [parse(_mathematics(text), parsing_timeout=None) for text in (gold, answer)]
            same = all(pair) and bool(verify(*pair, timeout_seconds=None))
        except Exception:  # whatever a model wrote: an answer that cannot be compared is not the gold answer
            same = False
        print(json.dumps(same), flush=True)


def _mathematics(text: str) -> str:
    """As LaTeX: a bare answer is only read as such between dollar signs."""
    return text if "$" in text or "\\boxed" in text else f"${text}$"


if __name__ == "__main__":
    main()
