"""Options that would change nothing are refused: what the chosen critic does not read, and what another option must allow."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from critic_prm.critics.open import SHARED, options_read
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import CriticPrmError, UsageError
from critic_prm.option import settings_in
from tests.command import invoke

ROW = {"id": "a", "problem": "1 + 1?", "steps": ["1 + 1 = 2."], "label": -1}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.jsonl").write_bytes(orjson.dumps(ROW) + b"\n")
    Path("verifier").mkdir()
    Path("verifier/verifier.json").write_text("{}")


LABEL = ("label", "in.jsonl", "-o", "out.jsonl")


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (
            (*LABEL, "--judge", "rules", "--samples", "5", "--temperature", "3", "--style", "json"),
            "--samples, --style, --temperature have no effect with rules; leave them out",
        ),
        ((*LABEL, "--budget-usd", "1"), "--budget-usd has no effect with rules; leave it out"),
        ((*LABEL, "--judge", "verifier", "--no-schema"), "--schema has no effect with verifier; leave it out"),
        ((*LABEL, "--judge", "rules", "--judge", "verifier", "--salt", "x"), "--salt has no effect with rules and verifier"),
        ((*LABEL, "--judge", "openai/m", "--profile", "x"), "--profile has no effect with openai/m"),
        (("judge-eval", "rules", "in.jsonl", "--styles", "json,stepwise"), "--styles has no effect with rules"),
        (("evaluate", "rules", "in.jsonl", "--samples", "2"), "--samples has no effect with rules"),
        (("rank", "in.jsonl", "--style", "json"), "--style has no effect without a critic that is asked now"),
        (("generate", "perturb", "in.jsonl", "--top-p", "1"), "--top-p has no effect without a critic"),
        ((*LABEL, "--wait"), "--wait has no effect without --batch"),
        ((*LABEL, "--workers", "3"), "--workers has no effect without --engine ray"),
        ((*LABEL, "--consensus", "unanimous"), "--consensus has no effect without several judges"),
    ],
)
def test_an_option_without_effect_is_refused(words: tuple[str, ...], refused: str) -> None:
    with pytest.raises(UsageError) as error:
        invoke(*words)
    assert str(error.value).startswith(refused)
    assert not Path("out.jsonl").exists()


@pytest.mark.parametrize(
    "options",
    [
        ("--db", "x.db", "--offline", "--max-connections", "3"),
        ("--judge", "rules", "--limit", "1"),
        (
            "--judge",
            "rules",
            "--judge",
            "openai/m",
            "--samples",
            "2",
            "--temperature",
            "1",
            "--consensus",
            "unanimous",
            "--dry-run",
        ),
    ],
)
def test_an_option_with_an_effect_is_not(options: tuple[str, ...]) -> None:
    assert invoke(*LABEL, *options).exit_code == 0


def test_a_policy_reads_what_does_not_concern_verdicts() -> None:
    words = ("refine", "in.jsonl", "--policy", "openai/m", "--critic", "rules", "-o", "out.jsonl")
    with pytest.raises(UsageError, match="--style has no effect with rules"):
        invoke(*words, "--temperature", "1", "--style", "json")
    Path("in.jsonl").unlink()
    assert "no effect" not in str(invoke(*words, "--temperature", "1", catch=True).exception)


def test_the_environment_sets_defaults_for_all_critics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRITIC_PRM_LABEL_SAMPLES", "4")
    assert invoke(*LABEL, "--judge", "rules").exit_code == 0


def test_what_a_critic_reads_are_options() -> None:
    every = settings_in(JudgeOptions).keys() | {"samples"}
    assert every >= SHARED
    for name in ("rules", "verifier", "openai/m", "rollout:openai/m", "x.toml"):
        assert options_read(name) <= every
    assert options_read("rules") == frozenset()
    assert options_read("x.toml") == every


def test_a_judge_without_a_prompt_is_compared_once(tmp_path: Path) -> None:
    """`rules` was listed with each style, and compared with itself."""
    Path("replies.jsonl").write_text('{"text": "Step 1: It is right.\\nThe step is \\\\boxed{correct}"}\n')
    words = ("judge-eval", "rules,scripted/replies.jsonl", "in.jsonl", "--styles", "stepwise,first-error", "-o", "found.json")
    shown = invoke(*words, "--resamples", "100", columns=200)
    assert shown.exit_code == 0
    opened = [line for line in shown.stderr.splitlines() if "rules" in line or " with " in line]
    assert opened == ["rules", "scripted/replies.jsonl with stepwise", "scripted/replies.jsonl with first-error"]
    judges = orjson.loads(Path("found.json").read_bytes())[0]["judges"]
    assert [one["style"] for one in judges] == [None, "stepwise", "first-error"]
    assert "rules stepwise" not in shown.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("score", "verifier", "in.jsonl", "-o", "out.jsonl", "--backend", "vllm", "--base-url", "http://127.0.0.1:9/v1"),
        ("doctor", "verifier", "--base-url", "http://127.0.0.1:9/v1"),
    ],
)
def test_the_address_of_a_verifier_on_a_server_is_read(words: tuple[str, ...]) -> None:
    with pytest.raises(CriticPrmError) as refused:
        invoke(*words)
    assert "no effect" not in str(refused.value)
