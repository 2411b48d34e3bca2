"""The house stands: imports run downward, nothing heavy is imported before it is needed, the wheel's layout is the
checkout's."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def layers() -> dict[str, int]:
    """The import layer of each package, from the list that the tree in the README uses."""
    spec = spec_from_file_location("readme", ROOT / "docs" / "readme.py")
    assert spec
    assert spec.loader
    spec.loader.exec_module(readme := module_from_spec(spec))
    return {name: number for number, names in enumerate(readme.LAYERS, start=1) for name in names}


LAYER = layers()

HEAVY = {"openai", "anthropic", "httpx2", "aiohttp", "sklearn", "scipy", "torch", "transformers", "ray", "vllm", "pyarrow"}
AT_START = HEAVY | {"numpy", "jinja2", "sqlite_utils", "tenacity", "rich.progress"}


def modules() -> list[Path]:
    return sorted(
        p
        for top in ("critic_prm", "distill")
        for p in (ROOT / top).rglob("*.py")
        if p.name != "__init__.py" or p.parent.parent != ROOT
    )


def package_of(dotted: str) -> str:
    """The package or top-level module of "critic_prm.engine.client" ("engine") or "distill.data" ("distill")."""
    parts = dotted.split(".")
    return parts[1] if parts[0] == "critic_prm" and len(parts) > 1 else parts[0]


def imports(path: Path) -> Iterator[str]:
    """Every module of ours that a file imports, inside functions and for type checkers included."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from (name for name in names if name.split(".")[0] in ("critic_prm", "distill"))


@cache
def edges() -> dict[tuple[str, str], str]:
    """(importing package, imported package) -> one import that does it. The lazy public names of `critic_prm` are left out."""
    found = {}
    for path in modules():
        for name in imports(path):
            if (a := package_of(dotted_name(path))) != (b := package_of(name)) and a != "critic_prm":
                found[a, b] = f"{dotted_name(path)} imports {name}"
    return found


