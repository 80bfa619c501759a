"""The metrics of servers, read by the rules of llm-d's endpoint picker without any configuration."""

from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from typing_extensions import override

from engine import EngineMetrics, EngineState, EngineStatus, Histogram, Telemetry
from tests.deployment.picker import SCORERS, SPECS, Seen, by_adapter, extract
from tests.gateway.application import app_of, gateway_of, settings_for
from tests.gateway.asgi import get
from tests.gateway.fake_engine import MODEL, FakeEngine
from tests.gateway.server.sockets import get as get_request
from tests.reference import ROOT
from tests.system.served import GUARD, Served, ask, completion, serving

pytestmark = pytest.mark.anyio

CONFIG = ROOT / "examples" / "monitoring" / "llm_d_engine_config.yaml"
IDLE = EngineMetrics(slots=8, cached_tokens=4000)
BUSY = EngineMetrics(slots=8, held=8, waiting=5, active_tokens=3072)


class Loaded(FakeEngine):
    """An engine under a load."""

    def __init__(self, values: EngineMetrics) -> None:
        super().__init__()
        self.values = values

    @property
    @override
    def telemetry(self) -> Telemetry:
        return Telemetry(self.values, Histogram((1.0,)), Histogram((1.0,)), 0)


async def seen(engine: FakeEngine, **changes: Any) -> Seen:
    return extract((await get(app_of(engine, **changes), "/metrics")).content)


async def test_the_picker_reads_every_metric_before_the_model_is_loaded() -> None:
    engine = FakeEngine()
    engine.status, engine.model, engine.metrics = EngineStatus(EngineState.LOADING, "Soon.", 0.5, 0), None, None
    assert await seen(engine) == Seen(0, 0, 0.0, 16, 0, 0, frozenset(), frozenset())


async def test_the_picker_sees_the_load_and_the_size_of_the_cache() -> None:
    server = await seen(Loaded(BUSY))
    assert (server.waiting, server.running, server.kv_usage) == (5, 8, 0.75)
    assert server.block_size * server.blocks == MODEL.cells


async def test_every_scorer_prefers_an_idle_server_however_much_it_has_cached() -> None:
    servers = [await seen(Loaded(BUSY)), await seen(Loaded(IDLE))]
    scores = {name: scorer(servers) for name, scorer in SCORERS.items()}
    assert scores == {
        "queue-scorer": [0.0, 1.0],
        "running-requests-size-scorer": [0.0, 1.0],
        "kv-cache-utilization-scorer": [0.25, 1.0],
    }


async def test_every_scorer_prefers_a_real_server_that_is_idle_to_one_that_is_busy() -> None:
    size: dict[str, Any] = {"slots": 1, "context": 16_384, "grace": 0.0}
    async with serving(**size) as idle, serving(**size) as busy:
        await ask(idle, max_tokens=8)
        for name in ("runs", "waits"):
            await busy.client().send(completion(name, max_tokens=16_000))
        with anyio.fail_after(GUARD):
            while not ((seen := await seen_of(busy)).waiting and seen.kv_usage):
                pass
        servers = [seen, await seen_of(idle)]
    assert [(server.waiting, server.running) for server in servers] == [(1, 1), (0, 0)]
    assert [server.block_size * server.blocks for server in servers] == [16_384] * 2
    scores = {name: scorer(servers) for name, scorer in SCORERS.items()}
    assert scores.pop("kv-cache-utilization-scorer") == [1 - seen.kv_usage, 1.0]
    assert list(scores.values()) == [[0.0, 1.0]] * 2


async def seen_of(served: Served) -> Seen:
    """Return the picker's view of a real server."""
    return extract((await served.answer(get_request("/metrics"))).body)


async def test_idle_servers_are_equal() -> None:
    servers = [await seen(Loaded(IDLE)), await seen(Loaded(EngineMetrics(slots=8)))]
    assert [scorer(servers) for scorer in SCORERS.values()] == [[1.0, 1.0]] * len(SCORERS)


async def test_of_several_models_the_picker_sees_the_first() -> None:
    servers = [Loaded(EngineMetrics(waiting=number)) for number in (3, 9)]
    app = gateway_of(*servers, embedding_model=Path(str(settings_for().model))).app
    assert extract((await get(app, "/metrics")).content).waiting == 3


async def test_requests_for_an_adapter_go_to_a_server_that_has_it() -> None:
    adapted = await seen(FakeEngine(), lora=(f"fr={__file__}",))
    assert adapted.active >= {"tiny:fr"}
    assert by_adapter([adapted, await seen(FakeEngine())], "tiny:fr") == [1.0, 0.0]
    loading = FakeEngine()
    loading.status = EngineStatus(EngineState.LOADING, "Soon.", 0.5, 0)
    assert (await seen(loading, lora=(f"fr={__file__}",))).active == frozenset()


def test_the_configuration_by_hand_is_that_of_the_picker() -> None:
    (plugin,) = yaml.safe_load(CONFIG.read_text())["plugins"]
    (engine,) = plugin["parameters"]["engineConfigs"]
    assert {name: spec for name, spec in engine.items() if name != "name"} == SPECS
