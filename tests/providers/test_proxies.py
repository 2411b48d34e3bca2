"""The environment that the transport keeps to: HTTPS_PROXY, NO_PROXY and a private CA in SSL_CERT_FILE."""

from __future__ import annotations

import asyncio
import base64
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from critic_prm.errors import ProviderError
from critic_prm.providers.provider import Message, Request, Sampling, open_provider
from tests.providers.test_presets import CASES, Server, serving

HOST = "api.groq.com"
ASKED = Request((Message("user", "2 + 2 = 5?"),), Sampling(max_tokens=9))


class Proxy:
    """A CONNECT proxy that leads every address to one TLS server; `opened` are the addresses, `headers` the last head."""

    def __init__(self, port: int) -> None:
        self.port, self.opened, self.headers, self.url = port, list[str](), "", ""

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.headers = head
        self.opened.append(head.split(" ")[1])
        inner, outer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pipe(reader, outer), pipe(inner, writer))


async def pipe(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()
    target.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for HOST, which is its own authority, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl program to make a certificate with")
    folder = tmp_path_factory.mktemp("ca")
    made = [
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-keyout",
        "key.pem",
        "-out",
        "ca.pem",
        "-days",
        "2",
    ]
    names = ["-subj", "/CN=a test authority", "-addext", f"subjectAltName=DNS:{HOST}"]
    subprocess.run([openssl, "req", "-x509", *made, *names], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def proxy(authority: Path) -> Iterator[tuple[Proxy, Server]]:
    """The proxy and the TLS server behind it, in a thread."""
    server, ready, done = Server(CASES["groq"]["replies"][0]), threading.Event(), threading.Event()
    found: list[Proxy] = []

    async def serve() -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(authority / "ca.pem", authority / "key.pem")
        behind = await asyncio.start_server(server.answer, "127.0.0.1", 0, ssl=context)
        made = Proxy(behind.sockets[0].getsockname()[1])
        listening = await asyncio.start_server(made.connect, "127.0.0.1", 0)
        made.url = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        found.append(made)
        ready.set()
        async with behind, listening:
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    ready.wait()
    try:
        yield found[0], server
    finally:
        done.set()
        thread.join()


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("GROQ_API_KEY", "gsk-of-this-test-0123")


async def test_a_preset_is_reached_through_a_proxy_with_a_private_ca(
    proxy: tuple[Proxy, Server], authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    between, server = proxy
    monkeypatch.setenv("HTTPS_PROXY", f"http://user:word@{between.url}")
    provider = open_provider("groq/m")
    with pytest.raises(ProviderError, match="certificate trusted by this machine"):
        await provider.complete(provider.wire(ASKED))
    await provider.close()
    monkeypatch.setenv("SSL_CERT_FILE", str(authority / "ca.pem"))
    reply = provider.read((await provider.complete(provider.wire(ASKED))).raw)
    await provider.close()
    assert reply.finish == "stop"
    assert set(between.opened) == {f"{HOST}:443"}
    assert base64.b64encode(b"user:word").decode() in between.headers
    assert (server.path, server.headers["authorization"]) == ("/openai/v1/chat/completions", "Bearer gsk-of-this-test-0123")


async def test_local_servers_and_no_proxy_bypass_it(
    proxy: tuple[Proxy, Server], authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    between, _ = proxy
    monkeypatch.setenv("HTTPS_PROXY", f"http://{between.url}")
    monkeypatch.setenv("HTTP_PROXY", f"http://{between.url}")
    with serving(CASES["groq"]["replies"][0]) as server:
        local = open_provider("groq/m", f"{server.url}/v1")
        assert local.read((await local.complete(local.wire(ASKED))).raw).finish == "stop"
        await local.close()
    monkeypatch.setenv("NO_PROXY", "elsewhere.example,nowhere.invalid")
    direct = open_provider("groq/m", "https://nowhere.invalid/v1")
    with pytest.raises(ProviderError):
        await direct.complete(direct.wire(ASKED))
    await direct.close()
    assert between.opened == []
