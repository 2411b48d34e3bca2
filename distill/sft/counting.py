"""A tokenizer's name, or a cache's, in; what counts tokens or finds stored replies while chats are made out."""

from __future__ import annotations

from pathlib import Path

from critic_prm.providers.provider import Reply
from distill.sft.chains import Stored
from distill.sft.chats import ESTIMATED, Counting


def counted_by(tokenizer: str | None) -> Counting:
    """Count by the tokenizer of a model's folder or hub name, None to estimate. Raises InputError for one that is not there."""
    if tokenizer is None:
        return ESTIMATED
    from distill.sft.tokens import open_chat_tokenizer

    loaded = open_chat_tokenizer(tokenizer)
    return Counting(f"the tokenizer of {tokenizer}", lambda text: len(loaded(text, add_special_tokens=False)["input_ids"]))


def stored_in(db: Path | None) -> Stored | None:
    """Find replies in this cache, which is opened for reading alone. Raises InputError."""
    if db is None:
        return None
    from critic_prm.engine.cache import Cache
    from critic_prm.providers.stored import stored_reply

    cache = Cache(db, readonly=True)

    def stored(key: str) -> Reply | None:
        raw = cache.get(key)
        return None if raw is None else stored_reply(raw)

    return stored
