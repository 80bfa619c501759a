"""Download of a model in a child process, which the event loop only listens to."""

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

import anyio
import orjson
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.buffered import BufferedByteReceiveStream

from engine import command_for, without_secrets
from gateway.hub import worker
from gateway.hub.download_progress import DownloadProgress
from gateway.hub.errors import HubError
from gateway.hub.reference import HubReference

logger = logging.getLogger(__name__)

_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
"""Variables that huggingface-hub reads the token from."""
_MOST_BYTES = 2**16
"""Of one report."""


async def fetch(
    reference: HubReference, progress: Callable[[DownloadProgress], None], *, offline: bool = False
) -> Path:
    """Return the path of a model's file, or of its first part. Downloads it if it is not on this machine.

    Cancelling the call ends the process at once. What it has downloaded stays, and the next call continues there.

    Args:
        reference: Model to fetch.
        progress: Called with what is on this machine.
        offline: True to use only files on this machine.

    Raises:
        HubError: The model cannot be had.
    """
    arguments = [str(reference), *([worker.OFFLINE] if offline else [])]
    try:
        with anyio.CancelScope(shield=True):
            process = await anyio.open_process(
                [*command_for(worker.__name__), *arguments],
                stderr=None,
                start_new_session=True,  # Ctrl-C on a terminal reaches only the gateway, which ends the child
                env=_environment(os.environ),
            )
    except (OSError, RuntimeError) as error:  # the latter without a thread in which Trio starts it
        raise HubError(f"{reference}: the process for the download cannot be started: {error}") from error
    try:
        return await _outcome(process, reference, progress)
    finally:
        if process.returncode is None:
            process.kill()
        with anyio.CancelScope(shield=True):
            await process.aclose()


def _environment(own: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the process: of all secrets, it needs only the hub's token."""
    return without_secrets(own) | {name: own[name] for name in _TOKENS if name in own}


async def _outcome(process: Process, reference: HubReference, progress: Callable[[DownloadProgress], None]) -> Path:
    """Read the reports of a process up to the last one."""
    reports = BufferedByteReceiveStream(cast("ByteReceiveStream", process.stdout))
    try:
        while True:
            report = orjson.loads(await reports.receive_until(b"\n", _MOST_BYTES))
            if "path" in report:
                return Path(report["path"])
            if "error" in report:
                raise HubError(**report["error"])
            if "warning" in report:
                logger.warning("%s", report["warning"])
            else:
                progress(DownloadProgress(**report["progress"]))
    except (anyio.IncompleteRead, anyio.EndOfStream, anyio.DelimiterNotFound, orjson.JSONDecodeError) as error:
        raise HubError(f"{reference}: the process for the download ended unexpectedly") from error
