"""Count the files and lines of code of critic_prm and distill, without blank lines, comments and docstrings, and the modules
that a command imports.

Run `python bench/code_size.py`.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}

WATCH = """
import atexit, sys
def show():
    for name in list(sys.modules):
        if name.split(".")[0] in ("critic_prm", "distill"):
            print("imported:", name, file=sys.stderr)
atexit.register(show)
"""

COMMAND = """
from critic_prm.cli import main
main()
"""

SCORE = """
import asyncio
from critic_prm import Step, Trajectory, open_critic
asyncio.run(open_critic(sys.argv[1]).judge([Trajectory("a", "What is 1 + 1?", (Step("1 + 1 = 2"),))]))
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


def imported(code: str, *arguments: object) -> int:
    """The number of our modules that a program imports. Raises RuntimeError with the program's message if it fails."""
    program = [sys.executable, "-c", WATCH + code, *map(str, arguments)]
    done = subprocess.run(program, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return sum(line.startswith("imported: ") for line in done.stderr.splitlines())


def imports() -> Iterator[tuple[str, int]]:
    """What is run, and the number of modules that it imports."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in.jsonl").write_text('{"id": "a", "problem": "What is 1 + 1?", "steps": ["1 + 1 = 2"]}\n')
        (folder / "replies.jsonl").write_text('{"text": "Step 1: It is right.\\nThe step is \\\\boxed{correct}"}\n')
        label = ("label", folder / "in.jsonl", "--judge", f"scripted/{folder}/replies.jsonl", "--db", folder / "cache.db")
        imported(COMMAND, "quickstart", folder / "demo")
        yield "critic-prm --help", imported(COMMAND, "--help")
        yield "critic-prm label of one row", imported(COMMAND, *label, "-o", folder / "labels.jsonl")
        yield "scoring one row with a stored verifier, from Python", imported(SCORE, folder / "demo" / "verifier")


def main() -> None:
    sources = {path: path.read_text("utf-8") for top in ("critic_prm", "distill") for path in (ROOT / top).rglob("*.py")}
    small = [path for path, source in sources.items() if source.count("\n") < 40 and path.name != "__init__.py"]
    print(f"{len(sources)} Python files, {len(small)} of them under 40 lines (without __init__)")
    lines, code = sum(source.count("\n") for source in sources.values()), sum(map(code_lines, sources.values()))
    print(f"{lines:,} lines, of them code: {code:,}")
    for what, modules in imports():
        print(f"modules of ours imported for {what}: {modules}")


if __name__ == "__main__":
    main()
