"""Fine-tune a small causal model to judge: build chats, tokenize, train, measure on dev and write the folder."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from critic_prm.data.records.writing import check_replaceable, new_folder
from critic_prm.errors import InputError, UsageError
from distill.card import judge_card
from distill.settings import DEFAULT_TRAINING, ChatOptions, TrainingSettings
from distill.sft.chats import Counting
from distill.sft.material import Material, Talk, read_material, tally

if TYPE_CHECKING:
    from distill.sft.asking import Answerer
    from distill.sft.chains import Stored
    from distill.sft.tokens import Tokens
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
    from distill.students.transformer import require_torch

    target = Path(out)
    _check(settings, target)
    settings = settings.resolved(MAX_LENGTH)
    longest = settings.max_length or MAX_LENGTH
    require_torch()
    import torch

    from distill.run import versions
    from distill.sft.asking import Answerer, measure, sample_solutions, stop_ids
    from distill.sft.task import ChatTask, mean_loss, places_at_once
    from distill.sft.tokens import open_chat_tokenizer
    from distill.students.transformer import open_team, require_room, require_vocabulary
    from distill.training.causal import open_policy, plain_policy
    from distill.training.loop import LOG, micro_tokens, train
    from distill.training.network import quiet
    from distill.training.progress import watching

    team = open_team(settings)
    tokenizer = open_chat_tokenizer(base)
    chats = target.with_name(f"{target.name}-chats")
    counting = Counting(f"the tokenizer of {base}", lambda text: len(tokenizer(text, add_special_tokens=False)["input_ids"]))
    if team.size > 1 and Path(data).is_file():
        raise UsageError("several processes would all write the chats; write them first with: critic-prm dataset sft")
    material = read_material(data, chats, options or ChatOptions(), counting, stored, say)
    torch.manual_seed(seed)
    with quiet():
        policy = open_policy(base, settings)
    context = int(getattr(policy.model.config, "max_position_embeddings", None) or longest)
    room = min(longest, context)
    report = say if team.rank == 0 else _silent
    split = {
        name: _tokens(tokenizer, talks, room, settings, f"{material.name}/{name}", report)
        for name, talks in (("train", material.train), ("dev", material.dev))
    }
    task, dev = ChatTask(policy, split["train"]), ChatTask(policy, split["dev"])
    require_vocabulary(base, policy.model, (*split["train"], *split["dev"]))
    require_room(work_folder(target), task)
    places = settings.micro_tokens or min(micro_tokens(settings, policy.device), places_at_once(policy.model))
    work = work_folder(target)
    last: dict[str, Any] = {}
    with watching(report) as watch:

        def evaluate_dev() -> dict[str, Any]:
            return {"f1": None, "loss": mean_loss(dev, places, team)}

        def record_loss(record: Mapping[str, Any]) -> None:
            last.update({"loss": record["loss"]} if "loss" in record else {"looks": last.get("looks", 0) + 1})
            watch(record)

        run = _run_name(base, settings, material, seed)
        summary = train(
            task, evaluate_dev, settings, places=places, seed=seed, team=team, work=work, run=run, watch=record_loss, say=report
        )
    student = plain_policy(policy)
    student.model.to(student.dtype)  # measure in the dtype in which it is saved
    answerer = Answerer(student.model, tokenizer, _limit(split["train"], context))
    metrics: dict[str, Any] = {"train_loss": last.get("loss"), "dev": {"loss": (summary["best"] or {}).get("loss")}}
    solutions = sample_solutions(material.solutions, measure_on, seed)
    if solutions and material.style is not None and team.rank == 0:
        report(f"judging {len(solutions)} solutions of dev")
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
            "processes": team.size,
            **summary,
            "settings": {name: value for name, value in asdict(settings).items() if name not in SCORE_SETTINGS},
            "account": dict(material.account),
        },
        "versions": versions(),
    }
    if team.rank == 0:
        from distill.training.progress import draw

        draw(work / LOG, work / "training.png")
        _write(target, student, answerer, stop_ids(tokenizer), material, info, metrics, work)
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
    from distill.sft.tokens import ending_of, sequences

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


def _run_name(base: str, settings: TrainingSettings, material: Material, seed: int) -> str:
    """Return a fingerprint of everything that affects the result of a run."""
    relevant = {one.name: getattr(settings, one.name) for one in fields(settings) if one.name not in ("save_minutes", "device")}
    identity = json.dumps(["sft", base, relevant, material.digest, seed], sort_keys=True)
    return hashlib.sha256(identity.encode()).hexdigest()[:16]


def _write(
    target: Path,
    student: Policy,
    answerer: Answerer,
    stops: list[int],
    material: Material,
    info: Mapping[str, Any],
    metrics: Mapping[str, Any],
    work: Path,
) -> None:
    from transformers import GenerationConfig

    from distill.store import share, write_json
    from distill.training.network import quiet

    student.model.generation_config = GenerationConfig(
        bos_token_id=answerer.tokenizer.bos_token_id, eos_token_id=stops, pad_token_id=answerer.tokenizer.pad_token_id
    )
    with new_folder(target, MARK, "generative student") as folder:
        with quiet():
            student.save(folder)
        answerer.tokenizer.save_pretrained(folder)
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


def _silent(line: str) -> None:
    """Discard progress lines in all processes but one."""
