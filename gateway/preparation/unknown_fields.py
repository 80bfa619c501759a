"""Report of unknown fields in bodies: a response header and the log name them, or the request is refused."""

import logging
from collections.abc import Mapping, Sequence

from engine import RequestError
from gateway.apis.endpoint import AnyEndpoint
from gateway.middleware.caller import Caller

logger = logging.getLogger(__name__)

IGNORED = b"x-llama-gateway-ignored"
MAX_REPORTED = 32
"""Maximum of names in one header. Further names are only counted."""


class UnknownFields:
    """Reports unknown fields in the header of each response, and each once for each path in the log."""

    max_logged = 256
    """Unknown fields that are logged. With the bound of a name's length it bounds `logged` and the log."""

    def __init__(self, *, strict: bool = False) -> None:
        """Create a report.

        Args:
            strict: refuse unknown fields.
        """
        self.logged: set[tuple[str, str]] = set()
        """Paths and their unknown fields that are logged so far."""
        self._strict = strict

    def report(self, caller: Caller, endpoint: AnyEndpoint, headers: Mapping[str, str], names: Sequence[str]) -> None:
        """Report the unknown fields of one body, unless they are refused: that raises `RequestError`."""
        if not names:
            return
        if self._strict:
            raise RequestError(f"Unknown field: {names[0]!r}", code="unknown_parameter", param=names[0])
        endpoint.check_unknown(headers, names)
        caller.reply_headers.append((IGNORED, ignored(names)))
        for name in names:
            self._log(endpoint.path, name)

    def _log(self, path: str, name: str) -> None:
        if (path, name) not in self.logged and len(self.logged) < self.max_logged:
            self.logged.add((path, name))
            logger.warning("%s: the unknown field %r of a request is ignored, now and later", path, name)


def ignored(names: Sequence[str]) -> bytes:
    """Return the header value that names ignored fields. Commas and bytes that a header may not have became `?`."""
    cleaned = ["".join(c if c.isascii() and c.isprintable() and c != "," else "?" for c in name) for name in names]
    more = [f"and {len(names) - MAX_REPORTED} more"] if len(names) > MAX_REPORTED else []
    return ", ".join(cleaned[:MAX_REPORTED] + more).encode("ascii")
