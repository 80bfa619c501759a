"""Background responses that no gateway runs any more."""

import logging
from collections.abc import Collection
from dataclasses import replace

import msgspec
import orjson

from gateway.apis.openai.responses.encoded import EncodedResponse
from gateway.apis.openai.responses.store.stored_response import StoredResponse
from gateway.apis.openai.shared_store.entries import lock
from gateway.apis.openai.shared_store.records import add_response, unpacked
from gateway.apis.openai.stores import Bounds
from gateway.storage.database import Execute

logger = logging.getLogger(__name__)

DEAD = """(gateway <> ? AND NOT EXISTS
    (SELECT 1 FROM stored_gateways g WHERE g.id = gateway AND g.expires_at > clock_timestamp()))"""
ANY = f"SELECT 1 FROM stored_running WHERE id = ANY(?) OR {DEAD} LIMIT 1"  # noqa: S608 - constants
TAKE = f"DELETE FROM stored_running WHERE id = ANY(?) OR {DEAD} RETURNING id, owner, response"  # noqa: S608 - constants
FORGET = """DELETE FROM stored_gateways WHERE id IN
    (SELECT id FROM stored_gateways WHERE expires_at < clock_timestamp() FOR UPDATE SKIP LOCKED)"""
"""Never waits: a gateway that is locked renews its lease."""
LOST = {"code": "server_error", "message": "The server that ran this response has ended."}


def fail_orphans(execute: Execute, gateway: str, left_over: Collection[bytes], bounds: Bounds) -> None:
    """Store the background responses of dead gateways as failed ones. One that cannot be read is dropped.

    Args:
        execute: executes statements.
        gateway: the gateway that asks, which is alive.
        left_over: its responses that it does not run.
        bounds: limits of the store.
    """
    execute(FORGET)
    orphans = list(left_over), gateway
    if not execute(ANY, orphans):
        return
    lock(execute)
    for entry, owner, response in execute(TAKE, orphans):
        try:
            failed = _failed(unpacked(response))
        except (msgspec.DecodeError, orjson.JSONDecodeError):  # written by another version, perhaps
            logger.exception("a lost background response cannot be read, and is dropped: %s", entry.decode())
            continue
        add_response(execute, owner, failed, bounds)


def _failed(stored: StoredResponse) -> StoredResponse:
    head = {**orjson.loads(stored.content.head), "status": "failed", "error": LOST}
    content = EncodedResponse(orjson.dumps(head), stored.content.output, stored.content.echo)
    return replace(stored, content=content, can_continue=False)
