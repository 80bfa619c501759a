"""Background responses that no gateway runs any more."""

from collections.abc import Collection
from dataclasses import replace

import orjson

from gateway.apis.openai.responses.encoded import EncodedResponse
from gateway.apis.openai.responses.store.stored_response import StoredResponse
from gateway.apis.openai.shared_store.entries import Bounds, lock
from gateway.apis.openai.shared_store.records import add_response, unpacked
from gateway.storage.database import Execute

DEAD = "NOT EXISTS (SELECT 1 FROM stored_gateways g WHERE g.id = gateway AND g.expires_at > clock_timestamp())"
ANY = f"SELECT 1 FROM stored_running WHERE id = ANY(?) OR {DEAD} LIMIT 1"  # noqa: S608 - constants
TAKE = f"DELETE FROM stored_running WHERE id = ANY(?) OR {DEAD} RETURNING owner, response"  # noqa: S608 - constants
FORGET = """DELETE FROM stored_gateways WHERE id IN
    (SELECT id FROM stored_gateways WHERE expires_at < clock_timestamp() FOR UPDATE SKIP LOCKED)"""
"""Never waits: a gateway that is locked renews its lease."""
LOST = {"code": "server_error", "message": "The server that ran this response has ended."}


def fail_orphans(execute: Execute, left_over: Collection[bytes], bounds: Bounds) -> None:
    """Store the background responses of dead gateways as failed ones.

    Args:
        execute: executes statements.
        left_over: responses of a living gateway that it does not run.
        bounds: limits of the store.
    """
    if not execute(ANY, (list(left_over),)):
        return
    lock(execute)
    for owner, response in execute(TAKE, (list(left_over),)):
        add_response(execute, owner, _failed(unpacked(response)), bounds)
    execute(FORGET)


def _failed(stored: StoredResponse) -> StoredResponse:
    head = {**orjson.loads(stored.content.head), "status": "failed", "error": LOST}
    content = EncodedResponse(orjson.dumps(head), stored.content.output, stored.content.echo)
    return replace(stored, content=content, can_continue=False)
