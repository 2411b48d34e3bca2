"""Fine-tune a small causal model to judge: build chats, tokenize, train, measure on dev and write the folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from critic_prm.data.records.writing import check_replaceable, new_folder
from critic_prm.errors import InputError, UsageError
from distill.card import judge_card
from distill.settings import DEFAULT_TRAINING, ChatOptions, TrainingSettings
from distill.sft.chains import Stored
from distill.sft.chats import Counting
from distill.sft.material import Material, Talk, read_material, tally
from distill.sft.tokens import Tokens, ending_of, open_chat_tokenizer, sequences

if TYPE_CHECKING:
    from distill.sft.student import Answerer
    from distill.training.causal import Policy

FORMAT = "critic-prm judge 1"
MARK = "judge.json"
MAX_LENGTH = 8192
"""Default of --max-length: critiques are longer than step scores need."""
LOG_FILES = ("training.jsonl", "training.png")
SCORE_SETTINGS = ("loss", "heads", "label_smoothing", "class_weights", "layout", "chat_template", "domain_weights", "trusted")
"""TrainingSettings that apply only to step scores. A generative student always uses the base's chat template."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """The student's folder, its `judge.json`, and its metrics: the loss per token, and how it judges dev."""

    folder: Path
    info: Mapping[str, Any]
    metrics: Mapping[str, Any]


def distill_sft(
    data: str | Path,
    out: str | Path,
    base: str,
    settings: TrainingSettings = DEFAULT_TRAINING,
    *,
    options: ChatOptions | None = None,
    stored: Stored | None = None,
    measure_on: int = 32,
    seed: int = 0,
    say: Callable[[str], None] = lambda line: None,
) -> Tuned:
    """Fine-tune `base` on the chats `data`, and write the folder `out`: a causal language model with its model card.

    `data` is a folder of `dataset sft`, any chats, or a label file. A label file is first converted to chats beside `out`, as
    `options` say, with the replies that `stored` finds; if `stored` is None, answers are written from the critiques. The
    weights with the lowest dev loss are kept; then the student judges `measure_on` solutions of dev. The state needed to resume
    an interrupted run is kept in a hidden folder beside `out`.

    Raises ConfigError if torch or the requested device is missing, InputError for data and bases that cannot be used, and
    UsageError for incompatible settings; `out` is then left unchanged.
    """
    from distill.store import work_folder
    from distill.students.transformer import require_room, require_torch, require_vocabulary

    target = Path(out)
    _check(settings, target)
    settings = settings.resolved(MAX_LENGTH)
    longest = settings.max_length or MAX_LENGTH
    require_torch()
    from distill.run import versions
    from distill.sft.student import Answerer, ChatTask, mean_loss, measure, places_at_once, sample_solutions
    from distill.training.causal import open_policy, plain_policy
    from distill.training.loop import LOG, micro_tokens, open_run, run_name, train
    from distill.training.progress import draw

    work = work_folder(target)
    run = open_run(settings, seed, work, say)
    tokenizer = open_chat_tokenizer(base)
    chats = target.with_name(f"{target.name}-chats")
    counting = Counting(f"the tokenizer of {base}", lambda text: len(tokenizer(text, add_special_tokens=False)["input_ids"]))
    if run.processes.size > 1 and Path(data).is_file():
        raise UsageError("several processes would all write the chats; write them first with: critic-prm dataset sft")
    material = read_material(data, chats, options or ChatOptions(), counting, stored, say)
    policy = open_policy(base, settings)
    context = int(getattr(policy.model.config, "max_position_embeddings", None) or longest)
    task, dev = (
        ChatTask(policy, _tokens(tokenizer, talks, min(longest, context), settings, f"{material.name}/{name}", run.say))
        for name, talks in (("train", material.train), ("dev", material.dev))
    )
    require_vocabulary(base, policy.model, (*task.chats, *dev.chats))
    require_room(work, policy.model)
    places = settings.micro_tokens or min(micro_tokens(settings, policy.device), places_at_once(policy.model))
    last: dict[str, Any] = {}

    def evaluate_dev() -> dict[str, Any]:
        return {"f1": None, "loss": mean_loss(dev, places, run.processes)}

    def record_loss(record: Mapping[str, Any]) -> None:
        last.update({"loss": record["loss"]} if "loss" in record else {"looks": last.get("looks", 0) + 1})

    run = replace(run, name=run_name(["sft", base], settings, material.digest, seed), watch=record_loss)
    summary = train(task, evaluate_dev, settings, run, places=places)
    student = plain_policy(policy)
    student.model.to(student.dtype)  # measure in the dtype in which it is saved
    answerer = Answerer(student.model, tokenizer, _limit(task.chats, context))
    metrics: dict[str, Any] = {"train_loss": last.get("loss"), "dev": {"loss": (summary["best"] or {}).get("loss")}}
    solutions = sample_solutions(material.solutions, measure_on, seed)
    if solutions and material.style is not None and run.leads:
        run.say(f"judging {len(solutions)} solutions of dev")
        metrics["dev"]["judging"] = measure(answerer, material.style, solutions)
    info = {
        "format": FORMAT,
        "base": base,
        "base_is_hub_name": not Path(base).exists(),
        "style": None if material.style is None else {"name": material.style.name, "fingerprint": material.style.fingerprint},
        "max_tokens": answerer.limit,
        "context": context,
        "training": {
            "data": material.name,
            "data_sha256": material.digest,
            "sources": tally(material.train),
            "seed": seed,
            "chats": len(task.chats),
            "learned_tokens": sum(int(chat.learn.sum()) for chat in task.chats),
            "looks": last.get("looks", 0),
            "processes": run.processes.size,
            **summary,
            "settings": {name: value for name, value in asdict(settings).items() if name not in SCORE_SETTINGS},
            "account": dict(material.account),
        },
        "versions": versions(),
    }
    if run.leads:
        draw(work / LOG, work / "training.png")
        _write(target, student, answerer, material, info, metrics, work)
    return Tuned(target, info, metrics)


def _check(settings: TrainingSettings, target: Path) -> None:
    default = TrainingSettings()
    for name in SCORE_SETTINGS:
        if getattr(settings, name) != getattr(default, name):
            raise UsageError(
                f"{name.replace('_', '-')} is {getattr(settings, name)!r}, which applies to step scores only; leave it out"
                " for a generative student"
            )
    check_replaceable(target, MARK, "generative student")


def _tokens(
    tokenizer: Any, talks: Sequence[Talk], room: int, settings: TrainingSettings, where: str, say: Callable[[str], None]
) -> list[Tokens]:
    """Tokenize the conversations. Those that do not fit are dropped whole, since a truncated answer has no verdict."""
    ending = ending_of(tokenizer)
    every = [one for talk in talks for one in sequences(tokenizer, talk.messages, talk.where, ending)]
    kept = [one for one in every if len(one.ids) <= room]
    lost = len(every) - len(kept)
    longest = max(len(one.ids) for one in every)
    if not kept or lost > settings.allow_dropped * len(every):
        raise InputError(
            where,
            f"{lost} of {len(every)} chats do not fit into {room} tokens; the longest has {longest:,}",
            "raise --max-length, choose a base with a longer context, filter with dataset sft --max-tokens, or allow it with"
            f" --allow-dropped {min(1.0, -(-1000 * lost // len(every)) / 1000):g}",
        )
    if lost:
        say(f"{where}: {lost} of {len(every)} chats do not fit into {room} tokens and are dropped")
    return kept


def _limit(chats: Sequence[Tokens], context: int) -> int:
    """Return the maximum tokens of an answer: 1.25 times the longest one learned, as far as the context has room."""
    answer = max(int(chat.learn.sum()) for chat in chats)
    prompt = max(int((~chat.learn).sum()) for chat in chats)
    return max(1, min(-(-answer * 5 // 4 // 64) * 64, context - prompt))


def _write(
    target: Path,
    student: Policy,
    answerer: Answerer,
    material: Material,
    info: Mapping[str, Any],
    metrics: Mapping[str, Any],
    work: Path,
) -> None:
    from transformers import GenerationConfig

    from distill.sft.student import stop_ids
    from distill.store import share, write_json

    tokenizer = answerer.tokenizer
    student.model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=stop_ids(tokenizer), pad_token_id=tokenizer.pad_token_id
    )
    with new_folder(target, MARK, "generative student") as folder:
        student.save(folder)
        tokenizer.save_pretrained(folder)
        if material.style is not None:
            (folder / f"{material.style.name}.jinja").write_text(material.style.source, encoding="utf-8")
        for name in LOG_FILES:
            if (work / name).is_file():
                shutil.copyfile(work / name, folder / name)
        write_json(folder / MARK, info)
        write_json(folder / "metrics.json", metrics)
        (folder / "README.md").write_text(judge_card(target.absolute().name, info, metrics), encoding="utf-8")
        share(folder)
    shutil.rmtree(work, ignore_errors=True)
