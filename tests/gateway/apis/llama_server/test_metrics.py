"""`GET /metrics`."""

from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from starlette.types import ASGIApp
from typing_extensions import override

from engine import EngineMetrics, EngineState, EngineStatus, Histogram, Telemetry
from gateway.app import Equipment
from gateway.metrics.llama_cpp import LONGEST, LlamaCppCollector
from gateway.middleware.caller import Caller
from gateway.server.lag import LoopClock
from gateway.serving.records import Operation, Outcome, RequestRecord
from tests.gateway.application import app_of, gateway_of, settings_for
from tests.gateway.asgi import AsgiCall, get, post
from tests.gateway.fake_engine import MODEL, FakeEngine
from tests.gateway.metrics.scraped import Scrape, scrape

pytestmark = pytest.mark.anyio

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text"

MINIMUM = {
    *("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:cache_config_info"),
    *("vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:request_success_total"),
    *("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total", "vllm:num_preemptions_total"),
    *("vllm:time_to_first_token_seconds_bucket", "vllm:inter_token_latency_seconds_bucket"),
    *("vllm:e2e_request_latency_seconds_bucket", "vllm:request_queue_time_seconds_sum"),
    *("vllm:request_prefill_time_seconds_sum", "vllm:request_decode_time_seconds_sum"),
    *("vllm:request_inference_time_seconds_sum", "vllm:request_time_per_output_token_seconds_bucket"),
    *("vllm:request_prompt_tokens_bucket", "vllm:request_generation_tokens_bucket"),
    *("vllm:request_params_max_tokens_bucket", "vllm:request_params_n_bucket", "vllm:iteration_tokens_total_bucket"),
    *("vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_draft_tokens_total"),
    *("vllm:spec_decode_num_accepted_tokens_total", "vllm:prompt_tokens_cached_total", "http_requests_total"),
}
"""Names of vLLM's dashboards and autoscalers."""


async def read(app: ASGIApp) -> Scrape:
    call = await get(app, "/metrics")
    assert (call.status, call.header("content-type")) == (200, TEXT)
    return scrape(call.content)


class Measured(FakeEngine):
    """An engine with chosen metrics."""

    def __init__(self, **metrics: Any) -> None:
        super().__init__()
        self.values = EngineMetrics(**metrics)
        self.waiting = 0

    @property
    @override
    def telemetry(self) -> Telemetry:
        return Telemetry(self.values, Histogram((1.0,)), Histogram((1.0,)), self.waiting, self.status.restarts)


async def test_every_name_of_the_dashboards_of_vllm_is_there_before_the_first_request() -> None:
    assert (await read(app_of(FakeEngine()))).names >= MINIMUM


