"""Provider that replies from a file or, in tests, from a list or function, without a network."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import orjson

from critic_prm.errors import InputError, ProviderError
from critic_prm.providers.openai import read_chat
from critic_prm.providers.provider import Capability, Provider, RawReply, Request, Wire

Script = Mapping[str, Any] | ProviderError


@dataclass
class ScriptedProvider(Provider):
    """Replies from `script`: a list of rows (see `connect`) or a function from request body to row.

    `asked` records every body sent.
    """

    model_is_path: ClassVar = True
    read = staticmethod(read_chat)

    script: Sequence[Script] | Callable[[Wire], Script]
    model: str = "scripted"
    base_url: str | None = None
    name: str = "scripted"
    capabilities: Collection[Capability] = ()
    asked: list[Wire] = field(default_factory=list)
    _turns: dict[str, int] = field(default_factory=dict)

    @classmethod
    def connect(cls, model: str, base_url: str | None, options: None = None) -> ScriptedProvider:
        """Open a script: a JSONL file of rows `{"text": ..., "contains": ..., "finish": ..., "usage": ..., "logprobs": ...}`.

        A row answers the requests whose last message contains `contains` (all requests if it is missing). Rows that match the
        same request are used in turn.
        """
        try:
            rows = [orjson.loads(line) for line in Path(model).read_bytes().split(b"\n") if line.strip()]
        except (OSError, orjson.JSONDecodeError) as error:
            raise InputError(model, f"these scripted replies cannot be read: {error}", 'one {"text": ...} per line') from error
        return cls(rows, model=Path(model).name)

    def wire(self, request: Request) -> Wire:
        body: Wire = {"model": self.model, "messages": [{"role": m.role, "content": m.content} for m in request.messages]}
        for name in ("temperature", "top_p", "max_tokens", "seed", "logprobs", "effort"):
            if getattr(request.sampling, name) is not None:
                body[name] = getattr(request.sampling, name)
        if request.sampling.stop:
            body["stop"] = list(request.sampling.stop)
        if request.schema is not None:
            body["schema"] = request.schema
        return body | dict(request.sampling.extra)

    async def complete(self, wire: Wire) -> RawReply:
        self.asked.append(wire)
        row = self.script(wire) if callable(self.script) else self._next(wire)
        if isinstance(row, ProviderError):
            raise row
        return RawReply(_body(row, self.model))

    def _next(self, wire: Wire) -> Script:
        assert not callable(self.script)
        last = str(wire["messages"][-1]["content"])
        fitting = [row for row in self.script if isinstance(row, ProviderError) or row.get("contains", "") in last]
        if not fitting:
            raise ProviderError("no scripted reply fits this request", "row")
        turn = self._turns[last] = self._turns.get(last, -1) + 1
        return fitting[turn % len(fitting)]


PROVIDER = ScriptedProvider


def _body(row: Mapping[str, Any], model: str) -> dict[str, Any]:
    """Convert a scripted row to the body of a chat completion; a row that already has `choices` is used as it is."""
    if "choices" in row:
        return dict(row)
    choice: dict[str, Any] = {
        "message": {"role": "assistant", "content": row["text"]},
        "finish_reason": row.get("finish", "stop"),
    }
    if row.get("refusal"):
        choice["message"]["refusal"] = row["refusal"]
    if row.get("logprobs"):
        choice["logprobs"] = {"content": row["logprobs"]}
    return {"model": model, "choices": [choice], "usage": row.get("usage", {})}
