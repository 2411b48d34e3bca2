"""Solutions that a scripted judge has labelled, for the tests of the generative student."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from critic_prm.critics.llm import with_provider
from critic_prm.data.judgement import Verdict
from critic_prm.data.records.reading import RecordWriter
from critic_prm.data.trajectory import Step, Trajectory, trajectory_to_json
from critic_prm.engine.options import JudgeOptions
from critic_prm.label.progress import RunStats
from critic_prm.label.run import LabelOptions, Samples, label_into
from critic_prm.providers.provider import Wire
from critic_prm.providers.scripted import ScriptedProvider
from critic_prm.styles.prompt import open_style
from critic_prm.styles.reader import Expect, write_reply

if TYPE_CHECKING:
    from distill.sft.run import Tuned


def solution(number: int, first: int, steps: int = 2) -> Trajectory:
    """A sum cut into steps; the step `first` has a wrong result (-1: none has)."""
    texts = [f"{number} + {k} = {number + k + (k == first)}" for k in range(steps)]
    return Trajectory(f"s{number}", f"Add to {number}.", tuple(map(Step, texts)), label=first)


def chain(trajectory: Trajectory, first: int, style: str | Path = "stepwise", tail: str = "") -> str:
    """What a judge says who finds the first error at `first`."""
    last = len(trajectory.steps) if first < 0 else first + 1
    verdicts = [
        Verdict(
            k,
            "incorrect" if k == first else "correct",
            f"I add again: {trajectory.texts[k]} is {'off' if k == first else 'fine'}.",
        )
        for k in range(last)
    ]
    opened = open_style(style)
    return str(write_reply(opened, Expect(len(trajectory.steps), opened.base, opened.stops), verdicts)) + tail


Script = Callable[[Trajectory, int], str]


async def judge(trajectories: Sequence[Trajectory], out: Path, say: Script, style: str = "stepwise", samples: int = 1) -> Path:
    """Label with a judge that says `say(trajectory, sample)`; replies are kept in the cache beside."""
    asked: dict[str, int] = {}

    def script(wire: Wire) -> dict[str, Any]:
        found = re.search(r"Add to (\d+)\.", wire["messages"][-1]["content"])
        assert found is not None
        turn = asked.get(found.group(1), 0)
        asked[found.group(1)] = turn + 1
        return {"text": say(next(t for t in trajectories if t.id == f"s{found.group(1)}"), turn)}

    judging = JudgeOptions(style=style, db=out.with_suffix(".db"), follow_ups=0, schema=False)
    critic = with_provider(ScriptedProvider(script), judging)
    with RecordWriter(out) as writer:
        await label_into(writer, trajectories, critic, RunStats(), LabelOptions(Samples(samples, samples)))
    await critic.close()
    return out


def rows(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def tokenizer_of(texts: list[str], template: str | None) -> Any:
    """A BPE tokenizer that has seen `texts`, so that few tokens say them."""
    from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers, trainers
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=400, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    raw.train_from_iterator(texts, trainer)
    raw.add_special_tokens([AddedToken(token, special=True) for token in ("<|end|>", "<|pad|>", "<|im_start|>", "<|im_end|>")])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|end|>", pad_token="<|pad|>", model_max_length=256)
    tokenizer.chat_template = template
    return tokenizer


CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def base_of(folder: Path, texts: list[str], template: str | None = CHATML, length: int = 256) -> Path:
    """A Llama of two layers with random weights."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig

    tokenizer = tokenizer_of(texts, template)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=length, pad_token_id=tokenizer.pad_token_id, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id, tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


PROMPT = r"""{# reader: boxed-verdicts | per: trajectory | base: 1 | stops: yes | max_tokens: 64 #}
{% block system %}Judge.{% endblock %}
{% block user %}
{{ problem }}
{% for step in steps %}
{{ step.text }}
{% endfor %}
{% endblock %}"""


def few() -> list[Trajectory]:
    """Eight solutions of two steps, half of them with an error."""
    return [solution(number, -1 if number % 2 else number % 4 // 2) for number in range(8)]


async def overfit(folder: Path, trajectories: Sequence[Trajectory], style: Path) -> tuple[Tuned, Path]:
    """A student that knows by heart what a scripted judge said of these solutions, in `folder`/judge; and its base."""
    from distill.settings import ChatOptions, TrainingSettings
    from distill.sft.chats import SOLUTIONS, build_chats
    from distill.sft.run import distill_sft

    labels = await judge(trajectories, folder / "labels.jsonl", lambda t, n: chain(t, int(t.label or 0), style), str(style))
    chats = folder / "chats"
    build_chats([labels], chats, ChatOptions(style=str(style), split=(1.0, 0.0, 0.0), balance=False))
    # What is learned by heart is measured on itself.
    (chats / "dev.jsonl").write_bytes((chats / "train.jsonl").read_bytes())
    (chats / SOLUTIONS).write_bytes(b"\n".join(orjson.dumps(trajectory_to_json(one)) for one in trajectories))
    base = base_of(folder / "base", [m["content"] for row in rows(chats / "train.jsonl") for m in row["messages"]])
    settings = TrainingSettings(
        epochs=100, lr=8e-3, warmup=0.1, batch_tokens=300, micro_tokens=400, schedule="linear", patience=0, dtype="fp32",
        max_length=256, weight_decay=0.0,
    )  # fmt: skip
    return distill_sft(chats, folder / "judge", str(base), settings), base


@pytest.fixture(scope="session")
def made() -> SimpleNamespace:
    """The makers: solution, chain, judge, rows, tokenizer_of, base_of."""
    return SimpleNamespace(
        solution=solution,
        chain=chain,
        judge=judge,
        rows=rows,
        tokenizer_of=tokenizer_of,
        base_of=base_of,
        chatml=CHATML,
        few=few,
        overfit=overfit,
        prompt=PROMPT,
    )


@pytest.fixture
def problems() -> list[Trajectory]:
    """Forty solutions, half of them with an error."""
    return [solution(number, -1 if number % 2 else number % 4 // 2) for number in range(40)]