async def test_only_active_cells_are_used() -> None:
    found = await read(app_of(Measured(slots=2, active_tokens=1024, cached_tokens=3000)))
    assert found.value("vllm:kv_cache_usage_perc") == 1024 / (MODEL.slots * MODEL.context)
    assert found.value("llama_gateway_cached_kv_tokens") == 3000
    cells = {"block_size": "16", "num_gpu_blocks": str(MODEL.slots * MODEL.context // 16), "cache_dtype": "f16"}
    assert found.value("vllm:cache_config_info", **cells) == 1


async def test_requests_that_wait_for_a_restart_wait() -> None:
    engine = Measured(waiting=2)
    engine.waiting = 3
    assert (await read(app_of(engine))).value("vllm:num_requests_waiting") == 5


async def test_inputs_to_embed_wait_where_they_do_not_run() -> None:
    found = await read(app_of(Measured(held=1, waiting=2, embedding_waiting=50, embedding_running=8)))
    for running, waiting in (
        ("vllm:num_requests_running", "vllm:num_requests_waiting"),
        ("llamacpp:requests_processing", "llamacpp:requests_deferred"),
    ):
        assert (found.value(running), found.value(waiting)) == (1 + 8, 2 + 42)


@pytest.mark.parametrize("state", EngineState)
async def test_a_scrape_needs_no_engine(state: EngineState) -> None:
    engine = FakeEngine()
    engine.status, engine.model, engine.metrics = EngineStatus(state, "So it is.", 0.5, 3), None, None
    found = await read(app_of(engine))
    assert found.value("llama_gateway_engine_ready") == (state is EngineState.READY)
    assert found.value("llama_gateway_engine_unloaded") == (state is EngineState.STOPPED)
    assert found.value("llama_gateway_engine_restarts_total") == 3
    assert found.value("vllm:kv_cache_usage_perc") == 0
    assert found.value("llama_gateway_slots") == 0


async def test_an_engine_has_its_slots_before_its_first_step() -> None:
    assert (await read(app_of(Measured()))).value("llama_gateway_slots") == MODEL.slots


async def test_an_engine_that_restarts_has_no_slots() -> None:
    engine = Measured()
    engine.status = EngineStatus(EngineState.RESTARTING, "The engine process ended.", 0.0, 1)
    assert (await read(app_of(engine))).value("llama_gateway_slots") == 0


async def test_each_model_has_its_own_values() -> None:
    model = Path(str(settings_for().model))
    generator, embedder = Measured(generated_tokens=5), Measured(embedding_tokens=7)
    app = gateway_of(generator, embedder, embedding_model=model).app
    found = await read(app)
    assert found.value("vllm:generation_tokens_total", model_name="tiny") == 5
    assert found.value("llama_gateway_embedding_tokens_total", model_name=model.stem) == 7
    assert found.value("llama_gateway_embedding_tokens_total", model_name="tiny") == 0


async def test_responses_are_counted_by_the_class_of_their_status() -> None:
    app = app_of(FakeEngine())
    await post(app, "/v1/completions", {"prompt": "x"})
    await post(app, "/v1/completions", b"{")
    await get(app, "/health")
    found = await read(app)
    counts = {status: found.value("http_requests_total", status=status) for status in ("2xx", "4xx", "5xx")}
    assert counts == {"2xx": 1, "4xx": 1, "5xx": 0}


async def test_the_state_of_the_server_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoopClock, "lag", 1.5)
    gateway = gateway_of(FakeEngine(), equipment=Equipment(clock=LoopClock()))
    assert (await read(gateway.app)).value("llama_gateway_draining") == 0
    gateway.health.drain()
    found = await read(gateway.app)
    assert (found.value("llama_gateway_draining"), found.value("llama_gateway_loop_lag_seconds")) == (1, 1.5)


@pytest.mark.parametrize(
    "parameters", ["", ";version=1.0.0", ";version=1.0.0;q=0.5,text/plain;q=0.2", ";version=1.0.0;escaping=allow-utf-8"]
)
async def test_openmetrics_has_the_same_names_for_every_client_that_accepts_it(parameters: str) -> None:
    app = app_of(FakeEngine())
    call = await AsgiCall(app, "/metrics", method="GET", headers={"accept": OPENMETRICS + parameters}).run()
    assert (call.header("content-type") or "").startswith(OPENMETRICS)
    families = read_openmetrics(call.content.decode())  # type: ignore[no-untyped-call]
    assert Scrape(tuple(families)).names >= MINIMUM


@pytest.mark.parametrize("accept", ["*/*", "text/plain;version=no number", "application/openmetrics-text;version=x"])
async def test_text_is_answered_to_any_other_client(accept: str) -> None:
    call = await AsgiCall(app_of(FakeEngine()), "/metrics", method="GET", headers={"accept": accept}).run()
    assert (call.status, call.header("content-type")) == (200, TEXT)


async def test_a_port_for_metrics_alone_has_nothing_else() -> None:
    gateway = gateway_of(FakeEngine(), metrics_port=0)
    for app, path in ((gateway.app, "/metrics"), (gateway.metrics_app, "/v1/models")):
        assert (await AsgiCall(app, path, method="DELETE").run()).status == 404
    assert (await AsgiCall(gateway.metrics_app, "/metrics", method="DELETE").run()).status == 405
    assert (await read(gateway.metrics_app)).names >= MINIMUM


async def test_two_gateways_share_no_metrics() -> None:
    one, other = app_of(FakeEngine()), app_of(FakeEngine())
    await post(one, "/v1/completions", {"prompt": "x"})
    assert [(await read(app)).value("llama_gateway_requests_total") for app in (one, other)] == [1, 0]


COUNTERS = """prompt_tokens_total prompt_tokens_cached_total prompt_seconds_total tokens_predicted_total
tokens_predicted_seconds_total n_decode_total n_tokens_max spec_decode_num_draft_tokens_total
spec_decode_num_accepted_tokens_total spec_decode_num_drafts_total"""
GAUGES = "prompt_tokens_seconds predicted_tokens_seconds requests_processing requests_deferred n_busy_slots_per_decode"


async def test_the_names_and_types_of_llama_server_are_there() -> None:
    call = await get(app_of(FakeEngine()), "/metrics")
    lines = call.content.decode().splitlines()
    for names, kind in ((COUNTERS, "counter"), (GAUGES, "gauge")):
        for name in names.split():
            assert f"# TYPE llamacpp:{name} {kind}" in lines
            assert any(line.startswith(f"llamacpp:{name} ") for line in lines)
    assert int(call.header("process-start-time-unix") or "") > 0


async def test_the_values_of_llama_server_are_sums_over_models() -> None:
    engine = Measured(computed_prompt_tokens=5, embedding_tokens=2, reused_prompt_tokens=3, rows_decoded=8, steps=4)
    app = app_of(engine)
    found = await read(app)
    assert found.value("llamacpp:prompt_tokens_total") == 7
    assert found.value("llamacpp:prompt_tokens_cached_total") == 3
    assert found.value("llamacpp:n_busy_slots_per_decode") == 2


async def test_times_and_the_longest_request_are_those_of_ended_requests() -> None:
    collector = LlamaCppCollector([])
    caller = Caller(request_id="r")
    ended: dict[str, Any] = {
        "outcome": Outcome.FINISHED,
        "prompt_tokens": 5,
        "prefill_seconds": 0.5,
        "decode_seconds": 2.0,
    }
    for longest in (3, 7, 1):
        record = RequestRecord(caller=caller, model="m", operation=Operation.CHAT, longest_choice=longest, **ended)
        collector.observe(record)
    collector.observe(RequestRecord(caller=caller, model="m", operation=Operation.CHAT))
    values = {family.name: family.samples[0].value for family in collector.collect()}
    assert values[LONGEST] == 12
    assert values["llamacpp:prompt_seconds"] == 1.5
    assert values["llamacpp:tokens_predicted_seconds"] == 6


@pytest.mark.parametrize(
    "other",
    [
        {"operation": Operation.CHAT, "outcome": Outcome.CANCELLED, "completion_tokens": 900},
        {"operation": Operation.CHAT, "outcome": Outcome.CANCELLED, "prefill_seconds": 9.0, "decode_seconds": 9.0},
        {"operation": Operation.EMBEDDINGS, "outcome": Outcome.FINISHED, "prompt_tokens": 900},
    ],
)
async def test_the_speeds_are_those_of_requests_whose_times_are_known(other: dict[str, Any]) -> None:
    collector = LlamaCppCollector([])
    times = {"prefill_seconds": 0.5, "decode_seconds": 2.0, "outcome": Outcome.FINISHED, "operation": Operation.CHAT}
    finished = {"prompt_tokens": 30, "cached_tokens": 20, "completion_tokens": 8, **times}
    for fields in (finished, other):
        collector.observe(RequestRecord(caller=Caller(request_id="r"), model="m", **fields))
    values = {family.name: family.samples[0].value for family in collector.collect()}
    assert values["llamacpp:prompt_tokens_seconds"] == 20
    assert values["llamacpp:predicted_tokens_seconds"] == 4
    assert values["llamacpp:tokens_predicted_seconds"] == 2
