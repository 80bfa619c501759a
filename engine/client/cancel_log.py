"""Log of cancelled requests."""

import logging

from engine.client.mailbox import Mailbox

logger = logging.getLogger("engine.client")


def log_cancel(mailbox: Mailbox) -> None:
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
