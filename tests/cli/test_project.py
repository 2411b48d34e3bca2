"""Defaults from critic-prm.toml: precedence, what a stranger's file may set, and how `config` shows where values come from."""

from __future__ import annotations

import os
from pathlib import Path

import orjson
import pytest

from critic_prm.cli import build
from critic_prm.cli.outputs import owned_outputs
from critic_prm.cli.project import ALSO, PLAIN, REFUSED, is_decided
from critic_prm.cli.recipe import HOLDS
from critic_prm.cli.values import type_shown
from critic_prm.errors import InputError, UsageError
from tests.cli.test_help import leaves
from tests.command import invoke

FILE = Path("critic-prm.toml")
LABEL = ("label", "in.jsonl", "-o", "out.jsonl", "--overwrite")
ROWS = "".join(f'{{"id": "{i}", "problem": "{i}?", "steps": ["{i} + 1 = {i + 1}"]}}\n' for i in range(5))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ours").mkdir()
    monkeypatch.chdir(tmp_path / "ours")
    Path("in.jsonl").write_text(ROWS)


def rows() -> int:
    return len(Path("out.jsonl").read_bytes().splitlines())


def test_flag_before_environment_before_file_before_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert invoke(*LABEL).exit_code == 0
    assert rows() == 5
    FILE.write_text("limit = 1\n[label]\nlimit = 2\n")
    shown = invoke(*LABEL)
    assert shown.stderr.startswith("critic-prm.toml: --limit 2\n"), "what the file changes is said"
    assert rows() == 2, "a command's own table goes before the whole file's"
    monkeypatch.setenv("CRITIC_PRM_LABEL_LIMIT", "3")
    invoke(*LABEL)
    assert rows() == 3
    assert "critic-prm.toml" not in invoke(*LABEL, "--limit", "4").stderr
    assert rows() == 4
    monkeypatch.delenv("CRITIC_PRM_LABEL_LIMIT")
    assert "critic-prm.toml" not in invoke("--no-config", *LABEL).stderr
    assert rows() == 5


def test_keys_of_a_group_flags_and_lists() -> None:
    FILE.write_text('[dataset]\nseed = 7\n[dataset.build]\nmin-agreement = 0.5\n[generate.perturb]\nkinds = "number"\n')
    shown = invoke("config", "dataset", "build", "x", "-o", "y").stdout
    assert [line.split() for line in shown.splitlines() if "critic-prm.toml" in line] == [
        ["--min-agreement", "0.5", "critic-prm.toml"],
        ["--seed", "7", "critic-prm.toml"],
    ]
    FILE.write_text('skip_bad = true\n[label]\njudge = ["rules", "scripted/replies.jsonl"]\nforce = false\n')
    shown = invoke("config", "label").stdout
    values = {line.split()[0]: line.split(maxsplit=1)[1] for line in shown.splitlines()}
    assert values["--judge"].startswith("rules, scripted/replies.jsonl  ")
    assert values["--force"].split() == ["false", "critic-prm.toml"]
    assert values["--skip-bad"].split() == ["true", "critic-prm.toml"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('base-url = "http://evil"', "base-url may not be set here: the file may not name an address"),
        ('[label]\nbase_url = "http://evil"', "may not name an address"),
        ('[label]\ntrust = ["x.toml"]', "may not name code"),
        ('[label]\noption = ["engine=x"]', "may not name code"),
        ('[label]\nout = "/etc/x"', "may not name an output"),
        ("[label]\noverwrite = true", "may not name a file outside its folder, or that files are replaced"),
        ('[label]\ndb = "theirs.db"', "may not name a file outside"),
        ('[label]\nimage-root = "/"', "may not name a file outside"),
        ("[label]\nextra-body = '{}'", "may not name anything a request may hold"),
        ('[label]\nprices = "0,0"', "may not name anything a request may hold or cost"),
        ('[label]\nstyle = "/etc/passwd"', "style is '/etc/passwd'; a file may name a packaged style"),
        ('[label]\nstyle = "../theirs.jinja"', "style is '../theirs.jinja'"),
        ('[label]\njudge = ["my_module:run/x"]', "a file may name a packaged critic"),
        ('[label]\njudge = "../theirs.toml"', "a file may name a packaged critic"),
        ('[label]\neffort = "a b; rm"', "a file may name a word"),
        ("[label]\nsamplse = 4", "label.samplse: no command has such an option; did you mean samples?"),
        ('[label]\nsplit = "0.5,0.5,0"', "label has no option --split"),
        ("[labl]\nsamples = 4", "[labl]: there is no such command; did you mean label?"),
        ("max-conections = 4", "max-conections: no command has such an option; did you mean max-connections?"),
        ("[score]\nlimt = 4", "score.limt: no command has such an option; did you mean limit?"),
        ("[label.more]\nlimit = 4", "'label.more': label has no commands"),
        ("limit = ", "cannot be read: "),
        ("limit = [4]", "limit is [4]; write a text or a number"),
        ("limit = true", "limit is True; write its value"),
        ('skip-bad = "yes"', "skip-bad is 'yes'; write true or false"),
        ("limit = 1979-05-27", "write a text or a number"),
        ("limit = 'x'", "'x'"),
        ("limit = 0", "--limit"),
        ("[label]\nquiet = true", "quiet may not be set here: the file may not name what is printed"),
        ('"a\\nb" = 1', "no command has such an option"),
        ('[label]\n"a\\nb" = 1', "no command has such an option"),
        ('["a\\nb"]\nx = 1', "there is no such command"),
        ('[label]\nstyle = "a\\nb"', "style is 'a\\nb'"),
    ],
)
def test_what_the_file_may_not_say_stops_the_command(text: str, problem: str) -> None:
    FILE.write_text(text)
    Path("../theirs.jinja").write_text("x")
    with pytest.raises(InputError) as error:
        invoke(*LABEL)
    assert str(error.value).startswith("critic-prm.toml: ")
    assert problem in str(error.value)
    assert "\n" not in str(error.value)
    assert not Path("out.jsonl").exists()
    assert invoke("--no-config", *LABEL).exit_code == 0


