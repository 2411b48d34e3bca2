"""cache.db.example from examples/replies.jsonl: each recorded reply under the key of the prompt that the package ships.

Run it after a change of prompts/stepwise.jinja or of an example: `make examples`. The replies stay what they were; where the
prompt has changed so much that they no longer answer it, they want recording again.
"""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

from critic_prm.critics.llm import LLMCritic, connect
from critic_prm.data.records.reading import read_records
from critic_prm.data.trajectory import trajectory_from_json
from critic_prm.engine.cache import Cache, Entry
from critic_prm.engine.options import JudgeOptions
from critic_prm.providers.provider import Request, Usage, request_key
from critic_prm.registry import resource
from critic_prm.styles.prompt import question

HERE = Path(__file__).parent
JUDGE = "recorded/example-judge"


def entries(critic: LLMCritic) -> list[Entry]:
    """One entry per recorded reply, in the order of the examples."""
    replies = {record.data["id"]: record.data["text"] for record in read_records(HERE / "replies.jsonl")}
    provider = critic.client.provider
    rows = []
    for record in read_records(resource("examples/trajectories.jsonl")):
        trajectory = trajectory_from_json(record.data, record.where)
        asked = question(critic.style, trajectory)
        wire = provider.wire(Request(asked.messages, critic.sampling, asked.schema))
        text = replies[trajectory.id]
        message = {"role": "assistant", "content": text}
        raw = {"model": provider.model, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
        rows.append(Entry(request_key(wire), wire, 0, "", provider.name, provider.model, None, raw, text, "stop", Usage(), 0.0))
    return rows


def main() -> None:
    path = HERE.parent / "cache.db.example"
    path.unlink(missing_ok=True)
    critic = connect(JUDGE, JudgeOptions(style="stepwise", db=path))
    rows = entries(critic)
    asyncio.run(critic.close())
    cache = Cache(path)
    cache.add(rows)
    cache.close()
    # A file to be read from anywhere, also from a folder that cannot be written: no write-ahead log, no empty pages.
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("VACUUM")
    connection.close()


if __name__ == "__main__":
    main()
