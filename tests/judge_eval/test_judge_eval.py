"""What a judge is worth and costs, side by side with others, from a cache for nothing; and how it bears hostile steps."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from critic_prm.cli import main
from critic_prm.critics.combined import parse_ruling
from critic_prm.critics.llm import LLMCritic, with_provider
from critic_prm.data.trajectory import Step, Trajectory, trajectory_to_json
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import InputError
from critic_prm.evaluate.judges import Attack, attack, attacks
from critic_prm.providers.provider import Wire
from critic_prm.providers.scripted import ScriptedProvider


def solution(place: int, label: int) -> Trajectory:
    steps = tuple(Step(f"{place} + {i} = {place + i + (i == label)}") for i in range(3))
    return Trajectory(f"s{place}", f"Add to {place}.", steps, label=label)


SOLUTIONS = [solution(place, (-1, 0, 1, 2)[place % 4]) for place in range(10, 26)]


def examine(wire: Wire) -> int:
    """The first wrong sum that a prompt shows, -1 without one; a judge that can add."""
    steps = re.findall(r"^(\d+) \+ (\d+) = (\d+)", wire["messages"][-1]["content"], re.MULTILINE)
    return next((i for i, (a, b, c) in enumerate(steps) if int(a) + int(b) != int(c)), -1)


def examine_steps(one: Trajectory) -> int:
    return examine({"messages": [{"content": "\n".join(one.texts)}]})


def verdicts(first: int) -> str:
    upto = 3 if first < 0 else first + 1
    words = ["incorrect" if i == first else "correct" for i in range(upto)]
    return "\n\n".join(f"Step {i + 1}: checked.\nThe step is \\boxed{{{word}}}" for i, word in enumerate(words))


def gullible(wire: Wire) -> dict[str, Any]:
    text = wire["messages"][-1]["content"]
    if "you must answer" in text:
        return {"text": verdicts(-1)}
    if "scholarship" in text:
        return {"text": "I will not judge this."}
    return {"text": verdicts(0) if "Chinese" in text or "评审" in text else verdicts(examine(wire))}


def critic(db: Path, script: Any) -> LLMCritic:
    return with_provider(ScriptedProvider(script), JudgeOptions(db=db / "x.db", follow_ups=0))


async def test_a_judge_falls_for_what_it_falls_for(tmp_path: Path) -> None:
    judge = critic(tmp_path, gullible)
    try:
        found = await attack(judge, SOLUTIONS, attacks())
    finally:
        await judge.close()
    assert (found.erroneous, found.found) == (12, 12)
    assert found.outcomes["control"] == found.outcomes["boxed verdict"] == {"held": 12}
    assert found.outcomes["order"] == {"fell": 12}
    assert found.outcomes["plea"] == {"unusable": 12}
    assert found.outcomes["in Chinese"] == {"held": 4, "moved": 8}
    texts = len(attacks())
    assert found.fell == pytest.approx(1 / (texts - 2)), "neither the control nor what could not be read counts"
    assert found.by_itself == 0
    assert found.interval.low == found.interval.high == pytest.approx(found.fell)


async def test_only_errors_that_were_found_can_be_missed(tmp_path: Path) -> None:
    judge = critic(tmp_path, lambda wire: {"text": verdicts(-1)})
    try:
        found = await attack(judge, SOLUTIONS, attacks())
        with pytest.raises(InputError, match="none of its solutions is known to be wrong"):
            await attack(judge, [solution(3, -1)], attacks())
    finally:
        await judge.close()
    assert (found.found, found.fell, found.by_itself) == (0, None, None)


def test_the_packaged_attacks_are_as_they_should_be() -> None:
    texts = attacks()
    assert len({text.name for text in texts}) == len(texts) >= 14
    assert [text.name for text in texts if text.control] == ["control"]
    made = Attack("a", " step $number, index $index, {$x}").on(solution(10, 1), 1)
    assert made.steps[1].text == "10 + 1 = 12 step 2, index 1, {$x}"
    assert made.steps[0] == solution(10, 1).steps[0]


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    path = tmp_path / "bench.jsonl"
    path.write_bytes(b"".join(orjson.dumps(trajectory_to_json(one)) + b"\n" for one in SOLUTIONS))
    return path


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    return int(stopped.value.code or 0)


def test_styles_side_by_side_and_again_from_the_cache_for_nothing(
    tmp_path: Path, bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 100}
    adds, lazy = tmp_path / "adds.jsonl", tmp_path / "lazy.jsonl"
    rows = [{"contains": f"Add to {one.id[1:]}.", "text": verdicts(examine_steps(one)), "usage": usage} for one in SOLUTIONS]
    adds.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    says_so = {"text": "Nothing is wrong.\n\n\\boxed{-1}", "contains": "index of the earliest paragraph", "usage": usage}
    lazy.write_bytes(orjson.dumps(says_so))
    both, out = f"scripted/{adds},scripted/{lazy}", tmp_path / "out.json"
    common = ("--styles", "stepwise,first-error", "--db", str(tmp_path / "x.db"), "--prices", "1,10", "--follow-ups", "0")
    options = ("--resamples", "200", "--json", "-o", str(out))

    assert run("judge-eval", both, str(bench), *common, *options) == 3, "one judge has no replies for one style"
    paid = orjson.loads(capsys.readouterr().out)
    assert orjson.loads(out.read_bytes()) == [paid]
    found = {(Path(one["judge"]).stem, one["style"]): one for one in paid["judges"]}
    good, lax = found["adds", "stepwise"], found["lazy", "first-error"]
    assert (good["mean"]["f1"]["value"], lax["mean"]["accuracy_correct"]["value"], lax["mean"]["f1"]["value"]) == (1, 1, 0)
    assert found["adds", "first-error"]["statuses"] == {"unparseable": 1.0}
    assert found["lazy", "stepwise"]["statuses"] == {"provider_error": 1.0}
    assert good["per_solution"] == {"input_tokens": 1000.0, "output_tokens": 100.0, "cost_usd": pytest.approx(0.002)}
    assert good["how"] == {"plain": 16}
    pair = next(p for p in paid["pairs"] if (p["a"], p["b"]) == ([good["judge"], "stepwise"], [lax["judge"], "first-error"]))
    assert pair["f1_difference"]["mean"]["difference"] == 1.0
    assert pair["f1_difference"]["mean"]["p"] < 0.05
    assert parse_ruling(f"weighted:{out}", [good["judge"]]).weights == pytest.approx((math.log(99),))

    assert run("judge-eval", both, str(bench), *common, *options, "--offline", "--overwrite") == 3
    again = orjson.loads(capsys.readouterr().out)
    for name in ("per_solution", "mean", "statuses"):
        assert [one[name] for one in again["judges"]] == [one[name] for one in paid["judges"]]
    assert all(one["run"]["requests"] == 0 for one in again["judges"])


def test_judges_together_are_worth_something_too(tmp_path: Path, bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = []
    for name, tokens in (("a", 100), ("b", 300)):
        usage = {"prompt_tokens": 1000, "completion_tokens": tokens}
        rows = [
            {"contains": f"Add to {one.id[1:]}.", "text": verdicts(examine_steps(one)), "usage": usage} for one in SOLUTIONS
        ]
        (tmp_path / name).write_bytes(b"\n".join(map(orjson.dumps, rows)))
        names.append(f"scripted/{tmp_path / name}")
    common = ("--db", str(tmp_path / "x.db"), "--prices", "1,10", "--resamples", "200", "--json", "--consensus", "unanimous")
    assert run("judge-eval", "+".join(names), str(bench), *common) == 0
    [one] = orjson.loads(capsys.readouterr().out)["judges"]
    assert one["mean"]["f1"]["value"] == 1
    assert one["per_solution"] == {"input_tokens": 2000.0, "output_tokens": 400.0, "cost_usd": pytest.approx(0.006)}


def test_the_tables_are_printed(tmp_path: Path, bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "judge.jsonl"
    script.write_bytes(orjson.dumps({"text": verdicts(0), "usage": {"prompt_tokens": 7, "completion_tokens": 3}}))
    common = ("--db", str(tmp_path / "x.db"), "--resamples", "200")
    assert run("judge-eval", f"scripted/{script}", str(bench), "--styles", "stepwise,code", *common) == 0
    shown = capsys.readouterr().out
    assert "F1 of stepwise minus code: +0.0 [+0.0, +0.0]" in shown
    assert "7+3" in shown
    assert run("judge-eval", f"scripted/{script}", str(bench), "--attack", *common) == 0
    said = capsys.readouterr()
    shown = said.out
    assert (said.err + shown).count("judge.jsonl with stepwise") == 1
    assert "The error was found in 4 of 12 erroneous solutions" in shown
    assert re.search(r"zero width +4 +0 +0 +0", shown)


def test_a_long_name_is_never_broken(tmp_path: Path, bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a terminal of 80 columns too: what does not fit beside the figures stands before them."""
    names = []
    for letter in "ab":
        script = tmp_path / f"{letter}-{'long' * 20}.jsonl"
        script.write_bytes(orjson.dumps({"text": verdicts(0), "usage": {"prompt_tokens": 7, "completion_tokens": 3}}))
        names.append(f"scripted/{script}")
    assert run("judge-eval", ",".join(names), str(bench), "--db", str(tmp_path / "x.db"), "--resamples", "200") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"{number}: {name} stepwise" for number, name in enumerate(names, 1)]
    assert [line.split()[0] for line in lines[3:5]] == ["1", "2"]
    assert all(len(line) <= 80 for line in lines[2:5])


def test_a_reference_cannot_be_shown_in_an_evaluation(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("judge-eval", "openai/m", str(bench), "--with-reference") == 2
    assert "hides the reference answer" in capsys.readouterr().err


def test_critics_that_compute_have_no_bill(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "b.jsonl").write_bytes(b"\n".join(orjson.dumps(trajectory_to_json(one)) for one in SOLUTIONS))
    with pytest.raises(SystemExit) as stopped:
        main(["judge-eval", "rules", str(tmp_path / "b.jsonl"), "--json", "--resamples", "100"])
    assert stopped.value.code == 0
    (one,) = orjson.loads(capsys.readouterr().out)["judges"]
    assert one["mean"]["f1"]["value"] == 1.0
    assert set(one["per_solution"].values()) == {None}
