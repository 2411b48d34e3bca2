"""critic-prm label with several judges, samples until they decide, and a vLLM server's own words."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from critic_prm.cli import main
from critic_prm.providers.provider import Message, Request, Sampling, open_provider

RIGHT = "Step 1: yes.\nThe step is \\boxed{correct}\n\nStep 2: yes.\nThe step is \\boxed{correct}"
WRONG = "Step 1: yes.\nThe step is \\boxed{correct}\n\nStep 2: no.\nThe step is \\boxed{incorrect}"


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(["label", *arguments])
    return int(stopped.value.code or 0)


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "in.jsonl"
    rows = [{"id": str(i), "problem": f"p{i}", "steps": ["one", "two"]} for i in range(4)]
    path.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    return str(path)


def judge(tmp_path: Path, name: str, *texts: str) -> str:
    (tmp_path / name).write_bytes(b"\n".join(orjson.dumps({"text": text}) for text in texts))
    return f"scripted/{tmp_path / name}"


def test_several_judges_are_counted_and_kept(tmp_path: Path, source: str, capsys: pytest.CaptureFixture[str]) -> None:
    judges = [judge(tmp_path, "a", RIGHT), judge(tmp_path, "b", WRONG), judge(tmp_path, "c", WRONG)]
    out = tmp_path / "out.jsonl"
    options = [word for name in judges for word in ("--judge", name)]
    assert run(source, "-o", str(out), "--db", str(tmp_path / "x.db"), *options) == 0
    rows = [orjson.loads(line) for line in out.read_bytes().splitlines()]
    assert [(row["first_error"], row["votes"], row["p_from"]) for row in rows] == [(1, [[3, 3], [1, 3]], "votes")] * 4
    said = capsys.readouterr().err
    assert "agreement on 8 steps: all alike 50.0%" in said
    assert f"{judges[0]}: 0 cached, 4 paid" in said
    report = orjson.loads((tmp_path / "out.jsonl.run.json").read_bytes())
    assert report["agreement"]["steps"]["judged_by_all"] == 8
    assert [one["requests"] for one in report["judges"]] == [4, 4, 4]


def test_samples_stop_when_the_votes_are_decided(tmp_path: Path, source: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, out = judge(tmp_path, "a", RIGHT), tmp_path / "out.jsonl"
    common = (source, "-o", str(out), "--db", str(tmp_path / "x.db"), "--judge", name)
    assert run(*common, "--samples", "auto:3-7", "--prior", "jeffreys") == 0
    row = orjson.loads(out.read_bytes().splitlines()[0])
    assert (row["votes"], row["p_correct"], row["critic"]["prior"]) == ([[4, 4], [4, 4]], [0.9, 0.9], "jeffreys")
    assert "samples: asked for 16 judgements of at most 28, 43% saved" in capsys.readouterr().err
    assert orjson.loads((tmp_path / "out.jsonl.run.json").read_bytes())["samples"]["saved"] == 12
    for wrong in (("--samples", "some"), ("--prior", "uniform"), ("--judge", name), ("--think-rounds", "5")):
        assert run(*common, *wrong) == 2


def test_how_verdicts_were_got_is_counted(tmp_path: Path, source: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, out = judge(tmp_path, "a", RIGHT), tmp_path / "out.jsonl"
    assert run(source, "-o", str(out), "--db", str(tmp_path / "x.db"), "--judge", name, "--think-rounds", "1") == 0
    assert "how verdicts were got: plain 4, thought again 4" in capsys.readouterr().err


def test_vllm_is_asked_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_BASE_URL", raising=False)
    provider = open_provider("vllm/Qwen/Qwen3-8B")
    assert (provider.name, provider.model, provider.base_url) == ("vllm", "Qwen/Qwen3-8B", "http://localhost:8000/v1")
    asked = (Message("user", "Is it?"), Message("assistant", "Verdict:"))
    sampling = Sampling(logprobs=5, extra_body={"logprob_token_ids": [1, 2]})
    body = provider.wire(Request(asked, sampling, {"type": "object"}, continues=True))
    assert body["structured_outputs"] == {"json": {"type": "object"}}
    assert "response_format" not in body
    assert (body["add_generation_prompt"], body["continue_final_message"]) == (False, True)
    assert (body["logprobs"], body["logprob_token_ids"]) == (True, [1, 2])
    assert "top_logprobs" not in body
    assert "continue_final_message" not in provider.wire(Request(asked[:1], sampling))


def test_a_judge_that_was_not_named_is_said(tmp_path: Path, source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(source, "-o", str(tmp_path / "out.jsonl")) == 0
    assert "no --judge: judged by `rules`" in capsys.readouterr().err
    assert run(source, "-o", str(tmp_path / "out.jsonl"), "--judge", "rules", "--overwrite") == 0
    assert "no --judge" not in capsys.readouterr().err


@pytest.mark.parametrize("command", [["label"], ["score", "rules"]])
def test_rows_passed_over_show_in_the_exit_code(command: list[str], source: str, tmp_path: Path) -> None:
    with Path(source).open("a") as rows:
        rows.write('\n{"problem": "p", "steps": "one"}\n')
    out = str(tmp_path / "out.jsonl")
    for arguments, code in (([], 1), (["--skip-bad", "--overwrite"], 3)):
        with pytest.raises(SystemExit) as stopped:
            main([*command, source, "-o", out, *arguments])
        assert stopped.value.code == code
    assert len(Path(out).read_bytes().splitlines()) == 4
