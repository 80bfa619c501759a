"""The server under test, and the encoding of requests to it."""

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import orjson

PORTS = {"http": 80, "https": 443}
VERSION = "/v1"
"""Path of the API at a URL without a path. Servers have it below their version, and often another one at the root."""

_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.-]+):\d{1,5}(/\S*)?", re.ASCII)


@dataclass(frozen=True)
class Target:
    """Address of an API."""

    host: str
    """Host name or IP address to connect to."""
    port: int
    """TCP port."""
    authority: str
    """Authority of the URL, for the Host header."""
    path: str
    """Path of the URL, without a trailing slash."""
    tls: ssl.SSLContext | None = None
    """TLS settings; None for plain HTTP."""
    key: str | None = None
    """API key, sent as a bearer token; None sends no key."""

    def get(self, route: str) -> bytes:
        """Return the bytes of a GET request.

        Args:
            route: path relative to the API, such as `models`.
        """
        return self._head("GET", route) + b"\r\n"

    def post(self, route: str, body: Mapping[str, Any]) -> bytes:
        """Return the bytes of a POST request with a JSON body."""
        data = orjson.dumps(body)
        fields = f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
        return self._head("POST", route) + fields.encode() + data

    def _head(self, method: str, route: str) -> bytes:
        authorization = f"authorization: Bearer {self.key}\r\n" if self.key else ""
        return (
            f"{method} {self.path}/{route} HTTP/1.1\r\nhost: {self.authority}\r\nuser-agent: llama-gateway-bench\r\n"
            f"accept-encoding: identity\r\n{authorization}"
        ).encode()


def parse_target(url: str, key: str | None = None) -> Target:
    """Return the target for a URL.

    Args:
        url: base URL of the API, such as `https://example.org/v1`. Without a path it has the version; `/` is the root.
        key: the API key; None for a server without one.

    Raises:
        ValueError: the URL or the key is invalid. The text gives the reason.
    """
    if not _plain(url):
        raise ValueError(f"{url!r} should be plain ASCII without spaces")
    if key is not None and not _plain(key):
        raise ValueError("the API key should be plain ASCII without spaces")
    parts = urlsplit(url)
    if parts.scheme not in PORTS or not parts.hostname or parts.query or parts.fragment or parts.username is not None:
        raise ValueError(f"{url!r} is not a URL such as http://127.0.0.1:8000/v1")
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    port = parts.port or PORTS[parts.scheme]
    return Target(parts.hostname, port, parts.netloc, (parts.path or VERSION).rstrip("/"), tls, key)


def with_scheme(url: str) -> str:
    """Return a URL with `http://` if it begins with a host and a port. Others stay as they are."""
    return f"http://{url}" if _ADDRESS.fullmatch(url) else url


def _plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text
