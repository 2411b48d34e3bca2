"""Shell completion: what it offers, and the scripts in real shells."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import invoke


def offered(*words: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What bash is offered for the last word."""
    monkeypatch.setenv("COMP_WORDS", "\n".join(("critic-prm", *words)))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    monkeypatch.setenv("_CRITIC_PRM_COMPLETE", "complete_bash")
    return invoke().stdout.split()


@pytest.mark.parametrize(
    ("words", "some"),
    [
        (("lab",), {"label", "labels"}),
        (("dataset", "de"), {"dedupe", "decontaminate"}),
        (("label", "--st"), {"--style"}),
        (("label", "in.jsonl", "--engine", ""), {"local", "ray"}),
        (("label", "in.jsonl", "--style", "st"), {"stepwise"}),
        (("label", "in.jsonl", "--judge", "ru"), {"rules"}),
        (("label", "in.jsonl", "--judge", "anthropic/claude"), {"anthropic/claude-sonnet-5"}),
        (("generate", "sample", "--policy", "vl"), {"vllm/"}),
        (("convert", "in.jsonl", "--to", "process"), {"processbench"}),
        (("score", "ru"), {"rules"}),
    ],
)
def test_commands_options_and_values_are_offered(
    words: tuple[str, ...], some: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = offered(*words, monkeypatch=monkeypatch)
    assert some <= set(shown)
    assert all(one.startswith(words[-1]) for one in shown)


def test_what_is_not_known_is_left_to_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given no word, shells complete file names."""
    assert offered("label", "in", monkeypatch=monkeypatch) == []
    assert offered("label", "in.jsonl", "-o", "x", monkeypatch=monkeypatch) == []


BASH = """
eval "$(critic-prm --show-completion)"
complete -p critic-prm
COMP_WORDS=(critic-prm label in.jsonl --sty) COMP_CWORD=3
_critic_prm_completion critic-prm
printf 'offered %s\\n' "${COMPREPLY[@]}"
"""
ZSH = """
compdef() { print -r -- "compdef $*" }
_arguments() { print -r -- "offered $*" }
words=(critic-prm label in.jsonl --sty) CURRENT=4
eval "$(critic-prm --show-completion)"
_critic_prm_completion
"""
FISH = """
critic-prm --show-completion | source
complete -C 'critic-prm label in.jsonl --sty' | sed 's/^/offered /'
"""


@pytest.mark.parametrize(("shell", "script"), [("bash", BASH), ("zsh", ZSH), ("fish", FISH)])
def test_the_script_of_a_shell_completes_in_that_shell(shell: str, script: str, tmp_path: Path) -> None:
    if (found := shutil.which(shell)) is None:
        pytest.skip(f"{shell} is not installed")
    program = tmp_path / "critic-prm"
    program.write_text(f"#!{sys.executable}\nfrom critic_prm.cli import main\nmain()\n")
    program.chmod(0o755)
    paths = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(sys.path), "HOME": str(tmp_path)}
    (tmp_path / "script").write_text(script)
    run = subprocess.run([found, str(tmp_path / "script")], capture_output=True, text=True, env=os.environ | paths, timeout=120)
    lines = [line for line in run.stdout.splitlines() if line.startswith("offered ")]
    assert lines, run.stderr
    assert "--style" in lines[0]


def test_the_script_is_installed_for_the_shell_that_runs_it(tmp_path: Path) -> None:
    if (bash := shutil.which("bash")) is None:
        pytest.skip("bash is not installed")
    code = "from critic_prm.cli import main; main()"
    line = f'"{sys.executable}" -c "{code}" --install-completion; echo done'
    env = os.environ | {"HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([bash, "-c", line], capture_output=True, text=True, env=env, timeout=120)
    assert "bash completion installed" in run.stdout, run.stderr
    assert (tmp_path / ".bashrc").read_text().startswith("\nsource ")
