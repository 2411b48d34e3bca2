"""Recipes: every command of them exists, each runs from end to end with a scripted policy and judge, and goes on where it
stopped."""

from __future__ import annotations

import re
import sys
from functools import cache
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson
import pytest

from critic_prm.cli import build
from critic_prm.cli.recipe import Order, carry_out, costs, open_recipe, recipe_names, steps_of
from critic_prm.errors import CriticPrmError, InputError, UsageError
from critic_prm.generate.family import generate_family
from critic_prm.providers.provider import Wire
from critic_prm.providers.scripted import ScriptedProvider

SYSTEMS = {"math-shepherd", "omegaprm", "thinkprm", "genprm", "qwen-consensus", "fover", "graphprm", "agentprm"}
SMALL = {
    "math-shepherd": {"solutions": "4", "rollouts": "2"},
    "omegaprm": {"rollouts": "4", "searches": "2", "budget": "8"},
    "thinkprm": {"samples": "2"},
    "genprm": {"solutions": "4", "rollouts": "4@0,2@0.5", "samples": "2"},
    "qwen-consensus": {"solutions": "4", "rollouts": "2"},
    "fover": {"logic": "40", "algebra": "40"},
    "graphprm": {"trajectories": "40", "problems": "2", "solutions": "4", "rollouts": "2"},
    "agentprm": {},
}


def lines(path: Path, *rows: Any) -> Path:
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


GOOD = "It says what will be done, which is the right thing to do here.\nThe step is \\boxed{correct}"
RIGHT, WRONG = "7 boxes of 12 eggs hold 7 * 12 = 84 eggs.", "7 boxes of 12 eggs hold 7 * 12 = 94 eggs, as far as I see."


@cache
def graphs() -> dict[str, str | None]:
    """Problems of the recipe graphprm, with their answers."""
    return {t.problem: t.gold_answer for t in generate_family("graphs", 40)}


def policy(model: str, base_url: str | None) -> ScriptedProvider:
    """Right every other time; from a wrong step on never again."""
    golds, turn = graphs(), count()

    def answer(wire: Wire) -> dict[str, Any]:
        asked = str(wire["messages"][-1]["content"])
        problem, _, so_far = asked.removeprefix("Problem:\n").partition("\n\nThe solution so far:")
        shown = len(re.findall(r"^Step \d+:", so_far, re.MULTILINE))
        right = WRONG not in so_far and (RIGHT in so_far or next(turn) % 2 == 0)
        end = f"The answer is \\boxed{{{golds.get(problem.strip(), '84') if right else '94 eggs'}}}"
        steps = ["We multiply the boxes by the eggs.", RIGHT if right else WRONG, end]
        return {"text": "\n\n".join(f"Step {i}: {text}" for i, text in enumerate(steps, 1) if i > shown) or "Done."}

    return ScriptedProvider(answer)


def judge(model: str, base_url: str | None) -> ScriptedProvider:
    """Finds the wrong step, and gives every other one a good word."""

    def answer(wire: Wire) -> dict[str, Any]:
        asked = str(wire["messages"][-1]["content"])
        steps = re.findall(r"<step_(\d+)_\w+>\n(.*?)\n</step_", asked, re.DOTALL)
        said = []
        for number, text in steps:
            if WRONG in text:
                said.append(f"Step {number}: 7 times 12 is 84 and not 94, so this is wrong.\nThe step is \\boxed{{incorrect}}")
                break
            said.append(f"Step {number}: {GOOD}")
        return {"text": "\n\n".join(said)}

    return ScriptedProvider(answer)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Twelve problems, solutions of them with gold labels, and runs of agents; the models above as a module of the user's."""
    models = ModuleType("pretended")
    models.__dict__.update(policy=policy, judge=judge)
    monkeypatch.setitem(sys.modules, "pretended", models)
    problems = [
        {"id": f"p{i}", "problem": f"How many eggs are in 7 boxes of 12, shop {i}?", "gold_answer": "84"} for i in range(12)
    ]
    first = "We multiply the boxes by the eggs."
    solutions = [
        {**p, "steps": [first, WRONG if i % 2 else RIGHT], "label": 1 if i % 2 else -1} for i, p in enumerate(problems)
    ]
    runs = [
        {
            "id": f"r{i}",
            "problem": f"task {i % 3}",
            "steps": [{"text": f"look {i % 2}", "observation": "found"}, "answer"],
            "reward": i % 2,
        }
        for i in range(24)
    ]
    return {
        "problems": lines(tmp_path / "problems.jsonl", *problems),
        "solutions": lines(tmp_path / "solutions.jsonl", *solutions),
        "runs": lines(tmp_path / "runs.jsonl", *runs),
    }


def run(*arguments: str) -> int:
    return build()(["generate", *arguments], standalone_mode=False) or 0


