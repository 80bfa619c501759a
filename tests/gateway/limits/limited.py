"""A gateway with a fake engine whose every caller has one key."""

from dataclasses import dataclass, replace
from unittest.mock import patch

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.app import Gateway, create_gateway
from gateway.keys.key import Key
from gateway.middleware.request_scope import RequestScope
from tests.gateway.application import settings_for
from tests.gateway.chat import templates
from tests.gateway.fake_engine import MODEL, FakeEngine


@dataclass
class Limited:
    """The gateway, and its application as the holder of the key sees it."""

    gateway: Gateway
    engine: FakeEngine
    app: ASGIApp


def limited_by(key: Key | None, engine: FakeEngine | None = None, **settings: object) -> Limited:
    """Return a gateway whose requests all have `key`, however they were sent."""
    engine = engine or FakeEngine()
    engine.model = replace(MODEL, chat_template=templates.CHATML)
    gateway = create_gateway(engine.as_engine(), settings_for(**settings))
    caller_of = RequestScope._caller

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        with patch.object(RequestScope, "_caller", lambda self, scope: replace(caller_of(self, scope), key=key)):
            await gateway.app(scope, receive, send)

    return Limited(gateway, engine, app)
