"""A judge that was fine-tuned here, served by a real vLLM: what it learned comes back through the reader as verdicts."""

from __future__ import annotations

from pathlib import Path

from critic_prm.critic import Judging
from critic_prm.critics.llm import connect
from critic_prm.provider import Sampling
from tests.distill.sft.conftest import PROMPT, few, overfit
from tests.vllm.conftest import serving


async def test_a_fine_tuned_judge_is_served_as_it_is(tmp_path: Path) -> None:
    """Chat template, stop tokens and context length are those of the folder; a greedy judge ends of itself."""
    prompt = tmp_path / "short.jinja"
    prompt.write_text(PROMPT, encoding="utf-8")
    solutions = few()
    result, _ = await overfit(tmp_path, solutions, prompt)
    folder = tmp_path / "judge"
    with serving(folder, "--dtype", "float32") as address:
        sampling = Sampling(temperature=0.0, max_tokens=int(result.info["max_tokens"]))
        style = str(folder / "short.jinja")
        settings = Judging(style=style, sampling=sampling, db=tmp_path / "x.db", base_url=address, reasks=0, follow_ups=0)
        critic = connect(f"vllm/{folder}", settings)
        try:
            found = await critic.judge(solutions)
        finally:
            await critic.close()
    assert [(one.status, one.first_error) for one in found] == [("ok", one.label) for one in solutions]
    assert all(verdict.critique.startswith("I add again") for one in found for verdict in one.verdicts)
