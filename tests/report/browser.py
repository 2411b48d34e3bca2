"""A headless Chromium driven over a pipe: opens a page from disk, runs script in it, presses keys, hears complaints."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.effort import PATIENCE, until

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *(
        "--disable-component-update",
        "--disable-sync",
        "--remote-debugging-pipe",
        "--hide-scrollbars",
        "--disable-dev-shm-usage",
    ),
)


def chromium() -> str | None:
    """The browser there is, None without one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page in a browser of its own. `complaints` are console errors, exceptions and refused loads; `requests` all URLs."""

    def __init__(self, profile: Path, width: int = 1400, height: int = 900, *, dark: bool = False) -> None:
        program = chromium()
        assert program
        told, tell = os.pipe()
        hear, heard = os.pipe()
        command = [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        line = f'exec "$@" 3<&{told} 4>&{heard}'
        self._process = subprocess.Popen(
            ["sh", "-c", line, "sh", *command] if max(told, heard) < 10 else ["bash", "-c", line, "bash", *command],
            pass_fds=(told, heard),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(told)
        os.close(heard)
        self._tell, self._hear, self._rest, self._number = tell, hear, b"", 0
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page = next(t for t in self._send("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self._session: str | None = None
        self._session = self._send("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._send(f"{domain}.enable")
        self.resize(width, height)
        self._send(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        )

    def resize(self, width: int, height: int) -> None:
        mobile = width < 600
        self._send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if mobile else 1,
            mobile=mobile,
        )

    def open(self, path: Path, fragment: str = "", ready: str = "searchable") -> None:
        """Load a file from disk and wait until the page says it is `ready`."""
        self.visit(path.resolve().as_uri() + fragment, ready)

    def visit(self, url: str, ready: str) -> None:
        """Load an address and wait until the page says it is `ready`."""
        self._send("Page.navigate", url="about:blank")
        self._send("Page.navigate", url=url)
        self.wait(f"document.documentElement?.dataset.ready === {json.dumps(ready)}")

    def wait(self, condition: str) -> None:
        try:
            until(lambda: self.run(f"Boolean({condition})"), condition)
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.complaints}") from None

    def run(self, script: str) -> Any:
        """The value of an expression; a promise is awaited."""
        answer = self._send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        codes = {"Escape": 27, "Tab": 9, "Enter": 13, "ArrowUp": 38, "ArrowDown": 40}
        more: dict[str, Any] = {"text": key} if len(key) == 1 else {"windowsVirtualKeyCode": codes[key]}
        if key == "Enter":
            more["text"] = "\r"
        self._send("Input.dispatchKeyEvent", type="keyDown", key=key, **more)
        self._send("Input.dispatchKeyEvent", type="keyUp", key=key, **more)
        self.run("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")

    def print_preview(self) -> None:
        """Show the page as it is printed."""
        self._send("Emulation.setEmulatedMedia", media="print")

    def picture(self, path: Path, *, whole: bool = False) -> None:
        path.write_bytes(base64.b64decode(self._send("Page.captureScreenshot", captureBeyondViewport=whole)["data"]))

    def names(self) -> list[tuple[str, str]]:
        """What a screen reader is told: (role, name) of every node of the accessibility tree."""
        nodes = self._send("Accessibility.getFullAXTree")["nodes"]
        return [(n["role"]["value"], n.get("name", {}).get("value", "")) for n in nodes if not n["ignored"]]

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(20)
        os.close(self._tell)
        os.close(self._hear)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _send(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if getattr(self, "_session", None):
            message["sessionId"] = self._session
        os.write(self._tell, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self._note(answer)

    def _next(self, seconds: float = PATIENCE) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._hear], [], [], seconds)
            assert ready, "the browser does not answer"
            chunk = os.read(self._hear, 1 << 20)
            assert chunk, "the browser is gone"
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(line))

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.complaints.append(str(params["args"]))
            case "Runtime.exceptionThrown":
                self.complaints.append(str(params["exceptionDetails"]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.complaints.append(str(params["entry"]))
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Page.javascriptDialogOpening":
                self.complaints.append(f"a dialog opened: {params['message']}")
                self._send("Page.handleJavaScriptDialog", accept=False)
