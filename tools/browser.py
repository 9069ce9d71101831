"""Opens the site in headless Chromium, as readers see it, and keeps pictures of it.

Pages are served from this machine, on a port of their own, and opened in a desktop and a phone window, light and dark.
An error in the console, a request to another machine, a missing file, an empty page, or a page that is wider than the
window (on a phone it would scroll sideways) ends the run. Chromium is driven over its debugging pipe: file descriptors
3 and 4, JSON messages that end with a zero byte (`--remote-debugging-pipe`).
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
WINDOWS = {"desktop": (1280, 900), "phone": (390, 844)}
SCHEMES = ("light", "dark")
PICTURED = (
    "index.html",
    "start/first-join.html",
    "reference/python.html",
    "internals/panjoin.html",
    "howto/choose.html",
)
"""Pages of which pictures are kept; the others are opened on a phone only."""
FACTS = """({
  words: document.body.innerText.split(/\\s+/).length,
  wide: document.documentElement.scrollWidth > window.innerWidth + 1,
  broken: [...document.images].filter(i => i.complete && !i.naturalWidth && i.offsetParent).map(i => i.src),
})"""


LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(one), fcntl.F_DUPFD, 10) for one in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""A program that becomes Chromium, with our ends of two pipes as its descriptors 3 and 4."""


def find_chromium() -> str | None:
    """The path of a Chromium, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder; gives its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Chromium:
    """A headless Chromium with one page. Messages are answered in order; events are kept until `events` takes them."""

    def __init__(self, program: str, profile: Path) -> None:
        """Start it with an empty profile."""
        from_us, self._to = os.pipe()
        self._from, to_us = os.pipe()
        options = ["--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--hide-scrollbars"]
        options += ["--disable-background-networking", "--disable-component-update", f"--user-data-dir={profile}"]
        if os.geteuid() == 0:
            options.append("--no-sandbox")  # Chromium refuses its sandbox to root; it opens our own pages only
        self._process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, str(from_us), str(to_us), program, *options, "about:blank"],
            pass_fds=(from_us, to_us),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(from_us)
        os.close(to_us)
        self._buffer = b""
        self._number = 0
        self._events: list[dict[str, Any]] = []
        self._session: str | None = None
        try:
            self._attach()
        except BaseException:
            self.close()
            raise

    def _attach(self) -> None:
        """Talk to the page that is open from the start."""
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(one["targetId"] for one in targets if one["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            found = self._read()
            if found.get("id") == self._number:
                if "error" in found:
                    raise RuntimeError(f"chromium: {method}: {found['error']['message']}")
                answer: dict[str, Any] = found["result"]
                return answer
            self._events.append(found)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._from, 1 << 16)
            if not part:
                raise RuntimeError("chromium ended")
            self._buffer += part
        text, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(text)
        return message

    def wait_for(self, method: str) -> None:
        """Read until an event has come."""
        while not any(event.get("method") == method for event in self._events):
            self._events.append(self._read())

    def events(self) -> list[dict[str, Any]]:
        """The events so far, once."""
        taken, self._events = self._events, []
        return taken

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)


def complaints(events: list[dict[str, Any]], address: str) -> list[str]:
    """What the console, the page or the network complained about."""
    found = []
    for event in events:
        method, data = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            found.append(f"exception: {data['exceptionDetails'].get('text')}")
        elif method == "Runtime.consoleAPICalled" and data["type"] in ("error", "warning", "assert"):
            found.append(f"console: {[one.get('value') for one in data['args']]}")
        elif method == "Log.entryAdded" and data["entry"]["level"] in ("error", "warning"):
            found.append(f"log: {data['entry']['text']} {data['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            url = data["request"]["url"]
            if not url.startswith((address, "data:", "blob:")):
                found.append(f"a request to another machine: {url}")
        elif method == "Network.responseReceived" and data["response"]["status"] >= 400:
            found.append(f"missing: {data['response']['url']}")
    return found


def open_page(browser: Chromium, address: str, page: str, window: str, scheme: str) -> list[str]:
    """Open a page in one window and scheme; returns what is wrong with it."""
    width, height = WINDOWS[window]
    browser.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=height,
        deviceScaleFactor=1,
        mobile=window == "phone",
    )
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.events()
    browser.call("Page.navigate", url=address + page)
    browser.wait_for("Page.loadEventFired")
    facts = browser.call("Runtime.evaluate", expression=FACTS, returnByValue=True)["result"]["value"]
    wrong = complaints(browser.events(), address)
    wrong += [f"picture not shown: {one}" for one in facts["broken"]]
    if facts["words"] < 30:
        wrong.append(f"only {facts['words']} words")
    if facts["wide"]:
        wrong.append("wider than the window")
    return [f"{page} ({window}, {scheme}): {one}" for one in wrong]


def keep_picture(browser: Chromium, path: Path) -> None:
    """Write what the window shows."""
    shown = browser.call("Page.captureScreenshot", format="png")
    path.write_bytes(base64.b64decode(shown["data"]))


def look_at(site: Path, pictures: Path, every: bool = True) -> None:
    """Open every page, or only those of which pictures are kept. Ends the program if anything is wrong."""
    program = find_chromium()
    if program is None:
        sys.stdout.write(f"docs: not looked at: none of {', '.join(NAMES)} is here\n")
        return
    shutil.rmtree(pictures, ignore_errors=True)
    pictures.mkdir(parents=True)
    pages = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html") if path.name != "404.html")
    wrong: list[str] = []
    with served(site) as address, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Chromium(program, Path(profile))
        try:
            for page in pages if every else ():
                wrong += open_page(browser, address, page, "phone", "light")
            for page in (one for one in PICTURED if one in pages):
                for window in WINDOWS:
                    for scheme in SCHEMES:
                        wrong += open_page(browser, address, page, window, scheme)
                        keep_picture(browser, pictures / f"{Path(page).stem}-{window}-{scheme}.png")
        finally:
            browser.close()
    if wrong:
        raise SystemExit("docs: " + "\n      ".join(wrong))
    kept = len(list(pictures.iterdir()))
    opened = len(pages) if every else len(PICTURED)
    sys.stdout.write(f"docs: {opened} pages opened in Chromium without a complaint; {kept} pictures kept\n")
