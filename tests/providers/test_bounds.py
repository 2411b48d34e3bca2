"""Bodies without bound, plain, compressed or endless: a row fails, and little is read or held in memory."""

from __future__ import annotations

import asyncio
import base64
import gzip
import traceback
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from critic_prm.errors import ProviderError
from critic_prm.providers.batches import LONGEST_LINE, lines
from critic_prm.providers.http import ERROR_BYTES, LARGE_AT_ONCE, Direct
from critic_prm.providers.openai import OpenAIProvider
from critic_prm.providers.provider import Wire

MB = 1_000_000
WIRE: Wire = {"model": "m", "messages": [{"role": "user", "content": "2+2?"}]}

Respond = Callable[[asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(respond: Respond) -> AsyncIterator[str]:
    """Answers every request on the loopback with `respond`, then closes the connection."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            await reader.readexactly(size)
            await respond(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    running = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{running.sockets[0].getsockname()[1]}/v1"
    finally:
        running.close()


def head(status: int = 200, **headers: str) -> bytes:
    named = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{named}\r\n".encode()


class Endless:
    """A chunked body that has no end; `sent` counts what the client took of it."""

    def __init__(self, status: int = 200) -> None:
        self.status, self.sent = status, 0

    async def __call__(self, writer: asyncio.StreamWriter) -> None:
        writer.write(head(self.status, Transfer_Encoding="chunked"))
        while self.sent < 200 * MB:
            writer.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
            await writer.drain()
            self.sent += 0x10000


async def ask(url: str, most: int = MB) -> Any:
    provider = OpenAIProvider("m", url, "none", max_reply_bytes=most)
    try:
        return await provider.complete(WIRE)
    finally:
        await provider.close()


async def failure(url: str, most: int = MB) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await ask(url, most)
    return caught.value


def bytes_held(error: BaseException | None) -> int:
    """Bytes in byte arrays that the frames of an error, and of those behind it, hold."""
    total = 0
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            total += sum(len(value) for value in frame.f_locals.values() if isinstance(value, bytearray))
        error = error.__cause__ or error.__context__
    return total


async def test_an_endless_reply_is_left_where_the_bound_is() -> None:
    """An endless chunked body took 0.7 GB before it was given up."""
    respond = Endless()
    async with server(respond) as url:
        found = await failure(url)
    assert found.failure == "row"
    assert "larger than 1 MB" in str(found)
    assert "--max-reply-bytes" in str(found)
    assert respond.sent < 30 * MB  # the bound, and what socket buffers hold
    assert bytes_held(found) < 1000  # the error lives on: its traceback must not keep the body


async def test_of_an_error_only_the_beginning_is_read() -> None:
    respond = Endless(500)
    async with server(respond) as url:
        found = await failure(url)
    assert (found.failure, found.status) == ("transient", 500)
    assert respond.sent < 30 * MB


async def test_an_error_longer_than_what_is_read_still_says_its_status() -> None:
    async def respond(writer: asyncio.StreamWriter) -> None:
        content = orjson.dumps({"error": {"message": "x" * 2 * ERROR_BYTES}})
        writer.write(head(400, Content_Length=str(len(content))) + content)

    async with server(respond) as url:
        found = await failure(url)
    assert (found.failure, found.status) == ("row", 400)
    assert len(str(found)) < 400


async def test_a_compressed_reply_is_bounded_by_what_it_unpacks_to() -> None:
    """1 GB of blanks on the wire is 1 MB of gzip, and took 2.2 GB of memory."""
    bomb = gzip.compress(b" " * 100 * MB, compresslevel=1)

    async def respond(writer: asyncio.StreamWriter) -> None:
        writer.write(head(Content_Encoding="gzip", Content_Length=str(len(bomb))) + bomb)

    async with server(respond) as url:
        await failure(url)  # what is imported once is not counted
        tracemalloc.start()
        try:
            found = await failure(url)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert found.failure == "row"
    assert peak < 8 * MB


async def test_a_reply_within_the_bound_is_whole_also_in_many_pieces() -> None:
    body = {"choices": [{"message": {"content": "x" * 3 * MB}}]}
    content = orjson.dumps(body)

    async def respond(writer: asyncio.StreamWriter) -> None:
        writer.write(head(Content_Length=str(len(content))))
        for start in range(0, len(content), 100_000):
            writer.write(content[start : start + 100_000])
            await writer.drain()

    async with server(respond) as url:
        assert (await ask(url, len(content))).raw == body
        assert (await failure(url, len(content) - 1)).failure == "row"


async def test_only_a_few_large_replies_are_read_at_once() -> None:
    """With 64 connections the bound alone would allow 64 times 16 MB."""
    inside, most = 0, 0

    class Counted(asyncio.Semaphore):
        async def acquire(self) -> Any:
            nonlocal inside, most
            taken = await super().acquire()
            inside += 1
            most = max(most, inside)
            return taken

        def release(self) -> None:
            nonlocal inside
            inside -= 1
            super().release()

    async def respond(writer: asyncio.StreamWriter) -> None:
        content = b'{"x": "' + b"y" * 2 * MB + b'"}'
        writer.write(head(Content_Length=str(len(content))) + content)

    async with server(respond) as url:
        post = Direct(url, {}, _large=Counted(LARGE_AT_ONCE))
        found = await asyncio.gather(*(post(b"{}") for _ in range(20)))
        await post.close()
    assert {len(one.content) for one in found} == {2 * MB + 9}
    assert most == LARGE_AT_ONCE
    assert inside == 0


async def test_a_line_of_results_without_end_is_an_error() -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(LONGEST_LINE // MB + 2):
            yield b" " * MB
        raise AssertionError("read beyond the bound")

    with pytest.raises(ProviderError, match="longer than 64 MB"):
        [line async for line in lines(endless())]


@pytest.mark.parametrize("kind", ["http", "echo"])
async def test_a_server_that_sends_the_headers_back_is_quoted_without_keys(kind: str) -> None:
    """An echo server's answer is no HTTP: the transport's own error quotes it, and with it the Authorization header."""
    heads: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got = await reader.readuntil(b"\r\n\r\n")
        heads.append(got)
        echoed = got.partition(b"Authorization: ")[2].split(b"\r\n")[0]
        content = orjson.dumps({"error": {"message": f"{echoed.decode()} \x1b[2J", "code": echoed.decode()}})
        writer.write(head(400, Content_Length=str(len(content))) + content if kind == "http" else echoed + b"\r\n\r\n")
        await writer.drain()
        writer.close()

    running = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = running.sockets[0].getsockname()[1]
    for url in (f"http://127.0.0.1:{port}/v1", f"http://ann:a-pass-phrase@127.0.0.1:{port}/v1"):
        provider = OpenAIProvider("m", url, "sk-proj-0123456789abcdef")
        with pytest.raises(ProviderError) as caught:
            await provider.complete(WIRE)
        await provider.close()
        said = f"{caught.value} {caught.value.detail}"
        assert "[key]" in said
        assert "\x1b" not in said
        for secret in (b"sk-proj-0123456789abcdef", b"a-pass-phrase", base64.b64encode(b"ann:a-pass-phrase")):
            assert secret.decode() not in said
            assert secret.decode()[3:11] not in said
    running.close()
    assert b"Bearer sk-proj-0123456789abcdef" in heads[0]
