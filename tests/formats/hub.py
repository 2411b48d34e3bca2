"""A Hugging Face Hub on loopback that answers what its own client asks for data sets: files, trees, paths and information."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote

SHA = hashlib.sha1(b"the only revision").hexdigest()


class Hub(BaseHTTPRequestHandler):
    """Serves the files in `repositories`: name -> path -> content."""

    repositories: Mapping[str, Mapping[str, bytes]] = {}
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        path, files = self._repository("/api/datasets/")
        if files is None or not path.startswith("paths-info/"):
            return self._missing("RepoNotFound" if files is None else "EntryNotFound")
        asked = json.loads(body)["paths"] if body.startswith("{") else parse_qs(body).get("paths", [])
        return self._json([entry for name in asked for entry in self._entries(files, "", True) if entry["path"] == name])

    def do_GET(self) -> None:
        if self.path.startswith("/api/datasets/"):
            path, files = self._repository("/api/datasets/")
            if files is None:
                return self._missing("RepoNotFound")
            if path.startswith("tree/"):
                folder, _, query = path.partition("?")
                entries = list(self._entries(files, "/".join(folder.split("/")[2:]), "recursive=true" in query.lower()))
                return self._json(entries) if entries else self._missing("EntryNotFound")
            name = self.path.removeprefix("/api/datasets/").split("/revision")[0]
            return self._json({"id": name, "sha": SHA, "siblings": [{"rfilename": name} for name in files], "tags": []})
        path, files = self._repository("/datasets/")
        if files is None:
            return self._missing("RepoNotFound")
        content = files.get("/".join(path.split("/")[2:]))
        return self._missing("EntryNotFound") if content is None else self._send(200, content, "application/octet-stream")

    def _repository(self, prefix: str) -> tuple[str, Mapping[str, bytes] | None]:
        """The rest of the path after the repository, and its files; None for an unknown one."""
        address = unquote(self.path).removeprefix(prefix)
        for name, files in self.repositories.items():
            if address == name or address.startswith((f"{name}/", f"{name}?")):
                return address[len(name) + 1 :], files
        return address, None

    def _entries(self, files: Mapping[str, bytes], folder: str, deep: bool) -> Iterator[dict[str, Any]]:
        """The files and folders in a folder, and with `deep` those below."""
        start, folders = f"{folder}/" if folder else "", set[str]()
        for name, content in files.items():
            if not name.startswith(start):
                continue
            parts = name.removeprefix(start).split("/")
            folders |= {start + "/".join(parts[:depth]) for depth in range(1, len(parts) if deep else min(2, len(parts)))}
            if deep or len(parts) == 1:
                yield {"type": "file", "oid": hashlib.sha1(content).hexdigest(), "size": len(content), "path": name}
        for one in folders:
            yield {"type": "directory", "oid": hashlib.sha1(one.encode()).hexdigest(), "size": 0, "path": one}

    def _json(self, value: Any) -> None:
        self._send(200, json.dumps(value).encode(), "application/json")

    def _missing(self, code: str) -> None:
        self._send(404, b"", "text/plain", {"X-Error-Code": code, "X-Error-Message": code})

    def _send(self, status: int, content: bytes, kind: str, headers: Mapping[str, str] = {}) -> None:
        self.send_response(status)
        more = {"X-Repo-Commit": SHA, "ETag": f'"{hashlib.sha1(content).hexdigest()}"', **headers}
        for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **more}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serve(repositories: Mapping[str, Mapping[str, bytes]]) -> Iterator[str]:
    """The address of a running hub with these repositories."""
    handler = type("Handler", (Hub,), {"repositories": repositories})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
