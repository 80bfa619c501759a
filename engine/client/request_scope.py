"""The scope of a request: it is sent, cancelled if its caller leaves early, and summed up at its end."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import anyio

from engine.client.mailbox import Mailbox
from engine.client.measurements.summary import RequestSummary, summarize
from engine.client.status import RESTARTING, EngineState
from engine.client.supervisor import Supervisor
from engine.errors import Busy, EngineFault, Unavailable
from engine.logs import current_model
from engine.request import Request

logger = logging.getLogger("engine.client")

OnEnd: TypeAlias = Callable[[RequestSummary], None]
"""Receives the summary of a request at its end. It must not raise."""

_SERVING = {EngineState.READY, *RESTARTING}
"""States in which requests are accepted. During the first load they are refused: the model is not known yet."""


@asynccontextmanager
async def open_request(
    supervisor: Supervisor, request: Request, why: Callable[[], str], patience: float | None, on_end: OnEnd | None
) -> AsyncIterator[Mailbox]:
    """Send a request and yield its mailbox. Leaving the context cancels a request that has not ended.

    The arguments are those of `Engine.generate`.

    Raises:
        Unavailable: The engine does not serve requests.
        Busy: Too many requests wait for an engine that restarts.
        RequestError: A frame cannot carry the request.
    """
    current_model.set(supervisor.log_name)
    if supervisor.board.latest.state not in _SERVING:
        raise supervisor.unavailable()
    try:
        mailbox = supervisor.exchange.open(request, patience)
    except Busy as error:
        error.retry_after = supervisor.seconds_to_ready()
        raise
    try:
        yield mailbox
    finally:
        await _close(supervisor, mailbox, why)
        if on_end is not None:
            on_end(summarize(mailbox, anyio.current_time()))


async def wait_accepted(supervisor: Supervisor, mailbox: Mailbox, deadline: float) -> tuple[int, ...]:
    """Wait until a request is accepted, and return the number of tokens of each prompt.

    Raises:
        Busy: The deadline, by the event loop's clock, has passed.
        EngineError: The request failed.
    """
    with anyio.CancelScope(deadline=deadline):
        return await mailbox.accepted()
    supervisor.exchange.cancel(mailbox, "waited for the engine for too long")
    wait = supervisor.exchange.queue_seconds(mailbox.request, supervisor.metrics)
    message = "The request waited for the engine for longer than this server allows."
    raise Busy(message, code="queue_timeout", retry_after=wait)


async def _close(supervisor: Supervisor, mailbox: Mailbox, why: Callable[[], str]) -> None:
    if not (mailbox.ended or mailbox.cancelled):
        supervisor.exchange.cancel(mailbox, why())
    if mailbox.cancelled:
        with anyio.move_on_after(supervisor.limits.answer_timeout, shield=True):
            await mailbox.wait_ended()
        _log_cancel(mailbox)
    elif isinstance(mailbox.error, EngineFault | Unavailable):
        fields = {"request_id": mailbox.request.id, "why": mailbox.error.message}
        logger.error("request failed", extra=fields)


def _log_cancel(mailbox: Mailbox) -> None:
    """Log the end of a cancelled request: its phase, its tokens and the time of its release."""
    fields: dict[str, object] = {"request_id": mailbox.request.id, "reason": mailbox.reason}
    if not mailbox.ended:
        logger.warning("request cancelled, but not released in time", extra=fields)
        return
    fields["phase"] = "dead"
    if mailbox.released is not None:
        fields |= {
            "phase": mailbox.released.phase,
            "tokens": mailbox.released.tokens,
            "freed": mailbox.released.freed,
        }
    fields["ms"] = round(mailbox.release_seconds * 1000, 1)
    logger.info("request cancelled", extra=fields)
