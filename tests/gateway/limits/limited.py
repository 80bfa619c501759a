"""A gateway with a fake engine whose every caller has one key."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.app import Equipment, Gateway
from gateway.keys.key import Key
from gateway.limits.memory_limiter import MemoryLimiter
from gateway.limits.moment import Moment
from gateway.middleware.request_scope import RequestScope
from gateway.stores import OpenStores
from tests.gateway.application import gateway_of
from tests.gateway.chat import templates
from tests.gateway.fake_engine import MODEL, FakeEngine


@dataclass
class Limited:
    """The gateway, and its application as the holder of the key sees it."""

    gateway: Gateway
    limiter: MemoryLimiter
    engine: FakeEngine
    app: ASGIApp


def limited_by(
    key: Key | None, engine: FakeEngine | None = None, clock: Callable[[], Moment] = Moment.now, **settings: Any
) -> Limited:
    """Return a gateway whose requests all have `key`, however they were sent."""
    engine = engine or FakeEngine()
    engine.model = replace(MODEL, chat_template=templates.CHATML)
    limiter = MemoryLimiter(clock)
    gateway = gateway_of(engine, equipment=Equipment(stores=OpenStores(limiter=limiter)), **settings)
    caller_of = RequestScope._caller

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        with patch.object(RequestScope, "_caller", lambda self, scope: replace(caller_of(self, scope), key=key)):
            await gateway.app(scope, receive, send)

    return Limited(gateway, limiter, engine, app)
