"""A hub on 127.0.0.1: the parts of its protocol that a download uses, with failures on demand."""

import hashlib
import select
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest

from engine import embedded_model

COMMIT = "c" * 40
REPOSITORY = "someone/some-GGUF"


class LocalHub(ThreadingHTTPServer):
    """One repository with files. The attributes may change while it runs."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.endpoint = f"http://127.0.0.1:{self.server_port}"
        self.files: dict[str, bytes] = {}
        self.token: str | None = None
        """The token that the repository needs."""
        self.gated = False
        self.statuses: list[int] = []
        """Statuses of the next requests for contents, before any is served."""
        self.listing_status = 200
        self.message = ""
        """The hub's words for `listing_status`."""
        self.cuts: list[int] = []
        """Bytes after which the next answers with contents end."""
        self.ignores_ranges = False
        self.endless = False
        """True if answers with contents go on for ever."""
        self.commit = COMMIT
        """The commit that a listing names."""
        self.damaged = False
        """True if contents differ from their checksums."""
        self.held = Event()
        """Set to send whole contents. Otherwise they stop after the half until it is set."""
        self.held.set()
        self.left = Event()
        """Set when a client has left before it had its other half."""
        self.requests: list[str] = []
        """Method, path and range of all requests."""

    def listing(self) -> bytes:
        files = [self.entry(name) for name in self.files]
        return orjson.dumps({"id": REPOSITORY, "sha": self.commit, "siblings": files})

    def entry(self, name: str) -> dict[str, Any]:
        content = self.files[name]
        return {
            "rfilename": name,
            "size": len(content),
            "blobId": hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest(),
            "lfs": {"size": len(content), "sha256": hashlib.sha256(content).hexdigest(), "pointerSize": 130},
        }


class _Handler(BaseHTTPRequestHandler):
    server: LocalHub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        hub, path = self.server, urlsplit(self.path).path
        hub.requests.append(f"{path} {self.headers.get('Range', '')}".strip())
        if path == f"/api/models/{REPOSITORY}":
            self._list()
        elif path.startswith(f"/{REPOSITORY}/resolve/{hub.commit}/"):
            self._resolve(path.partition(hub.commit + "/")[2])
        elif path.startswith("/storage/"):
            self._send_content(hub.files[path.removeprefix("/storage/")])
        else:
            self._send_error(401, "RepoNotFound")

    def _list(self) -> None:
        hub = self.server
        if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
            return self._send_error(401, "RepoNotFound")
        if hub.listing_status != 200:
            return self._send_error(hub.listing_status, message=hub.message)
        return self._send(200, hub.listing())

    def _resolve(self, name: str) -> None:
        hub = self.server
        if hub.gated:
            return self._send_error(403, "GatedRepo")
        if hub.statuses:
            return self._send_error(hub.statuses.pop(0))
        self.send_response(302)
        self.send_header("Location", f"{hub.endpoint}/storage/{name}")
        self.send_header("Content-Length", "0")
        self.end_headers()
        return None

    def _send_content(self, content: bytes) -> None:
        hub, wanted = self.server, self.headers.get("Range")
        if hub.endless:
            return self._send_without_end(content)
        if hub.damaged:
            content = bytes(len(content))
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and not hub.ignores_ranges else 0
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        end = start + hub.cuts.pop(0) if hub.cuts else len(content)
        with suppress(ConnectionError):  # the client may have been killed
            middle = start if hub.held.is_set() else (start + end) // 2
            self.wfile.write(content[start:middle])
            self._hold()
            self.wfile.write(content[middle:end])
        self.close_connection = end < len(content)
        return None

    def _hold(self) -> None:
        """Wait until contents are sent whole. Raises `ConnectionError` if the client leaves before."""
        while not self.server.held.wait(0.01):
            if select.select([self.connection], [], [], 0)[0]:
                self.server.left.set()
                raise ConnectionError

    def _send_without_end(self, content: bytes) -> None:
        self.send_response(200)
        self.end_headers()
        self.close_connection = True
        with suppress(ConnectionError):
            while True:
                self.wfile.write(content)

    def _send_error(self, status: int, code: str = "", message: str = "") -> None:
        headers = {"X-Error-Code": code, "X-Error-Message": message}
        self._send(status, b"{}", {name: text for name, text in headers.items() if text})

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def local_hub() -> Iterator[LocalHub]:
    """Run a hub in a thread."""
    with LocalHub() as hub:
        thread = Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield hub
        finally:
            hub.held.set()
            hub.shutdown()
            thread.join()


@contextmanager
def hub_of_the_embedded_model(monkeypatch: pytest.MonkeyPatch, home: Path) -> Iterator[LocalHub]:
    """Run a hub with the embedded model, for programs that keep what they download in a folder."""
    with local_hub() as hub:
        hub.files = {"some-Q4_K_M.gguf": embedded_model().read_bytes()}
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        monkeypatch.setenv("HF_HOME", str(home))
        yield hub
