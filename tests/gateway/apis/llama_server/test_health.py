"""`GET /health`, `/livez`, `/readyz`, `/ping` and `/version`."""

import pytest
from starlette.types import ASGIApp

from engine import EngineState, EngineStatus
from gateway import __version__
from gateway.app import Equipment
from gateway.server.lag import LoopClock
from tests.gateway.application import NAME, app_of, gateway_of
from tests.gateway.asgi import AsgiCall, get
from tests.gateway.fake_engine import FakeEngine

pytestmark = pytest.mark.anyio


def app_in_state(state: EngineState, progress: float = 0.0) -> ASGIApp:
    engine = FakeEngine()
    engine.status = EngineStatus(state, "So it is.", progress, 2)
    return app_of(engine)


@pytest.mark.parametrize("path", ["/health", "/v1/health"])
async def test_health_is_ok_when_requests_are_welcome(path: str) -> None:
    reply = await get(app_in_state(EngineState.READY, 1.0), path)
    assert (reply.status, reply.json) == (200, {"status": "ok", "restarts": 2})


@pytest.mark.parametrize(("method", "path"), [("GET", "/readyz"), ("GET", "/ping"), ("POST", "/ping")])
async def test_a_server_with_a_loaded_model_is_ready(method: str, path: str) -> None:
    reply = await AsgiCall(app_in_state(EngineState.READY, 1.0), path, method=method).run()
    assert (reply.status, reply.json) == (200, {"status": "ok"})


async def test_the_version_is_that_of_this_server() -> None:
    reply = await get(app_in_state(EngineState.FAILED), "/version")
    assert (reply.status, reply.json) == (200, {"version": __version__})


@pytest.mark.parametrize("state", EngineState)
async def test_a_server_is_alive_whatever_its_engine_does(state: EngineState) -> None:
    reply = await get(app_in_state(state), "/livez")
    assert (reply.status, reply.json) == (200, {"status": "ok"})


@pytest.mark.parametrize("path", ["/health", "/v1/health", "/readyz", "/ping"])
@pytest.mark.parametrize("state", [state for state in EngineState if state is not EngineState.READY])
async def test_health_has_the_reason_of_an_unavailable_engine(state: EngineState, path: str) -> None:
    reply = await get(app_in_state(state, 0.12345), path)
    expected = {"status": state.value, "detail": "So it is.", "restarts": 2, "model": NAME, "progress": 0.123}
    assert (reply.status, reply.json) == (503, expected)


async def test_a_draining_server_is_alive_and_not_ready() -> None:
    gateway = gateway_of(FakeEngine())
    gateway.health.drain()
    expected = {"status": "draining", "detail": "The server is stopping.", "restarts": 0}
    for path in ("/health", "/readyz", "/ping"):
        reply = await get(gateway.app, path)
        assert (reply.status, reply.json) == (503, expected)
    assert (await get(gateway.app, "/livez")).status == 200


async def test_health_shows_a_lag_of_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = LoopClock()
    gateway = gateway_of(FakeEngine(), equipment=Equipment(clock=clock))
    assert (await get(gateway.app, "/health")).json == {"status": "ok", "restarts": 0}
    monkeypatch.setattr(LoopClock, "lag", 1.23456)
    assert (await get(gateway.app, "/health")).json == {"status": "ok", "restarts": 0, "loop_lag": 1.235}
