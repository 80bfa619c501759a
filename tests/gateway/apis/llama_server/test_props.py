"""`/props`: llama-server's fields, and the routes that flags allow."""

from dataclasses import replace

import pytest

from tests.gateway.application import app_of, gateway_of
from tests.gateway.asgi import get, post
from tests.gateway.chat import templates
from tests.gateway.fake_engine import MODEL, FakeEngine

pytestmark = pytest.mark.anyio


async def test_the_properties_are_those_of_the_model_and_the_server() -> None:
    engine = FakeEngine()
    engine.model = replace(MODEL, chat_template=templates.CHATML, bos="<s>", eos="</s>")
    answer = (await get(app_of(engine, temperature=0.25, seed=7, props=True), "/props")).json
    defaults = answer["default_generation_settings"]
    assert (defaults["params"]["temperature"], defaults["params"]["seed"], defaults["params"]["top_k"]) == (0.25, 7, 40)
    assert (defaults["n_ctx"], answer["total_slots"]) == (MODEL.context, MODEL.slots)
    assert (answer["model_alias"], answer["chat_template"]) == ("tiny", templates.CHATML)
    assert (answer["bos_token"], answer["eos_token"]) == ("<s>", "</s>")
    assert answer["model_ftype"] == "F32"
    assert (answer["endpoint_slots"], answer["endpoint_props"], answer["endpoint_metrics"]) == (True, True, True)


async def test_a_model_without_a_template_has_an_empty_one() -> None:
    assert (await get(app_of(FakeEngine()), "/props")).json["chat_template"] == ""


async def test_an_unknown_model_is_a_404() -> None:
    assert (await get(app_of(FakeEngine()), "/props?model=other")).status == 404


async def test_a_change_needs_the_flag() -> None:
    call = await post(app_of(FakeEngine()), "/props", {"a": 1})
    assert call.status == 501
    assert call.json["error"]["message"].endswith("Start it with `--props`")
    assert call.json["error"]["type"] == "not_supported_error"
    assert (await post(app_of(FakeEngine(), props=True), "/props", {})).json == {"success": True}


@pytest.mark.parametrize("path", ["/slots", "/slots/queue"])
async def test_slots_can_be_hidden(path: str) -> None:
    call = await get(app_of(FakeEngine(), no_slots=True), path)
    assert (call.status, call.json["error"]["type"]) == (501, "not_supported_error")
    assert call.json["error"]["message"].endswith("Start it without `--no-slots`")


async def test_metrics_can_be_refused_on_the_port_of_requests() -> None:
    gateway = gateway_of(FakeEngine(), no_metrics=True)
    refused = await get(gateway.app, "/metrics")
    assert refused.status == 501
    assert "Start it without `--no-metrics`" in refused.json["error"]["message"]
    assert (await get(gateway.app, "/props")).json["endpoint_metrics"] is False
    assert (await get(gateway.metrics_app, "/metrics")).status == 200
