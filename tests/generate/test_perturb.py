"""Every planted error is where the label says and nowhere else, is real, and is the same for the same seed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from critic_prm.cli import build
from critic_prm.critics.rules import RuleCritic
from critic_prm.data.formats.convert import read_trajectories
from critic_prm.data.trajectory import Step, Trajectory, trajectory_from_json, trajectory_to_json
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import UsageError
from critic_prm.generate.family import generate_family
from critic_prm.generate.options import PerturbOptions, parse_kinds
from critic_prm.generate.perturb import (
    PerturbStats,
    carry_out,
    effect,
    plans,
    written_kinds,
)
from critic_prm.generate.planting import KINDS, differs, place_of, plant
from critic_prm.generate.policy.policy import with_provider
from critic_prm.providers.scripted import ScriptedProvider
from critic_prm.registry import resource

EXAMPLES: Mapping[str, tuple[str, Sequence[str], int, str | None]] = {
    "number": ("A box has 12 eggs. How many are in 7?", ["7 boxes have 7 * 12 = 84 eggs.", "So 84."], 0, None),
    "operator": (
        "A box has 12 eggs. How many are in 7?",
        ["7 boxes have 7 * 12 = 84 eggs."],
        0,
        "7 boxes have 7 + 12 = 84 eggs.",
    ),
    "sign": ("What is 5 - 12?", ["We get 5 - 12 = -7."], 0, "We get 5 - 12 = 7."),
    "unit": ("A walk of 3 km takes 40 minutes. And 6 km?", ["Twice the way takes 80 minutes."], 0, None),
    "dropped-case": ("Solve (x-4)(x+2) = 0.", ["So x = 4 or x = -2."], 0, "So x = 4."),
    "swapped-names": (
        "Then Anna has 3 apples and Bert has 5. What does Anna pay at 2 each?",
        ["Anna pays for 3 apples."],
        0,
        "Bert pays for 3 apples.",
    ),
    "substitution": (
        "Of 1240 books 186 go, then 15 come. How many are left at first?",
        ["That leaves 1240 - 186 = 1054 books."],
        0,
        "That leaves 1240 - 15 = 1225 books.",
    ),
    "skipped-step": ("7 boxes of 12 eggs, 4 break.", ["There are 7 * 12 = 84 eggs.", "So 84 - 4 = 80 are whole."], 0, None),
}


def right(problem: str, steps: Sequence[str], **fields: Any) -> Trajectory:
    return Trajectory("t", problem, tuple(Step(text) for text in steps), label=-1, **fields)


@pytest.mark.parametrize("kind", list(KINDS))
def test_each_kind_changes_what_it_says(kind: str) -> None:
    problem, steps, at, expected = EXAMPLES[kind]
    found = {plant(kind, place_of(right(problem, steps), at), Random(seed)) for seed in range(12)}
    assert None not in found
    texts = {planted.text for planted in found if planted}
    assert expected is None or expected in texts
    assert steps[at] not in texts
    if kind == "skipped-step":
        assert texts == {None}


@pytest.mark.parametrize(
    ("kind", "problem", "step"),
    [
        ("sign", "How much?", "It costs 2 * 3 = $6."),
        ("dropped-case", "Mod 13?", "So $x \\equiv 9 \\pmod{13}$."),
        ("unit", "How far in km?", "It is 0 km away."),
        ("unit", "How long in minutes?", "That is 2 hours = 120 minutes."),
        ("swapped-names", "Anna and Bert have 8 apples.", "Anna and Bert have 8 together."),
        ("swapped-names", "We ask Mrs. Rylan in April.", "So Mrs. Rylan paid 5."),
        ("number", "How many of 12?", "Suppose there are 12 of them."),
        ("number", "Which of 12?", "We consider case 12 first."),
        ("substitution", "What is 3 + 4?", "We look at it closely."),
        ("skipped-step", "What is 196 halved?", "We divide by 2."),
    ],
)
def test_no_error_is_planted_where_it_would_be_none(kind: str, problem: str, step: str) -> None:
    for seed in range(10):
        assert plant(kind, place_of(right(problem, [step, "196 divided by 2 is 98."]), 0), Random(seed)) is None


def false_equations(text: str) -> list[str]:
    """Those that this test can evaluate by itself: numbers with + - * / between, no matter what the package reads."""
    found = []
    plain = re.sub(r"[$,]|\\text\{[^}]*\}", "", text).replace("\\times", "*").replace("×", "*").replace("÷", "/")
    for left, right_side in re.findall(
        r"(?<![\w.)^/*+(-])(?<!\d )(\d[\d.]*(?: [-+*/] \d[\d.]*)+) = (-?\d[\d.]*\d|-?\d)", plain
    ):
        terms = re.split(r" ([-+*/]) ", left)
        value = Fraction(terms[0])
        if {"*", "/"} & set(terms[3::2]):
            continue  # precedence is not this checker's business
        for sign, term in zip(terms[1::2], terms[2::2], strict=True):
            number = Fraction(term)
            value = (
                value + number
                if sign == "+"
                else value - number
                if sign == "-"
                else value * number
                if sign == "*"
                else value / number
            )
        if abs(value - Fraction(right_side)) >= Fraction(1, 100):
            found.append(f"{left} = {right_side}")
    return found


async def perturbed(solutions: Sequence[Trajectory], what: PerturbOptions) -> list[Trajectory]:
    account = PerturbStats()
    made = [await carry_out(plan, what, None, None, account) for plan in plans(solutions, what, account)]
    return [changed for changed in made if changed is not None]


def check_planted(changed: Trajectory, original: Trajectory) -> None:
    """What holds of every planted error, whatever its kind."""
    facts = changed.meta["perturbed"]
    at = changed.label
    assert at is not None
    assert at == facts["at"]
    if facts["left_out"]:
        assert changed.texts == [*original.texts[:at], *original.texts[at + 1 :]]
    else:
        assert [i for i, (a, b) in enumerate(zip(changed.texts, original.texts, strict=True)) if a != b] == [at]
        assert differs(original.texts[at], changed.texts[at])
    assert planted_error(changed) == (at, facts["kind"])


async def test_every_planted_error_is_where_the_label_says() -> None:
    originals = {t.id: t for t in generate_family("arithmetic", 250, seed=3, wrong=0.0)}
    found = await perturbed(list(originals.values()), PerturbOptions(parse_kinds("program"), each=3))
    assert len(found) > 600
    seen_false = shown_by_rules = 0
    for changed in found:
        original = originals[changed.meta["perturbed"]["from"]]
        check_planted(changed, original)
        facts = changed.meta["perturbed"]
        if facts["kind"] in ("number", "operator", "sign") and facts["shown_by"] == "rules":
            shown_by_rules += 1
            seen_false += bool(false_equations(facts["after"])) and not false_equations(facts["before"])
        if facts["kind"] == "substitution":
            assert len(false_equations(facts["after"])) <= len(false_equations(facts["before"]))
    # The test's own checker reads fewer equations than the package, so it sees most of them, not all.
    assert seen_false > 0.6 * shown_by_rules > 0
    places = Counter((len(t.steps), t.label) for t in found if not t.meta["perturbed"]["left_out"])
    for length in {length for length, _ in places}:
        counts = [places[length, at] for at in range(1, length - 1)]
        if sum(counts) > 60:
            assert max(counts) < 3 * max(min(counts), 1), "errors spread over the steps"


async def test_real_solutions_take_errors_too(shared_data: Path) -> None:
    originals: dict[str, Trajectory] = {}
    for name in ("parc_gsm8k", "prm800k_redundant"):
        originals |= {t.id: t for t in read_trajectories(str(shared_data / "open" / f"{name}.jsonl")) if t.first_error() == -1}
    found = await perturbed(list(originals.values()), PerturbOptions(parse_kinds("program"), each=3))
    assert len(found) > 300
    for changed in found:
        check_planted(changed, originals[changed.meta["perturbed"]["from"]])
    assert {t.meta["error"] for t in found} == set(KINDS)
    critic = RuleCritic()
    for changed in found:
        verdict = (await critic.judge([changed]))[0].first_error
        if changed.meta["perturbed"]["shown_by"] == "rules":
            assert verdict == changed.label


async def test_the_same_seed_plants_the_same_and_another_others() -> None:
    solutions = list(generate_family("arithmetic", 40, seed=1, wrong=0.0))
    kinds = parse_kinds("program")
    one, same = await perturbed(solutions, PerturbOptions(kinds)), await perturbed(solutions, PerturbOptions(kinds))
    assert one == same
    assert one != await perturbed(solutions, PerturbOptions(kinds, seed=1))
    assert (await perturbed(solutions[:10], PerturbOptions(kinds)))[:9] == one[:9]
    assert len(await perturbed(solutions, PerturbOptions(kinds, right=True))) == len(one) + len(solutions)


async def test_only_right_solutions_are_used() -> None:
    steps = ["7 boxes have 7 * 12 = 84 eggs."]
    unknown = Trajectory("u", "?", (Step(steps[0]),))
    by_answer = Trajectory("a", "?", (Step(steps[0]),), meta={"final_answer_correct": True})
    wrong = Trajectory("w", "?", (Step("7 * 12 = 85"),), label=0)
    false = Trajectory("f", "?", (Step("7 * 12 = 85"),), label=-1)
    account = PerturbStats()
    what = PerturbOptions(parse_kinds("number"))
    assert [plan.solution.id for plan in plans([unknown, by_answer, wrong, false], what, account)] == ["a"]
    assert account.counts["not known to be right"] == 2
    assert account.counts["false as they are"] == 1


def test_kinds_and_their_templates() -> None:
    assert len(written_kinds()) == 9
    assert {kind for kind in written_kinds() if effect(kind) != "incorrect"} == {"redundant", "multiple-solutions"}
    assert parse_kinds("number, sign=2") == {"number": 1.0, "sign": 2.0}
    assert parse_kinds("program=0.5").keys() == KINDS.keys()
    assert len(parse_kinds("program,model")) == 17
    for broken in ("", "number=x"):
        with pytest.raises(UsageError):
            parse_kinds(broken)
    for kinds in ({"nonsense": 1.0}, {"number": 0.0}, {"number": float("inf")}):
        with pytest.raises(UsageError):
            PerturbOptions(kinds)
    # JudgeOptions styles are one thing, these prompts another.
    assert not {path.stem for path in resource("prompts").glob("*.jinja")} & set(written_kinds())


SOLUTION = right("7 boxes of 12 eggs, 4 break.", ["There are 7 * 12 = 84 eggs.", "So 84 - 4 = 80 are whole."], gold_answer="80")


async def write(
    kind: str, reply: str, tmp_path: Path, **settings: Any
) -> tuple[Trajectory | None, PerturbStats, ScriptedProvider]:
    provider = ScriptedProvider(
        lambda wire: {"text": reply if "<rewritten>" in str(wire["messages"][0]) else "Step 3: \\boxed{9}"}
    )
    policy = with_provider(provider, JudgeOptions(db=tmp_path / "cache.db"))
    account, what = PerturbStats(), PerturbOptions({kind: 1.0}, **settings)
    try:
        plan = next(iter(plans([SOLUTION], what, account)))
        return await carry_out(plan, what, policy, None, account), account, provider
    finally:
        await policy.close()


async def test_a_model_writes_the_step_that_it_is_asked_for(tmp_path: Path) -> None:
    reply = "<rewritten>\nStep 1: There are 7 * 12 = 94 eggs.\n</rewritten>\n<reason>wrong</reason>"
    changed, account, provider = await write("deception", reply, tmp_path)
    assert changed is not None
    at = changed.label
    assert at is not None
    assert changed.texts[at] == "There are 7 * 12 = 94 eggs."
    assert changed.texts[1 - at] == SOLUTION.texts[1 - at]
    assert changed.meta["perturbed"]["shown_by"] == "rules"
    assert account.kinds == {"deception": 1}
    asked = provider.asked[0]["messages"]
    assert f"Change step {at + 1}" in asked[1]["content"]
    assert SOLUTION.problem in asked[1]["content"]


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("I would rather not.", "unreadable"),
        ("<rewritten>a</rewritten><rewritten>b</rewritten>", "unreadable"),
        ("<rewritten> </rewritten>", "unreadable"),
        ("<rewritten>There are  7 * 12 = 84 EGGS!</rewritten>", "unchanged"),
    ],
)
async def test_what_a_model_writes_is_checked(reply: str, why: str, tmp_path: Path) -> None:
    provider = ScriptedProvider(lambda wire: {"text": reply})
    policy = with_provider(provider, JudgeOptions(db=tmp_path / "cache.db"))
    account, what = PerturbStats(), PerturbOptions({"deception": 1.0})
    one = right(SOLUTION.problem, SOLUTION.texts[:1])
    assert [await carry_out(plan, what, policy, None, account) for plan in plans([one], what, account)] == [None]
    assert account.counts[why] == 1
    assert why in account.lines()[-1]
    await policy.close()


async def test_needless_steps_are_neutral_and_other_ways_are_right(tmp_path: Path) -> None:
    reply = "<rewritten>Ten boxes would be 120, less 36: 84 eggs.</rewritten>"
    changed, _, _ = await write("redundant", reply, tmp_path)
    assert changed is not None
    assert changed.label is None
    assert sorted(map(str, changed.gold())) == ["1.0", "neutral"]
    assert changed.first_error() == -1
    changed, _, _ = await write("multiple-solutions", reply, tmp_path)
    assert changed is not None
    assert changed.label == -1


async def test_the_steps_after_an_error_can_be_cut_or_written_anew(tmp_path: Path) -> None:
    reply = "<rewritten>Something else entirely.</rewritten>"
    for later in ("cut", "regenerate"):
        changed, _, _ = await write("circular", reply, tmp_path, later=later)
        assert changed is not None
        at = changed.label
        assert at is not None
        assert changed.texts[: at + 1] == [*SOLUTION.texts[:at], "Something else entirely."]
        assert changed.texts[at + 1 :] == (["Step 3: \\boxed{9}"] if later == "regenerate" else [])
        assert changed.final_answer == ("9" if later == "regenerate" else None)
        assert changed.meta["perturbed"]["later"] == later


async def test_the_final_answer_is_the_one_that_is_stated() -> None:
    """An error in the last step changes the answer; one before it leaves the old answer standing there."""
    steps = ["7 boxes have 7 * 12 = 84 eggs.", "4 break: 84 - 4 = 80. The answer is 80"]
    solution = right("7 boxes of 12 eggs, 4 break.", steps, final_answer="80", meta={"final_answer_correct": True, "from": "x"})
    what = PerturbOptions(parse_kinds("number"), each=8)
    found = [await carry_out(plan, what, None, None, PerturbStats()) for plan in plans([solution], what, PerturbStats())]
    made = {t.label: t for t in found if t is not None}
    assert set(made) == {0, 1}
    assert (made[0].final_answer, made[0].meta.get("final_answer_correct")) == ("80", True)
    last = made[1].steps[-1].text
    assert made[1].final_answer == (last.rpartition(" is ")[2] if " is " in last else None)
    assert "final_answer_correct" not in made[1].meta
    assert made[1].meta["from"] == "x"
    silent = right("7 boxes of 12 eggs.", ["7 boxes have 7 * 12 = 84 eggs."], final_answer="84")
    (plan,) = plans([silent], PerturbOptions(parse_kinds("number")), PerturbStats())
    changed = await carry_out(plan, what, None, None, PerturbStats())
    assert changed is not None
    assert changed.final_answer is None


async def test_a_critic_can_be_asked_to_confirm() -> None:
    account, what = PerturbStats(), PerturbOptions(parse_kinds("operator,substitution"), each=4)
    solutions = list(generate_family("arithmetic", 30, seed=2, wrong=0.0))
    kept = [await carry_out(plan, what, None, RuleCritic(), account) for plan in plans(solutions, what, account)]
    # The rules see a wrong operator, and no wrong substitution.
    assert {t.meta["error"] for t in kept if t is not None} == {"operator"}
    assert account.counts["not confirmed"] > 0


def planted_error(trajectory: Trajectory) -> tuple[int, str] | None:
    """The step and the kind of a planted error, from `generate perturb`, ReasonEval or PRMBench; None if there is none."""
    at = trajectory.first_error()
    names = ("error", "error_type", "classification")
    kind = next((trajectory.meta[name] for name in names if trajectory.meta.get(name)), None)
    return None if at is None or at < 0 or not isinstance(kind, str) else (at, kind)


def test_errors_planted_by_others_read_in_as_the_same_kind_of_record(shared_data: Path) -> None:
    for name, least in (("perturbed_prm800k", 100), ("prmbench_p1", 300)):
        found = [(t, planted_error(t)) for t in read_trajectories(str(shared_data / "open" / f"{name}.jsonl"))]
        planted = [(t, error) for t, error in found if error is not None]
        assert len(planted) >= least
        for t, (at, kind) in planted:
            assert at == t.first_error() == t.label
            assert kind
            assert planted_error(trajectory_from_json(trajectory_to_json(t), name)) == (at, kind)
        assert any(error is None for _, error in found)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(orjson.dumps(trajectory_to_json(SOLUTION)) + b"\n")
    run = build()
    with pytest.raises(SystemExit, match="0"):
        raise SystemExit(run(["generate", "perturb", str(source), "-o", str(out), "--right", "-n", "3"], standalone_mode=False))
    rows = [trajectory_from_json(orjson.loads(line), "out") for line in out.read_bytes().splitlines()]
    assert [row.label for row in rows].count(-1) == 1
    assert len(rows) == 4
    assert "3 planted" in capsys.readouterr().err
    with pytest.raises(UsageError, match="--policy"):
        run(["generate", "perturb", str(source), "--kinds", "circular"], standalone_mode=False)
    replies = tmp_path / "replies.jsonl"
    replies.write_bytes(orjson.dumps({"text": "<rewritten>Nothing is so.</rewritten>"}) + b"\n")
    asked = ["--policy", f"scripted/{replies}", "--db", str(tmp_path / "c.db"), "--kinds", "model"]
    run(["generate", "perturb", str(source), *asked, "--dry-run"], standalone_mode=False)
    assert "1 changes: 1 requests" in capsys.readouterr().err
