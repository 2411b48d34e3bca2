"""Open the token counter and the reply cache that chat conversion uses."""

from __future__ import annotations

from pathlib import Path

from critic_prm.providers.provider import Reply
from distill.sft.chains import Stored
from distill.sft.chats import ESTIMATED, Counting


def counted_by(tokenizer: str | None) -> Counting:
    """Count with the tokenizer of a model folder or hub name, None for an estimate.

    Raises InputError if the tokenizer cannot be opened.
    """
    if tokenizer is None:
        return ESTIMATED
    from distill.sft.tokens import open_chat_tokenizer

    loaded = open_chat_tokenizer(tokenizer)
    return Counting(f"the tokenizer of {tokenizer}", lambda text: len(loaded(text, add_special_tokens=False)["input_ids"]))


def stored_in(db: Path | None) -> Stored | None:
    """Return a lookup of replies in this cache, opened read-only. Raises InputError."""
    if db is None:
        return None
    from critic_prm.engine.cache import Cache
    from critic_prm.providers.stored import stored_reply

    cache = Cache(db, readonly=True)

    def stored(key: str) -> Reply | None:
        raw = cache.get(key)
        return None if raw is None else stored_reply(raw)

    return stored