def dotted_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_at_start(path: Path) -> Iterator[str]:
    """What a module imports when it is imported itself: not inside functions, not for type checkers."""
    waiting: list[ast.AST] = list(ast.parse(path.read_text("utf-8")).body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting.extend(node.orelse)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where things are"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            waiting.extend(ast.iter_child_nodes(node))


def test_every_package_has_a_layer() -> None:
    assert {package_of(dotted_name(path)) for path in modules()} <= set(LAYER), "add it to LAYERS in docs/readme.py"


def test_imports_run_downward() -> None:
    assert [told for (a, b), told in edges().items() if LAYER.get(b, 0) > LAYER[a]] == []


def test_the_packages_have_no_import_cycle() -> None:
    graph: dict[str, set[str]] = {}
    for a, b in edges():
        graph.setdefault(a, set()).add(b)
    list(TopologicalSorter(graph).static_order())  # raises CycleError, which names the cycle


def test_no_underscore_module_is_imported_from_another_package() -> None:
    modules_of_ours = {dotted_name(path) for path in modules()}
    found = []
    for path in modules():
        for name in imports(path):
            module = name if name in modules_of_ours else name.rpartition(".")[0]
            if "._" in module.replace("__", "") and package_of(module) != package_of(dotted_name(path)):
                found.append(f"{dotted_name(path)} imports {module}")
    assert not found, "give it a public name, or import something else"


@cache
def on_torch() -> set[str]:
    """The modules of distill that are torch through and through: they import it at their top; only functions import them."""
    found = {dotted_name(p) for p in modules() if "torch" in {name.split(".")[0] for name in imported_at_start(p)}}
    return {name for name in found if name.startswith("distill.")}


def test_nothing_heavy_is_imported_by_a_module_of_the_base() -> None:
    found, torch = list[str](), on_torch()
    for path in modules():
        names = list(imported_at_start(path))
        heavy = {name.split(".")[0] for name in names} & HEAVY
        if dotted_name(path) in torch:
            heavy -= {"torch"}
        else:
            heavy |= {name for name in names if name in torch or name.rpartition(".")[0] in torch}
        found += [f"{dotted_name(path)} imports {name} at its top" for name in sorted(heavy)]
    assert not found, "import it in the function that needs it"


def test_a_module_says_in_one_line_what_flows_through_it() -> None:
    first = {
        dotted_name(path): (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").split("\n")[0] for path in modules()
    }
    assert [name for name, line in first.items() if len(line) <= 15] == []


OPTIONS_OF_ALL_COMMANDS = """
from critic_prm.cli import build
waiting = [build()]
for command in waiting:
    command.params
    waiting += getattr(command, "commands", {}).values()
"""


@pytest.mark.parametrize("what", ["import critic_prm", OPTIONS_OF_ALL_COMMANDS, "import distill"])
def test_starting_is_light(what: str) -> None:
    code = f"{what}\nimport sys; print(' '.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not AT_START & set(loaded)


def test_the_cache_does_without_pandas_and_leaves_it_to_others(tmp_path: Path) -> None:
    """sqlite-utils imports it where it is installed."""
    (tmp_path / "pandas.py").write_text("class Timestamp: ...")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import critic_prm.engine.cache"
    code += "; assert 'pandas' not in sys.modules; import pandas; print(pandas.Timestamp.__name__)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "Timestamp\n"


def test_the_help_of_all_commands_imports_no_command() -> None:
    code = "from critic_prm.cli import main\ntry: main(['--help'])\nfinally: import sys; print(' '.join(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "distill" in shown
    loaded = [name for name in shown.splitlines()[-1].split() if name.startswith(("critic_prm", "distill"))]
    assert len(loaded) < 12, loaded


def test_labelling_a_row_imports_few_modules(tmp_path: Path) -> None:
    """A native file is read without the modules of the other formats, and one judge without those of several."""
    (tmp_path / "in.jsonl").write_text('{"id": "a", "problem": "What is 1 + 1?", "steps": ["1 + 1 = 2"]}\n')
    (tmp_path / "replies.jsonl").write_text('{"text": "Step 1: It is right.\\nThe step is \\\\boxed{correct}"}\n')
    words = ["label", "in.jsonl", "--judge", "scripted/replies.jsonl", "--db", "cache.db", "-o", "labels.jsonl"]
    code = f"from critic_prm.cli import main\ntry: main({words})\nfinally: import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert '"status":"ok"' in (tmp_path / "labels.jsonl").read_text().replace(" ", "")
    loaded = [name for name in done.stdout.split() if name.startswith(("critic_prm", "distill"))]
    assert len(loaded) <= 80, sorted(loaded)


CLOCKS = {
    f"time.{name}{unit}"
    for name in ("monotonic", "perf_counter", "process_time", "thread_time", "time")
    for unit in ("", "_ns")
}
SLEEPS = {"time.sleep", "asyncio.sleep"}
MAY_WAIT = {"tests/effort.py"}


def clocks_and_sleeps(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of every clock that is read or handed on, timer, and sleep longer than 0, whatever they are imported as."""
    if not re.search(r"\b(time|sleep|Timer)\b", source):
        return
    tree = ast.parse(source)
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            start = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            names |= {alias.asname or alias.name: start + alias.name for alias in node.names}

    def dotted(node: ast.expr) -> str:
        first, *rest = ast.unparse(node).split(".")
        return ".".join([names.get(first, first), *rest])

    for node in ast.walk(tree):
        if (isinstance(node, ast.Attribute | ast.Name) and dotted(node) in CLOCKS | {"threading.Timer"}) or (
            isinstance(node, ast.Call) and dotted(node.func) in SLEEPS and ast.unparse(node.args[0]) != "0"
        ):
            yield node.lineno, ast.unparse(node)


@pytest.mark.parametrize(
    "source",
    [
        "import time\nassert time.perf_counter() < 2",
        "from time import monotonic as now\nnow()",
        "import time as t\nt.sleep(0.1)",
        "import asyncio\nasyncio.sleep(0.01)",
        "from asyncio import sleep\nsleep(wait)",
        "import threading\nthreading.Timer(0.05, f).start()",
        "import time\nclock = time.process_time",
    ],
)
def test_clocks_and_sleeps_are_found(source: str) -> None:
    assert list(clocks_and_sleeps(source))
    assert not list(clocks_and_sleeps("import asyncio, time\nasyncio.sleep(0)\ntime.strftime('%Y')"))


def test_no_test_reads_a_clock_or_sleeps() -> None:
    """Such a test fails on a slow or busy machine; tests/effort.py has what to use instead. Measured times belong to bench/."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if str(path.relative_to(ROOT)) not in MAY_WAIT
        for line, text in clocks_and_sleeps(path.read_text("utf-8"))
    ]
    assert not found, "count work, or wait for a condition: see tests/effort.py"


def test_no_model_folder_can_bring_code_or_pickles() -> None:
    """Without `trust_remote_code=False` transformers asks on stdin whether to run a folder's code; without
    `use_safetensors=True` it unpickles weights."""
    bad = []
    for path in [*modules(), *sorted((ROOT / "bench").glob("*.py"))]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "from_pretrained":
                given = {k.arg: ast.unparse(k.value) for k in node.keywords}
                of_model = (
                    not any(word in ast.unparse(node.func) for word in ("Tokenizer", "Config")) and "gguf_file" not in given
                )
                if given.get("trust_remote_code") != "False" or (of_model and given.get("use_safetensors") != "True"):
                    bad.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not bad


def test_rich_consoles_are_safe_ones() -> None:
    """A console that is made elsewhere lets control characters of servers and files through, and takes [red] for markup."""
    found = [
        f"{dotted_name(path)}:{node.lineno}"
        for path in modules()
        if dotted_name(path) != "critic_prm.terminal"
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "Console"
    ]
    assert not found, "use critic_prm.terminal.safe_console"
