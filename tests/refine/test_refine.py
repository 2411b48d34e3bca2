"""Refinement raises accuracy as theory predicts, takes nothing that is not better, and buys nothing twice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bench.simulated import SimulatedCritic, SimulatedPolicy
from critic_prm.cli import main
from critic_prm.data.judgement import Judgement
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import UsageError
from critic_prm.generate.policy.answers import Grader
from critic_prm.generate.policy.policy import Completion
from critic_prm.generate.policy.policy import with_provider as policy_over
from critic_prm.providers.scripted import ScriptedProvider
from critic_prm.search.refine import Refined, RefineStats, refine, refined_row, weakest
from critic_prm.search.settings import RefineSettings
from critic_prm.search.stepper import LLMStepper

LENGTH, Q = 4, 0.6
NEAR = 0.02


async def run(policy: SimulatedPolicy, critic: Any, settings: RefineSettings, problems: int = 3000) -> list[Refined]:
    found, grader = [], Grader()
    for i in range(problems):
        start = await policy.complete(f"problem {i}", (), sample=999_999)
        solution = Trajectory(str(i), f"problem {i}", tuple(map(Step, start.steps)), gold_answer="1")
        found.append(await refine(solution, policy, critic, grader, settings))
    return found


def share(found: Sequence[Refined], after: bool = True) -> float:
    return sum(bool(one.right_after if after else one.right_before) for one in found) / len(found)


def predicted(draws: int, better: float = Q) -> float:
    """With a perfect critic, a solution whose first error is at step e gets `draws` endings; each is right with probability
    better for step e and Q for each after it."""
    wrong = [Q**e * (1 - Q) * (1 - better * Q ** (LENGTH - e - 1)) ** draws for e in range(LENGTH)]
    return 1 - sum(wrong)


@pytest.mark.parametrize(("rounds", "tries"), [(1, 1), (2, 2)])
async def test_accuracy_rises_as_predicted(rounds: int, tries: int) -> None:
    found = await run(SimulatedPolicy(LENGTH, Q), SimulatedCritic(), RefineSettings(rounds=rounds, tries=tries, feedback=False))
    assert share(found, after=False) == pytest.approx(Q**LENGTH, abs=NEAR)
    assert share(found) == pytest.approx(predicted(rounds * tries), abs=NEAR)
    assert all(one.right_after for one in found if one.right_before)


async def test_feedback_helps_as_much_as_it_is_worth() -> None:
    found = await run(SimulatedPolicy(LENGTH, Q, better=0.9), SimulatedCritic(), RefineSettings(rounds=2, tries=1))
    assert share(found) == pytest.approx(predicted(2, better=0.9), abs=NEAR)


async def test_a_fallible_critic_gives_what_a_direct_simulation_gives() -> None:
    """Steps as (right, score), judged once each; nothing of the library is used."""
    accuracy, rounds, tries = 0.85, 2, 2
    rng, hits, trials = Random(0), 0, 40_000

    def ending(length: int) -> list[tuple[bool, float]]:
        steps = []
        for _ in range(length):
            right = rng.random() < Q
            p = 0.9 if (rng.random() < accuracy) == right else 0.1
            steps.append((right, p + 0.1 * (rng.random() - 0.5)))
        return steps

    for _ in range(trials):
        steps = ending(LENGTH)
        for _ in range(rounds):
            at = next((i for i, (_, p) in enumerate(steps) if p < 0.5), None)
            if at is None:
                break
            best = max(([*steps[:at], *ending(LENGTH - at)] for _ in range(tries)), key=lambda s: min(p for _, p in s))
            if min(p for _, p in best) > min(p for _, p in steps):
                steps = best
        hits += all(right for right, _ in steps)
    found = await run(
        SimulatedPolicy(LENGTH, Q),
        SimulatedCritic(accuracy, spread=0.1),
        RefineSettings(rounds=rounds, tries=tries, feedback=False),
    )
    assert share(found) == pytest.approx(hits / trials, abs=NEAR)


def test_the_weakest_step() -> None:
    assert weakest(Judgement("ok", (), 2), (0.1, 0.9, 0.4)) == 2
    assert weakest(Judgement("ok", (), -1), (0.9, None, 0.4, 0.4)) == 2


class Lenient(SimulatedCritic):
    """Finds no error, but likes right steps better."""

    def one(self, trajectory: Trajectory, sample: int) -> Judgement:
        return replace(super().one(trajectory, sample), first_error=-1)


async def test_a_floor_goes_on_where_no_error_is_found_and_a_margin_holds_back() -> None:
    policy = SimulatedPolicy(LENGTH, Q)
    assert not any(one.rounds for one in await run(policy, Lenient(), RefineSettings(), 50))
    floor = await run(policy, Lenient(), RefineSettings(rounds=2, tries=4, floor=0.5, feedback=False), 200)
    assert share(floor) > share(floor, after=False)
    assert {one.why for one in floor} <= {"no error found", "rounds spent"}
    held = await run(policy, SimulatedCritic(), RefineSettings(rounds=2, tries=4, margin=0.85), 50)
    assert not any(one.changed for one in held)
    assert any(one.rounds for one in held)


async def test_what_cannot_be_judged_or_written_is_left_as_it_is() -> None:
    class Mute(SimulatedCritic):
        def one(self, trajectory: Trajectory, sample: int) -> Judgement:
            return Judgement("unparseable")

    class Failing(SimulatedPolicy):
        async def rewrite(
            self, problem: str, steps: Sequence[str], rejected: str, critique: str, sample: int = 0
        ) -> Completion:
            return Completion(sample, "refused")

    solution = Trajectory("t", "p", (Step("wrong 1"), Step("wrong 2")), label=0)
    unjudged = await refine(solution, SimulatedPolicy(2, Q), Mute(), Grader())
    assert (unjudged.why, unjudged.after.texts, unjudged.right_before) == ("not judged", solution.texts, None)
    failed = await refine(solution, Failing(2, Q), SimulatedCritic(), Grader())
    assert (failed.why, failed.rounds[0].failed) == ("policy failed", ("refused",) * 4)
    assert failed.after.label == 0
    with pytest.raises(UsageError):
        RefineSettings(by="median")


async def test_new_steps_have_no_old_labels_and_the_row_says_what_happened() -> None:
    solution = Trajectory("t", "p", (Step("right 0"), Step("wrong \\boxed{2}")), final_answer="2", gold_answer="1", label=1)
    found = await refine(solution, SimulatedPolicy(2, 1.0), SimulatedCritic(), Grader(), RefineSettings(feedback=False))
    row = refined_row(found)
    assert "label" not in row
    assert (row["final_answer"], row["gold_answer"]) == ("1", "1")
    assert row["steps"][0] == "right 0"
    assert row["refine"]["right"] == [False, True]
    assert row["refine"]["steps_before"] == solution.texts
    assert row["refine"]["rounds"][0]["step"] == 1
    account = RefineStats()
    account.add(found)
    assert account.report()["right"]["wrong_to_right"] == 1
    assert "1 corrected, 0 broken" in "\n".join(account.lines())


async def test_the_policy_is_shown_what_was_wrong_and_its_reply_is_read(tmp_path: Path) -> None:
    provider = ScriptedProvider([{"text": "Step 2: 2 + 2 = 4\n\nStep 3: \\boxed{4}", "usage": {"completion_tokens": 9}}])
    stepper = LLMStepper(policy_over(provider, JudgeOptions(db=tmp_path / "c.db")))
    found = await stepper.rewrite("the problem", ("begin",), "2 + 2 = 5", "false: it is 4")
    assert found.steps == ("2 + 2 = 4", "\\boxed{4}")
    assert (await stepper.complete("the problem", ("begin",))).steps == found.steps
    asked = provider.asked[0]["messages"][-1]["content"]
    for part in ("the problem", "Step 1: begin", "2 + 2 = 5", "false: it is 4", "Go on with Step 2."):
        assert part in asked
    await stepper.rewrite("the problem", (), "2 + 2 = 5", "")
    assert "reviewer" not in provider.asked[-1]["messages"][-1]["content"]
    await stepper.close()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [
        {"id": "a", "problem": "2 + 2 + 1?", "steps": ["2 + 2 = 5", "5 + 1 = 6", "\\boxed{6}"], "gold_answer": "5"},
        {"id": "b", "problem": "2 + 3?", "steps": ["2 + 3 = 5", "\\boxed{5}"], "gold_answer": "5"},
    ]
    Path("in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("policy.jsonl").write_text(json.dumps({"text": "Step 1: 2 + 2 = 4\n\nStep 2: 4 + 1 = 5\n\nStep 3: \\boxed{5}"}) + "\n")
    command = ["refine", "in.jsonl", "--policy", "scripted/policy.jsonl", "--critic", "rules", "--tries", "2"]
    with pytest.raises(SystemExit) as done:
        main([*command, "-o", "out.jsonl"])
    assert done.value.code == 0
    out = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert [row["final_answer"] if row["id"] == "a" else row["steps"][-1] for row in out] == ["5", "\\boxed{5}"]
    said = capsys.readouterr().err
    assert "1 of 2 solutions changed" in said
    assert "50.0%  100.0%" in said
    report = json.loads(Path("out.jsonl.run.json").read_text())
    assert report["refine"]["right"]["difference"]["value"] == 0.5
    assert report["replies"]["paid"] == 2
    with pytest.raises(SystemExit) as again:
        main([*command, "-o", "again.jsonl", "--offline"])
    assert again.value.code == 0
    assert Path("again.jsonl").read_text() == Path("out.jsonl").read_text()


def test_an_unknown_prompt_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("policy.jsonl").write_text('{"text": "x"}\n')
    with pytest.raises(SystemExit) as done:
        main(["refine", "x", "--policy", "scripted/policy.jsonl", "--critic", "rules", "--feedback-prompt", "angry"])
    assert done.value.code == 2
