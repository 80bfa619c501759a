"""Process that downloads one model, and reports on standard output.

It keeps the hub's libraries, the hashing and the waiting for disks out of the server, which ends it by a signal.
"""

import logging
import os
import sys

import orjson
from typing_extensions import override

from gateway.hub.download_progress import DownloadProgress
from gateway.hub.errors import HubError
from gateway.hub.reference import HubReference

OFFLINE = "offline"
"""Argument after the reference: use only files on this machine."""
_STEPS = 1000
"""Reports of progress between 0 and 1."""


class Report:
    """Writes one JSON object a line. The end of the reader ends the process."""

    def __init__(self) -> None:
        # The libraries may print, which must not be read as a report.
        self._out = os.dup(1)
        os.dup2(2, 1)
        self._last: tuple[int, str, bool] | None = None

    def progress(self, at: DownloadProgress) -> None:
        """Report what is there, unless it is about the same as the last time."""
        if (step := (int(at.share * _STEPS), at.digest, at.completed == at.total)) != self._last:
            self._last = step
            self.write("progress", at)

    def error(self, error: Exception) -> None:
        """Report an error."""
        code = error.code if isinstance(error, HubError) else None
        self.write("error", {"message": str(error), "code": code})

    def write(self, key: str, value: object) -> None:
        """Write one object with one key."""
        os.write(self._out, orjson.dumps({key: value}, option=orjson.OPT_APPEND_NEWLINE))


class _Forwarder(logging.Handler):
    """Reports log records, so that they are in the log of the server, in its format."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self._report = report

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self._report.write("warning", record.getMessage())


def main() -> None:
    """Fetch the model that the first argument names, and report its path or the error."""
    report = Report()
    logging.basicConfig(level=logging.WARNING, handlers=[_Forwarder(report)])
    try:
        # Imported here, so that a missing or broken package is reported, too.
        from gateway.hub.client import HubClient  # noqa: PLC0415
        from gateway.hub.opening import hub_cache  # noqa: PLC0415
        from gateway.hub.source import HubSource  # noqa: PLC0415

        source = HubSource(HubClient(), hub_cache(), offline=OFFLINE in sys.argv[2:])
        report.write("path", str(source.fetch(HubReference.parse(sys.argv[1]), report.progress)))
    except BrokenPipeError:
        os._exit(1)
    except (HubError, OSError, ImportError) as error:
        report.error(error)
