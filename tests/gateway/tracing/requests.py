"""Requests with records made by hand, sent through the scope and the journal as a server does."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from starlette.types import Receive, Scope, Send

from engine import Sampling
from gateway.keys.key import Key
from gateway.middleware.caller import Caller, caller_of
from gateway.middleware.exchange import Exchange
from gateway.middleware.limits import RequestLimits
from gateway.middleware.request_scope import RequestScope
from gateway.serving.records import Operation, Outcome, RequestRecord
from gateway.tracing.journal import Journal, SpanWriter
from tests.gateway.asgi import AsgiCall
from tests.gateway.server.apps import OK, chunk

PATH = "/chat"
"""Path that is not described, so that any response may come."""
Changes = dict[str, Any]


def exchange_of(**changes: object) -> Exchange:
    """Return an exchange that began 10 seconds after the loop's clock and ended 3 seconds later, with a 200."""
    values: Changes = {
        "request_id": "req_1",
        "method": "POST",
        "path": PATH,
        "route": PATH,
        "address": "192.0.2.1",
        "began_at": 10.0,
        "began_ns": 1_000_000_000_000,
        "ended_at": 13.0,
        "status": 200,
        "received": 20,
        "sent": 300,
    }
    return Exchange(**values | changes)


def record_of(exchange: Exchange, **changes: object) -> RequestRecord:
    """Return the record of a streamed chat, each phase of which took half a second."""
    begin = exchange.began_at
    values: Changes = {
        "caller": Caller(request_id=exchange.request_id, exchange=exchange),
        "model": "tiny",
        "operation": Operation.CHAT,
        "stream": True,
        "sampling": Sampling(temperature=0.5, top_p=0.9, top_k=40, seed=7),
        "max_tokens": 100,
        "arrived_at": begin + 0.5,
        "accepted_at": begin + 1.0,
        "started_at": begin + 1.5,
        "first_token_at": begin + 2.0,
        "ended_at": begin + 2.5,
        "prompt_tokens": 12,
        "cached_tokens": 4,
        "completion_tokens": 6,
        "prefill_seconds": 0.4,
        "outcome": Outcome.FINISHED,
        "phase": "done",
        "finish_reasons": ("stop",),
    }
    return RequestRecord(**values | changes)


class KeyedScope(RequestScope):
    """A scope whose requests all have the same key."""

    key: Key | None = None

    def _caller(self, scope: Scope) -> Caller:
        return replace(super()._caller(scope), key=self.key)


class Served:
    """An application whose requests each have a record, made by hand from the request's exchange."""

    def __init__(
        self, spans: SpanWriter | None, make: Callable[[Exchange], RequestRecord] | None = None, key: Key | None = None
    ) -> None:
        self.key = key
        self.journal = Journal(spans)
        self.exchanges: list[Exchange] = []
        self._make = make

    async def _serve(self, scope: Scope, _receive: Receive, send: Send) -> None:
        exchange = caller_of(scope).exchange
        exchange.route = exchange.path
        self.exchanges.append(exchange)
        if self._make is not None:
            record = self._make(exchange)
            self.journal.record(replace(record, outcome=None))
            self.journal.record(record)
        await send(OK)
        await send(chunk(b"hello", more=False))

    async def ask(self, path: str = PATH, **headers: str) -> AsgiCall:
        app = KeyedScope(self._serve, RequestLimits(), observer=self.journal)
        app.key = self.key
        return await AsgiCall(app, path, b"{}", headers=headers).run()