def command(world: dict[str, Path], name: str, out: Path) -> list[str]:
    found = open_recipe(name)
    source = [] if found.needs == "nothing" else [str(world[found.needs])]
    models = [part for who in sorted(found.asks) for part in (f"--{who}", f"pretended:{who}/model")]
    settings = [part for key, value in SMALL[name].items() for part in ("--set", f"{key}={value}")]
    return ["recipe", name, *source, "-o", str(out), *models, *settings]


def test_every_published_system_has_its_recipe() -> None:
    assert set(recipe_names()) == SYSTEMS
    for name in recipe_names():
        assert re.search(r"arXiv \d{4}\.\d{5}", open_recipe(name).paper)


@pytest.mark.parametrize("name", sorted(SYSTEMS))
def test_every_stage_is_a_command_with_options_that_exist(name: str, tmp_path: Path) -> None:
    order = Order(tmp_path, "in.jsonl", "openai/a", "openai/b")
    tree = build()
    for step in steps_of(open_recipe(name), order):
        command, arguments = tree, list(step.arguments)
        while hasattr(command, "commands"):  # typer has a click of its own, whose groups are no click.Group
            command = command.commands[arguments.pop(0)]
        assert command is not tree
        command.make_context("x", arguments, resilient_parsing=False)


@pytest.mark.parametrize("name", sorted(SYSTEMS))
def test_every_recipe_runs_and_goes_on_where_it_stopped(
    name: str, world: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "made"
    assert run(*command(world, name, out)) in (0, 3)
    said = capsys.readouterr().err
    recipe = open_recipe(name)
    for stage in recipe.stages:
        made = out / stage.out
        assert made.exists(), said
        assert made.is_dir() or made.stat().st_size > 0, f"{stage.name} made nothing: {said}"
    before = {path: path.read_bytes() for path in out.rglob("*.jsonl")}
    assert run(*command(world, name, out)) == 0
    again = capsys.readouterr().err
    assert again.count("done already") == len(recipe.stages)
    assert {path: path.read_bytes() for path in out.rglob("*.jsonl")} == before
    # What a later stage is made from counts, not when it was made.
    last = recipe.stages[0]
    (out / last.out).unlink()
    assert run(*command(world, name, out)) in (0, 3)
    assert "done already" not in capsys.readouterr().err.splitlines()[0]
    assert {path: path.read_bytes() for path in out.rglob("*.jsonl")} == before


def test_a_dry_run_shows_commands_and_costs(world: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "recipe",
        "math-shepherd",
        str(world["problems"]),
        "--policy",
        "openai/gpt-4o-mini",
        "-o",
        str(tmp_path / "no"),
    ]
    assert run(*arguments, "--dry-run") == 0
    said = capsys.readouterr().out
    assert "critic-prm generate sample" in said
    assert "solutions: 180 requests to the policy" in said
    assert not (tmp_path / "no").exists()
    recipe = open_recipe("math-shepherd")
    order = Order(tmp_path, "x", "nobody/unknown", None, {"solutions": "2"})
    found = costs(recipe, order, 10)
    assert [cost.requests for cost in found] == [20, round(10 * 2 * 0.9 * 7 * 8)]
    assert found[0].usd is None
    priced = Order(tmp_path, "x", "nobody/unknown", None, {"solutions": "2"}, ("--prices", "1,2"))
    assert costs(recipe, priced, 10)[0].usd == pytest.approx((20 * 450 * 1 + 20 * 250 * 2) / 1e6)


def test_what_is_missing_or_unknown_is_said(tmp_path: Path) -> None:
    shepherd = open_recipe("math-shepherd")
    for order, word in (
        (Order(tmp_path), "problems"),
        (Order(tmp_path, "x"), "--policy"),
        (Order(tmp_path, "x", "a/b", settings={"k": "1"}), "no parameter 'k'"),
    ):
        with pytest.raises(UsageError, match=word):
            steps_of(shepherd, order)
    with pytest.raises(UsageError, match="no recipe"):
        open_recipe("nobody")
    broken = tmp_path / "b.toml"
    for text, word in (
        ("about = 1", "paper"),
        ("x = [", "cannot be read"),
        ('about="a"\npaper="b"\nneeds="gold"\nstages=[{}]', "needs"),
    ):
        broken.write_text(text)
        with pytest.raises(InputError, match=word):
            open_recipe(str(broken))


def test_a_stage_with_failed_rows_is_run_again_and_one_that_fails_stops(tmp_path: Path) -> None:
    steps = steps_of(open_recipe("fover"), Order(tmp_path))
    codes = iter([3, 0, 1])
    ran: list[str] = []

    def fake(arguments: Any) -> int:
        ran.append(arguments[1])
        Path(arguments[arguments.index("-o") + 1]).write_text("{}\n")
        return next(codes)

    with pytest.raises(CriticPrmError, match="training set"):
        carry_out(steps, tmp_path, fake, lambda line: None)
    codes = iter([0, 0, 0])
    assert carry_out(steps, tmp_path, fake, lambda line: None) == 0
    assert ran == ["logic", "algebra", "build", "logic", "build", "export"]
