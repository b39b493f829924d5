"""Headless Chromium, driven through its DevTools protocol over a pipe: no driver and no package is needed."""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    # The browser itself has questions to its makers; they shall not leave this machine.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
    "--remote-debugging-pipe",
]

#: Makes the two pipes the descriptors 3 and 4, on which the browser listens, and becomes the browser. A
#: process of its own does so: code between fork and exec fails now and then where threads of gRPC run.
_LAUNCHER = """
import os, sys
theirs_in, theirs_out = map(int, sys.argv[1:3])
os.dup2(theirs_in, 3)
os.dup2(theirs_out, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class BrowserEndedError(AssertionError):
    """The browser's process has ended, with what it said last."""


class Browser:
    """One browser with one page."""

    def __init__(self, profile: Path, *flags: str) -> None:
        self._numbers = count(1)
        self.complaints: list[str] = []
        """Errors on the console of the page, and exceptions that nobody caught."""
        self._log = profile.with_suffix(".log")
        self._start([*FLAGS, *flags, f"--user-data-dir={profile}", "about:blank"])
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Accessibility"):
                self.call(f"{domain}.enable", page=True)
        except BaseException:
            self.close()
            raise

    def _start(self, arguments: list[str]) -> None:
        assert BROWSER is not None
        theirs_in, ours_out = _pipe()
        ours_in, theirs_out = _pipe()
        self._rest = b""
        launcher = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(theirs_in), str(theirs_out)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*launcher, BROWSER, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs_in, theirs_out),
            )
        os.close(theirs_in)
        os.close(theirs_out)
        self._out = os.fdopen(ours_out, "wb", buffering=0)
        self._in = os.fdopen(ours_in, "rb", buffering=0)

    def call(self, method: str, page: bool = False, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        request = {"id": number, "method": method, "params": params}
        if page:
            request["sessionId"] = self._session
        try:
            self._out.write(json.dumps(request).encode() + b"\0")
        except BrokenPipeError:
            raise self._ended() from None
        while True:
            answer = self._message()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                found: dict[str, Any] = answer["result"]
                return found
            self._note(answer)

    def open(self, url: str) -> None:
        self.call("Page.navigate", page=True, url=url)
        self.until("location.href !== 'about:blank' && document.readyState === 'complete'")

    def value(self, expression: str) -> Any:
        """What a JavaScript expression gives in the page."""
        done = self.call("Runtime.evaluate", page=True, expression=expression, returnByValue=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def until(self, expression: str, seconds: float = 60.0) -> float:
        """Wait until an expression is true; how many seconds that took."""
        began = time.monotonic()
        while not self.value(expression):
            if time.monotonic() - began > seconds:
                text = self.value("document.body.innerText")
                raise AssertionError(f"not in {seconds} s: {expression}\n{text}\n{self.complaints}")
            time.sleep(0.02)
        return time.monotonic() - began

    def look(self, width: int, height: int, scheme: str = "light") -> None:
        """The window's size, and the colours that the system prefers."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", page=True, **size)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", page=True, features=[feature])

    def picture(self, path: Path) -> None:
        """The whole page as a PNG file."""
        found = self.call("Page.captureScreenshot", page=True, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def press(self, key: str) -> None:
        """A key of the keyboard, such as Tab."""
        code = {"Tab": 9, "Enter": 13}[key]
        for kind in ("rawKeyDown", "keyUp"):
            about = {"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code}
            self.call("Input.dispatchKeyEvent", page=True, **about)

    def spoken(self) -> list[tuple[str, str]]:
        """What a screen reader finds: role and name of everything that has both."""
        nodes = self.call("Accessibility.getFullAXTree", page=True)["nodes"]
        pairs = ((n.get("role", {}).get("value", ""), n.get("name", {}).get("value", "")) for n in nodes)
        return [(role, str(name)) for role, name in pairs if name]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._out.close()
        self._in.close()

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = self._in.read(1 << 16)
            if not data:
                raise self._ended()
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def _ended(self) -> BrowserEndedError:
        try:
            code: int | str = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            code = "none yet"
        said = self._log.read_text(errors="replace")[-2000:]
        return BrowserEndedError(f"the browser has closed its pipes; exit code {code}; it said: {said}")

    def _note(self, event: dict[str, Any]) -> None:
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(params["entry"]["text"])


def _pipe() -> tuple[int, int]:
    """A pipe far above the descriptors 3 and 4, on which the browser listens."""
    ends = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD, 50) for end in ends)
    for end in ends:
        os.close(end)
    return high  # type: ignore[return-value]
