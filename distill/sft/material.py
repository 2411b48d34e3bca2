"""Load the conversations of train and dev, and the solutions of dev, from chats or label files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from critic_prm.data.hashing import problem_key, split_of
from critic_prm.data.records.reading import Record, read_records
from critic_prm.data.trajectory import Trajectory, trajectory_from_json
from critic_prm.data.trust import Origin
from critic_prm.datasets.rows import fingerprint
from critic_prm.errors import InputError
from critic_prm.styles.prompt import Style, open_style
from distill.settings import ChatOptions
from distill.sft.chains import Stored
from distill.sft.chats import MARK, SOLUTIONS, Counting, build_chats

SHARES = (0.95, 0.05, 0.0)
"""Shares by which a single file of chats is split into train and dev; chats with the same first question stay together."""


@dataclass(frozen=True, slots=True)
class Talk:
    """One conversation to learn from; `where` names file and line."""

    where: str
    messages: tuple[Mapping[str, str], ...]
    source: str = ""


@dataclass(frozen=True, slots=True)
class Material:
    """The data that a generative student learns from.

    `style` is the style it will be asked in, None if the chats have no style. `solutions` are those of dev, with their gold
    label.
    """

    name: str
    digest: str
    train: tuple[Talk, ...]
    dev: tuple[Talk, ...]
    style: Style | None = None
    solutions: tuple[Trajectory, ...] = ()
    account: Mapping[str, Any] = field(default_factory=dict)


def read_material(
    data: str | Path,
    chats: Path,
    options: ChatOptions,
    counting: Counting,
    stored: Stored | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Material:
    """Read a folder of `dataset sft`, another folder with train.jsonl and dev.jsonl of chats, or a file of chats.

    Without dev, one chat in twenty becomes dev, chosen by its first question. A label file is first converted to the folder
    `chats`, as `options` say. Raises InputError for anything else, and for chats that cannot be read.
    """
    path = Path(data)
    if not path.is_dir():
        first = next(iter(read_records(path)), None)
        if first is not None and _is_chat(first.data):
            return _of_file(path)
        build_chats([path], chats, options, counting=counting, stored=stored, say=say)
        path = chats
    if (path / "dataset.json").is_file():
        raise InputError(
            str(path), "a training set contains labels, not critiques", "name the label file it was built from, or its chats"
        )
    return _of_folder(path)


def _of_folder(path: Path) -> Material:
    if not (path / "train.jsonl").is_file():
        raise InputError(str(path), "there is no train.jsonl in it", "make a folder of chats with: critic-prm dataset sft")
    if not (path / "dev.jsonl").is_file():
        return _of_file(path / "train.jsonl")
    account: Mapping[str, Any] = {}
    style, solutions = None, tuple[Trajectory, ...]()
    if (path / MARK).is_file():
        account = next(iter(read_records(path / MARK))).data
        style = open_style(Origin(path / MARK).path("style", f"{account['style']['name']}.jinja"))
        if (path / SOLUTIONS).is_file() and (path / SOLUTIONS).stat().st_size:
            rows = read_records(path / SOLUTIONS)
            solutions = tuple(trajectory_from_json(record.data, record.where) for record in rows)
    files = [path / f"{name}.jsonl" for name in ("train", "dev")]
    train, dev = (list(_talks(file)) if file.is_file() and file.stat().st_size else [] for file in files)
    digest = hashlib.sha256("".join(fingerprint(file) or "" for file in files).encode()).hexdigest()
    return _checked(Material(path.name, digest, tuple(train), tuple(dev), style, solutions, account))


def _of_file(path: Path) -> Material:
    splits: dict[str, list[Talk]] = {"train": [], "dev": [], "test": []}
    for talk in _talks(path):
        asked = next((m["content"] for m in talk.messages if m["role"] == "user"), "")
        splits[split_of(problem_key(asked), SHARES, 0)].append(talk)
    return _checked(Material(path.name, str(fingerprint(path)), tuple(splits["train"]), tuple(splits["dev"])))


def _checked(material: Material) -> Material:
    for split in ("train", "dev"):
        if not getattr(material, split):
            raise InputError(material.name, f"its {split} split has no chats", "add chats, or change --split")
    return material


def _is_chat(row: Any) -> bool:
    return isinstance(row, dict) and isinstance(row.get("messages", row.get("conversations")), list) and "steps" not in row


def _talks(path: Path) -> Iterator[Talk]:
    for record in read_records(path):
        yield Talk(record.where, tuple(_messages(record)), str(record.data.get("source") or ""))


def _messages(record: Record) -> Iterator[Mapping[str, str]]:
    """Return the messages of a row: `messages` or `conversations`, with role and content, or ShareGPT's from and value."""
    if not _is_chat(record.data):
        raise InputError(record.where, "this is not a chat", 'each row is {"messages": [{"role": ..., "content": ...}]}')
    for message in record.data.get("messages", record.data.get("conversations")):
        role = message.get("role", message.get("from")) if isinstance(message, dict) else None
        content = message.get("content", message.get("value")) if isinstance(message, dict) else None
        role = {"human": "user", "gpt": "assistant"}.get(str(role), role)
        if role not in ("system", "user", "assistant") or not isinstance(content, str):
            raise InputError(
                record.where, f"a message is {message!r:.60}", "it needs a role (system, user, assistant) and a text"
            )
        yield {"role": str(role), "content": content}


def tally(talks: Sequence[Talk]) -> dict[str, int]:
    """Count the conversations of each source."""
    counts: dict[str, int] = {}
    for talk in talks:
        counts[talk.source] = counts.get(talk.source, 0) + 1
    return counts
