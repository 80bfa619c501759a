"""`GET /health`."""

import pytest
from starlette.types import ASGIApp

from engine import EngineState, EngineStatus
from gateway.app import create_gateway
from gateway.server.lag import LoopClock
from tests.gateway.application import app_of, settings_for
from tests.gateway.asgi import get
from tests.gateway.fake_engine import FakeEngine

pytestmark = pytest.mark.anyio


def app_in_state(state: EngineState, progress: float = 0.0) -> ASGIApp:
    engine = FakeEngine()
    engine.status = EngineStatus(state, "So it is.", progress, 2)
    return app_of(engine)


async def test_health_is_ok_when_requests_are_welcome() -> None:
    reply = await get(app_in_state(EngineState.READY, 1.0), "/health")
    assert (reply.status, reply.json) == (200, {"status": "ok", "restarts": 2})


@pytest.mark.parametrize("state", [state for state in EngineState if state is not EngineState.READY])
async def test_health_has_the_reason_of_an_unavailable_engine(state: EngineState) -> None:
    reply = await get(app_in_state(state, 0.12345), "/health")
    expected = {"status": state.value, "detail": "So it is.", "restarts": 2, "progress": 0.123}
    assert (reply.status, reply.json) == (503, expected)


async def test_health_reports_a_draining_server() -> None:
    gateway = create_gateway(FakeEngine().as_engine(), settings_for())
    gateway.health.drain()
    reply = await get(gateway.app, "/health")
    expected = {"status": "draining", "detail": "The server is stopping.", "restarts": 0}
    assert (reply.status, reply.json) == (503, expected)


async def test_health_shows_a_lag_of_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = LoopClock()
    gateway = create_gateway(FakeEngine().as_engine(), settings_for(), clock=clock)
    assert (await get(gateway.app, "/health")).json == {"status": "ok", "restarts": 0}
    monkeypatch.setattr(LoopClock, "lag", 1.23456)
    assert (await get(gateway.app, "/health")).json == {"status": "ok", "restarts": 0, "loop_lag": 1.235}
