"""Count the lines of code of critic_prm and distill: no blank lines, comments or docstrings; and what an import of a command loads.

python bench/code_size.py
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IGNORED = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def code_lines(source: str) -> int:
    """The lines that hold a token other than a comment, without strings that stand alone as statements."""
    strings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            strings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {line for token in tokens if token.type not in IGNORED for line in range(token.start[0], token.end[0] + 1)}
    return len(lines - strings)


def loaded(*arguments: str) -> list[str]:
    """The modules of ours that a command imports."""
    code = f"""
import atexit, sys
atexit.register(lambda: print("\\n".join(m for m in sys.modules if m.split(".")[0] in ("critic_prm", "distill")), file=sys.stderr))
from critic_prm.cli import main
sys.argv = ["critic-prm", *{arguments!r}]
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    return [line for line in done.stderr.splitlines() if line.startswith(("critic_prm", "distill"))]


def main() -> None:
    sources = {path: path.read_text("utf-8") for top in ("critic_prm", "distill") for path in (ROOT / top).rglob("*.py")}
    small = [path for path, source in sources.items() if source.count("\n") < 40 and path.name != "__init__.py"]
    print(f"{len(sources)} Python files, {len(small)} of them under 40 lines (without __init__)")
    print(
        f"{sum(source.count(chr(10)) for source in sources.values()):,} lines, of them code: {sum(map(code_lines, sources.values())):,}"
    )
    print(f"modules imported by `critic-prm --help`: {len(loaded('--help'))}")


if __name__ == "__main__":
    main()
