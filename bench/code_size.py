"""Count the files and lines of code of critic_prm and distill, without blank lines, comments and docstrings.

Run `python bench/code_size.py`.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}

WATCHED = """
import atexit, sys
def show():
    print(*(name for name in sys.modules if name.split(".")[0] in ("critic_prm", "distill")), sep="\\n", file=sys.stderr)
atexit.register(show)
from critic_prm.cli import main
main()
"""


def code_lines(source: str) -> int:
    """The lines that hold a token other than a comment, without strings that stand alone as statements."""
    strings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            strings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {line for token in tokens if token.type not in LAYOUT for line in range(token.start[0], token.end[0] + 1)}
    return len(lines - strings)


def loaded(*arguments: str) -> list[str]:
    """The modules of ours that a command imports."""
    done = subprocess.run([sys.executable, "-c", WATCHED, *arguments], capture_output=True, text=True, cwd=ROOT, check=False)
    return [line for line in done.stderr.splitlines() if line.startswith(("critic_prm", "distill"))]


def main() -> None:
    sources = {path: path.read_text("utf-8") for top in ("critic_prm", "distill") for path in (ROOT / top).rglob("*.py")}
    small = [path for path, source in sources.items() if source.count("\n") < 40 and path.name != "__init__.py"]
    print(f"{len(sources)} Python files, {len(small)} of them under 40 lines (without __init__)")
    lines, code = sum(source.count("\n") for source in sources.values()), sum(map(code_lines, sources.values()))
    print(f"{lines:,} lines, of them code: {code:,}")
    print(f"modules imported by `critic-prm --help`: {len(loaded('--help'))}")


if __name__ == "__main__":
    main()
