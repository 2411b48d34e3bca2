"""A search through the cache: steps cut off replies, nothing paid twice, and the command from its problems to its files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

from bench.simulated import SimulatedCritic, chance
from critic_prm.cli import main
from critic_prm.critics.llm import with_provider as judge_over
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import BudgetError
from critic_prm.generate.policy.answers import Grader
from critic_prm.generate.policy.policy import with_provider as policy_over
from critic_prm.providers.provider import Provider, Wire
from critic_prm.providers.scripted import ScriptedProvider
from critic_prm.search.search import SearchTask, search, search_row, tree_rows
from critic_prm.search.settings import Cut, SearchSettings, StepperOptions
from critic_prm.search.stepper import LLMStepper, open_stepper, without_marker
from critic_prm.search.tree import SearchTree

STEPS = 3


def write(wire: Wire, turn: int) -> Mapping[str, Any]:
    """Goes on from the steps in the question, to the end or to the stop string: as a server would."""
    asked = str(wire["messages"][-1]["content"])
    before = int(re.findall(r"Go on with Step (\d+)", asked)[0]) - 1 if "Go on with" in asked else 0
    lines = []
    for number in range(before + 1, STEPS + 1):
        good = chance(asked, number, turn) < 0.6
        lines.append(
            f"Step {number}: {'right' if good else 'wrong'} {number}.{turn}" + ("\n\n\\boxed{1}" if number == STEPS else "")
        )
    text = "\n\n".join(lines)
    for stop in wire.get("stop", ()):
        text = text.split(stop)[0]
    return {"text": text, "usage": {"prompt_tokens": 7, "completion_tokens": 10}}


TURNS: dict[Path, dict[str, int]] = {}
"""A server that goes on where it stopped: which sample of a question is next, by the cache it is asked for."""


def policy(db: Path, cut: Cut = "stop", **judging: Any) -> tuple[LLMStepper, ScriptedProvider]:
    turns = TURNS.setdefault(db, {})

    def answer(wire: Wire) -> Mapping[str, Any]:
        key = json.dumps(wire)
        turns[key] = turns.get(key, -1) + 1
        return write(wire, turns[key])

    provider = ScriptedProvider(answer)
    return LLMStepper(policy_over(provider, JudgeOptions(db=db, **judging)), StepperOptions(cut=cut)), provider


async def test_a_step_is_cut_off_by_a_stop_string(tmp_path: Path) -> None:
    stepper, provider = policy(tmp_path / "c.db")
    first = await stepper.step("p", ())
    assert first.step.startswith(("right 1", "wrong 1"))
    assert not first.done
    assert provider.asked[0]["stop"] == ["Step 2"]
    last = await stepper.step("p", (first.step, "right 2"))
    assert last.done
    assert "\\boxed{1}" in last.step
    rest = (await stepper.complete("p", (first.step,))).steps
    assert rest[0].startswith(("right 2", "wrong 2"))
    assert rest[-1].endswith("\\boxed{1}")
    await stepper.close()


async def test_without_stop_strings_the_first_step_is_split_off(tmp_path: Path) -> None:
    class NoStops(ScriptedProvider):
        def wire(self, request: Any) -> Wire:
            from critic_prm.errors import UsageError

            if request.sampling.stop:
                raise UsageError("no stop strings here")
            return super().wire(request)

    provider: Provider = NoStops(lambda wire: write(wire, 0))
    stepper = LLMStepper(policy_over(provider, JudgeOptions(db=tmp_path / "c.db")))
    first = await stepper.step("p", ())
    assert first.step.startswith(("right 1", "wrong 1"))
    assert "2." not in first.step
    assert not first.done
    await stepper.close()


@pytest.mark.parametrize(
    ("text", "step"),
    [("Step 2: add\n\n**", "add"), ("**Step 2:** add\n###", "** add"), ("2. add", "add"), ("a\n\n## b", "a\n\n## b")],
)
def test_a_step_is_tidied(text: str, step: str) -> None:
    assert without_marker(text).endswith(step.removeprefix("** "))


async def test_a_cut_or_refused_reply_is_no_step(tmp_path: Path) -> None:
    provider = ScriptedProvider(
        [{"text": "Step 1: half a", "finish": "length", "contains": "long"}, {"text": "", "contains": "no"}]
    )
    stepper = LLMStepper(policy_over(provider, JudgeOptions(db=tmp_path / "c.db", regenerate=0)))
    assert (await stepper.step("long", ())).came == "truncated"
    assert (await stepper.step("no", ())).came == "refused"
    failing = LLMStepper(policy_over(ScriptedProvider([]), JudgeOptions(db=tmp_path / "d.db", max_retries=0)))
    found = await search(SearchTask("1", "p"), failing, SimulatedCritic(), Grader(), SearchSettings(n=4))
    assert found.came == "provider_error"
    await stepper.close()
    await failing.close()


@pytest.mark.parametrize("cut", get_args(Cut))
@pytest.mark.parametrize("method", ["best-of-n", "beam", "dvts", "lookahead", "mcts"])
async def test_a_search_that_is_cut_short_and_run_again_buys_nothing_twice(tmp_path: Path, method: str, cut: Cut) -> None:
    """With a judge that costs, too: both are stopped in the middle; then every request is sent once in all."""
    settings = SearchSettings(method, n=4, width=2, simulations=6, ahead=1)
    asked: list[str] = []

    async def once(db: Path, most: int | None) -> list[Any]:
        stepper, provider = policy(db, cut, max_requests=most)
        judge = ScriptedProvider([{"text": "\\boxed{-1}"}], model="judge")
        critic = judge_over(judge, JudgeOptions(style="first-error", db=db))
        try:
            found = await search(SearchTask("1", "p", "1"), stepper, critic, Grader(), settings)
            return [search_row(found), *tree_rows(found)]
        finally:
            asked.extend(json.dumps([wire, provider.model]) for wire in (*provider.asked, *judge.asked))
            await stepper.close()
            await critic.close()

    with pytest.raises(BudgetError):
        await once(tmp_path / "cut.db", 3)
    resumed = await once(tmp_path / "cut.db", None)
    in_parts = len(asked)
    asked.clear()
    whole = await once(tmp_path / "whole.db", None)
    assert in_parts == len(asked)
    assert len(resumed) == len(whole)
    asked.clear()
    assert await once(tmp_path / "cut.db", None) == resumed
    assert not asked


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("problems.jsonl").write_text(
        json.dumps({"problem": "What is 2 + 3?", "answer": "5"}) + "\n" + json.dumps({"problem": "What is 2 + 4?"}) + "\n"
    )
    rows = [
        {"contains": "2 + 3?\n\nThe solution so far", "text": "Step 2: \\boxed{5}"},
        {"contains": "2 + 4?\n\nThe solution so far", "text": "Step 2: \\boxed{6}"},
        {"contains": "2 + 3", "text": "Step 1: 2 + 3 = 6\n\nStep 2: \\boxed{6}"},
        {"contains": "2 + 3", "text": "Step 1: 2 + 3 = 5\n\nStep 2: \\boxed{5}"},
        {"contains": "2 + 4", "text": "Step 1: 2 + 4 = 6\n\nStep 2: \\boxed{6}"},
    ]
    Path("policy.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["search", "problems.jsonl", "--policy", "scripted/policy.jsonl", "--critic", "rules", "-n", "2", "--width", "2"]
    with pytest.raises(SystemExit) as done:
        main([*command, "-o", "found.jsonl", "--tree", "tree.jsonl"])
    assert done.value.code == 0
    found = [json.loads(line) for line in Path("found.jsonl").read_text().splitlines()]
    assert [row["final_answer"] for row in found] == ["5", "6"]
    assert found[0]["final_answer_correct"] is True
    assert "final_answer_correct" not in found[1]
    tree = [json.loads(line) for line in Path("tree.jsonl").read_text().splitlines()]
    assert {row["id"] for row in tree} == {row["id"] for row in found}
    assert all(row["parent"] is None or row["parent"] < row["node"] for row in tree)
    said = capsys.readouterr().err
    assert "best-of-n, equal tokens" in said.lower()
    assert "beam: 2 problems" in said
    report = json.loads(Path("found.jsonl.run.json").read_text())["search"]
    assert report["search"]["accuracy"]["best"]["value"] == 1.0
    with pytest.raises(SystemExit) as again:
        main([*command, "-o", "again.jsonl", "--offline"])
    assert again.value.code == 0
    assert Path("again.jsonl").read_text() == Path("found.jsonl").read_text()


@pytest.mark.parametrize(
    "options",
    [["--method", "astar"], ["--prior", "policy"], ["-n", "3"], ["--cut", "words"], ["--ends", "("], ["--max-usd", "1"]],
)
def test_wrong_usage_is_said_before_anything_is_asked(
    tmp_path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("policy.jsonl").write_text('{"text": "x"}\n')
    with pytest.raises(SystemExit) as done:
        main(["search", "missing.jsonl", "--policy", "scripted/policy.jsonl", "--critic", "rules", *options])
    assert done.value.code == 2
    assert options[-1] in capsys.readouterr().err or options[0] in ("--max-usd", "-n")


def test_a_seed_is_not_sent(tmp_path: Path) -> None:
    from critic_prm.providers.provider import Sampling

    (tmp_path / "p.jsonl").write_text('{"text": "x"}\n')
    opened = open_stepper(f"scripted/{tmp_path / 'p.jsonl'}", JudgeOptions(db=tmp_path / "c.db", sampling=Sampling(seed=3)))
    assert opened.policy.sampling.seed is None


async def test_what_is_under_way_when_one_request_stops_the_run_is_brought_in(tmp_path: Path) -> None:
    """The third of four requests is not allowed any more; the two that were are in the cache."""
    stepper, provider = policy(tmp_path / "c.db", max_requests=2)
    tree_of = SearchTree("p", stepper, SimulatedCritic(), SearchSettings())
    with pytest.raises(BudgetError):
        await tree_of.grow([tree_of.root] * 4)
    assert len(provider.asked) == 2
    await stepper.close()
    again, silent = policy(tmp_path / "c.db", offline=True)
    assert [(await again.step("p", (), sample)).came for sample in range(3)] == ["ok", "ok", "provider_error"]
    assert not silent.asked
    await again.close()