def test_every_option_of_the_tree_has_a_decision() -> None:
    """Add a new option to HOLDS, ALSO, PLAIN or REFUSED. What is in none of them may not be set."""
    options = [
        (name, one) for name, command in leaves(build(), "") for one in command.params if one.param_type_name == "option"
    ]
    assert sorted({one.name for _, one in options if not is_decided(one)}) == []
    there = {one.name for _, one in options}
    assert sorted({*ALSO, *PLAIN} - there) == [], "there is no such option any more"
    assert not ALSO.keys() & HOLDS.keys()
    assert not (PLAIN | ALSO.keys()) & REFUSED.keys()


def test_no_option_that_names_a_server_a_file_to_write_or_code_may_be_set() -> None:
    """By what the help shows of their values, so that a new one is noticed."""
    for name, command in leaves(build(), ""):
        for one in command.params:
            about = f"{one.name} of {name}"
            if one.param_type_name == "option" and type_shown(one) not in (None, "N", "NUMBER"):
                text = one.help or ""
                if "URL" in text or "ddress" in text or one.name.endswith(("url", "host", "address")):
                    assert one.name in REFUSED, about
                if one.metavar in ("DIR", "FOLDER", "VERIFIER") or "rite" in text.split(" ")[0]:
                    assert one.name in REFUSED or HOLDS.get(one.name) == "writes", about


def test_a_style_beside_the_file_may_be_set() -> None:
    Path("own.jinja").write_text("x")
    FILE.write_text('[label]\nstyle = "own.jinja"\n')
    assert "own.jinja" in invoke("config", "label").stdout


def test_the_stages_of_a_recipe_keep_their_settings() -> None:
    FILE.write_text("limit = 1\n")
    with owned_outputs():
        invoke(*LABEL)
    assert rows() == 5


def test_a_pipe_of_that_name_is_not_waited_for() -> None:
    os.mkfifo(FILE)
    assert invoke(*LABEL).exit_code == 0


def test_config_shows_where_each_value_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    FILE.write_text("max-tokens = 500\n[label]\nsamples = 4\n")
    monkeypatch.setenv("CRITIC_PRM_LABEL_TEMPERATURE", "0.7")
    shown = invoke("config", "label", "in.jsonl", "--limit", "3").stdout.splitlines()
    found = {line.split()[0]: line.split()[1:] for line in shown}
    assert found["--samples"] == ["4", "critic-prm.toml"]
    assert found["--max-tokens"] == ["500", "critic-prm.toml"]
    assert found["--temperature"] == ["0.7", "CRITIC_PRM_LABEL_TEMPERATURE"]
    assert found["--limit"] == ["3", "flag"]
    assert found["--top-p"] == ["not", "set", "default"]
    assert max(map(len, shown)) <= 80
    whole = invoke("config").stdout
    assert [line.split() for line in whole.splitlines() if line.startswith("samples")] == [["samples", "4", "label"]]
    FILE.unlink()
    assert "no critic-prm.toml in this folder" in invoke("config").stdout
    with pytest.raises(UsageError, match="did you mean label"):
        invoke("config", "lable")


def test_config_checks_the_whole_file() -> None:
    FILE.write_text('[rank]\nkept = "pyproject.toml"\n')
    assert invoke(*LABEL).exit_code == 0
    with pytest.raises(InputError, match="kept may not be set here"):
        invoke("config")


def test_a_recipe_may_not_write_beside_its_folder(tmp_path: Path) -> None:
    """`rank --kept NAME` was classed as a word, so that a stranger's recipe could replace a file of the current folder."""
    from critic_prm.cli.recipe import Order, check, open_recipe

    row = 'about = "a"\npaper = "p"\nneeds = "solutions"\n[[stages]]\nname = "x"\nout = "r.jsonl"\n'
    Path("r.toml").write_text(row + 'run = ["rank", "{input}", "--kept", "pyproject.toml"]\n')
    with pytest.raises(InputError, match="kept of rank"):
        check(open_recipe("./r.toml"), Order(Path("out"), "in.jsonl"))


def test_what_verbose_says_names_the_file() -> None:
    FILE.write_text("limit = 2\n")
    assert "--limit 2 (critic-prm.toml)" in invoke("-v", *LABEL).stderr
    assert orjson.loads(Path("out.jsonl").read_bytes().splitlines()[0])["status"] == "ok"


def test_no_password_of_an_address_is_printed() -> None:
    url = ("--base-url", "http://me:a-password@localhost:9/v1?key=a-key")
    shown = (
        invoke("config", "label", *url).stdout
        + invoke("-v", *LABEL, "--judge", "vllm/m", "--segment", "none", "--dry-run", *url).output
    )
    assert shown.count("http://localhost:9/v1") == 2
    assert "a-password" not in shown
    assert "a-key" not in shown
